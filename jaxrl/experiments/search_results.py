"""The results of a search: values and curves of its runs, its trials, the best recipe, pictures."""

import contextlib
import itertools
import json
import math
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.analysis import study_plots
from jaxrl.analysis.statistics import INTERVAL
from jaxrl.analysis.study_plots import Axis, Importance, StudyTrial
from jaxrl.config import variations
from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml
from jaxrl.experiments.members import Member
from jaxrl.experiments.search_plan import Range, StudyPlan, trial_name
from jaxrl.runs import evaluation_record, metrics
from jaxrl.runs.files import replace_text

if TYPE_CHECKING:
    import optuna

BEST = "best.toml"
STUDY_JSON = "study.json"
PICTURES = ("history.png", "importance.png", "parallel_coordinates.png")
MARKS = 20  # points of a run at which its learning curve is compared with those of other trials
LAST = 0.1  # share of the steps whose returns are the objective
FIRST_GAMES = "of first games only, which favors short ones"
LEAST_TRIALS = 4  # trials that ended, for figures of importance
RESAMPLES = 100  # draws of the trials, for intervals of the importance
OBJECTIVES = {
    "return": "mean return of the last tenth of training",
    "evaluation": "mean score of the evaluation",
}


# --- runs -----------------------------------------------------------------------------------------


def objective(plan: StudyPlan, member: Member) -> tuple[float | None, str]:
    """Returns the value of a run that has ended, and a note; None where no late game ended.

    The mean of `return_mean` over the last tenth of the steps covers many more games than an
    evaluation, and pruning compares the same curve.
    """
    if plan.options.objective == "evaluation":
        return evaluation_record.read(member.run_dir).mean, ""
    rows = metrics.read(member.run_dir)
    last = [row["step"] > (1 - LAST) * member.total_steps for row in rows]
    all_means = [row["return_mean"] for row in rows]
    for means, note in ((_fair_means(rows, member.config), ""), (all_means, FIRST_GAMES)):
        late_means = [mean for mean in itertools.compress(means, last) if mean is not None]
        if late_means:
            return statistics.fmean(late_means), note
    return None, f"no game ended in the last tenth of its {member.total_steps:,} steps"


