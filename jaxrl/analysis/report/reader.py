"""What a report tells of a run directory, read with suspicion: files may be missing or damaged."""

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxrl.analysis.groups import distinct_names
from jaxrl.config.diff import flat
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.directory import check_inside, load_config
from jaxrl.runs.lock import is_held

SKIPPED = "loss/skipped_updates"
LEAST_GOODPUT = 0.9  # below it, a warning
LONG_RUN = 600  # seconds; in a shorter one compilation counts for much
LARGEST_FILE = 50_000_000  # bytes; what a run writes beside its metrics is far smaller


@dataclass(frozen=True)
class GameSection:
    """What evaluation.json says, as far as it makes sense."""

    game: str
    protocol: str
    step: int | None  # agent steps of training
    episodes: int
    mean: float
    median: float
    std: float
    human_normalized: float | None
    lowest: float | None
    highest: float | None
    played: str  # under which conditions; empty if not recorded


@dataclass
class ReportedRun:
    """One run directory."""

    path: Path
    name: str  # different from those of the other runs
    rows: list[dict[str, Any]]  # of metrics.jsonl, with finite axes
    config: dict[str, Any] = field(default_factory=dict)  # "agent.gamma" -> value; empty if unknown
    provenance: dict[str, Any] = field(default_factory=dict)
    evaluation: GameSection | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def commit(self) -> str:
        """Of jaxrl when the run was started; empty if unknown."""
        return text(self.provenance.get("git_commit"))

    @property
    def resumed(self) -> list[Any]:
        """One entry per resume."""
        entries = self.provenance.get("resumed")
        return entries if isinstance(entries, list) else []

    def final(self, key: str) -> float | None:
        """The last number under this key."""
        return next((x for row in reversed(self.rows) if (x := number(row.get(key))) is not None),
                    None)  # fmt: skip


def number(value: Any) -> float | None:
    """A finite number as a float, None for anything else."""
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def text(value: Any) -> str:
    """A string as it is, short of what no file can hold; empty for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def read(run_dirs: list[Path]) -> list[ReportedRun]:
    """The runs, with what is wrong with each. Raises `UserError` where there are no metrics."""
    for path in run_dirs:
        check_inside(path)
    return [_read(path, name) for path, name in zip(run_dirs, _names(run_dirs), strict=True)]


def _names(run_dirs: list[Path]) -> list[str]:
    """The directories' names, as a page can show them, no two alike."""
    # A name of two dollars would be typeset as mathematics in a plot.
    names = [text(name).replace("$$", "$ $") for name in distinct_names(run_dirs)]
    return [
        name if names.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(names, start=1)
    ]


def short(commit: str) -> str:
    """The first digits of a commit, with its mark of changes."""
    return commit if len(commit) <= 12 else commit[:12] + "-dirty" * commit.endswith("-dirty")


def _read(path: Path, name: str) -> ReportedRun:
    run = ReportedRun(path, name, metrics.read(path))
    run.config = _config(run)
    run.provenance = _provenance(run)
    run.evaluation = _evaluation(run)
    run.warnings += _concerns(run)
    return run


