"""Configuration: frozen dataclasses, overridden by a TOML file, then by the command line.

Imports nothing heavy, so that a mistake is answered at once. A key of a TOML file and the flag of
the same name are one thing: `learning_rate` under `[optimizer]` is `--optimizer.learning-rate`.
"""

import dataclasses
import difflib
import json
import tomllib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

CATCH = "catch"  # the pure-JAX game that needs no emulator


class UserError(Exception):
    """A user's mistake: one line that names the mistake and the remedy. Ends with exit status 2."""


@dataclass(frozen=True)
class NetworkConfig:
    """The network between the stacked frames and the heads."""

    torso: Literal["nips", "nature"] = "nature"
    """nips: 2 convolutions, 256 units (Mnih 2013); nature: 3 convolutions, 512 units (Mnih 2015)"""
    init: Literal["orthogonal", "uniform"] = "orthogonal"
    """orthogonal: gain sqrt(2), policy 0.01, value 1; uniform: +-1/sqrt(fan in), as Torch 7"""
    normalise_observations: bool = False
    """normalise each pixel by its running mean and standard deviation (CuLE)"""


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become steps."""

    name: Literal["rmsprop", "adam"] = "rmsprop"
    """the optimizer"""
    learning_rate: float = 7e-4
    """step size at the start"""
    schedule: Literal["constant", "linear"] = "constant"
    """constant, or linearly to 0 at total_steps"""
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
class A2CConfig:
    """Synchronous advantage actor-critic (A3C, Mnih 2016; PAAC, Clemente 2017)."""

    rollout_length: int = 5
    """agent steps of every environment between two updates"""
    gamma: float = 0.99
    """discount per agent step"""
    entropy_coef: float = 0.01
    """weight of the entropy bonus"""
    value_coef: float = 0.25
    """weight of the mean squared error of the values"""
    loss_scale: float = 1.0
    """factor on the whole loss (PAAC: 5); matters to eps and to max_grad_norm"""
    log_epsilon: float = 0.0
    """GA3C's log(pi + epsilon); 0 is the plain logarithm"""
    micro_batch: int = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""


AgentConfig = A2CConfig
ALGORITHMS: dict[str, type[AgentConfig]] = {"a2c": A2CConfig}


@dataclass(frozen=True)
class Config:
    """One training run."""

    algorithm: Literal["a2c"] = "a2c"
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
    num_threads: int = 0
    """EnvPool threads per device; 0 divides the machine's cores among the devices"""
    order: Literal["strict", "overlapped"] = "strict"
    """strict: play, then learn; overlapped: learn while the emulators play, one update behind"""
    random_start_steps: int = 500
    """every environment first takes a random number, up to this, of uniform random actions"""
    episodic_life: bool = True
    """a lost life is terminal to the learner; scores are always of whole games"""
    reward_clip: bool = True
    """the learner sees only the sign of the reward; scores are never clipped"""
    noop_max: int = 30
    """each game starts with 1 to this many no-ops"""
    fire_reset: bool = True
    """press FIRE after a reset in the games that wait for it; never with full_action_space"""
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
    evaluation_episodes: int = 30
    """games of the evaluation at the end of training; 0 leaves it out"""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    agent: AgentConfig = field(default_factory=A2CConfig)

    def steps_per_update(self) -> int:
        """Agent steps, over all devices, that one update learns from."""
        return self.num_envs * self.agent.rollout_length

    def num_updates(self) -> int:
        """Updates of the whole run; the last one may pass total_steps."""
        return -(-self.total_steps // self.steps_per_update())


def _nearest(name: str, known: typing.Iterable[str], count: int = 3) -> list[str]:
    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.4)


def check_game(game: str, known: typing.Sequence[str]) -> None:
    """Refuses a game that is not among `known`, offering the nearest names."""
    if game in known:
        return
    near = _nearest(game.lower().replace("-", "_"), known)
    hint = f"did you mean {', '.join(near)}?" if near else "`jaxrl games` lists all."
    raise UserError(f"unknown game '{game}': {hint}")


