"""Searches hyperparameters by Optuna; every trial trains as the members of a sweep do.

A trial's runs are ROOT/trial-N-GAME-seedSEED for each seed, and ROOT/study.db has the trials.
A trial that was stopped or failed stays open there: the same command continues it, and repeats no
trial that ended. The first trial is the recipe itself, so that the best is never worse than it.
"""

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
import sqlalchemy
from optuna.trial import TrialState

from jaxrl.analysis.study_plots import StudyTrial
from jaxrl.config import variations
from jaxrl.config.diff import changes
from jaxrl.errors import NotFiniteError, UserError, first_line
from jaxrl.experiments import runner, search_results
from jaxrl.experiments.members import Member, check_directory, copy_recipes, state
from jaxrl.experiments.runner import SignalRelay, Turn
from jaxrl.experiments.search_plan import Choices, Space, StudyPlan, trial_name
from jaxrl.experiments.search_results import MARKS
from jaxrl.formatting import duration
from jaxrl.runs import layout, metrics
from jaxrl.runs.lock import is_locked

if TYPE_CHECKING:
    from jaxrl.training.display import Display

STARTUP = 5  # trials drawn at random, before others are drawn near the best and curves are pruned
WARM_UP = MARKS // 4  # points before which no curve is pruned
SECONDS_TO_SAVE = 180.0  # that a run takes at most when its search was killed
NAME = "study"
OPTIONS = "asked"  # attribute of a study: its plan
PRUNED = "pruned"  # attribute of a trial: whether its curve fell behind


class Search(NamedTuple):
    """A search in progress."""

    plan: StudyPlan
    study: optuna.Study
    root: Path
    display: "Display"
    stop: SignalRelay


class Ending(NamedTuple):
    """The end of a trial or of a run: done, repeated, pruned, diverged, refused, ..."""

    status: str
    value: float | None = None
    note: str = ""


# --- the study's file -----------------------------------------------------------------------------


def open_study(plan: StudyPlan, root: Path) -> optuna.Study:
    """Returns the study in ROOT/study.db, which is made if it is not there, with its first trial.

    Raises `UserError` if it was begun otherwise, or cannot be read.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = root / layout.STUDY
    url = sqlalchemy.URL.create("sqlite", database=str(file)).render_as_string()
    try:
        study = optuna.create_study(
            storage=url,
            study_name=NAME,
            direction=plan.options.direction,
            pruner=_pruner(plan),
            load_if_exists=True,
        )
        _check_same(plan, study, root)
        if not study.get_trials(deepcopy=False):
            base = plan.base_settings()
            inside = {k: base[k] for k, space in plan.spaces.items() if space.contains(base[k])}
            study.enqueue_trial(inside)
    except (optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        reason = first_line(getattr(error, "orig", None) or error)
        raise UserError(f"cannot read '{file}' ({reason}): choose another --root") from None
    return study


def _pruner(plan: StudyPlan) -> optuna.pruners.BasePruner:
    match plan.options.pruner:
        case "median":
            return optuna.pruners.MedianPruner(STARTUP, WARM_UP)
        case "hyperband":
            return optuna.pruners.HyperbandPruner(WARM_UP, MARKS * len(plan.seeds))
    return optuna.pruners.NopPruner()


def _check_same(plan: StudyPlan, study: optuna.Study, root: Path) -> None:
    """Refuses a study that differs from the begun study in more than the number of trials."""
    options = json.loads(json.dumps(plan.to_json()))
    begun = study.user_attrs.get(OPTIONS)
    if begun is None:
        study.set_user_attr(OPTIONS, options)
    elif differing := changes(begun, options):
        raise UserError(
            f"the study in '{root}' was begun otherwise ({'; '.join(differing)}): choose another "
            "--root, or ask for what was begun; only the number of trials may change"
        )


def _open_trial(study: optuna.Study, plan: StudyPlan, number: int) -> optuna.Trial:
    """Returns the trial of this number: new, or one that was stopped."""
    # Each trial has a generator: a single one would repeat itself after a resume.
    [seed] = np.random.SeedSequence([plan.options.sampler_seed, number]).generate_state(1)
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=int(seed))
    trials = study.get_trials(deepcopy=False)
    if number < len(trials) and trials[number].state == TrialState.RUNNING:
        # Optuna has no public way back to a running trial: `ask` begins another, and what the
        # storage finds by number needs the study's private id.
        return optuna.trial.Trial(study, trials[number]._trial_id)
    return study.ask()


def _suggest(trial: optuna.Trial, plan: StudyPlan) -> variations.Settings:
    """Returns a trial's values; the first trial has those of the recipe, also beyond the spaces."""
    base = plan.base_settings() if trial.number == 0 else {}
    return {
        key: base[key]
        if key in base and not space.contains(base[key])
        else _draw(trial, key, space)
        for key, space in plan.spaces.items()
    }


