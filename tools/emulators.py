"""Compares our Atari 2600 with the Arcade Learning Environment and EnvPool, game by game.

    python tools/emulators.py exact             every frame against ale-py, some ten minutes
    python tools/emulators.py speed --cores 1   steps per second beside EnvPool's and ale-py's
    python tools/emulators.py speed --cores 2
    python tools/emulators.py write             docs/results/emulators.md and its picture

Each game's result is added to docs/results/emulators.json as soon as it is there; a
game that has one is left out, unless it is named. ale-py comes with the development environment.
"""

import argparse
import json
import os
import statistics
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # tests/ has the games frame by frame
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import vector_env_speed  # noqa: E402

from jaxrl.atari.games import atari_games  # noqa: E402
from jaxrl.experiments.sweep_plan import atari57  # noqa: E402
from jaxrl.runs.files import replace_text  # noqa: E402

MEASURED = ROOT / "docs/results/emulators.json"
PAGE = ROOT / "docs/results/emulators.md"
PICTURE = ROOT / "docs/images/emulators.png"
LONG, SHORT = 3000, 600  # frames of the 57 games, and of the others
LIBRARIES: tuple[vector_env_speed.Library, ...] = ("jaxrl", "envpool", "ale-py")
NUM_ENVS = 32
SECONDS, TURNS = 0.4, 3  # seconds of each measurement, and turns of all libraries


def read() -> dict[str, dict[str, Any]]:
    """Returns what has been measured: by kind (exact, speed-1, speed-2), by game."""
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def add(kind: str, game: str, result: Any) -> None:
    """Writes one game's result beside the others."""
    results = read()
    results.setdefault(kind, {})[game] = result
    results[kind] = dict(sorted(results[kind].items()))
    when = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores"
    results.setdefault("measured", {})[kind] = when
    replace_text(MEASURED, json.dumps(results, indent=1) + "\n")


def compare_frames(game: str, frames: int) -> dict[str, Any]:
    """Plays random actions in our emulator and in ale-py; returns how many frames were equal."""
    from ale_py import Action

    from tests.envs.atari2600.played import ACTIONS, Game, ale

    oracle, ours = ale(game), Game(game)
    oracle.reset_game()
    ours.reset()
    ours.reset()
    rng = np.random.default_rng(1)
    action, ends, equal = 0, 0, 0
    for frame in range(frames):
        if frame % 4 == 0:
            action = int(rng.integers(ACTIONS))
        expected = oracle.act(Action(action)), oracle.lives(), oracle.game_over()
        reward = ours.act(action)
        _, lives, over = ours.progress
        same = (
            (reward, lives, over) == expected
            and np.array_equal(ours.ram, oracle.getRAM())
            and np.array_equal(ours.screen, oracle.getScreen())
        )
        if not same:
            break
        equal += 1
        if over:
            ends += 1
            oracle.reset_game()
            ours.reset()
    ours.close()
    return {"frames": frames, "equal": equal, "ends": ends}


