"""Reads run directories for a report; their files may be missing, damaged or hostile."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxrl.analysis.groups import distinct_names, short_labels
from jaxrl.errors import UserError
from jaxrl.formatting import fault
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.directory import check_links, load_config, settings_by_key
from jaxrl.runs.evaluation_record import PROTOCOLS, Evaluation
from jaxrl.runs.files import read_object
from jaxrl.runs.lock import is_locked
from jaxrl.runs.paths import name_policies

UNKNOWN_GAME = "unknown game"
SKIPPED = "loss/skipped_updates"
LEAST_GOODPUT = 0.9  # below it, a warning
LONG_RUN = 600  # seconds; compilation weighs too much in shorter runs


@dataclass
class ReportedRun:
    """A run directory's contents, as a report shows them."""

    path: Path
    name: str  # different from those of the other runs, without the parts that all have
    rows: list[dict[str, Any]]  # the lines of metrics.jsonl, with finite axes
    config: dict[str, Any] = field(default_factory=dict)  # "agent.gamma" -> value; empty if unknown
    provenance: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def commit(self) -> str:
        """Commit of jaxrl when the run was started; empty if unknown."""
        return text(self.provenance.get("git_commit"))

    @property
    def game(self) -> str:
        """The game that it trains on."""
        return text(self.config.get("game")) or UNKNOWN_GAME

    @property
    def frame_skip(self) -> int:
        """Emulator frames of an agent step; older configurations do not say it."""
        return int(number(self.config.get("env.frame_skip")) or 4)

    @property
    def resumed(self) -> list[Any]:
        """One entry per resume."""
        entries = self.provenance.get("resumed")
        return entries if isinstance(entries, list) else []

    def final(self, key: str) -> float | None:
        """Returns the last number under this key."""
        return next((x for row in reversed(self.rows) if (x := number(row.get(key))) is not None),
                    None)  # fmt: skip


