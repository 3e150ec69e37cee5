"""The scores of the runs in docs/results/runs that tables are made of."""

from pathlib import Path
from typing import NamedTuple

from jaxrl.atari.scores import human_normalized
from jaxrl.runs import evaluation_record, metrics
from jaxrl.runs.directory import load_config


class Run(NamedTuple):
    """A recorded run, and its scores by the way they were measured.

    "training" is the mean of the last 100 games of training, "noop" and "sticky" are the means of
    the evaluations by these protocols.
    """

    recipe: str
    steps: int  # agent steps of training
    game: str
    scores: dict[str, float]

    def normalized(self, measure: str) -> float:
        """Returns a score between 0 for random play and 1 for a human, or beyond."""
        score = human_normalized(self.game, self.scores[measure])
        assert score is not None, self.game
        return score


def read(run_dir: Path) -> Run:
    """Reads the scores of a run RECIPE-GAME-seedSEED."""
    config = load_config(run_dir)
    recipe = run_dir.name.removesuffix(f"-{config.game}-seed{config.seed}")
    last = metrics.read(run_dir)[-1]
    scores = {"training": last["return_mean"]}
    scores |= {name: found.mean for name, found in evaluation_record.read_all(run_dir).items()}
    return Run(recipe, last["step"], config.game, scores)
