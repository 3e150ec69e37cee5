"""Shows the first frame in which our Atari 2600 and another emulator differ, and where.

    python tools/first_difference.py pong                     against ale-py
    python tools/first_difference.py pong --against plain     against our plain interpreter
    python tools/first_difference.py pong --frames 20000 --seed 3

Both play the same random actions, each for four frames. What differs is named: addresses of RAM,
the first scan line of the picture with its pixels and our writes to the TIA there, and against our
plain interpreter the registers and the first write too. The exit status is 1 where something
differs.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # tests/ has the games frame by frame

from jaxrl.atari.games import FULL_ACTIONS, atari_games  # noqa: E402
from jaxrl.config.validation import check_game  # noqa: E402
from jaxrl.errors import UserError  # noqa: E402
from tests.envs.atari2600.played import ACTIONS, Game, ale  # noqa: E402

ACTION_FRAMES = 4  # frames of an action
CYCLES_PER_LINE, BLANK_CLOCKS = 76, 68  # of a scan line; a cycle is three clocks, a clock a pixel
RAM_START = 0x80
Pair = tuple[int, int]  # our value and the other's
Write = tuple[int, str, int]  # cycle since the first line, register, value


class ComparedGame(Protocol):
    """An emulator with one game, frame by frame."""

    @property
    def ram(self) -> np.ndarray:
        """u8[128]."""

    @property
    def screen(self) -> np.ndarray:
        """u8[height, 160], colors."""

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Score, lives and whether the game is over."""

    def reset(self) -> None:
        """Starts the game over."""

    def act(self, action: int) -> int:
        """Plays one frame of an action of the full set; returns its reward."""


