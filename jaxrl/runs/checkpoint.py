"""Checkpoints by Orbax: asynchronous, atomic, checksummed; the newest and the best are kept.

A checkpoint is three flat tables of arrays and `progress`, a JSON object. `actor` is enough
to play; `learner` is the rest that is the same on every device; `local` differs between devices
(games, their statistics and keys, memory). Arrays are named by their path, so the format does not
depend on their classes. On another number of devices the memory is not read, and games
come in the layout of those that saved them.

A checkpoint is complete when its directory has its final name, and good when its SHA256SUMS holds.
"""

import contextlib
import dataclasses
import enum
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table
from jaxrl.errors import StorageError, UserError
from jaxrl.runs import checkpoint_files, checkpoint_tables, checksums, layout, policy_file
from jaxrl.runs.checkpoint_tables import ITEMS, flatten, literal_directory, unflatten, vacate
from jaxrl.runtime import malloc
from jaxrl.types import AgentState, LoopState, PyTree

GAMES = ("env", "timestep", "observation", "sent")  # fields of a group; saved if the engine can

# Orbax logs a traceback for every thread of a save that fails, and TensorStore prints one for every
# write that Orbax no longer waits for; this module reports the failure in one line.
for _name_of_logger in ("absl", "asyncio"):
    logging.getLogger(_name_of_logger).setLevel(logging.CRITICAL)
_hook_before = sys.unraisablehook


def _hook(raised: Any) -> None:
    if str(raised.exc_value) != "Event loop is closed":
        _hook_before(raised)


sys.unraisablehook = _hook


