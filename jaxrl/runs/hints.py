"""Hints for messages about a path that is not a run directory: the run or policy that is meant."""

import os
from pathlib import Path

from jaxrl.atari.games import game_name, known_games
from jaxrl.errors import nearest
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs import layout

NEWEST = ("latest", "newest", "last")  # what users call a run, whose path must be named
SMALL = {  # games that are learned in a minute, with the options for it
    "catch": "--config vtrace_cpu --total-steps 1e5",
    "catch_memory": "--config vtrace_lstm_cpu --total-steps 1e5",
}


def policy_path(path: Path) -> Path | None:
    """Returns a policy's file, given by its path or the name of one that comes with jaxrl."""
    if path.suffix == SUFFIX and not os.path.isdir(path):
        return path
    if len(path.parts) == 1 and not os.path.exists(path):
        return policies().get(path.name)
    return None


def remedy(path: Path) -> str:
    """Returns what a path that is not a run directory probably means; empty if unknown.

    It offers runs inside the path, a run of its folder or of runs/, or a policy.
    """
    if os.path.isdir(path):
        runs = _runs_in(path)
        if runs and os.path.isfile(path / layout.SWEEP):
            return f"it is a sweep's: name one of its runs, as '{runs[0]}'"
        return _did_you_mean(runs[:2])
    if policy_path(path):
        return "a policy is taken by play, evaluate, plot, report and compare; this needs a run"
    bare, name = len(path.parts) == 1, path.name
    if bare and name in NEWEST:
        return _did_you_mean(_runs_in(Path("runs"))[:1])
    beside = _runs_in(path.parent) + (_runs_in(Path("runs")) if bare else [])
    if near := nearest(name, [run.name for run in beside], 1):
        return _did_you_mean([run for run in beside if run.name == near[0]][:1])
    if not bare:
        return ""
    game = game_name(name)
    if game in policies():
        return f"did you mean the policy '{game}'?"
    if game in known_games():
        options = SMALL.get(game, "--config vtrace_fast")
        return (
            f"no policy of {game} comes with jaxrl, train one: jaxrl train {options} --game {game}"
        )
    near = nearest(name.lower(), policies(), 1)
    offer = f"did you mean the policy '{near[0]}'? " if near else ""
    return f"{offer}`jaxrl policies` lists the policies that come with jaxrl"


def _runs_in(folder: Path) -> list[Path]:
    """Returns the runs in a folder, the newest first."""
    paths = folder.glob(f"*/{layout.CONFIG}") if os.path.isdir(folder) else ()
    configs = [config for config in paths if os.path.isfile(config)]
    return [config.parent for config in sorted(configs, key=os.path.getmtime, reverse=True)]


def _did_you_mean(run_dirs: list[Path]) -> str:
    """Returns the question with the runs; empty if there is none."""
    offered = " or ".join(f"'{run_dir}'" for run_dir in run_dirs)
    return f"did you mean {offered}?" if offered else ""
