"""The configuration: frozen dataclasses, overridden by a TOML file, then by the command line.

Imports nothing heavy, so that a mistake is answered at once. A key of a TOML file and the flag of
the same name are one thing: `learning_rate` under `[optimizer]` is `--optimizer.learning-rate`. In
the text of a field {can_adapt_rate} stands for the algorithms that can (`descriptions`).
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from jaxrl.atari.games import game_name
from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.config.algorithms import algorithm_config
from jaxrl.config.bounds import (
    INT32,
    Count,
    CountOrZero,
    Fraction,
    LongCount,
    LongCountOrZero,
    Positive,
    Weight,
)
from jaxrl.config.network import NetworkConfig

Pixels = Annotated[int, Ge(16), Le(512)]
Interface = Literal["auto", "xla", "stream", "callback"]
ADAPTIVE_RATES = (1e-6, 1e-2)  # least and largest learning rate of the adaptive schedule
MOST_FRAMES = 108_000  # frames of a game, half an hour on the console


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rate."""

    name: Literal["rmsprop", "adam", "radam"] = "rmsprop"
    """the optimizer; radam is Adam with rectified steps at the start (Liu 2020)"""
    learning_rate: Weight = 7e-4
    """step size at the start"""
    lr_scaling: Literal["none", "sqrt", "linear"] = "none"
    """factor on learning_rate for other numbers of environments than the recipe's: the root of
    num_envs / recipe_envs, or num_envs / recipe_envs"""
    recipe_envs: LongCountOrZero = 0
    """environments that learning_rate is meant for; 0 takes num_envs of the configuration file"""
    schedule: Literal["constant", "linear", "adaptive"] = "constant"
    """constant; linear, to 0 at total_steps; adaptive ({can_adapt_rate}), which after an epoch
    is multiplied or divided by 1.5 as agent.kl_target says, within 1e-6 and 1e-2"""
    decay: Fraction = 0.99
    """decay of the squared gradients' running mean (RMSProp's alpha, Adam's beta 2)"""
    decay_mean: Fraction = 0.9
    """decay of the gradients' running mean (Adam's beta 1); RMSProp ignores it"""
    eps: Positive = 1e-5
    """added to the denominator so that small gradients do not make large steps"""
    eps_inside_root: bool = True
    """RMSProp: sqrt(g + eps) as A3C and TensorFlow; false: sqrt(g) + eps as PyTorch"""
    initial_scale: Weight = 0.0
    """RMSProp: the squared gradients' running mean at the start (TensorFlow: 1)"""
    max_grad_norm: Weight = 0.5
    """gradients are scaled down to this global norm; 0 leaves them"""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """losses, gradients or parameters that are nan or infinite: stop; skip leaves such an update
    out and counts it in loss/skipped_updates"""