class _SummedDirectory(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """Orbax's directory of a save; it gets its final name when its checksums are on the disk."""

    _final_path: Any

    async def finalize(self) -> None:
        final = self._final_path
        if not final.name.isdecimal():  # the directory of one item, inside the checkpoint
            await super().finalize()
            return
        # Orbax completes all files, then renames: to another temporary name.
        self._final_path = final.with_name(f"{self.get().name}-summed")
        await super().finalize()
        whole, self._final_path = Path(self._final_path), final
        if wrong := checkpoint_files.unreadable(whole):
            raise ValueError(wrong)
        checksums.write(whole)
        whole.replace(final)
        checksums.sync_directory(Path(final.parent))


def _learner(state: LoopState) -> dict[str, PyTree]:
    """Returns the state that is the same on every device, without the actor."""
    return {"train_state": state.agent.train_state, "key": state.key, "metrics": state.metrics}


def drop_games(groups: Any) -> Any:
    """Returns groups of games with their statistics and keys alone."""
    nothing: Any = dict.fromkeys(GAMES, ())
    return tuple(group._replace(**nothing) for group in groups)


def num_devices(state: LoopState) -> int:
    """Returns the number of devices that hold the state."""
    return len(state.key.sharding.device_set)


class RestoreLevel(enum.Enum):
    """The part of the games that a checkpoint provides."""

    GAMES = enum.auto()  # everything
    STATISTICS = enum.auto()  # the statistics and keys alone, for new games
    NOTHING = enum.auto()


class RestoredRun(NamedTuple):
    """The state that a checkpoint provides, with its description."""

    state: LoopState
    description: checkpoint_files.Description
    level: RestoreLevel


def restore_actor(run_dir: Path, template: PyTree, step: int | None = None) -> tuple[PyTree, int]:
    """Reads the actor of the newest good checkpoint, or of `step`; returns its agent step too.

    A directory that was unpacked from a policy's file holds that one policy.
    """
    if (run_dir / layout.POLICY).is_file():
        actor, saved_step = policy_file.restore(run_dir / layout.POLICY, template)
        if step not in (None, saved_step):
            raise UserError(f"no checkpoint {step}: the file holds the policy of step {saved_step}")
        return actor, saved_step
    step = checkpoint_files.newest_good(run_dir, step)
    checkpoint_files.describe(run_dir, step)
    return checkpoint_tables.restore(run_dir, step, {"actor": template})["actor"], step


class Checkpoints:
    """The checkpoints of one run; only one object at a time may read and write them."""

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        games: str = "catch 1",
        newest: int | None = None,
        members: int = 1,
    ) -> None:
        """Saves the games if they have a format, and the memory if the configuration asks.

        `games` is the engine's `state_format`, `newest` the step of the checkpoint that training
        continues from. Several processes share one directory and call every method together. The
        `members` of a population need three or more each: while one begins its next, another may
        still be deleting an older one than all have.
        """
        self._run_dir, self._config, self._games = run_dir, config, games
        self._evaluated = bool(config.evaluation.interval)  # whether evaluations rank checkpoints
        self._members = members
        self._keep = config.checkpoint.keep if members == 1 else max(config.checkpoint.keep, 3)
        self._empty_deleted()  # left by a kill
        self._stack = contextlib.ExitStack()
        self._directory = self._stack.enter_context(literal_directory(run_dir))
        self._manager = self._open()
        self._started: int | None = None  # step of the save that is being written
        self.newest = newest  # step of the newest complete checkpoint

    def _open(self) -> ocp.CheckpointManager:
        def comparable_mean(metrics: dict[str, float | None]) -> float:
            mean = metrics[checkpoint_files.RANKED_BY]
            same_kind = bool(metrics.get(checkpoint_files.EVALUATED)) == self._evaluated
            return mean if mean is not None and same_kind else float("-inf")

        newest = policies.LatestN(self._keep)
        best = policies.BestN(
            get_metric_fn=comparable_mean, n=1, keep_checkpoints_without_metrics=False
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy([newest, best]),
            best_fn=comparable_mean,  # without it Orbax does not store the means that it compares
            temporary_path_class=_SummedDirectory,
            todelete_subdir=checkpoint_files.DELETED,
            cleanup_tmp_directories=True,  # left by a kill
        )
        return ocp.CheckpointManager(self._directory, options=options, item_names=ITEMS)

    def save(
        self, state: LoopState, progress: checkpoint_files.Progress, mean: float | None
    ) -> None:
        """Starts writing and returns; the state may be donated afterwards.

        `mean` ranks the checkpoint: its evaluation's, where the run has evaluations, or the return.

        A memory may be too large to copy: with one, the call returns when everything is written.
        Raises `StorageError` if this save cannot begin, or the previous one has failed.
        """
        self.wait()
        if progress.step == self.newest:
            return
        memory = state.agent.memory if self._config.checkpoint.memory else ()
        local = {"games": state.games if self._games else drop_games(state.games)}
        # Copied on the device: the next compiled call overwrites these buffers in place.
        actor, learner, games = jax.tree.map(
            jnp.copy, (state.agent.actor, _learner(state), local["games"])
        )
        description = dataclasses.asdict(progress) | {
            "format": checkpoint_files.FORMAT,
            "devices": num_devices(state),
            "games": self._games,
            "members": self._members,
            "config": dataclasses.asdict(self._config),
        }
        self._started = progress.step
        with self._one_line_failures():
            self._manager.save(
                progress.step,
                args=ocp.args.Composite(
                    actor=ocp.args.StandardSave(flatten(actor)),
                    learner=ocp.args.StandardSave(flatten(learner)),
                    local=ocp.args.StandardSave(flatten({"games": games, "memory": memory})),
                    progress=ocp.args.JsonSave(description),
                ),
                metrics={
                    checkpoint_files.RANKED_BY: mean,
                    checkpoint_files.EVALUATED: float(self._evaluated),
                },
            )
        if jax.tree.leaves(memory):
            self.wait()

    def wait(self) -> None:
        """Waits until the current save is complete. Raises `StorageError` if it failed."""
        with self._one_line_failures():
            self._manager.wait_until_finished()
        self.newest = self._started if self._started is not None else self.newest
        if self._started is not None:
            self._empty_deleted()
            malloc.trim()
        self._started = None

    def _empty_deleted(self) -> None:
        if jax.process_index() == 0:
            shutil.rmtree(
                checkpoint_files.directory(self._run_dir) / checkpoint_files.DELETED,
                ignore_errors=True,
            )

    def poll(self) -> None:
        """Notes that the current save is complete, if it is; never waits."""
        if self._started is not None and not self._manager.is_saving_in_progress():
            self.wait()

    @contextlib.contextmanager
    def _one_line_failures(self) -> Any:
        try:
            yield
        except (OSError, ValueError) as error:
            step, self._started = self._started, None
            if jax.process_count() > 1 and _errno(error) is None:
                raise  # another process may have been lost
            failure = StorageError(f"checkpoint {step} could not be written: {_reason(error)}")
            if jax.process_count() > 1:  # all would have to restart together
                raise failure from error
            # Orbax leaves partial files, and has forgotten some checkpoints that are still there.
            with contextlib.suppress(OSError, ValueError):
                self._manager.close()
            self._empty_deleted()
            self._manager = self._open()
            if step is not None and not checkpoint_files.damage(self._run_dir, step):
                self.newest = step  # this one is complete; another could not be deleted
                print(f"warning: after checkpoint {step}: {_reason(error)}", file=sys.stderr)
                return
            raise failure from error

    def restore(
        self,
        template: LoopState,
        step: int,
        saved_shapes: Callable[[Any, int], Any] | None = None,
    ) -> RestoredRun:
        """Reads the checkpoint of `step` in the layout of the template, which is used up.

        The template provides what the checkpoint does not hold. From another number of devices
        comes no memory, and games only where `saved_shapes(groups, devices)` gives the layout to
        read them in, which they keep.
        """
        description = checkpoint_files.describe(self._run_dir, step)
        same = description.devices == num_devices(template)
        saved_config = from_table(description.config)
        # The overlapped order holds a step under way, which the strict one cannot receive.
        same_order = saved_config.parallel.order == self._config.parallel.order
        level = RestoreLevel.STATISTICS if same else RestoreLevel.NOTHING
        if description.games == self._games != "" and same_order and (same or saved_shapes):
            level = RestoreLevel.GAMES
        learner = flatten(_learner(template))
        lacking, in_part = self._other_metrics(learner, step)
        tables: dict[str, PyTree] = {
            "actor": template.agent.actor,
            "learner": {path: x for path, x in learner.items() if path not in lacking},
        }
        groups, memory = template.games, template.agent.memory
        memory_saved = same and saved_config.checkpoint.memory
        local: dict[str, PyTree] = {}
        if level is not RestoreLevel.NOTHING:
            local["games"] = groups if level is RestoreLevel.GAMES else drop_games(groups)
            if saved_shapes and not same:
                local["games"] = saved_shapes(local["games"], description.devices)
        if memory_saved:
            # A device may have no room for a second memory.
            local["memory"] = jax.tree.map(vacate, memory)
        if jax.tree.leaves(local):
            tables["local"] = local
        # Otherwise the checkpoint holds games that are not read.
        exactly = same and (level is RestoreLevel.GAMES or not description.games)
        parts = (() if exactly else ("local",)) + (("learner",) if in_part else ())
        restored = checkpoint_tables.restore(self._run_dir, step, tables, parts)
        learner = unflatten(_learner(template), learner | restored["learner"])
        saved: Any = restored.get("local", {})
        groups = saved.get("games", groups)
        if level is RestoreLevel.STATISTICS:
            groups = tuple(
                group._replace(**{name: getattr(new, name) for name in GAMES})
                for group, new in zip(groups, template.games, strict=True)
            )
        memory = saved.get("memory", memory)
        agent = AgentState(restored["actor"], learner["train_state"], memory)
        state = LoopState(agent, groups, learner["key"], learner["metrics"])
        return RestoredRun(state, description, level)

    def _other_metrics(self, learner: dict[str, jax.Array], step: int) -> tuple[set[str], bool]:
        """Returns the metrics that the checkpoint lacks, and whether to read a part of the table.

        Versions of jaxrl log other metrics: what a line still owes begins again at zero. Where
        other arrays differ too, the table is not read in part, which would leave them out.
        """
        held = checkpoint_tables.names(self._run_dir, step, "learner")
        differing = held ^ learner.keys()
        only_metrics = all(path.startswith("metrics.") for path in differing)
        return (set(learner) - held, bool(differing)) if only_metrics else (set(), False)

    def close(self) -> None:
        """Waits for the current save and closes. Raises `StorageError` if it failed."""
        with self._stack:
            self.wait()
            self._manager.close()


def _errno(error: BaseException) -> int | None:
    """Returns the system's number of an error, which TensorStore writes in its message."""
    number = str(error).partition("os_error_code='")[2].partition("'")[0]
    return int(number) if number.isdecimal() else getattr(error, "errno", None)


def _reason(error: BaseException) -> str:
    """Returns the system's message, without the long text of a library."""
    number = _errno(error)
    return " ".join(str(error).split())[:300] if number is None else os.strerror(number)
