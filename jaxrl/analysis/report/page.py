"""Writes the page of `jaxrl report`: one HTML file about runs that needs no network."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jaxrl import formatting
from jaxrl.analysis.report.charts import (
    POINTS,
    PROGRESS,
    line_charts,
    loss_keys,
    return_charts,
    runs_without_return,
    units_of,
)
from jaxrl.analysis.report.entries import common_name, entries_of
from jaxrl.analysis.report.reader import (
    ReportedRun,
    number,
    read,
    resumes,
    short,
    text,
)
from jaxrl.analysis.report.study import study_of
from jaxrl.analysis.statistics import Estimate
from jaxrl.atari.games import atari_games
from jaxrl.atari.scores import PublishedScore, published_scores
from jaxrl.errors import UserError
from jaxrl.runs import layout
from jaxrl.runs.evaluation_record import PROTOCOLS, Evaluation
from jaxrl.runs.files import writing

LARGEST_VIDEO = 8_000_000  # bytes; larger videos are left out
TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class PublishedScores:
    """Published scores of a game by one protocol."""

    game: str
    protocol: str
    scores: list[PublishedScore]


@dataclass(frozen=True)
class Video:
    """A run's video, or the reason why it is left out."""

    name: str  # the run's
    source: str  # a data URL; empty if left out
    note: str


