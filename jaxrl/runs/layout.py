"""The names of the files of a run directory, each once."""

CONFIG = "config.toml"  # every key of the configuration
METRICS = "metrics.jsonl"  # one line per interval
EVENTS = "events.out.tfevents"  # the same for TensorBoard; a time and a host follow in the name
CHECKPOINTS = "checkpoints"  # directory of one directory per step
CHECKSUMS = "SHA256SUMS"  # checksums of a checkpoint's files, in its directory
PROVENANCE = "provenance.json"  # machine, packages and changed settings of every start
LEARNING_CURVE = "learning_curve.png"
EVALUATION = "evaluation.json"  # the newest evaluation, by any protocol
EVALUATIONS = "evaluations"  # directory of the newest evaluation by each protocol: noop.json
VIDEO = "video.mp4"
# In place of checkpoints, where a policy's file was unpacked; exported files are not called so.
POLICY = ".unpacked.safetensors"
POPULATION = "population.json"  # in a population's directory: the seeds of its members
SWEEP = "sweep.json"  # in a sweep's directory: its members
STUDY = "study.db"  # in a search's directory: its trials, by Optuna
WANDB = "wandb.json"  # the run's id at Weights & Biases, and the newest step that was sent
LOCK = "lock"  # locked while a process trains