@dataclass(frozen=True)
class EnvConfig:
    """The games and the emulators that play them."""

    engine: str = "auto"
    """emulator of the game: atari2600, our own, which a C++ compiler builds on first use; envpool,
    the Arcade Learning Environment in EnvPool; catch, which plays catch and catch_memory; or the
    name of another package's. auto takes atari2600 where it can be built, else envpool; on a GPU
    with the interface xla, envpool"""
    interface: Interface = "auto"
    """how the compiled program reaches the emulators: xla, a custom call (EnvPool: CPU, GPU;
    atari2600: CPU, and where env.engine names it on an NVIDIA GPU, kernels that play there);
    stream, custom calls of atari2600's threads, on an NVIDIA GPU on its stream; callback, through
    the host, on any platform; auto takes xla where it exists, and callback for atari2600 on a GPU.
    Catch needs none"""
    num_threads: CountOrZero = 0
    """emulator threads per device and group; 0 divides the CPUs that the process may use among its
    devices"""
    exact_resets: bool = False
    """atari2600: start each game as the Arcade Learning Environment does, by some 70 frames, not as
    a copy of such a start; evaluations always do"""
    frame_height: Pixels = 84
    """pixels of a frame, from top to bottom"""
    frame_width: Pixels = 84
    """pixels of a frame, from left to right; a multiple of 4 (Stooke & Abbeel: 104 x 80)"""
    random_start_steps: LongCountOrZero = 500
    """every environment first takes a random number, up to this, of uniform random actions"""
    episodic_life: bool = True
    """a lost life is terminal to the learner, and no-ops and FIRE follow as at the start of a game;
    scores are always of whole games"""
    reward_clip: bool = True
    """the learner sees only the sign of the reward; scores are never clipped"""
    noop_max: Count = 30  # EnvPool's process dies of 0
    """each game, with episodic_life each life, starts with 1 to this many no-ops; where FIRE is
    pressed, it takes the place of one"""
    fire_reset: bool = True
    """press FIRE after every reset (with episodic_life also after a lost life) in every game whose
    action set has FIRE; never with full_action_space"""
    frame_skip: Annotated[int, Ge(1), Le(255)] = 4
    """emulator frames of an agent step; the agent sees the maximum of the last two"""
    stack: Annotated[int, Ge(1), Le(4)] = 4
    """newest frames that the agent sees at once"""
    grayscale: bool = True
    """show gray frames; false shows red, green and blue, three times the bytes and the channels of
    the first layer. EnvPool has them, and auto takes it for them"""
    mode: Annotated[int, Ge(-1), INT32] = -1
    """mode of the game, as the Arcade Learning Environment numbers them; -1 is its default. The
    kernels of GPUs have none"""
    difficulty: Annotated[int, Ge(-1), INT32] = -1
    """difficulty of the game, in the same way"""
    repeat_action_probability: Fraction = 0.0
    """probability that the emulator repeats the last action (sticky actions)"""
    flicker: Fraction = 0.0
    """probability that a step's frame is blank to the agent, in evaluations too; scores and rewards
    stay. Each of the frames of a stack is drawn by itself (Hausknecht & Stone 2015, whose
    agent sees one frame at a time)"""
    full_action_space: bool = False
    """all 18 actions instead of those the game uses"""
    max_episode_steps: CountOrZero = 0
    """time limit of a game in agent steps; 0 takes 108,000 frames, half an hour on the console, and
    a run writes down how many steps they are: 27,000 of 4 frames"""
    stuck_after: LongCountOrZero = 300
    """seconds that the emulators may take to answer a compiled call, or 20 times their usual,
    before training ends; 0 waits for ever"""

    @property
    def planes(self) -> int:
        """Bytes of a pixel: one gray, or red, green and blue."""
        return 1 if self.grayscale else 3

    @property
    def frame_shape(self) -> tuple[int, int]:
        """Height and width of a frame, in pixels; three planes stand in a column."""
        return self.planes * self.frame_height, self.frame_width

    @property
    def chooses_mode(self) -> bool:
        """Returns whether the game is played in another mode or difficulty than its default."""
        return max(self.mode, self.difficulty) >= 0

    @property
    def time_limit(self) -> int:
        """Agent steps of the longest game."""
        return self.max_episode_steps or MOST_FRAMES // self.frame_skip


@dataclass(frozen=True)
class ParallelConfig:
    """Devices, learners, and the order of playing and learning."""

    num_devices: LongCountOrZero = 0
    """devices to train on; 0 takes every accelerator, or one CPU device"""
    groups: LongCount = 1
    """groups of each device's environments; of 2, one steps while the other is answered"""
    order: Literal["strict", "overlapped"] = "strict"
    """strict: play, then learn; overlapped: learn while the emulators play, so that the first
    action of each rollout is one update behind; it pays where rollouts are short"""
    lag: CountOrZero = 0
    """updates that the acting parameters are behind the learning ones, beside the lag of the order
    (GA3C's policy lag); 0 acts by the newest parameters"""
    sync_every: CountOrZero = 0
    """updates that each learner takes on its own parameters before all merge: asynchronous
    optimization, made deterministic; 0 averages every gradient over all devices instead"""
    num_learners: CountOrZero = 0
    """learners over all devices, with sync_every; 0 makes one on each device"""