def number(value: Any) -> float | None:
    """Returns a finite number as a float, None for anything else."""
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def text(value: Any) -> str:
    """Returns a string without characters that UTF-8 cannot encode; empty for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def read(run_dirs: list[Path]) -> list[ReportedRun]:
    """Returns the runs with their warnings. Raises `UserError` if one has no metrics."""
    for path in run_dirs:
        check_links(path)
    return [_read(path, name) for path, name in zip(run_dirs, _names(run_dirs), strict=True)]


def _names(run_dirs: list[Path]) -> list[str]:
    """Returns distinct names of the directories that a page can show."""
    names = distinct_names(run_dirs)
    _, short_names = short_labels(names)
    return distinct_texts([short_names[name] for name in names])


def distinct_texts(names: list[str]) -> list[str]:
    """Returns names that a page can show; equal ones are numbered."""
    # Bokeh typesets text between two pairs of dollars as mathematics.
    names = [text(name).replace("$$", "$ $") for name in names]
    return [
        name if names.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(names, start=1)
    ]


def short(commit: str) -> str:
    """Returns the first digits of a commit, and its "-dirty"."""
    return commit if len(commit) <= 12 else commit[:12] + "-dirty" * commit.endswith("-dirty")


def _read(path: Path, name: str) -> ReportedRun:
    """Returns one run with its warnings."""
    run = ReportedRun(path, name, metrics.read(path))
    run.config = _config(run)
    run.provenance = _provenance(run)
    run.evaluation = _evaluation(run)
    run.warnings += _concerns(run)
    return run


def _config(run: ReportedRun) -> dict[str, Any]:
    """Returns the settings by key, except `run_dir`; an invalid file is shown as it stands."""
    try:
        load_config(run.path)
    except UserError as error:
        run.warnings.append(_hide_path(error, run))
    settings = settings_by_key(run.path)
    if run.rows and metrics.num_envs_in(settings) is None:
        run.warnings.append("num_envs is unknown: every return is marked as one of first games")
    return {key: value for key, value in settings.items() if key != "run_dir"}


def _hide_path(error: Exception, run: ReportedRun) -> str:
    """Returns the message without the path, which the page shows with the run."""
    return name_policies(str(error).replace(f"'{run.path}/config.toml'", layout.CONFIG))


def _provenance(run: ReportedRun) -> dict[str, Any]:
    """Returns the contents of provenance.json; warns and returns none if it cannot be read."""
    try:
        provenance = read_object(run.path / layout.PROVENANCE)
    except UserError as error:
        run.warnings.append(str(error))
        return {}
    if provenance is None:
        run.warnings.append(f"no {layout.PROVENANCE}: commit and devices are unknown")
    return provenance or {}


def _evaluation(run: ReportedRun) -> Evaluation | None:
    """Returns the evaluation; warns and returns None if it cannot be read."""
    try:
        record = read_object(run.path / layout.EVALUATION)
        return None if record is None else _parse_evaluation(record)
    except UserError as error:
        run.warnings.append(str(error))
    return None


def _parse_evaluation(record: dict[str, Any]) -> Evaluation:
    """Returns the evaluation, of any game and protocol, with the scores that are finite.

    Raises `UserError` if a required key is missing.
    """
    figures = {key: number(record.get(key)) for key in ("episodes", "mean", "median", "std")}
    names = {key: text(record.get(key)) for key in ("game", "protocol")}
    for key, value in (figures | names).items():
        if value is None or value == "":
            raise UserError(f"{layout.EVALUATION} cannot be read: it has no '{key}'")
    scores = record.get("scores")
    listed = scores if isinstance(scores, list) else []
    step = number(record.get("step"))
    result = Evaluation(
        game=names["game"],
        protocol=names["protocol"],
        step=None if step is None else int(step),
        episodes=int(figures["episodes"] or 0),
        mean=figures["mean"] or 0.0,
        median=figures["median"] or 0.0,
        std=figures["std"] or 0.0,
        human_normalized_mean=None,
        scores=[x for x in map(number, listed) if x is not None],
        lengths=[],
        conditions=_conditions(record.get("conditions")),
    )
    return evaluation_record.normalized(result)  # older files have it under another name


def _conditions(recorded: Any) -> evaluation_record.Conditions | None:
    """Returns the conditions, None if not recorded. Raises `UserError` if they are invalid."""
    try:
        return evaluation_record.read_conditions(recorded)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{layout.EVALUATION} cannot be read: {fault(error)}") from None


def _concerns(run: ReportedRun) -> list[str]:
    """Returns warnings for a reader who trusts the figures."""
    concerns = []
    if not run.rows:
        concerns.append(f"{layout.METRICS} has no line yet")
    if is_locked(run.path):
        concerns.append("still training: the figures are not final")
    else:
        total, step = number(run.config.get("total_steps")), run.final("step")
        if total and step and step < total:
            concerns.append(f"ended after {step:,.0f} of {total:,.0f} agent steps")
    if skipped := sum(number(row.get(SKIPPED)) or 0.0 for row in run.rows):
        concerns.append(f"updates skipped because they were not finite: {skipped:,.0f}")
    goodput, wall = run.final("goodput"), run.final("wall_seconds") or 0.0
    # The user wants evaluations: their time is not a loss.
    evaluating = sum(number(row.get("evaluation/seconds")) or 0.0 for row in run.rows)
    if wall >= LONG_RUN and goodput is not None and goodput + evaluating / wall < LEAST_GOODPUT:
        concerns.append(f"goodput {goodput:.2f}: the rest of the time went into compilation, "
                        "saving, restarts or lost work")  # fmt: skip
    if (sticks := _stickiness(run)) is not None:
        concerns.append(sticks)
    if overridden(run):  # a plain resume changes nothing
        concerns.append(resumes(run))
    if run.commit.endswith("-dirty"):
        concerns.append("trained by code with uncommitted changes")
    if (run.path / checkpoint_files.DAMAGED).is_dir():
        concerns.append(f"damaged checkpoints were set aside in {checkpoint_files.DAMAGED}/")
    return concerns


def _stickiness(run: ReportedRun) -> str | None:
    """Returns a warning if training and evaluation repeat actions with different probability."""
    older = run.config.get("repeat_action_probability")  # from a configuration without sections
    trained = number(run.config.get("env.repeat_action_probability", older))
    protocol = PROTOCOLS.get(run.evaluation.protocol) if run.evaluation else None
    if trained is None or protocol is None or trained == protocol.stickiness:
        return None
    return (f"actions repeated with probability {trained:g} in training and "
            f"{protocol.stickiness:g} in the evaluation: published agents have the same in "
            "both")  # fmt: skip


def overridden(run: ReportedRun) -> list[str]:
    """Returns the sorted keys of the settings that resumes have changed."""
    keys = {
        text(key)
        for entry in run.resumed
        if isinstance(entry, dict) and isinstance(entry.get("overridden"), dict)
        for key in entry["overridden"]
    }
    return sorted(keys)


def resumes(run: ReportedRun) -> str:
    """Returns how often a run was resumed, and which settings changed; empty if it never was."""
    number, keys = len(run.resumed), overridden(run)
    changed = f", with changed {', '.join(keys)}" if keys else ""
    return f"resumed {'once' if number == 1 else f'{number} times'}{changed}" if number else ""
