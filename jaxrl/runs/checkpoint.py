"""Checkpoints by Orbax: asynchronous, atomic, checksummed; the newest and the best are kept.

A checkpoint is three flat tables of arrays and `progress`, a JSON object. `actor` is enough
to play; `learner` is the rest that is the same on every device; `local` differs between devices
(games, their statistics and keys, memory). Arrays are named by their path, so the format does not
depend on the classes that held them. On another number of devices `local` is not read.

A checkpoint is complete when its directory has its final name, and good when its SHA256SUMS holds.
"""

import contextlib
import dataclasses
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table
from jaxrl.errors import StorageError, UserError
from jaxrl.runs import checkpoint_files, checksums
from jaxrl.runtime import malloc
from jaxrl.types import AgentState, LoopState, PyTree

GAMES = ("env", "timestep", "observation", "sent")  # of a group; saved if the engine is restorable
ITEMS = ("actor", "learner", "local", "progress")

# Orbax logs a traceback for every thread of a save that fails, and TensorStore prints one for every
# write that Orbax no longer waits for; this module reports the failure in one line.
for _name_of_logger in ("absl", "asyncio"):
    logging.getLogger(_name_of_logger).setLevel(logging.CRITICAL)
_hook_before = sys.unraisablehook


def _hook(raised: Any) -> None:
    if str(raised.exc_value) != "Event loop is closed":
        _hook_before(raised)


sys.unraisablehook = _hook


class _Summed(ocp.path.atomicity.AtomicRenameTemporaryPath):
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
        checksums.write(whole)
        whole.replace(final)
        checksums.sync_directory(Path(final.parent))


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _vacate(x: jax.Array) -> jax.ShapeDtypeStruct:
    """Frees the buffer of an array and returns its shape and sharding."""
    place = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    x.delete()
    return place