@dataclass(frozen=True)
class LogConfig:
    """Progress and metrics."""

    interval: LongCount = 10_000
    """agent steps between two lines of metrics.jsonl"""
    wandb: bool = False
    """send every line to Weights & Biases too (pip install -e '.[wandb]'); WANDB_MODE,
    WANDB_ENTITY, WANDB_NAME and its other variables hold"""
    wandb_project: str = "jaxrl"
    """project of Weights & Biases that gets the run"""
    sinks: str = ""
    """sinks of other packages that get every line too, by their names, with commas between"""


@dataclass(frozen=True)
class CheckpointConfig:
    """The interval, number and content of checkpoints."""

    interval: LongCount = 200_000
    """agent steps between two checkpoints; one more is written at the end"""
    keep: LongCount = 3
    """newest checkpoints to keep, beside the best"""
    max_failures: LongCount = 10
    """failed checkpoints in a row, each tried again after a line or two of the log, before training
    ends"""
    memory: bool = True
    """checkpoints hold the replay, a byte for each pixel of a transition's frame (7 KB of 84 x 84);
    without it a resumed run fills it again"""


@dataclass(frozen=True)
class EvaluationConfig:
    """Whole games by the acting policy, at the end of training and, if configured, during it."""

    episodes: LongCountOrZero = 30
    """games, by the protocol sticky where actions were sticky in training, else noop; 0 leaves the
    evaluation out"""
    interval: LongCountOrZero = 0
    """agent steps between two evaluations during training, which waits meanwhile; the best
    checkpoint is then that with the highest mean of an evaluation; 0 evaluates at the end alone"""


SECTIONS: dict[str, type] = {
    "env": EnvConfig,
    "parallel": ParallelConfig,
    "log": LogConfig,
    "checkpoint": CheckpointConfig,
    "evaluation": EvaluationConfig,
    "network": NetworkConfig,
    "optimizer": OptimizerConfig,
}


@dataclass(frozen=True)
class Config:
    """One training run."""

    algorithm: str = "a2c"
    """the algorithm that learns, as the configuration file says: {algorithms}, or the name of your
    own module, in jaxrl/agents or in another package"""
    game: str = "pong"
    """a game as `jaxrl games` lists them: of Atari, or a small one without an emulator: catch, or
    catch_memory, whose ball must be remembered; ALE/Pong-v5 and PongNoFrameskip-v4 are pong too"""
    seed: CountOrZero = 1
    """seed of parameters, actions and games"""
    total_steps: LongCount = 10_000_000
    """agent steps over all environments, below 2^31 in each; one is env.frame_skip frames"""
    num_envs: Count = 16
    """environments over all devices"""
    run_dir: str = ""
    """directory to create for the run; default runs/GAME-ALGORITHM-seedSEED-TIME"""
    env: EnvConfig = field(default_factory=EnvConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    agent: AlgorithmConfig = field(default_factory=lambda: algorithm_config("a2c")())

    def __post_init__(self) -> None:
        """Takes the names that other libraries give to games."""
        object.__setattr__(self, "game", game_name(self.game))

    def replaced(self, **changes: Any) -> "Config":
        """Returns the configuration with other values; a section takes a table of its changes."""
        values = {
            name: dataclasses.replace(getattr(self, name), **value)
            if isinstance(value, dict)
            else value
            for name, value in changes.items()
        }
        return dataclasses.replace(self, **values)

    def with_time_limit(self) -> "Config":
        """Returns the configuration with the time limit in agent steps, where it is open."""
        return self.replaced(env={"max_episode_steps": self.env.time_limit})
