"""What the page on vector environments shows runs, with the libraries that are here."""

import dataclasses
import re

import numpy as np
import pytest

from tests.docs.test_examples import EXAMPLES, load
from tests.survival import ROOT

PAGE = (ROOT / "docs" / "guides" / "vector_env.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(block):
    for package in ("torch", "torchrl"):  # they are no dependency of ours
        if re.search(rf"^(import|from) {package}\b", block, re.MULTILINE):
            pytest.importorskip(package)
    names = {}
    exec(compile(block, "vector_env.md", "exec"), names)
    assert names["envs"].num_envs in (1, 8, 24, 64)


def test_saved_and_forked_games_are_those_of_the_first():
    (block,) = [block for block in BLOCKS if "fork" in block]
    names = {}
    exec(compile(block, "vector_env.md", "exec"), names)
    assert names["observations"].shape == (8, 4, 84, 84)
    assert (names["observations"] == names["observations"][0]).all()


def test_presets_are_those_of_the_table():
    from jaxrl.envs.atari2600.vector_options import PRESETS

    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    table = {name: cells.split(" | ") for name, cells in rows if name in PRESETS}
    assert table.keys() == PRESETS.keys()
    for name, options in PRESETS.items():
        expected = [
            str(options["repeat_action_probability"] or "no"),
            "all 18" if options["full_action_space"] else "the game's",
            "yes" if options["life_loss_info"] else "no",
            f"fewer than {options['noop_max']}" if options["noop_max"] else "none",
            "yes" if options["use_fire_reset"] else "no",
            "clipped" if options["reward_clipping"] else "as they are",
        ]
        assert table[name] == expected


def test_the_table_of_options_has_those_of_every_library():
    import inspect

    import envpool
    from ale_py.vector_env import AtariVectorEnv

    from jaxrl.envs import VectorEnv
    from jaxrl.envs.atari2600.vector_options import VectorOptions

    section = PAGE.split("## Option by option")[1].split("\n## ")[0]
    cells = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    columns = [
        set(re.findall(r"`(\w+)`", " ".join(column)))
        for column in list(zip(*cells, strict=True))[1:]
    ]
    options = {field.name for field in dataclasses.fields(VectorOptions)} | {"preset"}
    calls = {"save", "load", "fork"}
    assert all(callable(getattr(VectorEnv, name)) for name in calls)
    assert columns[0] == options - {"num_envs"} | calls
    ales = inspect.signature(AtariVectorEnv).parameters.keys()
    assert columns[1] == ales - {"game", "num_envs"}
    ways = {"base_path", "seed", "env_seed", "gym_reset_return_info", "max_num_players", "task"}
    envpools = envpool.make_spec("Pong-v5").config._asdict().keys()
    assert columns[2] - {"info"} == envpools - ways - {"num_envs", "use_inter_area_resize"}


def test_the_speed_of_three_libraries_is_measured(capsys):
    assert (EXAMPLES / "vector_env_speed.py").is_file()
    medians = load("vector_env_speed").main(("pong",), num_envs=2, seconds=0.1, repeats=1)
    assert medians.keys() == {("pong", name) for name in ("jaxrl", "ale-py", "envpool")}
    assert all((rates > 0).all() for rates in medians.values())
    assert "pong             jaxrl " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.rotating(3)
def test_a2c_by_hand_learns_catch():
    assert load("a2c_by_hand").main("catch", updates=300) > 0.9


def test_returns_by_hand():
    """Three environments: one goes on, one ends, one is cut by a time limit; γ = 0.99."""
    example = load("a2c_by_hand")
    flags = np.zeros((2, 3), bool)
    steps = example.TimeStep(
        frame=np.zeros((2, 3, 1, 1)), reward=np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]),
        score=np.zeros((2, 3)), terminated=flags.copy(), truncated=flags.copy(),
        game_over=flags, reset=flags,
    )  # fmt: skip
    steps.terminated[0, 1] = True
    steps.truncated[0, 2] = True
    next_values = np.array([[7.0, 7.0, 5.0], [10.0, 10.0, 10.0]])
    returns = example.returns_of(steps, next_values)
    last = 2 + 0.99 * 10
    np.testing.assert_allclose(
        returns, [[1 + 0.99 * last, 1, 1 + 0.99 * 5], [last, last, last]], rtol=1e-6
    )