def _flatten(tree: PyTree) -> dict[str, jax.Array]:
    """Returns a table of arrays by path, with random keys as their data."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): jax.random.key_data(x) if _is_key(x) else x for path, x in leaves}


def _unflatten(template: PyTree, table: dict[str, jax.Array]) -> PyTree:
    """Returns the arrays of a table in the structure of the template."""

    def find(path: Any, leaf: jax.Array) -> jax.Array:
        array = table[_name(path)]
        return jax.random.wrap_key_data(array) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(find, template)


def _learner(state: LoopState) -> dict[str, PyTree]:
    """Returns the state that is the same on every device, without the actor."""
    return {"train_state": state.agent.train_state, "key": state.key, "metrics": state.metrics}


def num_devices(state: LoopState) -> int:
    """Returns the number of devices that hold the state."""
    return len(state.key.sharding.device_set)


def _restore(run_dir: Path, step: int, tables: dict[str, PyTree]) -> dict[str, PyTree]:
    """Reads the named tables in the layout of their templates."""
    arguments = {name: ocp.args.StandardRestore(_flatten(t)) for name, t in tables.items()}
    options = ocp.CheckpointManagerOptions(read_only=True, lightweight_initialize=True)
    with ocp.CheckpointManager(
        checkpoint_files.directory(run_dir), options=options, item_names=ITEMS
    ) as manager:
        try:
            found = manager.restore(step, args=ocp.args.Composite(**arguments))
            return {name: _unflatten(tree, found[name]) for name, tree in tables.items()}
        except (ValueError, KeyError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0].partition(". ")[0]
            raise UserError(
                f"checkpoint {step} of '{run_dir}' does not fit its configuration: {reason}"
            ) from error


def restore_actor(run_dir: Path, template: PyTree, step: int | None = None) -> tuple[PyTree, int]:
    """Reads the actor of the newest good checkpoint, or of `step`; returns its agent step too."""
    step = checkpoint_files.newest_good(run_dir, step)
    checkpoint_files.describe(run_dir, step)
    return _restore(run_dir, step, {"actor": template})["actor"], step


class Checkpoints:
    """The checkpoints of one run; only one object at a time may read and write them."""

    def __init__(
        self, run_dir: Path, config: Config, restorable: bool = True, newest: int | None = None
    ) -> None:
        """Saves the games if they are `restorable`, and the memory if the configuration asks.

        `newest` is the step of the checkpoint that training continues from. Several processes share
        one directory and call every method together.
        """
        self._run_dir, self._config, self._restorable = run_dir, config, restorable
        self._empty_deleted()  # left by a kill
        self._manager = self._open()
        self._started: int | None = None  # step of the save that is being written
        self.newest = newest  # step of the newest complete checkpoint

    def _open(self) -> ocp.CheckpointManager:
        def by_return(metrics: dict[str, float | None]) -> float:
            mean = metrics["return_mean"]
            return float("-inf") if mean is None else mean

        newest = policies.LatestN(self._config.checkpoint.keep)
        best = policies.BestN(get_metric_fn=by_return, n=1, keep_checkpoints_without_metrics=False)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy([newest, best]),
            best_fn=by_return,  # without it Orbax does not store the returns that it compares
            temporary_path_class=_Summed,
            todelete_subdir=checkpoint_files.DELETED,
            cleanup_tmp_directories=True,  # left by a kill
        )
        return ocp.CheckpointManager(
            checkpoint_files.directory(self._run_dir), options=options, item_names=ITEMS
        )

    def _local(self, state: LoopState, memory: bool) -> dict[str, PyTree]:
        """Returns the state that differs between devices, without what no checkpoint holds."""
        games: Any = state.games
        if not self._restorable:
            nothing: Any = dict.fromkeys(GAMES, ())
            games = tuple(group._replace(**nothing) for group in games)
        return {"games": games, "memory": state.agent.memory if memory else ()}

    def save(
        self, state: LoopState, progress: checkpoint_files.Progress, return_mean: float | None
    ) -> None:
        """Starts writing and returns; the state may be donated afterwards.

        A memory may be too large to copy: with one, the call returns when everything is written.
        Raises `StorageError` if this save cannot begin, or the previous one has failed.
        """
        self.wait()
        if progress.step == self.newest:
            return
        local = self._local(state, self._config.checkpoint.memory)
        # Copied on the device: the next compiled call overwrites these buffers in place.
        actor, learner, games = jax.tree.map(
            jnp.copy, (state.agent.actor, _learner(state), local["games"])
        )
        described = dataclasses.asdict(progress) | {
            "format": checkpoint_files.FORMAT,
            "devices": num_devices(state),
            "config": dataclasses.asdict(self._config),
        }
        self._started = progress.step
        with self._one_line_failures():
            self._manager.save(
                progress.step,
                args=ocp.args.Composite(
                    actor=ocp.args.StandardSave(_flatten(actor)),
                    learner=ocp.args.StandardSave(_flatten(learner)),
                    local=ocp.args.StandardSave(_flatten(local | {"games": games})),
                    progress=ocp.args.JsonSave(described),
                ),
                metrics={"return_mean": return_mean},
            )
        if jax.tree.leaves(local["memory"]):
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
            if jax.process_count() > 1:  # all would have to restart together
                raise StorageError(
                    f"checkpoint {step} could not be written: {_reason(error)}"
                ) from error
            # Orbax leaves partial files, and has forgotten some checkpoints that are still there.
            with contextlib.suppress(OSError, ValueError):
                self._manager.close()
            self._empty_deleted()
            self._manager = self._open()
            if step is not None and not checksums.damage(
                checkpoint_files.directory(self._run_dir) / str(step)
            ):
                self.newest = step  # this one is complete; another could not be deleted
                print(f"warning: after checkpoint {step}: {_reason(error)}", file=sys.stderr)
                return
            raise StorageError(
                f"checkpoint {step} could not be written: {_reason(error)}"
            ) from error

    def restore(
        self, template: LoopState, step: int
    ) -> tuple[LoopState, checkpoint_files.Described]:
        """Reads the checkpoint of `step` in the layout of the template, which is used up.

        The template provides what no checkpoint holds (the games, the memory). It provides all of
        `local` if the checkpoint is from another number of devices.
        """
        described = checkpoint_files.describe(self._run_dir, step)
        same = described.devices == num_devices(template)
        memory_saved = from_table(described.config).checkpoint.memory
        tables: dict[str, PyTree] = {"actor": template.agent.actor, "learner": _learner(template)}
        if same:
            local = self._local(template, memory_saved)
            # A device may have no room for a second memory.
            tables["local"] = local | {"memory": jax.tree.map(_vacate, local["memory"])}
        restored = _restore(self._run_dir, step, tables)
        actor, learner = restored["actor"], restored["learner"]
        games, memory = template.games, template.agent.memory
        if same:
            games = restored["local"]["games"]
            memory = restored["local"]["memory"] if memory_saved else memory
            if not self._restorable:
                games = tuple(
                    kept._replace(**{name: getattr(new, name) for name in GAMES})
                    for kept, new in zip(games, template.games, strict=True)
                )
        state = LoopState(
            agent=AgentState(actor, learner["train_state"], memory),
            games=games,
            key=learner["key"],
            metrics=learner["metrics"],
        )
        return state, described

    def close(self) -> None:
        """Waits for the current save and closes. Raises `StorageError` if it failed."""
        self.wait()
        self._manager.close()


def _errno(error: BaseException) -> int | None:
    """Returns the system's number of an error, which TensorStore writes in its message."""
    found = str(error).partition("os_error_code='")[2].partition("'")[0]
    return int(found) if found.isdecimal() else getattr(error, "errno", None)


def _reason(error: BaseException) -> str:
    """Returns the system's message, without the long text of a library."""
    number = _errno(error)
    return " ".join(str(error).split())[:300] if number is None else os.strerror(number)
