"""Configuration: frozen dataclasses, overridden by a TOML file, then by the command line.

Imports nothing heavy, so that a mistake is answered at once. A key of a TOML file and the flag of
the same name are one thing: `learning_rate` under `[optimizer]` is `--optimizer.learning-rate`.
"""

from dataclasses import dataclass, field
from typing import Literal

from jaxrl.config.algorithms import (
    A2CConfig,
    AgentConfig,
    PPOConfig,
    PQNConfig,
    ReplayConfig,
    VTraceConfig,
)

ADAPTIVE_RATES = (1e-6, 1e-2)  # least and largest learning rate of the adaptive schedule


@dataclass(frozen=True)
class NetworkConfig:
    """The network between the stacked frames and the heads."""

    torso: Literal["nips", "nature", "impala"] = "nature"
    """nips: 2 convolutions, 256 units (Mnih 2013); nature: 3 convolutions, 512 units (Mnih 2015);
    impala: residual network of 15 convolutions, 256 units (Espeholt 2018)"""
    first_stride: int = 4
    """nips, nature: stride of the first convolution; GA3C's larger networks have 3, 2 or 1"""
    extra_layers: int = 0
    """nips, nature: further convolutions like the last, with a 3 x 3 kernel and stride 1"""
    init: Literal["orthogonal", "uniform"] = "orthogonal"
    """orthogonal: gain sqrt(2), policy 0.01, value 1; uniform: +-1/sqrt(fan in), as Torch 7"""
    dueling: bool = False
    """value-based agents: separate streams of state value and advantage (Wang 2016)"""
    noisy: bool = False
    """dqn and c51: learned noise in the layers above the convolutions explores (Fortunato 2018),
    which begin as that paper's, not by `init`; set epsilon to 0 with it"""
    layer_norm: bool = False
    """nips, nature: normalize over the channels after every layer below the heads (PQN, Gallici
    2025)"""
    normalize_observations: bool = False
    """normalize each pixel by its running mean and standard deviation (CuLE)"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """of the layers below the heads; bfloat16 is meant for GPUs and TPUs, which sum its products in
    float32; parameters, heads and losses are float32 always"""


# (filters, kernel size, stride) of each convolution, then the units of the dense layer
CONVOLUTIONS: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    "nips": (((16, 8, 4), (32, 4, 2)), 256),  # Mnih 2013
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),  # Mnih 2015
}


def convolutions(network: NetworkConfig) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """The layers of `nips` or `nature` as configured: (filters, size, stride) each, and units."""
    (first, *others), units = CONVOLUTIONS[network.torso]
    extra = ((others[-1][0], 3, 1),) * network.extra_layers
    return ((*first[:2], network.first_stride), *others, *extra), units


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become steps."""

    name: Literal["rmsprop", "adam", "radam"] = "rmsprop"
    """the optimizer; radam is Adam with rectified steps at the start (Liu 2020)"""
    learning_rate: float = 7e-4
    """step size at the start"""
    lr_scaling: Literal["none", "sqrt", "linear"] = "none"
    """factor on learning_rate for other numbers of environments than the recipe's: the root of
    num_envs / recipe_envs, or num_envs / recipe_envs"""
    recipe_envs: int = 0
    """environments that learning_rate is meant for; 0 takes num_envs of the configuration file"""
    schedule: Literal["constant", "linear", "adaptive"] = "constant"
    """constant; linear, to 0 at total_steps; adaptive (PPO), which after an epoch is multiplied or
    divided by 1.5 as agent.kl_target says, within 1e-6 and 1e-2"""
    decay: float = 0.99
    """decay of the squared gradients' running mean (RMSProp's alpha, Adam's beta 2)"""
    decay_mean: float = 0.9
    """decay of the gradients' running mean (Adam's beta 1); RMSProp ignores it"""
    eps: float = 1e-5
    """added to the denominator so that small gradients do not make large steps"""
    eps_inside_root: bool = True
    """RMSProp: sqrt(g + eps) as A3C and TensorFlow; false: sqrt(g) + eps as PyTorch"""
    initial_scale: float = 0.0
    """RMSProp: the squared gradients' running mean at the start (TensorFlow: 1)"""
    max_grad_norm: float = 0.5
    """gradients are scaled down to this global norm; 0 leaves them"""


