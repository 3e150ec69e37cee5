"""A trained policy as one safe file: its parameters, and the record of its training.

The format is safetensors: arrays by their path in the actor, and the texts of the run directory by
the names of their files, with a checksum of all. Reading it runs no code of the file. Where a run
directory is expected, a policy's file is unpacked into a temporary one, in which it stands in place
of the checkpoints.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors.numpy import save

from jaxrl.config import needs
from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml
from jaxrl.errors import DamagedError, UserError
from jaxrl.runs import checkpoint_tables, evaluation_record, layout, metrics
from jaxrl.runs.directory import load_config
from jaxrl.runs.evaluation_record import PROTOCOLS, Evaluation
from jaxrl.runs.files import read_object, writing
from jaxrl.types import ActorState, PyTree

FORMAT = "jaxrl policy 1"
CHECKSUM = "sha256"  # key of the checksum of everything else in the file; older files have none
MOST_LINES = 200  # evenly spread lines of metrics.jsonl, beside those that say more than a point
EVALUATIONS = [f"{layout.EVALUATIONS}/{protocol}.json" for protocol in PROTOCOLS]
Results = dict[str, Evaluation]  # by protocol
TEXTS = [layout.CONFIG, layout.PROVENANCE, layout.METRICS, layout.EVALUATION, *EVALUATIONS]


def halved(actor: ActorState) -> ActorState:
    """Returns the actor with parameters of float16, which `restore` reads as float32.

    Raises `UserError` where a parameter is larger than 65,504, the largest number of float16.
    """

    def half(x: Any) -> Any:
        return np.asarray(x).astype(np.float16) if x.dtype == np.float32 else x

    with np.errstate(over="ignore"):
        params = jax.tree.map(half, actor.params)
    for before, after in zip(jax.tree.leaves(actor.params), jax.tree.leaves(params), strict=True):
        if not np.array_equal(np.isfinite(before), np.isfinite(after)):
            raise UserError("half: a parameter is larger than 65,504: leave --half out")
    return actor._replace(params=params)


def widened(actor: ActorState) -> ActorState:
    """Returns the actor whose parameters of float16 are float32 again."""

    def whole(x: Any) -> Any:
        return jnp.asarray(x, jnp.float32) if x.dtype == np.float16 else x

    return actor._replace(params=jax.tree.map(whole, actor.params))


def results_of(run_dir: Path, step: int) -> Results:
    """Returns the evaluations of a run that are of this step, by their protocols."""
    results = evaluation_record.read_all(run_dir)
    return {protocol: result for protocol, result in results.items() if result.step == step}


def write(target: Path, run_dir: Path, actor: PyTree, step: int, results: Results) -> None:
    """Writes the policy of a run, trained for `step` agent steps, to a file, whole or not at all.

    `results` are its evaluations. Raises `UserError` if the file exists, and as `files.writing`
    does.
    """
    if target.exists():
        raise UserError(f"'{target}' exists: choose another name")
    config = load_config(run_dir)
    texts = {"format": FORMAT, "step": str(step)} | _texts(run_dir, config, step, results)
    if needed := needs.described(config):
        texts["needs"] = ", ".join(needed)
    table = {name: np.asarray(x) for name, x in checkpoint_tables.flatten(actor).items()}
    texts[CHECKSUM] = checksum(table, texts)
    with writing(target) as temporary:
        temporary.write_bytes(save(table, texts))


def checksum(table: dict[str, np.ndarray], texts: dict[str, str]) -> str:
    """Returns the SHA-256 of arrays and texts with their names, without that of a checksum."""
    digest = hashlib.sha256()
    for name in sorted(texts.keys() - {CHECKSUM}):
        digest.update(json.dumps([name, texts[name]]).encode())
    for name, array in sorted(table.items()):
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _texts(run_dir: Path, config: Config, step: int, results: Results) -> dict[str, str]:
    """Returns the texts of a run by file name, as those of a policy of this step."""
    texts = {layout.CONFIG: to_toml(config.replaced(run_dir=""))}
    with contextlib.suppress(UserError):
        if provenance := read_object(run_dir / layout.PROVENANCE):
            texts[layout.PROVENANCE] = json.dumps(provenance)
    rows = [row for row in metrics.read(run_dir) if row["step"] <= step]
    texts[layout.METRICS] = "".join(json.dumps(row) + "\n" for row in _thinned(rows))
    for protocol, result in results.items():
        text = json.dumps(dataclasses.asdict(result))
        texts[f"{layout.EVALUATIONS}/{protocol}.json"] = text
        if layout.EVALUATION not in texts or protocol == evaluation_record.protocol_of(config):
            texts[layout.EVALUATION] = text
    return texts


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns lines at equal distances, and all that readers look for.

    These are the last line, those of evaluations, and where a session begins its line and the one
    before, by which `metrics.covers_first_games` counts the games of a session.
    """
    distance = -(-len(rows) // MOST_LINES) or 1
    starts = {number for number, row in enumerate(rows) if "compile_seconds" in row}
    numbers = {len(rows) - 1, *range(0, len(rows), distance), *starts, *(n - 1 for n in starts)}
    return [row for n, row in enumerate(rows) if n in numbers or "evaluation/mean" in row]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """Opens a policy's file and reads its texts. Raises `UserError`, or `DamagedError`."""
    try:
        if not path.is_file():  # a pipe would block
            raise OSError("it is not a file")
        with safetensors.safe_open(path, framework="numpy") as file:
            texts = file.metadata() or {}
            form = texts.get("format", "")
            if form != FORMAT or not texts.get("step", "").isdecimal():
                raise UserError(f"'{path}' is not a policy of this jaxrl: its format "
                                f"is '{form[:40]}', not '{FORMAT}'")  # fmt: skip
            yield file, texts
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the policy '{path}': {error}") from None
    except safetensors.SafetensorError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, wrong: str) -> DamagedError:
    return DamagedError(f"the policy '{path}' is damaged ({wrong}): take another copy of it")


