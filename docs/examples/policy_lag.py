"""GA3C's study of policy lag (Babaeizadeh 2017): the score against how old the acting policy is.

    python docs/examples/policy_lag.py
    python docs/examples/policy_lag.py --game pong --total-steps 800000 --seeds 1 \\
        --options parallel.order=overlapped optimizer.name=adam optimizer.learning-rate=3e-4 \\
        optimizer.schedule=constant

Trains one configuration with every lag and seed, one after another, into
ROOT/GAME-lagLAG-seedSEED; those that are there are not trained again. Then it draws
ROOT/policy_lag_GAME.png.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib.figure
import tyro
from matplotlib.ticker import EngFormatter

from jaxrl.analysis.curves import UNITS, band
from jaxrl.analysis.drawing import COLORS
from jaxrl.config.diff import differences
from jaxrl.runs import layout, metrics
from jaxrl.runs.directory import load_config

A2C = Path("a2c_fast")
# A lag allows no larger steps.
OPTIONS = ("parallel.order=overlapped", "optimizer.learning-rate=3e-4")


def score(run_dir: Path, share: float) -> float:
    """The mean of the lines in the last `share` of training; each is of the last 100 games."""
    returns = [row["return_mean"] for row in metrics.read(run_dir)]
    found = [value for value in returns[int((1 - share) * len(returns)) :] if value is not None]
    return sum(found) / len(found) if found else float("nan")


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
    """
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
    figure = matplotlib.figure.Figure(figsize=(10, 4), layout="constrained")
    curves, axes = figure.subplots(1, 2)
    for place, (lag, run_dirs) in enumerate(found.items()):
        color = COLORS[place % len(COLORS)]
        mean = band(run_dirs, "step")  # of the seeds
        curves.plot(mean.x * UNITS["step"], mean.mean, color=color, label=f"lag {lag}")
    curves.xaxis.set_major_formatter(EngFormatter())
    curves.set_xlabel("agent steps")
    number = f", mean of {len(seeds)} seeds" if len(seeds) > 1 else ""
    curves.set_ylabel(f"return of the last 100 games{number}")
    curves.legend(fontsize="small")
    for share, marker in ((1.0, "o"), (0.2, "s")):
        values = {lag: [score(run_dir, share) for run_dir in dirs] for lag, dirs in found.items()}
        places = range(len(values))
        means = [sum(x) / len(x) for x in values.values()]
        what = "whole training" if share == 1 else f"last {share:.0%} of training"
        (line,) = axes.plot(places, means, marker=marker, label=f"mean of {what}")
        for place, of_seeds in zip(places, values.values(), strict=True):
            axes.plot([place] * len(of_seeds), of_seeds, ".", color=line.get_color(), alpha=0.5)
    axes.set_xticks(range(len(found)), [str(lag) for lag in found])
    axes.set_xlabel("lag of the acting policy (updates)")
    axes.set_ylabel("return of 100 games; a dot for each seed")
    axes.legend(fontsize="small")
    for each in (curves, axes):
        each.grid(alpha=0.3)
    target = root / f"policy_lag_{game}.png"
    figure.savefig(target, dpi=120)
    print(target)


if __name__ == "__main__":
    tyro.cli(main)