def _object(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no file. Raises `UserError` for anything else."""
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("it is too large")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path.name} cannot be read: it holds no object")
    return value


def _config(run: ReportedRun) -> dict[str, Any]:
    """Every key that this jaxrl knows, or else what the file says; the directory is left out."""
    try:
        table = dataclasses.asdict(load_config(run.path))
    except UserError as error:
        run.warnings.append(_of_run(error, run))
        try:
            table = tomllib.loads((run.path / layout.CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
    return {key: value for key, value in flat(table).items() if key != "run_dir"}


def _of_run(error: Exception, run: ReportedRun) -> str:
    """The message, without the path that stands above it."""
    return str(error).replace(f"'{run.path}/config.toml'", layout.CONFIG)


def _provenance(run: ReportedRun) -> dict[str, Any]:
    try:
        found = _object(run.path / layout.PROVENANCE)
    except UserError as error:
        run.warnings.append(str(error))
        return {}
    if found is None:
        run.warnings.append(f"no {layout.PROVENANCE}: commit and devices are not known")
    return found or {}


def _evaluation(run: ReportedRun) -> GameSection | None:
    try:
        found = _object(run.path / layout.EVALUATION)
        return None if found is None else _games(found)
    except UserError as error:
        run.warnings.append(str(error))
    return None


def _games(found: dict[str, Any]) -> GameSection:
    """Raises `UserError` where something that is needed is missing."""
    figures = {key: number(found.get(key)) for key in ("episodes", "mean", "median", "std")}
    names = {key: text(found.get(key)) for key in ("game", "protocol")}
    for key, value in (figures | names).items():
        if value is None or value == "":
            raise UserError(f"{layout.EVALUATION} cannot be read: it has no '{key}'")
    scores = found.get("scores")
    good = [x for x in map(number, scores if isinstance(scores, list) else []) if x is not None]
    step = number(found.get("step"))
    return GameSection(
        **names,
        step=None if step is None else int(step),
        episodes=int(figures["episodes"] or 0),
        mean=figures["mean"] or 0.0,
        median=figures["median"] or 0.0,
        std=figures["std"] or 0.0,
        human_normalized=number(found.get("human_normalized_mean")),
        lowest=min(good, default=None),
        highest=max(good, default=None),
        played=_played(found.get("conditions")),
    )


def _played(conditions: Any) -> str:
    try:
        found = evaluation_record.read_conditions(conditions)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{layout.EVALUATION} cannot be read: {error}") from None
    return found.describe() if found else ""


def _concerns(run: ReportedRun) -> list[str]:
    """What a reader should know before trusting the figures."""
    found = []
    if not run.rows:
        found.append(f"{layout.METRICS} has no line yet")
    if is_held(run.path):
        found.append("still training: the figures are those of now")
    else:
        total, step = number(run.config.get("total_steps")), run.final("step")
        if total and step and step < total:
            found.append(f"ended after {step:,.0f} of {total:,.0f} agent steps")
    if skipped := sum(number(row.get(SKIPPED)) or 0.0 for row in run.rows):
        found.append(f"updates left out because their losses were not finite: {skipped:,.0f}")
    goodput = run.final("goodput")
    long = (run.final("wall_seconds") or 0) >= LONG_RUN
    if long and goodput is not None and goodput < LEAST_GOODPUT:
        found.append(f"goodput {goodput:.2f}: the rest of the time went into compilation, saving, "
                     "starting again or work that was lost")  # fmt: skip
    if (sticks := _stickiness(run)) is not None:
        found.append(sticks)
    if run.resumed:
        found.append(_resumes(run.resumed))
    if run.commit.endswith("-dirty"):
        found.append("trained by code with changes that are in no commit")
    if (run.path / checkpoint_files.DAMAGED).is_dir():
        found.append(f"damaged checkpoints were set aside in {checkpoint_files.DAMAGED}/")
    return found


def _stickiness(run: ReportedRun) -> str | None:
    """What differs between the actions of training and those of the evaluation."""
    trained = number(run.config.get("env.repeat_action_probability"))
    played = evaluation_record.STICKINESS.get(run.evaluation.protocol) if run.evaluation else None
    if trained is None or played is None or trained == played:
        return None
    return (f"actions repeated with probability {trained:g} in training, and {played:g} in the "
            "evaluation: published agents were trained as they were evaluated")  # fmt: skip


def _resumes(entries: list[Any]) -> str:
    keys = {
        text(key)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("overridden"), dict)
        for key in entry["overridden"]
    }
    changed = f", with another {', '.join(sorted(keys))}" if keys else ""
    return f"resumed {'once' if len(entries) == 1 else f'{len(entries)} times'}{changed}"