def write(
    run_dirs: list[Path],
    target: Path,
    video: bool = True,
    left_out: Mapping[Path, str] = MappingProxyType({}),
) -> None:
    """Writes one HTML page about the runs, whole or not at all.

    Args:
      run_dirs: run directories, which need only metrics.jsonl. The page warns of other files that
        are missing or damaged.
      target: the page.
      video: whether to embed each run's video.mp4, up to `LARGEST_VIDEO` bytes.
      left_out: other runs that belong here, each with the reason why it is not shown.

    Raises `UserError` if a directory has no metrics, and as `files.writing` does.
    """
    if not run_dirs:
        raise UserError("a report needs at least one run directory")
    page = text(_page(read(run_dirs), video, left_out))
    with writing(target) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _page(runs: list[ReportedRun], video: bool, left_out: Mapping[Path, str]) -> str:
    """Returns the rendered template."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "figure": figure, "count": count, "duration": duration, "short": short, "shown": shown,
        "interval": interval, "resumes": resumes,
    }  # fmt: skip
    template = environment.from_string(_asset(TEMPLATE))
    entries, units = entries_of(runs), units_of(runs)
    main = return_charts(entries, units)
    progress = line_charts(entries, PROGRESS, "progress", units)
    losses = line_charts(entries, loss_keys(runs), "loss", units)
    axes = {axis: unit.label for axis, unit in units.items()}
    items = [{"target": c.target, "item": c.item} for c in main + progress + losses]
    thinned = any(len(run.rows) > POINTS for run in runs)
    return template.render(
        title=title(runs),
        written=time.strftime("%Y-%m-%d %H:%M"),
        runs=runs,
        warnings=warnings(runs),
        left_out=[(text(path.name), text(reason)) for path, reason in left_out.items()],
        without=runs_without_return(runs),
        common=common_name(runs),
        entries=entries,
        keys={run.name: entry for entry in entries for run in entry.runs},
        study=study_of(entries),
        ways=ways(runs),
        devices={run.name: devices(run) for run in runs},
        differing=differing(runs),
        main=main,
        progress=progress,
        losses=losses,
        points=POINTS if thinned else 0,
        axes=axes,
        evaluated=[run for run in runs if run.evaluation],
        published=_published([run.evaluation for run in runs if run.evaluation]),
        conditions={name: protocol.published for name, protocol in PROTOCOLS.items()},
        videos=[film for run in runs if (film := _video(run))] if video else [],
        style=_asset("page.css"),
        script=_asset("page.js"),
        bokeh=_bokeh(),
        charts=_script_json({"axes": axes, "charts": items}),
    )


def _asset(name: str) -> str:
    """Returns the text of a file of `assets`."""
    file = resources.files("jaxrl.analysis.report").joinpath("assets", name)
    return file.read_text(encoding="utf-8")


def _bokeh() -> str:
    """Returns Bokeh's JavaScript, without widgets and tables."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def _script_json(value: Any) -> str:
    """Returns JSON for a script element, escaped: no string in it can close the element."""
    encoded = json.dumps(value, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- values of the template ----------------------------------------------------------------------


def title(runs: list[ReportedRun]) -> str:
    """Returns the run's name, or the number of runs and their game."""
    if len(runs) == 1:
        return runs[0].name
    games = {text(run.config.get("game")) for run in runs}
    game = games.pop() if len(games) == 1 else ""
    return f"{len(runs)} runs" + (f" of {game}" if game else "")


def warnings(runs: list[ReportedRun]) -> dict[str, list[str]]:
    """Returns each warning once, with the names of the runs that it concerns."""
    names: dict[str, list[str]] = {}
    commits = {run.commit for run in runs if run.commit}
    if len(commits) > 1:
        warning = f"not of the same commit: {', '.join(sorted(map(short, commits)))}"
        names[warning] = [run.name for run in runs if run.commit]
    for run in runs:
        for warning in run.warnings:
            names.setdefault(warning, []).append(run.name)
    return names


def figure(value: Any, digits: int = 1) -> str:
    """Returns a number with `digits` digits after the point; a dash for anything else."""
    finite = number(value)
    return "–" if finite is None else f"{finite:,.{digits}f}".replace("-", "−")


def interval(estimate: Estimate | None, digits: int = 2) -> str:
    """Returns the bounds of a 95 % interval; a dash without one."""
    if estimate is None or estimate.low is None:
        return "–"
    return f"{figure(estimate.low, digits)} to {figure(estimate.high, digits)}"


def count(value: Any) -> str:
    """Returns a whole number with separators; a dash for anything but a number."""
    return figure(value, 0)


def duration(seconds: Any) -> str:
    """Returns hours, minutes and seconds; a dash for anything but a number."""
    finite = number(seconds)
    if finite is None:
        return "–"
    return formatting.duration(finite)


def shown(value: Any) -> str:
    """Returns a setting as TOML writes it; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, str | bool | int | float | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def devices(run: ReportedRun) -> str:
    """Returns the kinds of devices that the run was started on, each with its number."""
    listed = run.provenance.get("devices")
    kinds: dict[str, int] = {}
    for device in listed if isinstance(listed, list) else []:
        kind = text(device).partition(" ")[2] or text(device)
        if kind:
            kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{number} × {kind}" for kind, number in kinds.items()) or "–"


def differing(runs: list[ReportedRun]) -> dict[str, list[Any]]:
    """Returns the keys that differ between runs with a configuration, and each run's value."""
    known = [run.config for run in runs if run.config]
    keys = list(dict.fromkeys(key for config in known for key in config))
    values = {key: [run.config.get(key) for run in runs] for key in keys}
    return {key: row for key, row in values.items() if len({shown(c.get(key)) for c in known}) > 1}


def ways(runs: list[ReportedRun]) -> dict[str, list[str]]:
    """Returns the ways in which games were played, each with the runs evaluated so."""
    runs_by_way: dict[str, list[str]] = {}
    for run in runs:
        if run.evaluation:
            conditions = run.evaluation.conditions
            played = conditions.describe() if conditions else "not recorded"
            way = f"{run.evaluation.protocol}: {played}"
            runs_by_way.setdefault(way, []).append(run.name)
    return runs_by_way


def _published(evaluations: list[Evaluation]) -> list[PublishedScores]:
    """Returns published scores, the best first, of each game and protocol of the evaluations."""
    # Papers publish scores of neither Catch nor other modes.
    atari = [e for e in evaluations if e.game in atari_games() and e.is_default]
    pairs = dict.fromkeys((e.game, e.protocol) for e in atari)
    tables = [PublishedScores(*pair, published_scores(*pair)) for pair in pairs]
    return [
        PublishedScores(p.game, p.protocol, sorted(p.scores, key=lambda s: s.score, reverse=True))
        for p in tables
    ]


def _video(run: ReportedRun) -> Video | None:
    """Returns the run's video, None if it has none."""
    path = run.path / layout.VIDEO
    if not path.is_file():
        return None
    try:
        size = path.stat().st_size
        if size > LARGEST_VIDEO:
            note = f"left out: {size / 1e6:.1f} MB, and the limit is {LARGEST_VIDEO / 1e6:g} MB"
            return Video(run.name, "", note)
        encoded = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        return Video(run.name, "", f"cannot be read: {error.strerror}")
    return Video(run.name, f"data:video/mp4;base64,{encoded}", f"{size / 1e6:.2g} MB")