class Ale:
    """A game of ale-py."""

    def __init__(self, game: str) -> None:
        self._ale = ale(game)

    def reset(self) -> None:
        """Starts the game over."""
        self._ale.reset_game()

    def act(self, action: int) -> int:
        """Plays one frame of an action of the full set; returns its reward."""
        from ale_py import Action

        return int(self._ale.act(Action(action)))

    @property
    def ram(self) -> np.ndarray:
        """u8[128]."""
        return np.asarray(self._ale.getRAM())

    @property
    def screen(self) -> np.ndarray:
        """u8[height, 160], colors."""
        return np.asarray(self._ale.getScreen())

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Nothing, lives and whether the game is over: ALE counts no score."""
        return 0, self._ale.lives(), self._ale.game_over()


class Run(NamedTuple):
    """Neighboring pixels of a row that differ alike."""

    first: int
    last: int
    colors: Pair


class Picture(NamedTuple):
    """The first row of a screen that differs."""

    row: int
    line: int  # scan line of the frame
    num_rows: int  # that differ
    runs: list[Run]
    writes: list[Write]  # ours on the line, or on the last line before it that has any


class Difference(NamedTuple):
    """The first frame that differs; what is equal is empty or None."""

    frame: int  # since the start; 0 is the end of the first reset
    action: int
    after_reset: bool  # the frame ended a game, and what differs is the reset after it
    ram: dict[int, Pair]  # by address
    answers: dict[str, Pair]  # reward, lives, over
    picture: Picture | None
    registers: dict[str, Pair]
    write: tuple[Write | None, Write | None] | None  # ours and the other's first that differs


def first_difference(ours: Game, other: ComparedGame, frames: int, seed: int) -> Difference | None:
    """Returns the first difference of two games that play random actions, or None."""
    for played in _frames(ours, other, frames, seed):
        frame, action, after_reset, rewards = played
        difference = Difference(
            frame,
            action,
            after_reset,
            _differing(dict(enumerate(ours.ram, RAM_START)), dict(enumerate(other.ram, RAM_START))),
            _differing(_answers(ours, rewards[0]), _answers(other, rewards[1])),
            _compare_pictures(ours, other),
            *_compare_chips(ours, other),
        )
        if any(difference[3:]):
            return difference
    return None


class _Frame(NamedTuple):
    """A frame that both have played."""

    number: int
    action: int
    after_reset: bool
    rewards: Pair


def _frames(ours: Game, other: ComparedGame, frames: int, seed: int) -> Iterator[_Frame]:
    """Plays random actions in both, and stops after every frame and every reset."""
    ours.reset()  # as ALE does when it loads a cartridge
    if isinstance(other, Game):
        other.reset()
    both = (ours, other)
    for played in both:
        played.reset()
    yield _Frame(0, 0, True, (0, 0))
    rng = np.random.default_rng(seed)
    action = 0
    for frame in range(1, frames + 1):
        if frame % ACTION_FRAMES == 1:
            action = int(rng.integers(ACTIONS))
        yield _Frame(frame, action, False, (ours.act(action), other.act(action)))
        if ours.progress[2] or other.progress[2]:
            for played in both:
                played.reset()
            yield _Frame(frame, action, True, (0, 0))


def _answers(game: ComparedGame, reward: int) -> dict[str, int]:
    _, lives, over = game.progress
    return {"reward": reward, "lives": lives, "over": int(over)}


def _differing(ours: dict[Any, int], others: dict[Any, int]) -> dict[Any, Pair]:
    return {key: (int(v), int(others[key])) for key, v in ours.items() if v != others[key]}


def _compare_chips(
    ours: Game, other: ComparedGame
) -> tuple[dict[str, Pair], tuple[Write | None, Write | None] | None]:
    """Returns the registers that differ and the first write that does, where both are ours."""
    if not isinstance(other, Game):
        return {}, None
    writes = itertools.zip_longest(ours.log, other.log)
    write = next((pair for pair in writes if pair[0] != pair[1]), None)
    return _differing(ours.registers, other.registers), write


def _compare_pictures(ours: Game, other: ComparedGame) -> Picture | None:
    """Returns the first row that differs, or None."""
    screen, other_screen = ours.screen, other.screen
    rows = np.flatnonzero((screen != other_screen).any(axis=1))
    if not rows.size:
        return None
    row = int(rows[0])
    line = ours.first_line + row
    runs: list[Run] = []
    for x in np.flatnonzero(screen[row] != other_screen[row]):
        colors = (int(screen[row, x]), int(other_screen[row, x]))
        if runs and runs[-1].last == x - 1 and runs[-1].colors == colors:
            runs[-1] = runs[-1]._replace(last=int(x))
        else:
            runs.append(Run(int(x), int(x), colors))
    return Picture(row, line, len(rows), runs, _writes(ours.log, line))


def _writes(log: list[Write], line: int) -> list[Write]:
    """Returns the writes of a scan line, or of the last line before it that has any."""
    lines = [cycle // CYCLES_PER_LINE for cycle, _, _ in log]
    newest = max((number for number in lines if number <= line), default=-1)
    return [write for write, number in zip(log, lines, strict=True) if number == newest]


def describe(game: str, against: str, difference: Difference) -> str:
    """Returns what differs, a line each."""
    when = f"frame {difference.frame} ({FULL_ACTIONS[difference.action]})"
    if difference.after_reset:
        when = f"the reset after {when}" if difference.frame else "the first reset"
    lines = [f"{game}: {when} is the first that differs from {against}"]
    for address, (mine, theirs) in difference.ram.items():
        lines.append(f"  RAM ${address:02X}: ours ${mine:02X}, {against} ${theirs:02X}")
    for name, (mine, theirs) in difference.answers.items():
        lines.append(f"  {name}: ours {mine}, {against} {theirs}")
    for name, (mine, theirs) in difference.registers.items():
        lines.append(f"  {name}: ours ${mine:02X}, {against} ${theirs:02X}")
    if difference.write:
        lines.append("  the first write to the TIA that differs")
        for name, write in zip(("ours", against), difference.write, strict=True):
            lines.append(f"    {name}: {_describe_write(write) if write else 'none'}")
    if difference.picture:
        lines += _describe_picture(against, difference.picture)
    return "\n".join(lines)


def _describe_picture(against: str, picture: Picture) -> list[str]:
    row, line, num_rows, runs, writes = picture
    lines = [f"  scan line {line} (row {row} of the screen), the first of {num_rows} that differ"]
    for run in runs:
        mine, theirs = run.colors
        many = f"pixels {run.first} to {run.last}"
        where = many if run.last > run.first else f"pixel {run.first}"
        lines.append(f"    {where}: ours ${mine:02X}, {against} ${theirs:02X}")
    lines.append("  our writes to the TIA there, or last before it")
    return lines + [f"    {_describe_write(write)}" for write in writes]


def _describe_write(write: Write) -> str:
    cycle, register, value = write
    line, cycle = divmod(cycle, CYCLES_PER_LINE)
    pixel = 3 * cycle - BLANK_CLOCKS
    beam = f"pixel {pixel}" if pixel >= 0 else "blank"
    return f"scan line {line}, cycle {cycle} ({beam}): {register} = ${value:02X}"


def compare(game: str, against: str, frames: int, seed: int) -> int:
    """Plays both and prints what differs; returns the exit status."""
    check_game(game, atari_games())
    other: ComparedGame = Ale(game) if against == "ale" else Game(game, plain=True)
    difference = first_difference(Game(game), other, frames, seed)
    if difference:
        print(describe(game, against, difference))
        return 1
    parts = "RAM, screens, rewards, lives and ends"
    parts = f"registers, writes to the TIA, {parts}" if against == "plain" else parts
    print(f"{game}: {frames:,} frames with seed {seed} equal {against}: {parts}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", help="as `jaxrl games` lists it")
    parser.add_argument("--against", choices=("ale", "plain"), default="ale",
                        help="ale-py, or our interpreter of single instructions")  # fmt: skip
    parser.add_argument(
        "--frames", type=int, default=3000, help="frames of random actions, 60 a second"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the actions")
    options = parser.parse_args(arguments)
    if options.frames < 1 or options.seed < 0:
        parser.error("--frames is from 1 on, --seed from 0 on")
    try:
        return compare(options.game, options.against, options.frames, options.seed)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except ImportError:
        print("error: ale-py is missing: pip install ale-py, or --against plain", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
