"""The table of docs/results/half_hour.md is that of the recorded runs, which had its settings."""

import json
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from jaxrl.cli.parsing import parse
from jaxrl.cli.train import Train
from jaxrl.config.toml import load
from jaxrl.runs import metrics
from tools import record_runs, recorded_scores, score_tables
from tools.pages import marked_section
from tools.recorded_scores import Run

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "docs/results/runs/half_hour").iterdir())
PAGE = (ROOT / "docs/results/half_hour.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def test_the_page_shows_the_recorded_runs():
    table = score_tables.half_hour([recorded_scores.read(run) for run in RUNS])
    assert marked_section(PAGE, "scores", table) == PAGE
    assert marked_section(PAGE, "norm", score_tables.hidden_norm(RUNS[0].parents[1])) == PAGE
    assert marked_section(PAGE, "tried", score_tables.tried(ROOT / score_tables.TRIALS)) == PAGE


def test_what_the_page_says_of_name_this_game_is_recorded():
    lines = [
        [json.loads(line) for line in (RUNS[0].parent / name / "metrics.jsonl").open()]
        for name in ("vtrace_fast-name_this_game-seed1", "btr_fast-name_this_game-seed1")
    ]
    late = [line for line in lines[0] if line["step"] >= 1_500_000]

    def spread(key, form):
        values = [line[key] for line in late]
        return f"{min(values):{form}} to {max(values):{form}}"

    other = metrics.read(RUNS[0].parents[1] / "atari5/vtrace_fast-name_this_game-seed1")
    [before] = [line["return_mean"] for line in other if line["step"] == 2_000_000]
    for said in (
        f"{spread('return_mean', ',.0f')} from step {late[0]['step']:,} to the end",
        f"(`network/dormant` is {spread('network/dormant', '.2f')})",
        f"explain {spread('value/explained_variance', '.2f')} of the variance",
        f"games stay {spread('length_mean', ',.0f')} steps long",
        f"games of {lines[1][-1]['length_mean']:,.0f} steps and {lines[1][-1]['return_mean']:,.0f}",
        f"where [one without](atari5.md), with the same seed, has {before:,.0f}.",
    ):
        assert said in TEXT, said


@pytest.fixture(scope="module")
def runs():
    return [recorded_scores.read(run_dir) for run_dir in RUNS]


def test_the_recipes_that_the_page_names_have_the_highest_medians(runs):
    def mean(recipe, game, measure):
        seeds = [run for run in runs if (run.recipe, run.game) == (recipe, game)]
        return statistics.fmean(run.normalized(measure) for run in seeds)

    def median(recipe, measure):
        return statistics.median(mean(recipe, game, measure) for game in score_tables.GAMES)

    recipes = set(score_tables.RECIPES) - {"vtrace_cpu"}
    (first, next_one), (best, next_noop) = (
        sorted(recipes, key=lambda recipe: -median(recipe, measure))[:2]
        for measure in ("training", "noop")
    )
    assert best == first
    assert (
        f"**`{first}` has the highest median**, {median(first, 'training'):.2f} by the scores of "
        f"training and {median(first, 'noop'):.2f} by the noop games; next are `{next_one}` by the "
        f"first, {median(next_one, 'training'):.2f}, and `{next_noop}` by the second, "
        f"{median(next_noop, 'noop'):.2f}."
    ) in TEXT
    assert f"So by the noop games its median is {median('pqn_gamma', 'noop'):.2f}." in TEXT


def test_the_recipes_that_the_page_names_have_the_highest_scores(runs):
    def best(game, measure):
        by_recipe = defaultdict(list)
        for run in runs:
            if run.game == game:
                by_recipe[run.recipe].append(run.scores[measure])
        return max(by_recipe, key=lambda recipe: statistics.fmean(by_recipe[recipe]))

    found = {
        game: [best(game, measure) for measure in ("training", "noop")]
        for game in score_tables.GAMES
    }
    assert found == {
        "phoenix": ["vtrace_fast", "vtrace_fast"],
        "qbert": ["vtrace_fast", "vtrace_fast"],
        "name_this_game": ["btr_fast", "btr_fast"],
        "breakout": ["ppo_fast", "vtrace_fast"],
    }
    assert (
        "By both it has the highest score on Phoenix and Q*bert, and `btr_fast` on Name This Game; "
        "on Breakout `ppo_fast` has it in training, `vtrace_fast` in the noop games."
    ) in TEXT


def test_what_the_page_says_of_two_seeds_on_breakout_is_recorded(runs):
    for measure in ("training", "noop"):
        ppo, v_trace, pqn = (
            [x.scores[measure] for x in runs if (x.recipe, x.game) == (recipe, "breakout")]
            for recipe in ("ppo_fast", "vtrace_fast", "pqn_gamma")
        )
        assert len(ppo) == len(v_trace) == len(pqn) == 2
        between = abs(statistics.fmean(ppo) - statistics.fmean(v_trace))
        assert between < min(abs(first - second) for first, second in (ppo, v_trace))
        assert max(pqn) < min(ppo + v_trace)
    assert (
        "the two seeds of either recipe lie further apart than the means of the two, by both "
        "measures, so two seeds do not rank them. Both seeds of `pqn_gamma` are below these four, "
        "by both measures."
    ) in TEXT


def test_what_the_page_says_of_runs_that_stall_is_recorded():
    lines = {run_dir.name: metrics.read(run_dir) for run_dir in RUNS}
    minutes = [of[-1]["wall_seconds"] / 60 for of in lines.values()]
    found, other = (
        json.loads((RUNS[0].parent / f"{recipe}-phoenix-seed1/evaluation.json").read_text())
        for recipe in ("pqn_gamma", "btr_fast")
    )
    waiting = lines["pqn_gamma-phoenix-seed1"][-1]
    [trial] = [
        trial
        for trial in json.loads((ROOT / score_tables.TRIALS).read_text(encoding="utf-8"))
        if trial["name"] == "pqn-phoenix-without-learning"
    ]
    (_, *_, stopped), (_, *_, learning) = trial["rows"]
    rainbow = {game: lines[f"rainbow_fast-{game}-seed1"] for game in score_tables.GAMES}
    begun, dormant = (
        [line["network/dormant"] for of in rainbow.values() for line in of if line["step"] == step]
        for step in (39_936, rainbow["qbert"][-1]["step"])
    )
    scored = [line for line in rainbow["name_this_game"] if line["return_mean"] is not None]
    highest = max(scored, key=lambda line: line["return_mean"])
    assert (
        max(line["return_mean"] or 0 for line in rainbow["qbert"])
        == rainbow["qbert"][-1]["return_mean"]
    )
    for said in (
        f"took {min(minutes):.0f} to {max(minutes):.0f} minutes",
        f"plays {found['lengths'].count(27_000)} of its {found['episodes']} noop games until the",
        f"none scores more than {max(found['scores']):,.0f}. In training the last 100 games ended "
        f"after {waiting['length_mean']:,.0f} steps on average, with "
        f"{waiting['return_mean']:,.1f} points",
        f"falls from {waiting['reward/density']:.3f} to {stopped:.3f} within",
        f"with the rate that it had it is {learning:.3f} by then (`pqn",
        f"plays {other['lengths'].count(27_000)} of its {other['episodes']} noop games on Phoenix",
        "is {:.2f} on Breakout, {:.2f} on Name This Game, {:.2f} on Phoenix and {:.2f} on Q*bert "
        "at step 39,936".format(*begun),
        "and {:.2f}, {:.2f}, {:.2f} and {:.2f} at the end".format(*dormant),
        "The return falls on Name This Game "
        f"from {highest['return_mean']:,.0f} at step {highest['step']:,} to "
        f"{scored[-1]['return_mean']:,.0f},",
    ):
        assert said in TEXT, said


def test_what_the_page_says_of_breakout_is_recorded():
    ppo, cpu, fast = (
        [line for line in metrics.read(RUNS[0].parent / f"{recipe}-breakout-seed1")
         if line["return_mean"] is not None]
        for recipe in ("ppo_fast", "vtrace_cpu", "vtrace_fast")
    )  # fmt: skip

    def first(lines, score):
        return next(line["step"] for line in lines if line["return_mean"] > score)

    highest = max(cpu, key=lambda line: line["return_mean"])
    early = [line["return_mean"] for line in cpu if 2e6 <= line["step"] <= 12e6]
    for said in (
        f"above 130 at step {first(ppo, 130):,}, that of the other at {first(cpu, 130):,}; "
        f"above 400 at {first(ppo, 400):,}, which the other never is: its highest is "
        f"{highest['return_mean']:.0f}, at step {highest['step']:,}.",
        f"to 12,000,000 it has {min(early):.0f} to {max(early):.0f}.",
        f"has up to {max(line['return_mean'] for line in fast):.0f}, and "
        f"{fast[-1]['return_mean']:.0f} at the end",
    ):
        assert said in TEXT, said


def test_what_the_page_says_of_ppo_with_small_networks_was_tried():
    trial = score_tables.trial_of(ROOT / score_tables.TRIALS, score_tables.TRIED)
    steps = [int(step.replace(",", "")) for step in trial["columns"][1:-1]]
    curves = {name: dict(zip(steps, row, strict=False)) for name, *row in trial["rows"]}
    noop = {name: score for name, *_, score in trial["rows"]}
    end = steps[-1]
    assert end == 10_000_000
    nips, nature = (
        f"ppo_fast with the {network} network, 10,000,000 steps" for network in ("NIPS", "Nature")
    )
    invaders, falling = f"Space Invaders, {nips}", "with an entropy bonus that falls to 0"
    other, large = f"Space Invaders, the same {falling}", f"Space Invaders, {nature}"
    v_trace, diver = "Space Invaders, vtrace_fast", "Seaquest, vtrace_fast"
    slower = f"Seaquest, the same with 4 epochs and {falling[5:]}"
    # Two of these runs are kept, because their policies come with the package.
    for game, row in (("space_invaders", invaders), ("seaquest", slower)):
        run = recorded_scores.read(RUNS[0].parents[1] / f"policies/ppo_nips-{game}-seed1")
        assert run.scores["training"] == pytest.approx(curves[row][end], abs=0.051)
        assert run.scores["noop"] == pytest.approx(noop[row], abs=0.051)
    on_breakout = [
        next(
            line["return_mean"]
            for line in metrics.read(RUNS[0].parent / f"vtrace_fast-breakout-seed{seed}")
            if line["step"] >= end
        )
        for seed in (1, 2)
    ]
    four = curves["Space Invaders, ppo_fast with the NIPS network and 4 epochs, 10,000,000 steps"]
    assert steps[1] == 1_000_000
    assert all(four[step] < curves[row][step] for step in steps[1:-1] for row in (invaders, other))
    speeds = "6,668 to 7,818 by the game, with 4 epochs 4,740 and 4,807, with the Nature network"
    assert f"{speeds} 3,864" in " ".join(trial["notes"])
    for said in (
        "6,668 to 7,818 a second by the game, 4,740 and 4,807 with 4 epochs, and 3,864",
        f"On Breakout it ends with {curves[f'Breakout, {nips}'][end]:.0f} points, where V-trace "
        f"has {on_breakout[0]:.0f} and {on_breakout[1]:.0f} (two seeds)",
        f"On Space Invaders PPO ends with {curves[invaders][end]:,.0f} points, "
        f"{noop[invaders]:,.0f} by the noop games, V-trace with {curves[v_trace][end]:,.0f} and "
        f"{noop[v_trace]:,.0f}.",
        f"{falling[5:]} PPO ends with {curves[other][end]:,.0f} and {noop[other]:,.0f}:",
        "below both from step 1,000,000 to 4,500,000, where it was stopped, at last by little "
        f"({four[steps[-2]]:,.0f} against {curves[other][steps[-2]]:,.0f} and "
        f"{curves[invaders][steps[-2]]:,.0f})",
        f"{curves[large][end]:,.0f} in training, but {noop[large]:,.0f} by the noop games.",
        f"On Seaquest PPO ends with {curves[f'Seaquest, {nips}'][end]:,.0f} points, V-trace with "
        f"{curves[diver][end]:,.0f}; with 4 epochs and the falling bonus, at two thirds of the "
        f"speed, PPO ends with {curves[slower][end]:,.0f}.",
    ):
        assert said in TEXT, said


def test_the_two_runs_of_v_trace_differ_in_the_hidden_norm_alone():
    without, with_it = (
        load(ROOT / "docs/results/runs" / name / "config.toml")
        for name in score_tables.NORMS.values()
    )
    changed = {"network": {"hidden_norm": True}, "run_dir": with_it.run_dir}
    assert without.replaced(**changed) == with_it


@pytest.mark.parametrize("run_dir", RUNS, ids=lambda path: path.name)
def test_a_run_had_the_settings_that_the_page_names(run_dir):
    recipe, game, seed = run_dir.name.split("-")
    config = load(run_dir / "config.toml")
    found = json.loads((run_dir / "evaluation.json").read_text())
    last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert (config.game, f"seed{config.seed}") == (game, seed)
    assert found["step"] == last["step"] >= config.total_steps
    assert (found["protocol"], found["episodes"]) == ("noop", 30)
    [command] = {
        line.strip()
        for line in PAGE.splitlines()
        if line.startswith(f"    jaxrl train --config {recipe} --game GAME ")
    }
    shown = command.replace("GAME", game).replace("SEED", seed[4:]).split()
    assert parse(Train, "train", shown[2:]).settings.with_time_limit() == config
    provenance = json.loads((run_dir / "provenance.json").read_text())
    if run_dir.name == "vtrace_fast-breakout-seed1":  # the file of its recipe has changed since
        assert provenance["git_commit"].startswith("3b15764")
        return
    own = provenance["command"].split()
    assert parse(Train, "train", own[2:]).settings.with_time_limit() == config


def test_scores_of_two_seeds_stand_beside_each_other_and_a_median_needs_all_games():
    def run(game, trained):
        return Run("ppo_fast", 1000, game, {"training": trained, "noop": 7.5})

    games = [("breakout", 30.5), ("breakout", 1.7), ("name_this_game", 8049), ("phoenix", 761.4)]
    runs = [run(*game) for game in games]
    [_, _, row] = score_tables.half_hour(runs).splitlines()
    assert row == ("| `ppo_fast` | 1,000 | **30.5** (7.5, 1.00) / **1.7** (7.5, 0.00) | "
                   "**8,049.0** (7.5, 1.00) | **761.4** (7.5, 0.00) |  |  |")  # fmt: skip
    [_, _, row] = score_tables.half_hour([*runs, run("qbert", 163.9)]).splitlines()
    assert row.endswith("| **163.9** (7.5, 0.00) | 0.25 |")  # of 0.5, 1, 0 and 0


def test_a_recorded_run_keeps_its_last_line_and_no_path_of_the_machine(tmp_path, capsys):
    run_dir = tmp_path / "ppo_fast-pong-seed1"
    (run_dir / "evaluations").mkdir(parents=True)
    config = f'game = "pong"\nrun_dir = "{run_dir}"\ntotal_steps = 305\nseed = 1\n'
    (run_dir / "config.toml").write_text(config)
    lines = [f'{{"step": {step}}}\n' for step in range(1, 306)]
    (run_dir / "metrics.jsonl").write_text("".join(lines))
    command = f"jaxrl train --config {tmp_path}/ppo_fast.toml --run-dir '{run_dir} 2' --seed 1"
    (run_dir / "provenance.json").write_text(json.dumps({"command": command}))
    assert record_runs.main(["group", str(run_dir)]) == 2
    assert "has not ended" in capsys.readouterr().err
    (run_dir / "evaluation.json").write_text('{"protocol": "noop"}')
    (run_dir / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert record_runs.main(["group", str(run_dir)]) == 2  # evaluated while it trains
    (run_dir / "metrics.jsonl").write_text("".join(lines))
    (run_dir / "evaluations/noop.json").write_text('{"protocol": "noop"}')
    (run_dir / "evaluations/sticky.json").write_text('{"protocol": "sticky"}')
    target = record_runs.record(run_dir, tmp_path / "group")
    kept = (target / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert kept == [*lines[2::3], lines[-1]]
    files = sorted(str(path.relative_to(target)) for path in target.rglob("*.*"))
    assert files == [
        *("config.toml", "evaluation.json", "evaluations/sticky.json"),
        *("metrics.jsonl", "provenance.json"),
    ]
    text = "".join((target / name).read_text() for name in ("config.toml", "provenance.json"))
    assert str(tmp_path) not in text
    assert text.count("runs/ppo_fast-pong-seed1") == 2
    kept = "jaxrl train --config ppo_fast --run-dir runs/x --seed 1"
    for config in ("--config=a/ppo_fast.toml", "--config ppo_fast"):
        command = f"jaxrl train {config} --run-dir='/some where/x' --seed 1"
        assert record_runs.strip_paths(command, "x") == kept