def marks(rows: list[dict[str, Any]], config: Config) -> dict[int, float]:
    """Returns a learning curve at the points that all runs have, whatever their lines' steps are.

    Point k of `MARKS` has the return of the first line at k / MARKS of the steps or later. Points
    that passed before there was a fair mean are left out: with many environments it comes late.
    """
    points: dict[int, float] = {}
    passed = 0
    for row, mean in zip(rows, _fair_means(rows, config), strict=True):
        reached = min(MARKS, int(row["step"] * MARKS // config.total_steps))
        if mean is not None:
            points |= dict.fromkeys(range(passed + 1, reached + 1), mean)
        if mean is not None or not points:
            passed = reached
    return points


def _fair_means(rows: list[dict[str, Any]], config: Config) -> list[float | None]:
    """Returns the mean return of each line; None also where it covers first games only.

    Those favor short games, the more the more environments there are, which a search may vary.
    """
    return metrics.fair_means(rows, {"num_envs": config.num_envs, "game": config.game})


# --- trials ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides Optuna's warnings, which are for programmers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"optuna\.")
        yield


def trials_of(study: "optuna.Study", plan: StudyPlan) -> list[StudyTrial]:
    """Returns all trials that were begun, in their order."""
    from optuna.trial import TrialState

    trials = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.WAITING:
            continue
        base = plan.base_settings() if trial.number == 0 else {}
        settings = base | trial.params
        status = trial.user_attrs.get("status", "begun")
        complete = trial.state == TrialState.COMPLETE
        trials.append(
            StudyTrial(
                number=trial.number,
                status=status,
                value=trial.value if complete else None,
                settings={key: settings[key] for key in plan.spaces if key in settings},
                scores=list(trial.user_attrs.get("scores", ())),
                curve=dict(trial.intermediate_values),
                note=trial.user_attrs.get("note", ""),
                ended=complete or trial.state == TrialState.PRUNED,
            )
        )
    return trials


def best(trials: list[StudyTrial], plan: StudyPlan) -> StudyTrial | None:
    """Returns the best trial, of equal ones the first; None where none has a value."""
    sign = 1 if plan.options.direction == "maximize" else -1
    valued = [trial for trial in trials if trial.value is not None]
    return max(valued, key=lambda trial: sign * (trial.value or 0.0), default=None)


def write(
    root: Path,
    plan: StudyPlan,
    trials: list[StudyTrial],
    shares: dict[str, Importance] | None = None,
) -> None:
    """Writes study.json, and best.toml where a trial has a value, each whole or not at all.

    `shares` are the importances of the keys, once the search has ended.
    """
    options = {key: value for key, value in plan.to_json().items() if key != "base"}
    best_trial = best(trials, plan)
    table = {
        "study": options | {"config": plan.options.config, "trials": plan.options.trials},
        "best": None if best_trial is None else best_trial.number,
        "importance": None if shares is None else {k: x.share for k, x in shares.items()},
        "importance_interval": None if shares is None else {k: x[1:] for k, x in shares.items()},
        "trials": [_row(trial) for trial in trials],
    }
    replace_text(root / STUDY_JSON, json.dumps(table, indent=2, allow_nan=False) + "\n")
    if best_trial is not None:
        replace_text(root / BEST, best_toml(plan, trials, best_trial))


def _row(trial: StudyTrial) -> dict[str, Any]:
    """Returns the object of a trial in study.json."""
    settings = {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in trial.settings.items()
    }
    return {
        "number": trial.number,
        "name": trial_name(trial.number),
        "status": trial.status,
        "value": trial.value,
        "scores": trial.scores,
        "settings": settings,
        "note": trial.note,
    }


def best_toml(plan: StudyPlan, trials: list[StudyTrial], trial: StudyTrial) -> str:
    """Returns the best trial's whole recipe, with the study's figures in comments."""
    first = trials[0]
    begun = "no value" if first.value is None else f"{first.value:.4g}"
    ended = sum(x.ended for x in trials)
    lines = [
        f"found by: jaxrl search {plan.file}",
        f"{trial_name(trial.number)}, the best of {ended}: {trial.value:.4g}, "
        f"{OBJECTIVES[plan.options.objective]}; the recipe {plan.options.config}: {begun}",
        f"{plan.base.game}, {plan.base.total_steps:,} steps, seeds "
        f"{', '.join(map(str, plan.seeds))}",
        *(
            f"{key} = {variations.shown(value)}, before {variations.shown(before)}"
            for (key, value), before in zip(
                trial.settings.items(), plan.base_settings().values(), strict=True
            )
        ),
    ]
    # --seeds refuses a recipe with a seed.
    recipe = to_toml(plan.recipe(trial.settings), without=("seed", "run_dir"))
    return "".join(f"# {' '.join(line.split())}\n" for line in lines) + recipe


def importances(study: "optuna.Study") -> dict[str, Importance]:
    """Returns the share of each key in good values (PED-ANOVA); empty where trials are too few.

    The intervals are those of the bootstrap over trials.
    """
    complete = _complete(study)
    if len(complete) < LEAST_TRIALS or len({t.value for t in complete}) < 2:
        return {}
    whole = _shares(study, len(complete))
    rng = np.random.default_rng(0)
    drawn = [
        _shares(resampled, len(complete))
        for _ in range(RESAMPLES)
        if (resampled := _resample(study, complete, rng)) is not None
    ]
    bounds = {
        key: np.percentile([shares.get(key, 0.0) for shares in drawn or [whole]], INTERVAL)
        for key in whole
    }
    return {key: Importance(whole[key], *map(float, bounds[key])) for key in whole}


def _complete(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Returns the trials with a value."""
    from optuna.trial import TrialState

    every = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [trial for trial in every if trial.value is not None]


def _resample(
    study: "optuna.Study", trials: list["optuna.trial.FrozenTrial"], rng: np.random.Generator
) -> "optuna.Study | None":
    """Returns a study of as many trials, drawn with replacement; None if all values are equal."""
    import optuna

    drawn = [trials[index] for index in rng.integers(len(trials), size=len(trials))]
    if len({trial.value for trial in drawn}) < 2:
        return None
    with quiet():
        resampled = optuna.create_study(
            storage=optuna.storages.InMemoryStorage(), direction=study.direction
        )
        resampled.add_trials(drawn)
    return resampled


def _shares(study: "optuna.Study", trials: int) -> dict[str, float]:
    """Returns the shares of the keys in a study with `trials` values."""
    import optuna

    # A tenth of few trials would be a single trial: five should lie above the quantile.
    quantile = min(0.5, max(0.1, 5 / trials))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
    with quiet():
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def draw(
    study: "optuna.Study", plan: StudyPlan, root: Path, importance: dict[str, Importance]
) -> list[Path]:
    """Writes the pictures and returns their paths; `importance` is that of the study's keys."""
    trials = trials_of(study, plan)
    names = variations.short_names(list(plan.spaces))
    label = f"{plan.base.game}, {OBJECTIVES[plan.options.objective]}"
    axes = [
        Axis(key, names[key], isinstance(space, Range), isinstance(space, Range) and space.log)
        for key, space in plan.spaces.items()
    ]
    shares = {names[key]: share for key, share in importance.items()}
    targets = [root / name for name in PICTURES]
    maximize = plan.options.direction == "maximize"
    study_plots.history(trials, maximize, label, targets[0])
    study_plots.importance(shares, len(_complete(study)), label, targets[1])
    study_plots.parallel_coordinates(trials, axes, maximize, label, targets[2])
    return targets
