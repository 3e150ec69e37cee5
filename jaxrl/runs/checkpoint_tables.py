"""The tables of a checkpoint: flat, of arrays by their path, with random keys as their data."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from jaxrl.errors import DamagedError, UserError
from jaxrl.runs import checkpoint_files
from jaxrl.runs.checkpoint_files import TABLES
from jaxrl.types import PyTree

ITEMS = (*TABLES, "progress")
# Orbax lists folders by patterns, where `[` and `*` are special, and takes /gs, /s3 and gs:/ for
# clouds; TensorStore takes a backslash for a slash, and wants UTF-8. Paths with anything but these
# characters are given to them as the number of the open folder.
_LITERAL = re.compile(r"(?!/(gs|s3|az|hf)/)[\w /.,;=+@%~#&()'-]*")


@contextlib.contextmanager
def literal_directory(run_dir: Path) -> Iterator[Path]:
    """Provides a path of a run's checkpoints that Orbax and TensorStore read as the system does."""
    directory = checkpoint_files.directory(run_dir)
    if _LITERAL.fullmatch(str(directory)):
        yield directory
        return
    number = os.open(directory.parent, os.O_RDONLY)
    try:
        yield Path(f"/proc/self/fd/{number}") / directory.name
    finally:
        os.close(number)


def is_key(x: Any) -> bool:
    """Returns whether an array holds random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def vacate(x: jax.Array) -> jax.ShapeDtypeStruct:
    """Frees the buffer of an array and returns its shape and sharding."""
    place = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    x.delete()
    return place


def flatten(tree: PyTree) -> dict[str, jax.Array]:
    """Returns a table of arrays by path, with random keys as their data."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): jax.random.key_data(x) if is_key(x) else x for path, x in leaves}


def unflatten(template: PyTree, table: dict[str, jax.Array]) -> PyTree:
    """Returns the arrays of a table in the structure of the template."""

    def find(path: Any, leaf: jax.Array) -> jax.Array:
        array = table[_name(path)]
        return jax.random.wrap_key_data(array) if is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(find, template)


def _part(table: dict[str, PyTree]) -> ocp.args.CheckpointArgs:
    """Reads the arrays of the table, which may be some of those in the checkpoint."""

    def place(x: Any) -> ocp.ArrayRestoreArgs:
        return ocp.ArrayRestoreArgs(sharding=x.sharding, global_shape=x.shape, dtype=x.dtype)

    return ocp.args.PyTreeRestore(
        item=table, restore_args=jax.tree.map(place, table), partial_restore=True
    )


def names(run_dir: Path, step: int, table: str) -> set[str]:
    """Returns the paths of the arrays that a table of the checkpoint holds.

    Raises `DamagedError` if they cannot be read.
    """
    try:
        with literal_directory(run_dir) as directory:
            held: Any = ocp.PyTreeCheckpointHandler().metadata(directory / str(step) / table)
            return set(held.tree)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0].partition(" [")[0]
        raise DamagedError(
            f"checkpoint {step} of '{run_dir}' cannot be read: {table}: {reason[:300]}"
        ) from error


def restore(
    run_dir: Path, step: int, tables: dict[str, PyTree], parts: tuple[str, ...] = ()
) -> dict[str, PyTree]:
    """Reads tables in the layout of their templates; `parts` may hold less than the checkpoint.

    Raises `UserError` if the checkpoint has other arrays than the templates.
    """
    arguments = {
        name: (_part if name in parts else ocp.args.StandardRestore)(flatten(tree))
        for name, tree in tables.items()
    }
    options = ocp.CheckpointManagerOptions(read_only=True, lightweight_initialize=True)
    with (
        literal_directory(run_dir) as directory,
        ocp.CheckpointManager(directory, options=options, item_names=ITEMS) as manager,
    ):
        try:
            saved = manager.restore(step, args=ocp.args.Composite(**arguments))
            return {name: unflatten(tree, saved[name]) for name, tree in tables.items()}
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(run_dir, step, error) from error


def _unreadable(run_dir: Path, step: int, error: Exception) -> UserError | DamagedError:
    """Returns the error of a checkpoint whose arrays cannot be read, or are others."""
    reason, *specification = str(error).strip().partition("\n")[0].split(" [")
    if any("tensorstore_spec" in part for part in specification):  # what TensorStore could not read
        return DamagedError(f"checkpoint {step} of '{run_dir}' cannot be read: {reason}")
    return UserError(
        f"checkpoint {step} of '{run_dir}' does not fit its configuration: "
        f"{reason.partition('. ')[0]}"
    )
