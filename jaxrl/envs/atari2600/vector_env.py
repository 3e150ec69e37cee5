"""Our own Atari 2600 for every trainer: a Gymnasium vector environment, without JAX."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from jaxrl.atari.games import FULL_ACTIONS, game_name

try:
    import gymnasium
except ImportError:
    raise ImportError("VectorEnv is a Gymnasium environment: pip install gymnasium") from None

from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from jaxrl.envs.atari2600.vector_library import KEEPS_SEED, NUMBERS, Batch, VectorEngine
from jaxrl.envs.atari2600.vector_options import VectorOptions, with_preset
from jaxrl.errors import UserError, nearest

Infos = dict[str, np.ndarray]
Steps = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]

SIDEWAYS, UPWARDS, BUTTON = ("LEFT", "", "RIGHT"), ("DOWN", "", "UP"), ("", "FIRE")
MEANINGS = [up + side + fire or "NOOP" for side in SIDEWAYS for up in UPWARDS for fire in BUTTON]
# Actions by direction: [sideways, upwards, FIRE].
DIRECTED = np.array([FULL_ACTIONS.index(m) for m in MEANINGS], np.int32).reshape(3, 3, 2)
# Options of other environments, and what takes their place here.
ELSEWHERE = {
    "obs_type": "grayscale=False, which shows colors, or ram=True",
    "seed": "reset(seed=...)",
    "sticky": "repeat_action_probability",
    "sticky_actions": "repeat_action_probability",
    "render_mode": "grayscale=False, whose observations are pictures",
}


class VectorEnv(gymnasium.vector.VectorEnv):
    """Atari games as a Gymnasium vector environment, with the options of `ale_py`'s.

        envs = VectorEnv("pong", num_envs=8)
        observations, infos = envs.reset(seed=1)
        observations, rewards, terminations, truncations, infos = envs.step(actions)

    Observations u8[B, stack_num, img_height, img_width] (x 3 in color), rewards i32[B], ends
    bool[B] and infos i32[B] equal those of `ale_py.vector_env.AtariVectorEnv` bit for bit, and the
    same seed plays the same games. B is `batch_size`, or all environments. With `ram` observations
    are u8[B, stack_num, 128]; of several games `infos["game_id"]` has each row's.
    """

    def __init__(
        self,
        game: str | Sequence[str],
        num_envs: int,
        *,
        preset: str | None = None,
        **options: Any,
    ) -> None:
        """Opens the games.

        Args:
          game: name of the cartridge, as "space_invaders" or "ALE/SpaceInvaders-v5"; or several,
            which equally many environments play, the first environments the first.
          num_envs: environments, E.
          preset: conditions of a paper or a library, as "machado2018" (`vector_options.PRESETS`);
            a line says what it sets.
          options: the fields of `jaxrl.envs.atari2600.vector_options.VectorOptions`, where each is
            explained; they come before the preset's.

        Raises:
          UserError: an option is out of its range, or the emulator cannot play the game.
        """
        if isinstance(game, str):
            game = game_name(game)
        elif isinstance(game, Sequence):
            game = tuple(game_name(name) if isinstance(name, str) else name for name in game)
            options.setdefault("full_action_space", True)
        if "render_mode" in options and options["render_mode"] is None:  # as Gymnasium may say
            del options["render_mode"]
        known = [field.name for field in dataclasses.fields(VectorOptions)]
        for name in options.keys() - known:
            near = ELSEWHERE.get(name) or " or ".join(nearest(name, known)) or "another"
            raise TypeError(f"VectorEnv has no option {name!r}: did you mean {near}?")
        chosen = VectorOptions(game, num_envs, **with_preset(preset, options))
        chosen.check()
        self.options = chosen
        self.num_envs, self.batch_size = num_envs, chosen.batch
        self.autoreset_mode = chosen.autoreset
        self.metadata = {"autoreset_mode": chosen.autoreset}
        self.continuous = chosen.continuous
        self.continuous_action_threshold = chosen.continuous_action_threshold
        self.grayscale, self.map_action_idx = chosen.grayscale, DIRECTED.copy()
        self.single_observation_space = Box(0, 255, chosen.observation_shape, np.uint8)
        self.single_action_space = _action_space(chosen)
        self.observation_space = batch_space(self.single_observation_space, self.batch_size)
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        self._has_begun, self._process = False, os.getpid()
        self._num_actions = len(chosen.action_meanings)
        self._has_ended = np.zeros(num_envs, np.bool_)  # by environment, in the newest step
        self._engine = VectorEngine(
            chosen.games,
            chosen.rules(),
            chosen.observation_shape,
            num_envs=num_envs,
            batch_size=self.batch_size,
            num_threads=chosen.threads,
            first_core=chosen.first_core,
        )

    def reset(
        self, *, seed: int | np.ndarray | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Infos]:
        """Begins new episodes.

        Args:
          seed: of the first environment that is reset, the next one's is one higher; or an array of
            one seed for each. Without a seed the games go on drawing.
          options: `reset_mask`, bool[E], chooses the environments; the others show what they show.
        """
        self._check_open()
        mask = self._reset_mask(options)
        if not mask.all() and not self._has_begun:
            raise RuntimeError("the first reset resets every environment: leave out reset_mask")
        if not mask.all() and self.batch_size != self.num_envs:
            raise ValueError("reset_mask needs batch_size = num_envs")
        seeds = np.full(self.num_envs, KEEPS_SEED, np.int64)
        seeds[mask] = self._seeds(seed, int(mask.sum()))
        self._has_begun = True
        self._engine.reset(mask, seeds)
        batch = self._receive()
        return batch.observations, self._infos(batch)

    def step(self, actions: np.ndarray) -> Steps:
        """Plays a step: `send`, then `recv`."""
        self._send(actions, "step")
        return self.recv()

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of the environments received last: i32[B], or f32[B, 3] if continuous."""
        self._send(actions, "send")

    def _send(self, actions: np.ndarray, call: str) -> None:
        """Starts a step for a call of this name, which messages use."""
        self._check_open()
        if self.autoreset_mode == AutoresetMode.DISABLED and self._has_ended.any():
            raise RuntimeError(
                f"environments {np.flatnonzero(self._has_ended).tolist()} have ended: reset them "
                "first, with options={'reset_mask': terminations | truncations}"
            )
        values = np.asarray(actions)
        if values.shape != self.action_space.shape:
            raise ValueError(
                f"actions have the shape {self.action_space.shape}, not {values.shape}"
            )
        kind = np.floating if self.options.continuous else np.integer
        if not np.issubdtype(values.dtype, kind):
            wanted = "float32" if self.options.continuous else "integers"
            raise TypeError(f"actions are {wanted}, not {values.dtype}")
        strengths = None
        if self.options.continuous:
            strengths = np.ascontiguousarray(values[:, 0], np.float32)
            values = self._directed(values)
        elif values.dtype.itemsize > 4 and ((values < 0) | (values >= self._num_actions)).any():
            self._refuse(values, None, call)  # as i32 they might be others
        if not self._engine.send(np.ascontiguousarray(values, np.int32), strengths):
            self._refuse(values, strengths, call)

    def recv(self) -> Steps:
        """Waits for the B environments that are ready first; `infos["env_id"]` says which."""
        self._check_open()
        batch = self._receive()
        infos = self._infos(batch)
        if batch.final_observations is not None:
            infos["final_obs"] = batch.final_observations
        rewards = batch.numbers[NUMBERS.index("reward")]
        return batch.observations, rewards, batch.ends[0], batch.ends[1], infos

    def save(self) -> np.ndarray:
        """Returns a snapshot of every environment, u8[E, bytes], between two steps."""
        self._check_open()
        if self.batch_size != self.num_envs:
            raise UserError("save needs batch_size = num_envs")
        snapshots = self._engine.save()
        if snapshots is None:
            raise RuntimeError("save comes after reset or recv, not between send and recv")
        return snapshots

    def load(self, snapshots: np.ndarray) -> tuple[np.ndarray, Infos]:
        """Lets every environment go on from a snapshot; returns what they show, as `reset` does.

        Raises `DamagedError` if one of them is not of this game and these options.
        """
        self._check_open()
        if self.batch_size != self.num_envs:
            raise UserError("load needs batch_size = num_envs")
        self._engine.load(np.asarray(snapshots))
        self._has_begun = True
        self._engine.reset(np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.int64))
        batch = self._receive()
        return batch.observations, self._infos(batch)

    def fork(self, source: int | np.ndarray, targets: int | np.ndarray) -> tuple[np.ndarray, Infos]:
        """Lets the games of `targets` go on from those of `source`, bit for bit.

        Args:
          source: number of an environment, or i[N], one for each target.
          targets: numbers of the environments whose games end, i[N]. They draw the same random
            numbers as their source: with equal actions the games stay equal.

        Returns:
          What every environment shows, as `load` does.

        Raises:
          TypeError, ValueError: these are not numbers of environments, or of several games.
        """
        sources, numbers = np.asarray(source), np.atleast_1d(targets)
        if not all(np.issubdtype(x.dtype, np.integer) for x in (sources, numbers)):
            raise TypeError(f"fork takes numbers of environments, not {source!r} and {targets!r}")
        if sources.ndim and sources.shape != numbers.shape:
            raise ValueError(f"fork takes one source, or one for each of {len(numbers)} targets, "
                             f"not {len(sources)}")  # fmt: skip
        if not all(((x >= 0) & (x < self.num_envs)).all() for x in (sources, numbers)):
            raise ValueError(f"environments are from 0 to {self.num_envs - 1}: fork was given "
                             f"{source!r} and {targets!r}")  # fmt: skip
        per_game = self.num_envs // len(self.options.games)
        if (sources // per_game != numbers // per_game).any():
            raise ValueError(f"fork stays within a game, which has {per_game} environments: it was "
                             f"given {source!r} and {targets!r}")  # fmt: skip
        snapshots = self.save()
        snapshots[numbers] = snapshots[sources]
        return self.load(snapshots)

    def xla(self) -> NoReturn:
        """Refuses: jaxrl's own trainer is the way to play from a compiled program."""
        raise NotImplementedError(
            "VectorEnv has no xla(): in a compiled program the emulator plays with env.engine = "
            "'atari2600' of `jaxrl train`"
        )

    def __repr__(self) -> str:
        game = self.options.game if hasattr(self, "options") else None  # refused ones are shown too
        return f"{type(self).__name__}({game!r}, num_envs={getattr(self, 'num_envs', None)})"

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        self._engine.close()

    def _check_open(self) -> None:
        if not self._engine.close.alive:
            raise RuntimeError("the environments are closed")
        if self._process != os.getpid():
            raise RuntimeError(
                "the environments belong to the process that this one was forked from, and their "
                "threads are not here: make them in the process that plays"
            )

    def _receive(self) -> Batch:
        batch = self._engine.receive()
        if batch is None:
            raise RuntimeError("nothing is under way: recv comes after send")
        if self.batch_size == self.num_envs:
            self._has_ended[batch.numbers[NUMBERS.index("env_id")]] = batch.ends.any(axis=0)
        return batch

    def _infos(self, batch: Batch) -> Infos:
        infos = dict(zip(NUMBERS, batch.numbers, strict=True))
        del infos["reward"]
        if isinstance(self.options.game, tuple):
            infos["game_id"] = infos["env_id"] // (self.num_envs // len(self.options.games))
        return infos

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        for name in (options or {}).keys() - {"reset_mask"}:
            raise ValueError(f"reset has no option {name!r}: reset_mask chooses environments")
        if not options:
            return np.ones(self.num_envs, np.bool_)
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"reset_mask is a boolean array, not {mask!r}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask has the shape {(self.num_envs,)}, not {mask.shape}")
        return np.ascontiguousarray(mask)

    def _seeds(self, seed: int | np.ndarray | None, count: int) -> np.ndarray:
        """Returns a seed for each of `count` environments, or `KEEPS_SEED`: i64[count]."""
        seeds = np.full(count, KEEPS_SEED) if seed is None else np.asarray(seed)
        if not np.issubdtype(seeds.dtype, np.integer):
            raise TypeError(f"seed is an integer or an array of integers, not {seed!r}")
        if seeds.ndim == 0:
            seeds = seeds.astype(np.int64) + np.arange(count)
        if seeds.shape != (count,):
            raise ValueError(f"seed has the shape {(count,)}, not {seeds.shape}")
        if count and (seeds.min() < KEEPS_SEED or seeds.max() >= 2**32):
            raise ValueError("seeds are from 0 to 2**32 - 1, or -1, which goes on drawing")
        if self._has_begun:
            return seeds
        return np.where(seeds == KEEPS_SEED, np.random.SeedSequence().generate_state(count), seeds)

    def _directed(self, actions: np.ndarray) -> np.ndarray:
        """Returns the actions of f32[B, 3]: i32[B]."""
        if not np.isfinite(actions).all():
            raise ValueError(f"actions are finite numbers: {actions}")
        threshold = self.options.continuous_action_threshold
        radius, angle, fire = actions.T
        directions = []
        for part in (radius * np.cos(angle), radius * np.sin(angle)):
            directions.append(1 + (part > threshold) - (part < -threshold).astype(np.int32))
        return DIRECTED[directions[0], directions[1], (fire > threshold).astype(np.int32)]

    def _refuse(self, actions: np.ndarray, strengths: np.ndarray | None, call: str) -> NoReturn:
        """Raises an error that says why C++ did not take the actions."""
        if ((actions < 0) | (actions >= self._num_actions)).any():
            raise ValueError(f"actions are from 0 to {self._num_actions - 1}: {actions}")
        if strengths is not None and not (np.abs(strengths) <= 1).all():
            raise ValueError(f"the radius is from 0 to 1: {strengths}")
        if not self._has_begun:
            raise RuntimeError(f"{call} comes after reset: call reset first")
        raise RuntimeError(f"{call} comes after recv: a step is under way, call recv first")


def _action_space(options: VectorOptions) -> Space:
    if not options.continuous:
        return Discrete(len(options.action_meanings))
    low, high = np.array([[0, -np.pi, 0], [1, np.pi, 1]], np.float32)
    return Box(low, high, (3,), np.float32)
