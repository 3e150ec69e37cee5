"""GA3C's study of policy lag (Babaeizadeh 2017): the score against how old the acting policy is.

    python docs/examples/policy_lag.py
    python docs/examples/policy_lag.py --game pong --total-steps 800000 --seeds 1 \\
        --options parallel.order=overlapped optimizer.name=adam optimizer.learning-rate=3e-4 \\
        optimizer.schedule=constant

Trains one configuration with every lag and seed, one after another, into
ROOT/GAME-lagLAG-seedSEED; those that are there are not trained again. Then it writes the scores
to ROOT/policy_lag_GAME.json and draws ROOT/policy_lag_GAME.png.

    python docs/examples/policy_lag.py --recorded docs/results/policy_lag_pong.json

Draws recorded scores into a picture beside them, and trains nothing.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import matplotlib.figure
import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from jaxrl.analysis.drawing import COLORS, legend_beside, save
from jaxrl.config.diff import differences
from jaxrl.runs import layout, metrics
from jaxrl.runs.directory import load_config
from jaxrl.runs.files import replace_text

A2C = Path("a2c_fast")
# A lag allows no larger steps.
OPTIONS = ("parallel.order=overlapped", "optimizer.learning-rate=3e-4")


class Returns(NamedTuple):
    """The mean return of the last 100 games at each line of a run's log that has one."""

    step: list[int]
    return_mean: list[float]


Study = dict[int, list[Returns]]  # lag -> seeds
Scores = dict[str, dict[int, list[float]]]  # part of training -> lag -> seeds
PARTS = {"mean of whole training": 1.0, "mean of last 20%\nof training": 0.2}


def read(run_dir: Path) -> Returns:
    """The returns of a run."""
    rows = [row for row in metrics.read(run_dir) if row["return_mean"] is not None]
    return Returns([row["step"] for row in rows], [row["return_mean"] for row in rows])


def score(run: Returns, share: float) -> float:
    """The mean of the lines in the last `share` of training; each is of the last 100 games."""
    ends = run.step[-1] if run.step else 0
    lines = zip(run.step, run.return_mean, strict=True)
    found = [value for step, value in lines if step > (1 - share) * ends]
    return sum(found) / len(found) if found else float("nan")


def scores_of(study: Study) -> Scores:
    """The scores of all runs, over two parts of training."""
    return {
        part: {lag: [score(run, share) for run in runs] for lag, runs in study.items()}
        for part, share in PARTS.items()
    }


def write(game: str, scores: Scores, target: Path) -> None:
    """Writes the scores, which `--recorded` draws again."""
    replace_text(target, json.dumps({"game": game, "scores": scores}, indent=1) + "\n")


def recorded(path: Path) -> tuple[str, Scores]:
    """The game and the scores that `write` wrote."""
    found = json.loads(path.read_text())
    scores = {
        part: {int(lag): values for lag, values in lags.items()}
        for part, lags in found["scores"].items()
    }
    return found["game"], scores


def draw(game: str, scores: Scores, study: Study | None = None) -> matplotlib.figure.Figure:
    """The score against the lag, beside the returns against steps where there are such."""
    wide = study is not None
    figure = matplotlib.figure.Figure(figsize=(12 if wide else 7, 4), layout="constrained")
    panels = figure.subplots(1, 1 + wide, squeeze=False)[0]
    if study:
        draw_curves(panels[0], study)
    draw_scores(panels[-1], scores)
    panels[0].set_title(game, loc="left", fontweight="bold")
    for axes in panels:
        axes.grid(alpha=0.3)
        legend_beside(axes)
    return figure


def draw_curves(axes: Axes, study: Study) -> None:
    """The returns against steps, the mean over seeds for each lag."""
    seeds = len(next(iter(study.values())))
    for place, (lag, runs) in enumerate(study.items()):
        first, last = max(run.step[0] for run in runs), min(run.step[-1] for run in runs)
        x = np.linspace(first, last, 200)
        y = np.mean([np.interp(x, *run) for run in runs], axis=0)
        # Dashes do not cover an equal curve below them.
        line = "-" if place % 2 == 0 else (0, (4, 3))
        axes.plot(x, y, color=COLORS[place % len(COLORS)], linestyle=line, label=f"lag {lag}")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel("agent steps")
    axes.set_ylabel("return of the last 100 games" + f", mean of {seeds} seeds" * (seeds > 1))


