"""The members of `jaxrl bench --suite`: every figure that an accelerator must give, as data.

Each is a command that a person can repeat. Names are the same on every machine, but for the
numbers of games in them; without an accelerator all is smaller.
"""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxrl.errors import UserError

Kind = Literal["rates", "score"]
SCORE = 18.0  # mean return of Pong, whose best is 21
DEVICES = (1, 2, 4, 8)  # as far as the machine has them


@dataclass(frozen=True)
class SuiteMember:
    """One measurement: a `jaxrl` command in a separate process."""

    name: str
    arguments: tuple[str, ...]  # words of the command after `jaxrl`
    seconds: float  # expected, with imports and compilation
    limit: float  # seconds after which it is ended
    kind: Kind  # rates: `bench`; score: `train`, ended where it reaches SCORE

    @property
    def recipe(self) -> str:
        """Its configuration file."""
        return self.arguments[self.arguments.index("--config") + 1]

    @property
    def command(self) -> str:
        """The command as a person types it."""
        return shlex.join(["jaxrl", *self.arguments])


@dataclass(frozen=True)
class Size:
    """Environments, options and expected seconds of the members on one kind of machine."""

    name: str
    games: int  # for vtrace, a multiple of its 20 minibatches
    other_games: tuple[int, ...]
    device_games: int  # for several devices, a multiple of 20 x 8
    timing: tuple[str, ...]
    training: dict[str, tuple[str, ...]]  # options of the recipes whose training is measured
    ga3c: tuple[str, ...]
    strides: tuple[int, ...]  # for ga3c's first convolution, beside the file's 4
    pong: dict[str, tuple[str, ...]]  # options of the recipes that train until SCORE
    gpu_games: tuple[int, ...]  # for jaxrl's emulator on a GPU
    seconds: float  # expected of one `bench` that compiles one program
    limit: float
    pong_seconds: dict[str, tuple[float, float]]  # expected, and limit


FULL = Size(
    name="full",
    # The recipe's: 1,024 do not divide among its 20 minibatches.
    games=1200,
    other_games=(120, 240, 480, 2400),
    device_games=1280,
    timing=("--repeats", "5", "--seconds", "1"),
    training={
        "a2c_fast": ("--num-envs", "1024"),
        "ppo": ("--num-envs", "128"),
        "c51_large": (),
        "dqn_large": (),
        "rainbow": (),
        "btr": (),
        "pqn": (),
        "impala": (),
    },
    ga3c=("--num-envs", "128"),
    strides=(3, 2, 1),
    gpu_games=(1024, 4096, 16_384, 59_136, 65_536),
    pong={
        # 50 updates to a line: what a line costs would be seen at the files' 10,000 steps.
        "vtrace": ("--log.interval", "60000", "--checkpoint.interval", "5e6"),
        "ppo_pong": (),
        "pqn": ("--checkpoint.interval", "5e6"),
    },
    seconds=40.0,
    limit=120.0,
    pong_seconds={"vtrace": (150.0, 400.0), "ppo_pong": (120.0, 300.0), "pqn": (300.0, 450.0)},
)

REPLAY = ("--agent.batch-size", "64", "--agent.replay-capacity", "10000",
          "--agent.learning-starts", "1000")  # fmt: skip
AT_ONCE = ("--env.random-start-steps", "0")  # which take longer than the few steps of training
SMALL = Size(
    name="small",
    games=20,
    other_games=(40,),
    device_games=160,
    timing=("--repeats", "1", "--seconds", "1"),
    training={
        "a2c_fast": (),
        "ppo": ("--num-envs", "4", "--agent.rollout-length", "32"),
        "c51_large": ("--num-envs", "8", *REPLAY),
        "dqn_large": ("--num-envs", "8", *REPLAY),
        "rainbow": ("--num-envs", "8", *REPLAY),
        # One batch for each step of all, as in the file.
        "btr": ("--num-envs", "8", *REPLAY, "--agent.batch-size", "32"),
        "pqn": ("--num-envs", "4", "--agent.num-minibatches", "4"),
        "impala": ("--num-envs", "4"),
    },
    ga3c=("--num-envs", "8"),
    strides=(2,),
    gpu_games=(64,),
    pong={
        "vtrace": ("--num-envs", "20", "--total-steps", "2000", "--log.interval", "1000", *AT_ONCE),
        "ppo_pong": ("--num-envs", "8", "--total-steps", "3072", "--log.interval", "1024",
                     *AT_ONCE),
        "pqn": ("--num-envs", "8", "--total-steps", "2048", "--log.interval", "1024",
                "--agent.num-minibatches", "4", *AT_ONCE),
    },
    seconds=16.0,
    limit=120.0,
    pong_seconds={"vtrace": (25.0, 120.0), "ppo_pong": (25.0, 120.0), "pqn": (25.0, 120.0)},
)  # fmt: skip
SIZES = {size.name: size for size in (FULL, SMALL)}


def size_of(name: str, platform: str) -> Size:
    """Returns the size of this name; `auto` is small without an accelerator."""
    return SIZES[name] if name != "auto" else SMALL if platform == "cpu" else FULL


