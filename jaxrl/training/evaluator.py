"""Evaluations during training: whole games by the acting policy, while training waits."""

import json
import time
from typing import Any, NamedTuple

import jax

from jaxrl.evaluation import evaluate
from jaxrl.runs import metrics
from jaxrl.runs.evaluation_record import Evaluation, protocol_of
from jaxrl.runtime import processes
from jaxrl.training.session import TrainingSession
from jaxrl.types import ActorState

MEAN = "evaluation/mean"  # in metrics.jsonl


class LogHistory(NamedTuple):
    """The lines of a log up to the step that a run is resumed at."""

    best: float | None = None  # highest mean of an evaluation
    evaluated: int = 0  # step of the newest evaluation
    line: int = 0  # step of the newest line


class Evaluator:
    """Evaluates every `evaluation.interval` agent steps, at lines of the log."""

    def __init__(self, session: TrainingSession, step: int) -> None:
        self._session = session
        self._interval = session.config.evaluation.interval
        history = self._history(step) if step else LogHistory()
        self._next = self._after(history.evaluated) if self._interval else None
        self._best, self._saved = history.best, step
        self.line_before = history.line  # step of the newest line of the log
        self.stopped = False  # whether a signal ended the newest evaluation, which stays due
        self.seconds = 0.0  # that training has waited for evaluations
        self.evaluated: tuple[int, float] | None = None  # step and mean of the newest
        self.is_best = False  # whether the newest has the highest mean so far

    def _after(self, step: int) -> int:
        """Returns the step at or after which the evaluation after that of `step` is due."""
        return (step // self._interval + 1) * self._interval

    def _history(self, step: int) -> LogHistory:
        """Reads the log of a run that is resumed at a step."""

        def find() -> str:
            rows = [row for row in metrics.read(self._session.run_dir) if row["step"] <= step]
            evaluations = [row for row in rows if row.get(MEAN) is not None]
            best = max((row[MEAN] for row in evaluations), default=None)
            newest = (lines[-1]["step"] if lines else 0 for lines in (evaluations, rows))
            return json.dumps([best, *newest])

        return LogHistory(*json.loads(processes.call_in_first(find)))

    def evaluate_if_due(self, actor: ActorState, step: int) -> dict[str, Any]:
        """Evaluates if the interval has passed; returns the keys of metrics.jsonl.

        The policy that a resumed run begins with has its checkpoint already, which cannot be ranked
        any more: it is never the best.
        """
        self.is_best = self.stopped = False
        if self._next is None or step < self._next:
            return {}
        start = time.perf_counter()
        row = self._evaluate(actor, step) if processes.index() == 0 else {}
        processes.wait_for_all(f"evaluation {step}")
        row = json.loads(processes.call_in_first(lambda: json.dumps(row)))
        took = time.perf_counter() - start
        self.seconds += took
        if not row:
            self.stopped = True
            return {}
        self._next = self._after(step)
        self.evaluated = (step, row[MEAN])
        self.is_best = step != self._saved and (self._best is None or row[MEAN] > self._best)
        self._best = row[MEAN] if self.is_best else self._best
        return row | {"evaluation/seconds": round(took, 3)}

    def _evaluate(self, actor: ActorState, step: int) -> dict[str, Any]:
        """Plays the games in this process; returns nothing if a signal ended them."""
        config, stop = self._session.config, self._session.stop
        actor = jax.device_put(jax.device_get(actor), jax.local_devices()[0])
        episodes = config.evaluation.episodes
        # Games differ each time, and from those at the end of training: the highest mean of many
        # evaluations is partly luck, which must not count twice.
        seed = 1 + step % 2**30
        try:
            result = evaluate.evaluate(
                config, actor, protocol_of(config), episodes, seed, step,
                give_up=lambda: stop.signal is not None,
            )  # fmt: skip
        except evaluate.GaveUpError:
            return {}
        self._session.display.say(
            f"{self._session.name}step {step:,}: evaluated {episodes} games, mean {result.mean:.1f}"
        )
        return _row(result)

    def mean_of(self, step: int) -> float | None:
        """Returns the mean of the policy of this step; None if it was not evaluated."""
        if self.evaluated is None or self.evaluated[0] != step:
            return None
        return self.evaluated[1]


def _row(result: Evaluation) -> dict[str, Any]:
    return {
        MEAN: result.mean,
        "evaluation/median": result.median,
        "evaluation/std": result.std,
        "evaluation/episodes": result.episodes,
    }
