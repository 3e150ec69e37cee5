"""An hour of training on one game, with jaxrl, Stable-Baselines3 or Sample Factory.

    .venv/bin/python docs/examples/hour.py jaxrl breakout --steps 25_000_000
    hour/sb3/bin/python docs/examples/hour.py sb3_ppo breakout
    hour/sb3/bin/python docs/examples/hour.py sb3_a2c breakout
    hour/sf/bin/python docs/examples/hour.py sample_factory breakout --steps 950_000

It writes the mean score of the last hundred games at each half minute to
hour/LIBRARY-GAME-seedSEED.csv: minutes since the start, agent steps (of the others those of
finished games), mean score. `--steps` is where training by jaxrl and by Sample Factory ends, and
their learning rate with it: those that the machine makes in an hour, 3,600 times the steps per
second that the lines of a first minute show (Sample Factory calls them Fps). jaxrl trains on to its
last step, however long it takes, and is evaluated; the curve has the hour of it. On one core, as
with `taskset -c 0`, the others do all in one process, and Sample Factory has 8 games, whose 128
steps are the batches of one iteration: with its example's 256 games in four processes the policy
that acts is hundreds of updates old there. hour.sh runs every library on four games.

What the others need does not fit into one environment with jaxrl, nor with each other, and EnvPool
0.8.4 has no wheel for newer Pythons:

    python3.11 -m venv hour/sb3
    hour/sb3/bin/pip install "stable-baselines3[extra]==2.9.2" ale-py==0.12.1
    python3.11 -m venv hour/sf
    hour/sf/bin/pip install sample-factory==2.1.1 envpool==0.8.4 "shimmy<2"

Their hyperparameters are those that they publish for Atari: RL Baselines3 Zoo's ppo.yml and
a2c.yml, and Sample Factory's sf_examples/envpool/atari.
"""

import argparse
import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

LAST = 100  # games whose mean is a point of a curve
IN_ONE_PROCESS = ("--serial_mode=True", "--async_rl=False", "--num_workers=1", "--env_agents=8")
START = "HOUR_START"  # of the environment: when the script began, in seconds since 1970
GAMES = "HOUR_GAMES"  # the folder where processes of Sample Factory write their games


class Game(NamedTuple):
    """A finished game: seconds from the start to its end, its agent steps, its score."""

    seconds: float
    steps: int
    score: float


class Point(NamedTuple):
    """A point of a curve."""

    minutes: float
    steps: int
    score: float


def name_of(game: str) -> str:
    """Returns the name of name_this_game in ALE's ids: NameThisGame."""
    return game.title().replace("_", "")


def curve(games: Iterable[Game], minutes: float) -> Iterator[Point]:
    """Yields the mean score of the last hundred games each half minute, from the hundredth on."""
    waiting, last, steps = deque(sorted(games)), deque[float](maxlen=LAST), 0
    for half in range(1, round(2 * minutes) + 1):
        while waiting and waiting[0].seconds <= 30 * half:
            game = waiting.popleft()
            last.append(game.score)
            steps += game.steps
        if len(last) == LAST:
            yield Point(half / 2, steps, sum(last) / len(last))


def on_one_core() -> bool:
    """Tells whether all runs on one core, where more processes would only slow training down."""
    return len(os.sched_getaffinity(0)) == 1


def train_jaxrl(game: str, folder: Path, seed: int, steps: int) -> None:
    """Trains vtrace_fast into a run directory in the folder, also for longer than the minutes."""
    run_dir = folder / f"vtrace_fast-{game}-seed{seed}"
    command = [sys.executable, "-m", "jaxrl", "train", "--config", "vtrace_fast", "--game", game,
               "--seed", str(seed), "--total-steps", str(steps),
               "--run-dir", str(run_dir)]  # fmt: skip
    subprocess.run(command, check=True)


