"""The options of `VectorEnv`: names, meanings and defaults of `ale_py`'s, more, and presets."""

import sys
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from gymnasium.vector import AutoresetMode

from jaxrl.atari.games import FULL_ACTIONS, difficulties, full_actions, minimal_actions, modes
from jaxrl.envs.atari2600.vector_library import (
    FIRST_MODE,
    ActionCodes,
    VectorRules,
    screen_height,
)
from jaxrl.errors import UserError
from jaxrl.formatting import numbers_of
from jaxrl.runtime import cpus

SCREEN_WIDTH = 160
RAM_BYTES = 128
LEAST_SIDE = 16  # pixels of an observation
MOST_FRAMES = 2**30
MOST_THREADS = 4096
AUTORESET_NAMES = "'NextStep', 'SameStep' or 'Disabled'"
# Conditions of papers and libraries: what every preset says, and what differs from it. Where a lost
# life ends an episode, the game goes on: that is `life_loss_info`; with ale_py's `episodic_life` a
# new game follows.
CONDITIONS: dict[str, Any] = {
    "repeat_action_probability": 0.0, "full_action_space": False, "frameskip": 4, "noop_max": 30,
    "life_loss_info": False, "reward_clipping": True, "use_fire_reset": True,
    "max_num_frames_per_episode": 108_000,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    # Training of DQN (Mnih 2015), whose agent has to press FIRE itself; the time limit is later.
    "mnih2015": CONDITIONS | {"life_loss_info": True, "use_fire_reset": False},
    # Machado 2018: sticky actions, all actions, no information about lives, no no-ops; with the
    # frame skip and the time limit of later work, and rewards as an agent is trained on them.
    "machado2018": CONDITIONS | {
        "repeat_action_probability": 0.25, "full_action_space": True, "noop_max": 0,
        "use_fire_reset": False,
    },
    # EnvPool's defaults. In games without FIRE it draws 1 to 30 no-ops, not 0 to 29.
    "envpool": CONDITIONS | {"reward_clipping": False},
    # The wrappers of CleanRL's ppo_atari.py, which also press FIRE after every lost life, and begin
    # the stack of frames again: here neither is done.
    "cleanrl": CONDITIONS | {"life_loss_info": True},
}  # fmt: skip
# By the annotation of an option.
KINDS: dict[Any, Any] = {
    str | tuple[str, ...]: (str, tuple),
    int: Integral,
    int | None: Integral,
    float: Real,
    bool: (bool, np.bool_),
    AutoresetMode | str: (AutoresetMode, str),
}
KIND_NAMES: dict[Any, str] = {
    str | tuple[str, ...]: "a name or several",
    int: "an integer",
    int | None: "an integer",
    float: "a number",
    bool: "True or False",
    AutoresetMode | str: AUTORESET_NAMES,
}


