"""`jaxrl play`, `jaxrl plot` and `jaxrl report`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.cli.parsing import (
    Output,
    Protocol,
    RunDir,
    RunDirs,
    at_least,
    check_runs,
    check_target,
)
from jaxrl.errors import UserError
from jaxrl.policies import policies
from jaxrl.runs import layout
from jaxrl.runs.checkpoint_files import named
from jaxrl.runs.metrics import lacks_lines
from jaxrl.runs.paths import is_policy, run_dir_of, select


@dataclass(frozen=True)
class Play:
    """Record a game as an mp4 or a GIF in real time, with the score written into it.

    A game of a few steps, as of Catch, is slowed so that it can be seen. Pictures of Atari games
    are 320 pixels wide.
    Example: jaxrl play runs/x, or jaxrl play pong
    """

    run: RunDir
    """run directory, a policy's file, or the name of a policy that comes with jaxrl"""
    output: Output = None
    """mp4 or gif to write; default is video.mp4 in the run directory, for a policy NAME.mp4 here"""
    protocol: Protocol | None = None
    """as for `jaxrl evaluate`"""
    seed: int = 0
    """seed of the game and the actions"""
    checkpoint: str | None = None
    """checkpoint to play: its agent step, latest or best; default is the latest"""
    from_step: int = 0
    """agent step of the game at which the video begins; a step is 4 frames, 15 are a second"""
    max_seconds: float = 300.0
    """longest video, in seconds; a longer game is cut there"""


def play(arguments: Play) -> int:
    """Records one game and prints its score."""
    at_least("seed", arguments.seed, 0)
    at_least("from_step", arguments.from_step, 0)
    at_least("max_seconds", arguments.max_seconds, 1)
    run_dir = run_dir_of(arguments.run)
    check_runs((run_dir,), "play")
    from jaxrl.evaluation.evaluate import load_actor
    from jaxrl.evaluation.video import record
    from jaxrl.runs.evaluation_record import protocol_of

    of_policy = Path(f"{run_dir.name}.mp4") if run_dir != arguments.run else None
    target = arguments.output or of_policy or run_dir / layout.VIDEO
    check_target(target, (".mp4", ".gif"))
    config, actor, step = load_actor(run_dir, named(run_dir, arguments.checkpoint))
    protocol = arguments.protocol or protocol_of(config)
    score, length, over = record(
        config,
        actor,
        protocol,
        target,
        arguments.seed,
        arguments.max_seconds,
        arguments.from_step,
    )
    begins = f", shown from step {arguments.from_step:,}" if arguments.from_step else ""
    print(f"{target}: {config.game} after {step:,} steps of training, score {score:g}, "
          f"{length:,} agent steps{begins}"
          f"{', cut before the end of the game' * (not over)}")  # fmt: skip
    return 0


@dataclass(frozen=True)
class Plot:
    """Draw the runs' learning curves into one PNG: return against frames, and against time.

    Several runs have a row for each game. Runs that differ only in their seed are one curve, their
    mean, with a band from the lowest to the highest. More than six games have one panel each.
    Example: jaxrl plot runs/x runs/y -o comparison.png
    """

    runs: RunDirs
    """run directories or policies; a folder of runs, such as a sweep's, stands for those in it"""
    output: Output = None
    """file to write; default is learning_curve.png in the (only) run directory, for a policy
    NAME.png here"""
    each: bool = False
    """draw a curve for each run, under its name, instead of means over seeds"""


def plot(arguments: Plot) -> int:
    """Draws the learning curves and prints the picture's path."""
    run_dirs, _ = select(arguments.runs, lacks_lines)
    if not run_dirs:
        raise UserError("plot needs at least one run directory")
    if arguments.output is None and len(run_dirs) > 1:
        raise UserError("several runs make one picture: name it with -o comparison.png")
    from jaxrl.analysis import curves
    from jaxrl.analysis.groups import distinct_names
    from jaxrl.runs.directory import check_links

    distinct_names(run_dirs)
    for run_dir in run_dirs:
        check_links(run_dir)
    # A policy's directory is temporary.
    of_policy = Path(f"{run_dirs[0].name}.png") if is_policy(run_dirs[0]) else None
    target = arguments.output or of_policy or run_dirs[0] / layout.LEARNING_CURVE
    if arguments.output:
        check_target(target, (".png",))
    curves.learning_curve(list(run_dirs), target, each=arguments.each)
    print(target)
    return 0


@dataclass(frozen=True)
class Report:
    """Write one page about runs that opens anywhere, without a network.

    Example: jaxrl report runs/x runs/y -o report.html
    """

    runs: RunDirs = ()
    """run directories or policies; a folder of runs, such as a sweep's, stands for those in it"""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """file to write"""
    recorded: bool = False
    """report on the trained policies that come with jaxrl, too"""
    video: bool = True
    """put the videos that `jaxrl play` has made of the runs into the page"""


def report(arguments: Report) -> int:
    """Writes the page and prints its path."""
    paths = list(arguments.runs)
    if arguments.recorded:
        named_already = set(map(run_dir_of, paths))
        paths += [path for path in policies().values() if run_dir_of(path) not in named_already]
    run_dirs, left_out = select(paths, lacks_lines)
    if not run_dirs:
        raise UserError("report needs at least one run directory, or --recorded")
    check_target(arguments.output, (".html",))
    from jaxrl.analysis.report import page

    page.write(list(run_dirs), arguments.output, video=arguments.video, left_out=left_out)
    if arguments.video and not any((run_dir / layout.VIDEO).is_file() for run_dir in run_dirs):
        print("jaxrl: no video is in the page: `jaxrl play RUN_DIR` makes that of a run",
              file=sys.stderr)  # fmt: skip
    print(arguments.output)
    return 0