def curve_of_jaxrl(folder: Path, minutes: float) -> Iterator[Point]:
    """Yields the curve of a run: its log has the means, by the seconds of its session."""
    [run_dir] = folder.iterdir()
    text = (run_dir / "metrics.jsonl").read_text()
    started = json.loads((run_dir / "provenance.json").read_text())["started"]
    before_session = datetime.fromisoformat(started).timestamp() - float(os.environ[START])
    lines = [line for line in map(json.loads, text.splitlines()) if line["episodes"] >= LAST]
    for half in range(1, round(2 * minutes) + 1):
        seconds = 30 * half - before_session
        if before := [line for line in lines if line["wall_seconds"] <= seconds]:
            yield Point(half / 2, before[-1]["step"], before[-1]["return_mean"])


def train_sb3(algorithm: str, game: str, folder: Path, seed: int, minutes: float) -> None:
    """Trains PPO or A2C of Stable-Baselines3, whose monitors write the games into the folder."""
    import ale_py
    import gymnasium
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    gymnasium.register_envs(ale_py)

    def left(_: float) -> float:
        """Returns the share of the hour that is left: the Zoo's schedules fall with the steps."""
        return max(0.0, 1 - elapsed() / (60 * minutes))

    alone = on_one_core()
    games = make_atari_env(
        f"{name_of(game)}NoFrameskip-v4",
        n_envs=8 if algorithm == "ppo" else 16,
        seed=seed,
        monitor_dir=str(folder),
        vec_env_cls=DummyVecEnv if alone else SubprocVecEnv,
        # Processes that are not forked would not know ALE's ids.
        vec_env_kwargs={} if alone else {"start_method": "fork"},
    )
    common: dict[str, Any] = {"env": VecFrameStack(games, 4), "seed": seed, "device": "cpu"}
    if algorithm == "ppo":
        model = PPO(
            "CnnPolicy",
            n_steps=128,
            n_epochs=4,
            batch_size=256,
            learning_rate=lambda x: 2.5e-4 * left(x),
            clip_range=lambda x: 0.1 * left(x),
            vf_coef=0.5,
            ent_coef=0.01,
            **common,
        )
    else:
        policy = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
        model = A2C("CnnPolicy", ent_coef=0.01, vf_coef=0.25, policy_kwargs=policy, **common)
    model.learn(10**9, callback=lambda *_: elapsed() < 60 * minutes)
    games.close()


def games_of_sb3(folder: Path) -> Iterator[Game]:
    """Yields the games in the files of Stable-Baselines3's monitors, which count frames."""
    began = float(os.environ[START])
    for path in folder.glob("*.monitor.csv"):
        with path.open() as file:
            opened = json.loads(file.readline()[1:])["t_start"] - began
            for row in csv.DictReader(file):
                yield Game(opened + float(row["t"]), int(row["l"]) // 4, float(row["r"]))


def make_recorded(name: str, config: Any, *rest: Any, **options: Any) -> Any:
    """Returns Sample Factory's games of EnvPool, which write the score of each whole game.

    Sample Factory itself counts each life as a game.
    """
    import gymnasium
    import numpy as np
    from sf_examples.envpool.atari.envpool_atari_utils import make_atari_env

    class Recorder(gymnasium.Wrapper):
        num_agents = config.env_agents
        score, steps = np.zeros(num_agents), np.zeros(num_agents, int)
        path = Path(os.environ[GAMES]) / f"{os.getpid()}.csv"

        def step(self, actions: Any) -> Any:
            """Plays a step, and writes the games that ended in it."""
            found = self.env.step(actions)
            self.score += found[-1]["reward"]  # not clipped
            self.steps += 1
            ended = np.flatnonzero(found[-1]["terminated"] | found[3])
            if len(ended):
                with self.path.open("a") as file:
                    for env in ended:
                        print(elapsed(), self.steps[env], self.score[env], sep=",", file=file)
                self.score[ended], self.steps[ended] = 0, 0
            return found

    return Recorder(make_atari_env(name, config, *rest, **options))


def train_sample_factory(
    game: str, folder: Path, seed: int, steps: int, minutes: float, options: list[str]
) -> None:
    """Trains APPO of Sample Factory on EnvPool, whose processes write the games into the folder."""
    from sample_factory.algo.utils.misc import ExperimentStatus
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import run_rl
    from sf_examples.envpool.atari.envpool_atari_utils import ENVPOOL_ATARI_ENVS
    from sf_examples.envpool.atari.train_envpool_atari import parse_atari_args

    names = [spec.name for spec in ENVPOOL_ATARI_ENVS if spec.env_id == f"{name_of(game)}-v5"]
    if not names:
        sys.exit(f"Sample Factory has no game {name_of(game)}")
    register_env(names[0], make_recorded)
    # Nobody counts the seconds of its --train_for_seconds; and a shell lets jobs in the background
    # ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = Timer(60 * minutes - elapsed(), os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    status = run_rl(parse_atari_args([
        "--algo=APPO", f"--env={names[0]}", "--device=cpu", f"--seed={seed}",
        f"--train_dir={folder / 'run'}", "--experiment=hour",
        # Else the rate would be three quarters of the first one at the end: its schedule counts
        # steps, and the end of training frames.
        "--summaries_use_frameskip=False", f"--train_for_env_steps={steps}",
        *(IN_ONE_PROCESS if on_one_core() else ()), *options,
    ]))  # fmt: skip
    timer.cancel()
    if status not in (ExperimentStatus.SUCCESS, ExperimentStatus.INTERRUPTED):
        sys.exit(f"Sample Factory ended with status {status}")