def _unfit(path: Path, wrong: str) -> UserError:
    return UserError(f"'{path}' does not fit its configuration: {wrong}")


def _arrays(file: Any) -> dict[str, np.ndarray]:
    """Reads all arrays. Raises `ValueError` for one of a type that NumPy does not have."""
    try:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None


def restore(path: Path, template: PyTree) -> tuple[PyTree, int]:
    """Reads a policy in the structure of the template; returns its agent step too.

    Raises `UserError` if an array is missing or has another shape or type.
    """
    with _opened(path) as (file, texts):
        names = set(file.keys())
        table = {}
        for name, leaf in checkpoint_tables.flatten(template).items():
            if name not in names:
                raise _unfit(path, f"it has no '{name}'")
            shape = tuple(file.get_slice(name).get_shape())  # before the array is read
            if shape != leaf.shape:
                raise _unfit(path, f"'{name}' has shape {shape}, not {leaf.shape}")
            array = file.get_tensor(name)
            if array.dtype == np.float16 and leaf.dtype == np.float32:  # of `halved`
                array = array.astype(np.float32)
            if array.dtype != leaf.dtype:
                raise _unfit(path, f"'{name}' is {array.dtype}, not {leaf.dtype}")
            table[name] = jax.device_put(array, leaf.sharding)
        return checkpoint_tables.unflatten(template, table), int(texts["step"])


def unpack(path: Path, run_dir: Path) -> None:
    """Makes a run directory of a policy's file.

    Raises `UserError` if it is none, `DamagedError` if it has changed since it was written.
    """
    with _opened(path) as (file, texts):
        if CHECKSUM in texts and checksum(_arrays(file), texts) != texts[CHECKSUM]:
            raise _damaged(path, "it is not what was written")
        (run_dir / layout.EVALUATIONS).mkdir(parents=True)
        for name in TEXTS:  # and no other, which could lead elsewhere
            if name in texts:
                (run_dir / name).write_text(texts[name], encoding="utf-8")
    shutil.copyfile(path, run_dir / layout.POLICY)