def _draw(trial: optuna.Trial, key: str, space: Space) -> Any:
    if isinstance(space, Choices):
        return trial.suggest_categorical(key, space.values)
    if space.whole:
        low, high, step = int(space.low), int(space.high), int(space.step or 1)
        return trial.suggest_int(key, low, high, step=step, log=space.log)
    return trial.suggest_float(key, space.low, space.high, step=space.step, log=space.log)


# --- trials ---------------------------------------------------------------------------------------


def run(search: Search) -> list[StudyTrial]:
    """Trains the trials that have not ended, one after another; returns all of them.

    ROOT/study.json and ROOT/best.toml are rewritten after every trial.
    """
    trials = search.plan.options.trials
    ended = {trial.number for trial in _trials(search) if trial.ended}
    if ended:
        search.display.say(f"{len(ended)} of {max(trials, len(ended))} trials done already")
    numbers = {trial_name(number): number for number in range(trials)}
    with search_results.quiet():
        for turn, number in runner.turns(numbers, search.display, search.stop):
            if number not in ended:
                _train_trial(search, number, turn)
                search_results.write(search.root, search.plan, _trials(search))
    return _trials(search)


def _trials(search: Search) -> list[StudyTrial]:
    return search_results.trials_of(search.study, search.plan)


def _train_trial(search: Search, number: int, turn: Turn) -> None:
    """Trains one trial, and reports its end to Optuna. Raises `UserError` if the recipe fails."""
    study, plan = search.study, search.plan
    trial = _open_trial(study, plan, number)
    settings = _suggest(trial, plan)
    turn.begin("the recipe, " * (number == 0) + _summary(settings))
    ending = _train_runs(search, trial, settings)
    trial.set_user_attr("status", ending.status)
    trial.set_user_attr("note", ending.note)
    if ending.value is not None:
        study.tell(trial, ending.value)
    elif ending.status not in ("failed", "stopped"):
        study.tell(trial, state=TrialState.PRUNED)
    value = "" if ending.value is None else f", {plan.options.objective} {ending.value:.3f}"
    note = f" ({ending.note})" if ending.note else ""
    took = duration(turn.seconds)
    turn.end(f"{ending.status} after {took}{value}{note}{_best(search)}")
    if number == 0 and ending.status == "failed":
        raise UserError(f"the recipe itself, {trial_name(0)}, failed: {ending.note}")


def _summary(settings: variations.Settings) -> str:
    """Returns values for a line of text, with few digits."""
    names = variations.short_names(list(settings))
    shown = {
        key: f"{value:.3g}" if isinstance(value, float) else variations.shown(value)
        for key, value in settings.items()
    }
    return ", ".join(f"{names[key]} {value}" for key, value in shown.items())


def _best(search: Search) -> str:
    best = search_results.best(_trials(search), search.plan)
    return "" if best is None else f"; best {best.value:.3f}, {trial_name(best.number)}"