def games_of_sample_factory(folder: Path) -> Iterator[Game]:
    """Yields the games that `make_recorded` has written."""
    for path in folder.glob("*.csv"):
        for line in path.read_text().splitlines():
            seconds, steps, score = line.split(",")
            yield Game(float(seconds), int(steps), float(score))


def elapsed() -> float:
    """Returns the seconds since the script began, in each of its processes."""
    return time.time() - float(os.environ[START])


def main() -> None:
    """Trains, and writes the curve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    libraries = ("jaxrl", "sb3_ppo", "sb3_a2c", "sample_factory")
    parser.add_argument("library", choices=libraries)
    parser.add_argument("game", help="as jaxrl writes it: name_this_game")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, help="agent steps in that time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path("hour"))
    given, options = parser.parse_known_args()
    if options and given.library != "sample_factory":
        parser.error(f"unknown: {' '.join(options)} (Sample Factory is given other options)")
    if given.steps is None and given.library in ("jaxrl", "sample_factory"):
        parser.error("--steps is missing: as many as the machine makes in that time")

    folder = given.root.absolute() / f"{given.library}-{given.game}-seed{given.seed}"
    with contextlib.suppress(OSError):
        folder.rmdir()  # empty, of a start that failed
    if folder.exists():
        parser.error(f"{folder} exists: remove it, or choose another --root")
    folder.mkdir(parents=True)
    os.environ[START], os.environ[GAMES] = str(time.time()), str(folder)
    if given.library == "jaxrl":
        train_jaxrl(given.game, folder, given.seed, given.steps)
        points = curve_of_jaxrl(folder, given.minutes)
    elif given.library == "sample_factory":
        train_sample_factory(given.game, folder, given.seed, given.steps, given.minutes, options)
        points = curve(games_of_sample_factory(folder), given.minutes)
    else:
        train_sb3(given.library[4:], given.game, folder, given.seed, given.minutes)
        points = curve(games_of_sb3(folder), given.minutes)
    target = folder.with_suffix(".csv")
    points = list(points)
    if not points:
        sys.exit(f"{given.library} has finished less than {LAST} games")
    with target.open("w") as file:
        print(",".join(Point._fields), file=file)
        for point in points:
            print(point.minutes, point.steps, round(point.score, 2), sep=",", file=file)
    print(target, file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ImportError as error:
        sys.exit(f"{error}: install what the script's first lines say")
