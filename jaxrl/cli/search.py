"""`jaxrl search`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.cli.parsing import Words
from jaxrl.cli.plan_commands import check_platform, print_stopped, print_table
from jaxrl.errors import UserError
from jaxrl.formatting import shell_word
from jaxrl.runs.files import check_is_directory

if TYPE_CHECKING:
    from jaxrl.analysis.study_plots import StudyTrial
    from jaxrl.experiments.search_plan import StudyPlan

StudyFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY.toml")]


@dataclass(frozen=True)
class Search:
    """Search for the hyperparameters that score best, by Optuna (pip install -e '.[search]').

    STUDY.toml names a recipe (config), a game, and in a table [search] the values to try: a list,
    or { low = 1e-4, high = 1e-2, log = true }. The recipe itself is trained first. Each trial
    trains in ROOT/trial-N-GAME-seedSEED, one after another, and is stopped early where its learning
    curve falls behind. Ctrl-C saves the run in progress and ends; the same command goes on, also
    after a kill. ROOT gets best.toml, study.json and pictures. Settings that are only faster are
    found by jaxrl tune.
    Example: jaxrl search study.toml --root runs/study
    """

    study: StudyFile
    """TOML file of the study; docs/guides/studies.md lists its keys"""
    root: Path | None = None
    """directory of the study; default is runs/STUDY, by the file's name"""
    dry_run: bool = False
    """check the study and show its spaces; train nothing"""
    words: Words = ()


def search(arguments: Search) -> int:
    """Trains the trials that are left, and prints and draws all of them."""
    check_platform("search")
    from jaxrl.experiments import search_plan

    plan = search_plan.load(arguments.study)
    root = arguments.root or Path("runs") / arguments.study.stem
    check_is_directory(root, "--root")
    if arguments.dry_run:
        _print_spaces(plan)
        return 0
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError("search needs Optuna: pip install -e '.[search]'") from None
    return _train(plan, root, arguments.words)


def _print_spaces(plan: "StudyPlan") -> None:
    """Prints each key with its value in the recipe and its space."""
    from jaxrl.config.variations import shown

    runs = f"{plan.options.trials} trials of {len(plan.seeds)} seeds"
    print(f"{runs}, {plan.base.total_steps:,} steps of {plan.base.game} each")
    for key, before in plan.base_settings().items():
        space = plan.spaces[key].to_json()
        values = [f"{name} {shown(value)}" for name, value in space.items()] if isinstance(
            space, dict
        ) else map(shown, space)  # fmt: skip
        print(f"{key}: {', '.join(values)} (the recipe has {shown(before)})")


def _train(plan: "StudyPlan", root: Path, words: tuple[str, ...]) -> int:
    from jaxrl.experiments import search as searching
    from jaxrl.experiments import search_results
    from jaxrl.experiments.runner import SignalRelay
    from jaxrl.runs.lock import hold_directory
    from jaxrl.training.display import Display

    with hold_directory(root, "--root"), SignalRelay().watching() as stop:
        study = searching.open_study(plan, root)
        with Display() as display:
            trials = searching.run(searching.Search(plan, study, root, display, stop))
        if stop.signal is not None:
            _print(trials, plan)
            return print_stopped("search", words, stop.signal)
        try:
            importance = search_results.importances(study)
            search_results.write(root, plan, trials, importance)
            pictures = search_results.draw(study, plan, root, importance)
        finally:
            _print(trials, plan)
    for path in (*pictures, root / search_results.STUDY_JSON):
        print(path)
    if search_results.best(trials, plan) is not None:
        print(f"train with it: jaxrl train --config {shell_word(root / search_results.BEST)}")
    return int(any(not trial.ended for trial in trials))


def _print(trials: "list[StudyTrial]", plan: "StudyPlan") -> None:
    """Prints the trials as a table, and the best beside the recipe."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from jaxrl.config.variations import short_names, shown
    from jaxrl.experiments.search_results import best

    best_trial, names = best(trials, plan), short_names(list(plan.spaces))
    table = Table(box=box.SIMPLE)
    for name in ("trial", "status", plan.options.objective, *names.values()):
        table.add_column(Text(name), justify="left" if name == "status" else "right")
    for trial in trials:
        value = "-" if trial.value is None else f"{trial.value:.3f}"
        settings = (trial.settings.get(key) for key in plan.spaces)
        cells = [f"{x:.3g}" if isinstance(x, float) else shown(x) for x in settings]
        style = "bold" if trial is best_trial else ""
        table.add_row(str(trial.number), trial.status, value, *map(Text, cells), style=style)
    print_table(table)
    if best_trial is None:
        return
    first = trials[0].value
    before = "" if first is None else f"; the recipe, trial 0: {first:.3f}"
    result = f"{plan.options.objective} {best_trial.value:.3f}"
    print(f"best: trial {best_trial.number}, {result}{before}")
    for key, setting in best_trial.settings.items():
        print(f"  {key} = {shown(setting)}")