def check(config: Config) -> None:
    """Refuses values that cannot train, before anything is created or compiled."""
    agent, optimizer = config.agent, config.optimizer
    at_least: dict[str, tuple[float, float]] = {
        "total_steps": (config.total_steps, 1),
        "seed": (config.seed, 0),
        "num_envs": (config.num_envs, 1),
        "num_devices": (config.num_devices, 0),
        "num_threads": (config.num_threads, 0),
        "random_start_steps": (config.random_start_steps, 0),
        "noop_max": (config.noop_max, 1),  # EnvPool's process dies of 0
        "max_episode_steps": (config.max_episode_steps, 1),
        "log_interval": (config.log_interval, 1),
        "checkpoint_interval": (config.checkpoint_interval, 1),
        "keep_checkpoints": (config.keep_checkpoints, 1),
        "evaluation_episodes": (config.evaluation_episodes, 0),
        "agent.rollout_length": (agent.rollout_length, 1),
        "agent.micro_batch": (agent.micro_batch, 0),
        "agent.entropy_coef": (agent.entropy_coef, 0),
        "agent.value_coef": (agent.value_coef, 0),
        "agent.log_epsilon": (agent.log_epsilon, 0),
        "optimizer.learning_rate": (optimizer.learning_rate, 0),
        "optimizer.max_grad_norm": (optimizer.max_grad_norm, 0),
        "optimizer.initial_scale": (optimizer.initial_scale, 0),
    }
    for name, (value, least) in at_least.items():
        if not least <= value < 2**63:
            raise UserError(f"{name} = {value}: must be at least {least}")
    fractions = {
        "repeat_action_probability": config.repeat_action_probability,
        "agent.gamma": agent.gamma,
        "optimizer.decay": optimizer.decay,
        "optimizer.decay_mean": optimizer.decay_mean,
    }
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            raise UserError(f"{name} = {value}: must lie between 0 and 1")
    if not optimizer.eps > 0:
        raise UserError(f"optimizer.eps = {optimizer.eps}: must be above 0")
    for name in ("max_episode_steps", "num_envs", "noop_max", "num_threads", "seed"):
        if getattr(config, name) >= 2**31:
            raise UserError(f"{name} = {getattr(config, name)}: must be below 2147483648")
    if config.num_devices > 1:
        check_divides(config, config.num_devices)


def check_divides(config: Config, num_devices: int) -> None:
    """Refuses environments or micro-batches that do not divide, naming the nearest that do."""
    if config.num_envs % num_devices:
        below = config.num_envs // num_devices * num_devices
        raise UserError(
            f"num_envs = {config.num_envs} does not divide among {num_devices} devices: "
            f"take {f'{below} or ' if below else ''}{below + num_devices}"
        )
    rows = config.steps_per_update() // num_devices
    if config.agent.micro_batch and rows % config.agent.micro_batch:
        divisors = [n for n in range(1, rows + 1) if rows % n == 0]
        near = min(divisors, key=lambda n: abs(n - config.agent.micro_batch))
        raise UserError(
            f"agent.micro_batch = {config.agent.micro_batch} does not divide the {rows} rows "
            f"of an update: take {near}"
        )


def _type_name(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[
        annotation
    ]


def _convert(value: Any, annotation: Any, name: str) -> Any:
    if typing.get_origin(annotation) is Literal:
        right = value in typing.get_args(annotation) and isinstance(value, str)
    elif annotation is float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if right else value
    else:
        right = type(value) is annotation
    if not right:
        raise UserError(f"{name} = {value!r}: must be {_type_name(annotation)}")
    return value


def _merge(default: Any, table: dict[str, Any], prefix: str = "") -> Any:
    annotations = typing.get_type_hints(type(default))
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in annotations:
            near = _nearest(key, annotations, 1)
            hint = f"did you mean '{prefix}{near[0]}'?" if near else ""
            known = ", ".join(annotations)
            raise UserError(f"unknown key '{prefix}{key}': {hint or f'known are {known}'}")
        current = getattr(default, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise UserError(f"{prefix}{key} = {value!r}: must be a table, [{key}]")
            changes[key] = _merge(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, annotations[key], f"{prefix}{key}")
    return dataclasses.replace(default, **changes)


def from_table(table: dict[str, Any]) -> Config:
    """The defaults of the table's algorithm, overridden by the table. Raises `UserError`."""
    algorithm = table.get("algorithm", "a2c")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise UserError(f"algorithm = {algorithm!r}: must be one of {', '.join(ALGORITHMS)}")
    return _merge(Config(agent=ALGORITHMS[algorithm]()), table)


def load(path: Path) -> Config:
    """Reads a TOML file. Raises `UserError` with the file's name in it."""
    try:
        return from_table(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"no configuration file '{path}': configs/ holds those of jaxrl") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
    except (tomllib.TOMLDecodeError, UserError) as error:
        raise UserError(f"{path}: {error}") from None


def to_toml(config: Config) -> str:
    """Every key with its value; `load` of it gives the same configuration."""
    # A JSON scalar of these types is a TOML scalar.
    values = dataclasses.asdict(config)
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{section}]"] + [f"{k} = {json.dumps(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
