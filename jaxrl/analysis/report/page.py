"""`jaxrl report`: runs as one HTML page that needs no network."""

import base64
import json
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jaxrl import formatting
from jaxrl.analysis.report.charts import POINTS, PROGRESS, RETURN, Chart, axes, loss_keys, style
from jaxrl.analysis.report.charts import charts as make_charts
from jaxrl.analysis.report.reader import GameSection, ReportedRun, number, read, short, text
from jaxrl.atari.scores import PublishedScore, published_scores
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record, layout
from jaxrl.runs.directory import replace_text

LARGEST_VIDEO = 8_000_000  # bytes; a larger one is left out
TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Published:
    """What is known from others about a game by one protocol."""

    game: str
    protocol: str
    scores: list[PublishedScore]


@dataclass(frozen=True)
class Video:
    """A run's video, or why it is not shown."""

    name: str  # of the run
    source: str  # a data URL; empty if left out
    note: str


def write(run_dirs: list[Path], target: Path, video: bool = True) -> None:
    """Writes one HTML page about the runs, whole or not at all.

    Args:
      run_dirs: run directories; only metrics.jsonl must be there. What else is missing or damaged
        is said in the page.
      target: the page.
      video: whether each run's video.mp4 is put into the page, up to `LARGEST_VIDEO` bytes.

    Raises `UserError` where a directory has no metrics, or the page cannot be written.
    """
    if not run_dirs:
        raise UserError("a report needs at least one run directory")
    page = text(_page(read(run_dirs), video))
    try:
        replace_text(target, page)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write '{target}': {error}") from None


def _page(runs: list[ReportedRun], video: bool) -> str:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "figure": figure, "count": count, "duration": duration, "short": short, "shown": shown,
    }  # fmt: skip
    template = environment.from_string(_data(TEMPLATE))
    main = make_charts(runs, [RETURN], "return")
    progress = make_charts(runs, PROGRESS, "progress")
    losses = make_charts(runs, loss_keys(runs), "loss")
    thinned = any(len(run.rows) > POINTS for run in runs)
    return template.render(
        title=title(runs),
        written=time.strftime("%Y-%m-%d %H:%M"),
        runs=runs,
        warnings=warnings(runs),
        styles={run.name: style(place) for place, run in enumerate(runs)},
        devices={run.name: devices(run) for run in runs},
        differing=differing(runs),
        main=main,
        progress=progress,
        losses=losses,
        points=POINTS if thinned else 0,
        axes=axes(),
        evaluated=[run for run in runs if run.evaluation],
        published=_published([run.evaluation for run in runs if run.evaluation]),
        protocols=evaluation_record.PUBLISHED,
        videos=[found for run in runs if (found := _video(run))] if video else [],
        style=_data("page.css"),
        script=_data("page.js"),
        bokeh=_bokeh(),
        charts=_script_json(_drawn(main + progress + losses)),
    )


def _data(name: str) -> str:
    return (
        resources.files("jaxrl.analysis.report")
        .joinpath("assets", name)
        .read_text(encoding="utf-8")
    )


def _bokeh() -> str:
    """Bokeh's own bundle, without widgets, tables and the like."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def _drawn(charts: list[Chart]) -> dict[str, Any]:
    items = [{"target": chart.target, "item": chart.item} for chart in charts]
    return {"axes": axes(), "charts": items}


def _script_json(value: Any) -> str:
    """JSON for a script element, which no string in it can close."""
    said = json.dumps(value, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- what the template shows ---------------------------------------------------------------------


def title(runs: list[ReportedRun]) -> str:
    """The run's name, or the number of runs and their game."""
    if len(runs) == 1:
        return runs[0].name
    games = {text(run.config.get("game")) for run in runs}
    game = games.pop() if len(games) == 1 else ""
    return f"{len(runs)} runs" + (f" of {game}" if game else "")


def warnings(runs: list[ReportedRun]) -> dict[str, list[str]]:
    """The names of the runs by what is to be said of them; each is told once."""
    found: dict[str, list[str]] = {}
    commits = {run.commit for run in runs if run.commit}
    if len(commits) > 1:
        told = f"not of the same commit: {', '.join(sorted(map(short, commits)))}"
        found[told] = [run.name for run in runs if run.commit]
    for run in runs:
        for warning in run.warnings:
            found.setdefault(warning, []).append(run.name)
    return found


def figure(value: Any, digits: int = 1) -> str:
    """A number with so many digits after the point; a dash for none."""
    found = number(value)
    return "–" if found is None else f"{found:,.{digits}f}".replace("-", "−")


def count(value: Any) -> str:
    """A whole number with separators; a dash for none."""
    return figure(value, 0)


def duration(seconds: Any) -> str:
    """Hours, minutes and seconds; a dash for none."""
    found = number(seconds)
    if found is None:
        return "–"
    return formatting.duration(found)


def shown(value: Any) -> str:
    """A value of a configuration as TOML writes it; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, str | bool | int | float | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def devices(run: ReportedRun) -> str:
    """The kinds of devices that the run was started on, each with its number."""
    found = run.provenance.get("devices")
    kinds: dict[str, int] = {}
    for device in found if isinstance(found, list) else []:
        kind = text(device).partition(" ")[2] or text(device)
        if kind:
            kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{number} × {kind}" for kind, number in kinds.items()) or "–"


def differing(runs: list[ReportedRun]) -> dict[str, list[Any]]:
    """The keys whose values are not the same in all runs that have a configuration."""
    known = [run.config for run in runs if run.config]
    keys = list(dict.fromkeys(key for config in known for key in config))
    values = {key: [run.config.get(key) for run in runs] for key in keys}
    return {key: row for key, row in values.items() if len({shown(c.get(key)) for c in known}) > 1}


def _published(evaluations: list[GameSection]) -> list[Published]:
    pairs = dict.fromkeys((games.game, games.protocol) for games in evaluations)
    found = [Published(*pair, published_scores(*pair)) for pair in pairs]
    return [
        Published(p.game, p.protocol, sorted(p.scores, key=lambda s: s.score, reverse=True))
        for p in found
    ]


def _video(run: ReportedRun) -> Video | None:
    """None where the run has none."""
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