def draw_scores(axes: Axes, scores: Scores) -> None:
    """The score of each part of training against the lag."""
    for color, marker, (part, lags) in zip(COLORS, "osD^", scores.items(), strict=False):
        values = list(lags.values())
        means = [sum(x) / len(x) for x in values]
        axes.plot(range(len(values)), means, marker=marker, color=color, label=part)
        several = max(map(len, values)) > 1
        if several:
            places = np.repeat(range(len(values)), [len(x) for x in values])
            axes.plot(places, np.concatenate(values), ".", color=color, alpha=0.5)
        axes.set_xticks(range(len(lags)), [str(lag) for lag in lags])
        axes.set_ylabel("return of 100 games" + "; a dot for each seed" * several)
    axes.set_xlabel("lag of the acting policy (updates)")


def _run(*command: str) -> None:
    try:
        status = subprocess.run([sys.executable, "-m", "jaxrl", *command], check=False).returncode
    except KeyboardInterrupt:
        status = 130
    if status:
        sys.exit(f"stopped with status {status}; the same command goes on from here")


def _check_alike(run_dirs: list[Path], total_steps: int) -> None:
    """Runs that were there already must be of this study."""
    configs = [load_config(path) for path in run_dirs if (path / "config.toml").exists()]
    if not configs:
        return
    keys = {key for one in differences(configs) for key in one} - {
        "parallel.lag",
        "seed",
        "run_dir",
    }
    if configs[0].total_steps != total_steps:
        keys.add("total_steps")
    if keys:
        sys.exit(f"runs of {run_dirs[0].parent} differ in {', '.join(sorted(keys))}: take another "
                 "--root")  # fmt: skip


def main(
    config: Path = A2C,
    game: str = "catch",
    total_steps: int = 30_000,
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5),
    lags: tuple[int, ...] = (0, 1, 2, 4, 8, 16),
    root: Path = Path("runs/policy_lag"),
    options: tuple[str, ...] = OPTIONS,
    recorded_file: Annotated[Path | None, tyro.conf.arg(name="recorded")] = None,
) -> None:
    """Trains with each lag and draws what became of the score.

    Args:
        config: TOML file of what to train
        game: to train on
        total_steps: agent steps of each run
        seeds: of each lag
        lags: in updates
        root: directory of the runs and the picture
        options: further options of `jaxrl train`, instead of those of the default
        recorded_file: JSON of an earlier study to draw; trains nothing
    """
    if recorded_file:
        target = recorded_file.with_suffix(".png")
        save(draw(*recorded(recorded_file)), target)
        print(target)
        return
    further = [word for option in options for word in f"--{option}".split("=", 1)]
    found: dict[int, list[Path]] = {lag: [] for lag in sorted(lags)}
    for lag, run_dirs in found.items():
        run_dirs += [root / f"{game}-lag{lag}-seed{seed}" for seed in seeds]
    everything = [run_dir for run_dirs in found.values() for run_dir in run_dirs]
    _check_alike(everything, total_steps)
    for number, seed in enumerate(seeds):
        for lag, run_dirs in found.items():
            run_dir = run_dirs[number]
            if (run_dir / layout.LEARNING_CURVE).exists():
                continue
            if (run_dir / "config.toml").exists():  # it was stopped
                _run("resume", str(run_dir))
                continue
            command = [
                *("train", "--config", str(config)),
                *("--game", game, "--total-steps", str(total_steps), "--seed", str(seed)),
                *(
                    "--parallel.lag",
                    str(lag),
                    "--run-dir",
                    str(run_dir),
                    "--evaluation.episodes",
                    "0",
                ),
                *("--log.interval", str(max(1, total_steps // 100)), *further),
            ]
            _run(*command)
    _check_alike(everything, total_steps)
    study = {lag: [read(run_dir) for run_dir in run_dirs] for lag, run_dirs in found.items()}
    target, scores = root / f"policy_lag_{game}.png", scores_of(study)
    write(game, scores, target.with_suffix(".json"))
    save(draw(game, scores, study), target)
    print(target)


if __name__ == "__main__":
    tyro.cli(main)
