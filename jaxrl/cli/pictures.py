"""`jaxrl play`, `jaxrl plot` and `jaxrl report`."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.cli.parsing import Protocol, RunDir, RunDirs, at_least, check_runs, check_target, parse
from jaxrl.errors import UserError
from jaxrl.runs import layout


def play(arguments: list[str]) -> int:
    """Record a game as an mp4 or a GIF."""

    def command(
        run: RunDir,
        output: Path | None = None,
        protocol: Protocol | None = None,
        seed: int = 0,
        checkpoint: int | None = None,
        max_seconds: float = 300.0,
    ) -> dict[str, Any]:
        """Record a game as an mp4 or a GIF in real time, with the score written into it.

        Example: jaxrl play runs/x

        Args:
            run: run directory
            output: mp4 or gif to write; default is video.mp4 in the run directory
            protocol: as for `jaxrl evaluate`
            seed: of the game and the actions
            checkpoint: agent step of the checkpoint to play; default is the newest
            max_seconds: of video; a longer game is cut there
        """
        return locals()

    given = parse(command, "play", arguments)
    at_least("seed", given["seed"], 0)
    at_least("max_seconds", given["max_seconds"], 1)
    check_runs((given["run"],), "play")
    from jaxrl.evaluation.evaluate import load_actor
    from jaxrl.evaluation.video import record
    from jaxrl.runs import layout
    from jaxrl.runs.evaluation_record import protocol_of

    target = given["output"] or given["run"] / layout.VIDEO
    check_target(target, (".mp4", ".gif"))
    config, actor, step = load_actor(given["run"], given["checkpoint"])
    protocol = given["protocol"] or protocol_of(config)
    score, length, over = record(
        config, actor, protocol, target, given["seed"], given["max_seconds"]
    )
    print(f"{target}: {config.game} after {step:,} steps of training, score {score:g}, "
          f"{length:,} agent steps{', cut before the end of the game' * (not over)}")  # fmt: skip
    return 0


def plot(arguments: list[str]) -> int:
    """Draw learning curves of one or several runs."""

    def command(runs: RunDirs, output: Path | None = None) -> tuple[tuple[Path, ...], Path | None]:
        """Draw the runs' learning curves into one PNG: return against frames, and against time.

        Example: jaxrl plot runs/x runs/y --output comparison.png

        Args:
            runs: run directories
            output: file to write; default is learning_curve.png in the (only) run directory
        """
        return runs, output

    run_dirs, output = parse(command, "plot", arguments)
    if not run_dirs:
        raise UserError("plot needs at least one run directory")
    if output is None and len(run_dirs) > 1:
        raise UserError("several runs make one picture: say where with --output comparison.png")
    from jaxrl.analysis import curves
    from jaxrl.analysis.groups import distinct_names
    from jaxrl.runs.directory import check_links

    distinct_names(run_dirs)
    for run_dir in run_dirs:
        check_links(run_dir)
    target = output or run_dirs[0] / layout.LEARNING_CURVE
    if output:
        check_target(target, (".png",))
    curves.learning_curve(list(run_dirs), target)
    print(target)
    return 0


def report(arguments: list[str]) -> int:
    """Write one page about runs that opens anywhere."""

    def command(
        runs: RunDirs,
        output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
        video: bool = True,
    ) -> dict[str, Any]:
        """Write one page about runs that opens anywhere, without a network.

        Example: jaxrl report runs/x runs/y -o report.html

        Args:
            runs: run directories
            output: file to write
            video: put the runs' videos into the page
        """
        return locals()

    given = parse(command, "report", arguments)
    if not given["runs"]:
        raise UserError("report needs at least one run directory")
    check_target(given["output"], (".html",))
    from jaxrl.analysis.report import page

    page.write(list(given["runs"]), given["output"], video=given["video"])
    print(given["output"])
    return 0