@dataclass(frozen=True)
class VectorOptions:
    """Games of a vector environment, their rules and their observations."""

    game: str | tuple[str, ...]
    """name of the cartridge, as space_invaders; or several, which equally many environments play,
    the first environments the first, by all 18 actions. Not in ale_py"""
    num_envs: int
    """environments, E"""
    batch_size: int = 0
    """environments of a step, those that are ready first; 0 takes all"""
    num_threads: int = 0
    """threads that play; 0 takes as many as a step has environments. There are never more than the
    CPUs that the process may use"""
    thread_affinity_offset: int = -1
    """core of the first thread, counted among those that the process may use, followed by those of
    the others; -1 binds them only where each of these cores has one, because unbound threads that
    wake at once often share a core for a whole step"""
    max_num_frames_per_episode: int = 108000
    """time limit of an episode, in frames"""
    repeat_action_probability: float = 0.0
    """probability with which a frame repeats the action of the frame before"""
    full_action_space: bool = False
    """take all actions, not only those that the game uses"""
    continuous: bool = False
    """take a radius, an angle and FIRE, f32[B, 3], in place of a number; a paddle turns by the
    radius"""
    continuous_action_threshold: float = 0.5
    """value above which each of them counts as a direction or as FIRE"""
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    """NextStep begins an episode in the step after an end, SameStep in the step of the end.
    Disabled begins none: `reset` with a reset_mask does, before the next step; not in ale_py"""
    img_height: int = 84
    """pixels of an observation, from top to bottom"""
    img_width: int = 84
    """pixels of an observation, from left to right"""
    grayscale: bool = True
    """show grays, not red, green and blue"""
    stack_num: int = 4
    """frames of an observation, the oldest first"""
    frameskip: int = 4
    """frames of a step"""
    maxpool: bool = True
    """show the maximum of a step's last two frames, not the last one"""
    noop_max: int = 30
    """an episode starts with a random number of frames without input, less than this"""
    episodic_life: bool = False
    """end the episode with a lost life; as in ale_py, a new game follows"""
    life_loss_info: bool = False
    """report a lost life as an end, and go on with the game"""
    reward_clipping: bool = True
    """clip rewards to -1, 0, 1"""
    use_fire_reset: bool = True
    """press FIRE at the start of an episode, in games that have it"""
    fast_resets: bool = False
    """start games as copies of 16 starts, not by 70 frames of the emulator; not in ale_py"""
    mode: int | None = None
    """which of the cartridge's games is played, by ALE's numbers; without one the first. Not in
    ale_py's vector environment, but in its single one"""
    difficulty: int | None = None
    """how the console's switches stand: 0 is both on B, 1 the left one on A, 2 the right one, 3
    both; without a number they are on B. Not in ale_py's vector environment, but in its single
    one"""
    ram: bool = False
    """show the 128 bytes of RAM, not the screen, whose options then mean nothing; nothing is drawn,
    so games are faster. Not in ale_py's vector environment, but in its single one"""

    @property
    def games(self) -> tuple[str, ...]:
        """Names of the cartridges."""
        return self.game if isinstance(self.game, tuple) else (self.game,)

    @property
    def batch(self) -> int:
        """Environments of a batch, B."""
        return self.batch_size or self.num_envs

    @property
    def autoreset(self) -> AutoresetMode:
        """The mode, also where its name was given."""
        return AutoresetMode(self.autoreset_mode)

    @property
    def threads(self) -> int:
        """Number of threads that play."""
        return min(self.num_threads or self.batch, cpus.count())

    @property
    def first_core(self) -> int:
        """Core of the first thread, or -1 where none is bound."""
        chosen = self.thread_affinity_offset
        return 0 if chosen < 0 and self.threads == len(cpus.cores()) else chosen

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one environment's observation."""
        if self.ram:
            return (self.stack_num, RAM_BYTES)
        colors = () if self.grayscale else (3,)
        return (self.stack_num, self.img_height, self.img_width, *colors)

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """Names of the actions; continuous ones are made of all eighteen."""
        if self.continuous or isinstance(self.game, tuple):
            return FULL_ACTIONS
        return (full_actions if self.full_action_space else minimal_actions)(self.game)

    @property
    def first_mode(self) -> int:
        """Number of the mode that is played where none is given."""
        return FIRST_MODE if isinstance(self.game, tuple) else modes(self.game)[0]

    def check(self) -> None:
        """Raises `UserError` if the game is unknown or an option is none or out of its range."""
        if not self.games:
            raise UserError("game = (): must be a name or several")
        lines = min(screen_height(game) for game in self.games)
        for field in fields(self):
            value: Any = getattr(self, field.name)
            is_flag = isinstance(value, bool) and field.type in (int, int | None, float)
            if value is None and type(None) in get_args(field.type):
                continue
            if is_flag or not isinstance(value, KINDS[field.type]):
                raise UserError(f"{field.name} = {getattr(self, field.name)!r}: must be "
                                f"{KIND_NAMES[field.type]}")  # fmt: skip
        ranges = {
            "num_envs": (1, MOST_FRAMES),
            "batch_size": (0, self.num_envs),
            "num_threads": (0, MOST_THREADS),
            "thread_affinity_offset": (-1, MOST_THREADS),
            "max_num_frames_per_episode": (1, MOST_FRAMES),
            "repeat_action_probability": (0, 1),
            "img_height": (LEAST_SIDE, lines),
            "img_width": (LEAST_SIDE, SCREEN_WIDTH),
            "stack_num": (1, 1000),
            "frameskip": (1, 10_000),
            "noop_max": (0, 1_000_000),
            "continuous_action_threshold": (0, 1),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise UserError(f"{name} = {value}: must be from {least} to {most}")
        for name, known in (("mode", modes), ("difficulty", difficulties)):
            value = getattr(self, name)
            for game in self.games if value is not None else ():
                if value not in known(game):
                    raise UserError(f"{name} = {value}: {game} has {numbers_of(known(game))}; "
                                    "leave it out for the default")  # fmt: skip
        if isinstance(self.game, tuple) and not self.full_action_space:
            raise UserError("full_action_space = False: several games take all 18 actions")
        if self.num_envs % len(self.games):
            raise UserError(
                f"num_envs = {self.num_envs}: must be a multiple of the {len(self.games)} games"
            )
        if self.autoreset_mode not in (*AutoresetMode, *(mode.value for mode in AutoresetMode)):
            raise UserError(f"autoreset_mode = {self.autoreset_mode!r}: must be {AUTORESET_NAMES}")
        if self.autoreset == AutoresetMode.DISABLED and self.batch != self.num_envs:
            raise UserError("autoreset_mode = 'Disabled': needs batch_size = num_envs")
        if self.autoreset == AutoresetMode.DISABLED and self.life_loss_info:
            raise UserError(
                "autoreset_mode = 'Disabled': takes no life_loss_info, whose ends need no reset"
            )

    def rules(self) -> VectorRules:
        """Returns the options as C++ has them."""
        codes = [FULL_ACTIONS.index(meaning) for meaning in self.action_meanings]
        return VectorRules(
            frame_skip=self.frameskip,
            noop_max=self.noop_max,
            max_frames=self.max_num_frames_per_episode,
            stack=self.stack_num,
            height=self.img_height,
            width=self.img_width,
            mode=self.first_mode if self.mode is None else self.mode,
            difficulty=self.difficulty or 0,
            repeat_probability=self.repeat_action_probability,
            maxpool=bool(self.maxpool),
            color=not self.grayscale,
            fire_reset=self.use_fire_reset and "FIRE" in self.action_meanings,
            episodic_life=bool(self.episodic_life),
            life_loss_info=bool(self.life_loss_info),
            reward_clip=bool(self.reward_clipping),
            same_step=self.autoreset == AutoresetMode.SAME_STEP,
            fast_resets=bool(self.fast_resets),
            shows_ram=bool(self.ram),
            num_actions=len(codes),
            actions=ActionCodes(*codes),
        )


def with_preset(name: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a preset and those given, which come first; prints what it sets.

    Raises `UserError` if there is no such preset.
    """
    if name is None:
        return options
    if not isinstance(name, str) or name not in PRESETS:
        raise UserError(f"preset = {name!r}: must be one of {', '.join(PRESETS)}")
    preset = {key: value for key, value in PRESETS[name].items() if key not in options}
    values = ", ".join(f"{key}={value}" for key, value in preset.items())
    print(f"preset {name}: {values}", file=sys.stderr)
    return preset | options
