"""Puts policies of runs into the package, and writes docs/gallery.md: `python -m tools.gallery`.

    python -m tools.gallery RUN...    # package the policies of recorded runs, film them
    python -m tools.gallery           # write the page's table anew

The policy of a run on pong becomes jaxrl/policies/pong.safetensors in float16, with the scores of a
hundred games by each protocol, and its film docs/images/gallery/pong.gif. The run has been recorded
before (tools/record_runs.py), so that its curve and settings can be seen without the policy.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import imageio.v3 as imageio
import numpy as np

from jaxrl.cli.main import main as jaxrl
from jaxrl.cli.outcome import print_error
from jaxrl.config import toml
from jaxrl.errors import UserError
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs import evaluation_record, layout
from jaxrl.runs.directory import load_config
from jaxrl.runs.files import read_object, replace_text
from jaxrl.runs.paths import run_dir_of
from tools.pages import marked_section, title
from tools.record_runs import RUNS

PACKAGE = Path("jaxrl/policies")
PAGE = Path("docs/gallery.md")
FILMS = Path("docs/images/gallery")
EPISODES = 100  # games by each protocol
SECONDS = 10  # of a film
FROM_STEP = {"breakout": 950, "double_dunk": 0}  # where films begin; others after 20 seconds
MOST_BYTES = 1_500_000  # of a policy


def recorded(name: str, started: str) -> Path:
    """Returns the recorded run of a name that started then. Raises `UserError` without it."""
    for group in sorted(RUNS.iterdir()):
        file = group / name / layout.PROVENANCE
        if file.is_file() and read_object(file)["started"] == started:
            return file.parent
    raise UserError(
        f"'{name}' of {started} is not in {RUNS}: python -m tools.record_runs GROUP RUN"
    )


def package(run_dir: Path) -> str:
    """Writes a run's policy and card into the package; returns its name, which is the game's."""
    evidence = recorded(run_dir.name, read_object(run_dir / layout.PROVENANCE)["started"])
    name = load_config(run_dir).game
    target, card = PACKAGE / f"{name}{SUFFIX}", PACKAGE / f"{name}.md"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / run_dir.name  # the run keeps its own evaluations
        shutil.copytree(run_dir, copy)
        shutil.copy(evidence / layout.PROVENANCE, copy)  # which names no path of the machine
        for protocol in evaluation_record.PROTOCOLS:
            call("evaluate", copy, "--protocol", protocol, "--episodes", EPISODES)
        made = Path(folder) / target.name
        call("export", copy, made, "--half")
        if made.stat().st_size > MOST_BYTES:
            raise UserError(f"the policy has {made.stat().st_size:,} bytes of {MOST_BYTES:,}")
        shutil.copy(made, target)
        replace_text(card, made.with_suffix(".md").read_text("utf-8").replace(target.name, name))
    return name


def film(name: str) -> None:
    """Films a policy of the package at half the size."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "film.gif"
        call("play", name, "--from-step", FROM_STEP.get(name, 300), "--max-seconds",
             SECONDS, "-o", large)  # fmt: skip
        frames = [np.asarray(frame)[::2, ::2] for frame in imageio.imiter(large)]
        FILMS.mkdir(parents=True, exist_ok=True)
        # GIF counts hundredths of a second.
        imageio.imwrite(FILMS / f"{name}.gif", frames, duration=70, loop=0)


def call(*words: object) -> None:
    """Runs a command of jaxrl. Raises `UserError` where it fails."""
    given = [str(word) for word in words]
    if jaxrl(given):
        raise UserError(f"jaxrl {' '.join(given)}: failed")


def table() -> str:
    """Returns the table of the policies of the package."""
    lines = [
        "| film | policy | recipe, agent steps | noop games | sticky games |",
        "|---|---|---|---|---|",
    ]
    for name in policies():
        run_dir = run_dir_of(Path(name))
        results = evaluation_record.read_all(run_dir)
        [step] = {result.step for result in results.values()}
        scores = [
            f"**{result.mean:,.1f}**, {result.std:,.1f}, {result.median:,.1f} "
            f"({result.human_normalized_mean:.2f})"
            for result in (results[protocol] for protocol in evaluation_record.PROTOCOLS)
        ]
        picture = f"![{title(name)}](images/gallery/{name}.gif)"
        lines.append(
            f"| {picture} | `{name}` | {recipe_of(run_dir)}, {step:,} | {' | '.join(scores)} |"
        )
    return "\n".join(lines) + "\n"


def recipe_of(run_dir: Path) -> str:
    """Returns "`ppo_fast`", the file with a policy's settings, or else how its command differs."""
    config = load_config(run_dir)
    own = {name: getattr(config, name) for name in ("game", "seed", "total_steps", "run_dir")}
    for path in sorted(toml.FOLDERS[1].glob("*/*.toml")):
        if toml.load_recipe(path).replaced(**own).with_time_limit() == config:
            return f"`{path.stem}`"
    provenance = read_object(run_dir / layout.PROVENANCE)
    assert provenance is not None, run_dir
    words = provenance["command"].split()
    return f"`{Path(words[words.index('--config') + 1]).stem}` with other settings"


def main(arguments: Sequence[str]) -> int:
    """Packages and films the runs' policies, and writes the page; returns the exit status."""
    try:
        for run in arguments:
            film(package(Path(run)))
        replace_text(PAGE, marked_section(PAGE.read_text("utf-8"), "policies", table()))
    except UserError as error:
        return print_error(error)
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