def rates(game: str, cores: int) -> dict[str, list[float]]:
    """Measures steps per second of the three vector environments in turns, on `cores` cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    opened = {name: vector_env_speed.make(name, game, NUM_ENVS, cores) for name in LIBRARIES}
    measured: dict[str, list[float]] = {name: [] for name in LIBRARIES}
    for envs, _ in opened.values():
        envs.reset()
    for turn in range(TURNS):
        for name, (envs, num_actions) in opened.items():
            drawn = np.random.default_rng(turn).integers(0, num_actions, (100, NUM_ENVS))
            wall, _ = vector_env_speed.rates(envs.step, drawn.astype(np.int32), SECONDS)
            measured[name].append(round(float(wall), 1))
    for envs, _ in opened.values():
        envs.close()
    return measured


def ratio(rates_of: dict[str, list[float]], library: str) -> float:
    """Returns how many times as fast as a library ours is: the median over the turns."""
    pairs = zip(rates_of["jaxrl"], rates_of[library], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def draw(results: dict[str, dict[str, Any]]) -> None:
    """Draws the ratio of every game, sorted, on one core and on two."""
    from jaxrl.analysis.drawing import COLORS, GRAY, new_figure, save

    kinds = [kind for kind in ("speed-1", "speed-2") if kind in results]
    games = sorted(results[kinds[-1]], key=lambda game: ratio(results[kinds[-1]][game], "envpool"))
    figure = new_figure(8, 10)
    axes = figure.subplots()
    for kind, marker, color in zip(kinds, "ox", COLORS, strict=False):
        cores = kind[-1]
        label = f"{cores} core{'s' * (cores != '1')}"
        of_game = results[kind]
        ratios = [ratio(of_game[g], "envpool") if g in of_game else np.nan for g in games]
        axes.plot(ratios, range(len(games)), marker, color=color, label=label, markersize=5)
    axes.set_yticks(range(len(games)), games, fontsize=7)
    axes.set_xlim(left=0)
    axes.set_ylim(-1, len(games))
    axes.axvline(1, color=GRAY, linewidth=0.8)
    axes.text(1, -0.6, " EnvPool", fontsize=8, color=GRAY)
    axes.set_xlabel("steps per second, as multiples of EnvPool's on the same cores")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)  # above
    save(figure, PICTURE)


def faster(of_games: dict[str, dict[str, list[float]]], library: str) -> str:
    """Returns how many times as fast as a library ours is: in the mean, at least, at most."""
    ratios = [ratio(rates_of, library) for rates_of in of_games.values()]
    mean = statistics.geometric_mean(ratios)
    return f"**{mean:.1f} times as fast** ({min(ratios):.1f} to {max(ratios):.1f})"


def page(results: dict[str, dict[str, Any]]) -> str:
    """Returns the page: one row for each game."""
    exact, measured = results["exact"], results["measured"]
    speeds = [kind for kind in ("speed-1", "speed-2") if kind in results]
    equal = sum(row["equal"] == row["frames"] for row in exact.values())
    texts = [
        "Written by `python tools/emulators.py write`. Equal to ale-py in RAM, screen, reward, "
        f"lives and end, in every frame of random actions: **{equal} of {len(exact)} games** "
        f"({measured['exact']}).",
    ]
    for kind in speeds:
        cores = f"{kind[-1]} core{'s' * (kind[-1] != '1')}"
        texts.append(
            f"Steps per second of Gymnasium's loop, {cores}, {NUM_ENVS} environments, random "
            f"actions, in turns: {faster(results[kind], 'envpool')} as EnvPool, "
            f"{faster(results[kind], 'ale-py')} as ale-py's vector environment, of "
            f"{len(results[kind])} games ({measured[kind]})."
        )
    lines = ["# Our Atari 2600, game by game", ""]
    for text in texts:
        lines += [textwrap.fill(text, 116), ""]
    if speeds:
        lines += ["![ratio of every game](../images/emulators.png)", ""]
    titles = ["game", "equal frames", "ends"]
    for kind in speeds:
        titles += [f"steps/s, {kind[-1]}", "× EnvPool", "× ale-py"]
    lines += ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for game, row in exact.items():
        cells = [game, f"{row['equal']:,} of {row['frames']:,}", str(row["ends"])]
        for kind in speeds:
            rates_of = results[kind].get(game)
            if rates_of:
                cells.append(f"{statistics.median(rates_of['jaxrl']):,.0f}")
                cells += [f"{ratio(rates_of, library):.1f}" for library in ("envpool", "ale-py")]
            else:
                cells += [""] * 3
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("exact", "speed", "write"))
    parser.add_argument("games", nargs="*", help="default: those without a result")
    parser.add_argument("--cores", type=int, default=2, help="cores of a measurement of speed")
    arguments = parser.parse_args()
    if arguments.what == "write":
        results = read()
        if any(kind.startswith("speed") for kind in results):
            draw(results)
        replace_text(PAGE, page(results))
        return 0
    kind = "exact" if arguments.what == "exact" else f"speed-{arguments.cores}"
    every = atari_games() if kind == "exact" else atari57()
    done = read().get(kind, {})
    for game in arguments.games or [game for game in every if game not in done]:
        if kind == "exact":
            result: Any = compare_frames(game, LONG if game in atari57() else SHORT)
        else:
            result = rates(game, arguments.cores)
        add(kind, game, result)
        print(game, result, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