@dataclass(frozen=True)
class Config:
    """One training run."""

    algorithm: Literal["a2c", "ppo", "vtrace", "dqn", "c51", "nstep_q", "pqn"] = "a2c"
    """what learns; set by the configuration file"""
    game: str = "pong"
    """an Atari game as `jaxrl games` lists them, or catch (a small game without an emulator)"""
    total_steps: int = 10_000_000
    """agent steps over all environments; one agent step is 4 emulator frames"""
    seed: int = 1
    """of the parameters, the actions and the games"""
    run_dir: str = ""
    """directory to create for the run; default runs/GAME-ALGORITHM-seedSEED-TIME"""
    num_envs: int = 16
    """environments over all devices"""
    num_devices: int = 0
    """devices to train on; 0 takes every accelerator, or one CPU device"""
    sync_every: int = 0
    """updates that each learner takes on parameters of its own before all merge: asynchronous
    optimization, made deterministic; 0 averages every gradient over all devices instead"""
    num_learners: int = 0
    """learners over all devices, with sync_every; 0 makes one on each device"""
    num_threads: int = 0
    """EnvPool threads per device and group; 0 divides the machine's cores among the devices"""
    groups: int = 1
    """groups of each device's environments; of 2, one steps while the other is answered"""
    engine: Literal["auto", "xla", "callback"] = "auto"
    """how the compiled program reaches EnvPool: xla, a custom call (CPU, GPU); callback, through
    the host, on any platform; auto takes xla where it exists. Catch needs neither"""
    order: Literal["strict", "overlapped"] = "strict"
    """strict: play, then learn; overlapped: learn while the emulators play, so that the first
    action of each rollout is one update behind; it pays where rollouts are short"""
    lag: int = 0
    """updates that what acts is behind what learns, beside that of the order (GA3C's policy lag);
    0 acts by the newest parameters"""
    frame_height: int = 84
    """pixels of a frame, from top to bottom"""
    frame_width: int = 84
    """pixels of a frame, from left to right; a multiple of 4 (Stooke & Abbeel: 104 x 80)"""
    random_start_steps: int = 500
    """every environment first takes a random number, up to this, of uniform random actions"""
    episodic_life: bool = True
    """a lost life is terminal to the learner, and no-ops and FIRE follow as at the start of a game;
    scores are always of whole games"""
    reward_clip: bool = True
    """the learner sees only the sign of the reward; scores are never clipped"""
    noop_max: int = 30
    """each game, with episodic_life each life, starts with 1 to this many no-ops; where FIRE is
    pressed, it takes the place of one"""
    fire_reset: bool = True
    """press FIRE after every reset (with episodic_life also after a lost life) in every game whose
    action set has FIRE; never with full_action_space"""
    repeat_action_probability: float = 0.0
    """probability that the emulator repeats the last action (sticky actions)"""
    full_action_space: bool = False
    """all 18 actions instead of those the game uses"""
    max_episode_steps: int = 27_000
    """time limit of a game in agent steps"""
    log_interval: int = 10_000
    """agent steps between two lines of metrics.jsonl"""
    checkpoint_interval: int = 200_000
    """agent steps between two checkpoints; one more is written at the end"""
    keep_checkpoints: int = 3
    """newest checkpoints to keep, beside the best"""
    checkpoint_failures: int = 10
    """failed checkpoints in a row, tried again after a line or two of the log, before it ends"""
    checkpoint_memory: bool = True
    """checkpoints hold the replay (7 KB a transition); without it a resumed run fills it anew"""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """of losses, gradients or parameters that are nan or infinite: stop; skip, leave such an update
    out and count it in loss/skipped_updates"""
    stuck_after: int = 300
    """seconds that the emulators may take to answer a compiled call, or 20 times their usual,
    before training ends; 0 waits for ever"""
    evaluation_episodes: int = 30
    """games of the evaluation at the end of training, by the protocol sticky where actions were
    sticky in training, else noop; 0 leaves it out"""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    agent: AgentConfig = field(default_factory=A2CConfig)

    def frame_shape(self) -> tuple[int, int]:
        """Height and width of a frame, in pixels."""
        return self.frame_height, self.frame_width

    def steps_per_update(self) -> int:
        """Agent steps, over all devices, that one update learns from."""
        return self.num_envs * self.agent.rollout_length

    def num_updates(self) -> int:
        """Updates of the whole run; the last ones, up to a merge, may pass total_steps."""
        between = max(self.sync_every, 1)
        return -(-self.total_steps // (self.steps_per_update() * between)) * between

    def initial_learning_rate(self) -> float:
        """The learning rate at the start, scaled as `optimizer.lr_scaling` says."""
        optimizer = self.optimizer
        factor = self.num_envs / (optimizer.recipe_envs or self.num_envs)
        power = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[optimizer.lr_scaling]
        return optimizer.learning_rate * factor**power


def gradient_steps(config: Config) -> int:
    """Gradient steps of one update."""
    agent = config.agent
    if isinstance(agent, PPOConfig | PQNConfig):
        return agent.epochs * agent.num_minibatches
    if isinstance(agent, VTraceConfig):
        return agent.updates_per_rollout
    if isinstance(agent, ReplayConfig):
        return round(agent.training_intensity * config.steps_per_update() / agent.batch_size)
    return 1


def learning_starts(config: Config) -> int:
    """Agent steps before the first gradient step."""
    return config.agent.learning_starts if isinstance(config.agent, ReplayConfig) else 0