def custom_call(machine: dict[str, Any]) -> bool:
    """Returns whether EnvPool's custom call exists for the devices of a machine.

    As `envs.has_custom_call`, without starting JAX: not on TPUs, nor on AMD's GPUs.
    """
    if machine["platform"] == "gpu":
        return not any("rocm" in package for package in machine.get("versions", ()))
    return machine["platform"] == "cpu"


def plan(
    size: Size, num_devices: int = 1, custom_call: bool = True, gpu: bool = False
) -> list[SuiteMember]:
    """Returns the members, most valuable first.

    Args:
      size: FULL or SMALL.
      num_devices: accelerators of the machine; all but the members named devices-N take one.
      custom_call: whether the machine has EnvPool's custom call.
      gpu: whether it has NVIDIA's GPUs, which jaxrl's emulator plays on.
    """
    games = ("--num-envs", str(size.games))
    trained = ("--loads", "loop", "training")
    emulated = ("--loads", "loop", "emulation")
    whole = _bench("vtrace", "vtrace", size, games)
    members = [
        # Three programs, where others compile one.
        dataclasses.replace(whole, seconds=2 * whole.seconds, limit=1.5 * whole.limit),
        _bench("vtrace-strict", "vtrace", size, (*games, "--parallel.order", "strict", *trained)),
        _bench("vtrace-groups-2", "vtrace", size, (*games, "--parallel.groups", "2", *trained)),
        _bench(
            "vtrace-bfloat16", "vtrace", size, (*games, "--network.dtype", "bfloat16", *trained)
        ),
    ]
    options: tuple[str, ...]
    for number in size.other_games:
        options = ("--num-envs", str(number), *trained)
        members.append(_bench(f"vtrace-{number}", "vtrace", size, options))
    for recipe, options in size.training.items():
        members.append(_bench(recipe, recipe, size, (*options, *trained)))
    for engine in ("xla", "callback") if custom_call else ("callback",):
        options = (*games, "--env.engine", "envpool", "--env.interface", engine, *emulated)
        members.append(_bench(f"engine-{engine}", "vtrace", size, options))
    members.append(_bench("ga3c", "ga3c", size, (*size.ga3c, *trained)))
    for stride in size.strides:
        options = (*size.ga3c, "--network.first-stride", str(stride), *trained)
        members.append(_bench(f"ga3c-stride-{stride}", "ga3c", size, options))
    members += _emulators(size) if gpu else []
    members += [_train(recipe, size, options) for recipe, options in size.pong.items()]
    if num_devices > 1:
        members = [_limited(1, member) for member in members]
        for number in (n for n in DEVICES if n <= num_devices):
            options = ("--num-envs", str(size.device_games), *trained)
            members.append(_limited(number, _bench(f"devices-{number}", "vtrace", size, options)))
    return members


def chosen(members: list[SuiteMember], names: Sequence[str]) -> list[SuiteMember]:
    """Returns the members of these names, in the members' order; all without names.

    Raises `UserError` for an unknown name.
    """
    known = [member.name for member in members]
    for name in names:
        if name not in known:
            needs_gpu = name.startswith("atari2600-")
            where = " on this machine (needs an NVIDIA GPU)" if needs_gpu else ""
            raise UserError(
                f"--only {name}: no member of the suite{where}; known are {', '.join(known)}"
            )
    return [member for member in members if member.name in names or not names]


def _emulators(size: Size) -> list[SuiteMember]:
    """Returns the members of jaxrl's emulator: its threads, by both interfaces, and the GPU."""
    # Observations of a short rollout fit beside the most games.
    short = ("--env.engine", "atari2600", "--agent.rollout-length", "1")
    fewest = size.gpu_games[0]
    members = []
    for name, interface in (("threads", "callback"), ("stream", "stream")):
        options = ("--num-envs", str(fewest), *short, "--env.interface", interface)
        loads = ("--loads", "loop", "emulation")
        members.append(_bench(f"atari2600-{name}", "a2c_fast", size, (*options, *loads)))
    for number in size.gpu_games:
        options = ("--num-envs", str(number), *short, "--env.interface", "xla")
        name = f"atari2600-gpu-{number}"
        members.append(_bench(name, "a2c_fast", size, (*options, "--loads", "emulation")))
    return members


# --- helpers -------------------------------------------------------------------------------------


def _limited(num_devices: int, member: SuiteMember) -> SuiteMember:
    """Returns the member limited to this number of devices; by itself it takes all."""
    arguments = (*member.arguments, "--parallel.num-devices", str(num_devices))
    return dataclasses.replace(member, arguments=arguments)


def _recipe(name: str) -> tuple[str, ...]:
    return "--config", name, "--game", "pong"


def _bench(name: str, recipe: str, size: Size, options: tuple[str, ...]) -> SuiteMember:
    arguments = ("bench", *_recipe(recipe), *options, *size.timing)
    return SuiteMember(name, arguments, size.seconds, size.limit, "rates")


def _train(recipe: str, size: Size, options: tuple[str, ...]) -> SuiteMember:
    arguments = ("train", *_recipe(recipe), *options, "--seed", "1", "--evaluation.episodes", "0")
    name = f"pong-{recipe.removesuffix('_pong')}"
    return SuiteMember(name, arguments, *size.pong_seconds[recipe], "score")