def _train_runs(search: Search, trial: optuna.Trial, settings: variations.Settings) -> Ending:
    """Trains a trial's runs, seed by seed, until one of them does not end well."""
    for other in _trials(search):
        if other.settings == settings and other.ended:
            status = "repeated" if other.value is not None else other.status
            return Ending(status, other.value, f"as {trial_name(other.number)}")
    try:
        members = search.plan.members(trial.number, settings, search.root)
    except UserError as error:  # values that only together make no sense
        return Ending("refused", note=str(error))
    for member in members:
        check_directory(member)
    copy_recipes(members)
    values: list[float] = []
    notes: dict[str, None] = {}
    for member in members:
        ending = _train_run(search, trial, member, values)
        if ending.value is None:
            return ending
        values.append(ending.value)
        notes |= {ending.note: None} if ending.note else {}
        trial.set_user_attr("scores", values)
    return Ending("done", statistics.fmean(values), "; ".join(notes))


def _train_run(search: Search, trial: optuna.Trial, member: Member, before: list[float]) -> Ending:
    """Trains one run to its end, or until it is pruned or a signal stops it.

    `before` are the values of the trial's earlier seeds.
    """
    _wait_until_saved(member, search)
    curve = _CurveWatcher(search, trial, member, before)
    status = 0
    if state(member) != "done" and not curve.pruned:
        if search.stop.signal is not None:
            return Ending("stopped")
        status = runner.train(member, search.stop, curve.look)
    curve.report()
    if curve.pruned:  # also where it trained to its end before the curve was read
        return Ending("pruned")
    if state(member) != "done":
        return _early_end(search, member, status)
    value, note = search_results.objective(search.plan, member)
    if value is None:
        return Ending("failed" if trial.number == 0 else "refused", note=note)
    return Ending("done", value, note)


def _early_end(search: Search, member: Member, status: int) -> Ending:
    if search.stop.signal is not None:
        return Ending("stopped")
    last_line = runner.last_line(member.log)
    if status == NotFiniteError.status:
        return Ending("diverged", note=last_line)
    return Ending("failed", note=f"status {status}, {last_line}: see {member.log}")


def _wait_until_saved(member: Member, search: Search) -> None:
    """Waits for the run of a search that was killed, which takes a moment to save and end."""
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while is_locked(member.run_dir) and search.stop.signal is None:
        search.display.show(f"waiting until {member.name} of an earlier search has ended")
        if time.monotonic() > deadline:
            raise UserError(f"'{member.run_dir}' is in training by another process: stop it")
        time.sleep(0.2)


# --- learning curves ------------------------------------------------------------------------------


class _CurveWatcher:
    """The learning curve of a run, reported to its trial; a run that falls behind is ended."""

    def __init__(
        self, search: Search, trial: optuna.Trial, member: Member, before: list[float]
    ) -> None:
        self._search, self._trial, self._member, self._before = search, trial, member, before
        frozen = search.study.get_trials(deepcopy=False)[trial.number]
        self._reported = set(frozen.intermediate_values)
        # A search that was killed may have left a decision, made or not: Hyperband makes each once.
        self.pruned = frozen.user_attrs.get(PRUNED, False)
        if self._reported and not self.pruned:
            self._judge()

    def look(self) -> None:
        """Shows and reports the newest line, and lets the run save and end if it is pruned."""
        search, member = self._search, self._member
        search.display.show(f"{member.name}  {runner.last_line(member.log)}")
        if self.pruned or search.stop.signal is not None:
            return
        self.report()
        if self.pruned:
            search.stop.end_member()

    def report(self) -> None:
        """Reports the points that are new, up to the first one at which the run is pruned.

        Each is judged alone, so that pruning does not depend on how many are new.
        """
        try:
            rows = metrics.read(self._member.run_dir)
        except UserError:  # none yet; `jaxrl resume` reports a fault
            return
        first = MARKS * len(self._before)
        for point, value in search_results.marks(rows, self._member.config).items():
            if self.pruned:
                return
            if first + point in self._reported:
                continue
            # The mean over the seeds so far: at this point other trials have as many.
            self._trial.report(statistics.fmean([*self._before, value]), first + point)
            self._reported.add(first + point)
            self._judge()

    def _judge(self) -> None:
        """Lets the pruner decide at the newest point."""
        if self._trial.should_prune():
            self.pruned = True
            self._trial.set_user_attr(PRUNED, True)
