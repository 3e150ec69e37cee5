"""The price of a configuration: hand-worked numbers, and the table against XLA's analysis."""

import csv
import subprocess
import sys

import pytest

from jaxrl.cli.main import main
from jaxrl.config import toml
from jaxrl.config.toml import load
from jaxrl.experiments.price import table
from jaxrl.experiments.price.count import count
from tests.conftest import CONFIGS, recipe_file

FILES = [pytest.param(path, id=path.stem) for path in sorted(CONFIGS.glob("*/*.toml"))]
# Beside the products of the layers: activations, losses, optimizer, statistics of pixels.
OTHERS = 1.06
MFLOP = 1e6


def forward(layers):
    """MFLOP of layers, each (outputs, inputs of an output); a multiplication and a sum are two."""
    return sum(2 * outputs * inputs for outputs, inputs in layers) / MFLOP


def gradient(layers):
    """MFLOP of the outputs, of the weights' gradients, and but in the first of the inputs'."""
    return 3 * forward(layers) - forward(layers[:1])


NIPS_60 = [
    (14 * 14 * 16, 8 * 8 * 4),
    (6 * 6 * 32, 4 * 4 * 16),
    (256, 6 * 6 * 32),
    (6 + 1, 256),  # Pong's actions, and the value
]
NATURE_84 = [
    (20 * 20 * 32, 8 * 8 * 4),
    (9 * 9 * 64, 4 * 4 * 32),
    (7 * 7 * 64, 3 * 3 * 64),
    (512, 7 * 7 * 64),
    (6 + 1, 512),
]
IMPALA_84 = [
    *[(84 * 84 * 16, 9 * 4), *[(42 * 42 * 16, 9 * 16)] * 4],
    *[(42 * 42 * 32, 9 * 16), *[(21 * 21 * 32, 9 * 32)] * 4],
    *[(21 * 21 * 32, 9 * 32), *[(11 * 11 * 32, 9 * 32)] * 4],
    (256, 11 * 11 * 32),
    (6 + 1, 256),
]


def test_the_networks_by_hand():
    """As `docs/reference/commands.md` has them."""
    assert gradient(NIPS_60) == pytest.approx(6.76, abs=0.01)
    assert gradient(NATURE_84) == pytest.approx(49.5, abs=0.05)
    assert gradient(IMPALA_84) == pytest.approx(317, abs=1)


@pytest.mark.parametrize(
    ("recipe", "layers", "passes"),
    [
        # Windows of 20 steps, and the one after them, whose value is the bootstrap.
        ("vtrace_cpu", NIPS_60, 21 / 20),
        ("impala", IMPALA_84, 21 / 20),
        ("ppo", NATURE_84, 1.0),
    ],
)
def test_a_price_is_what_the_layers_take_and_little_else(recipe, layers, passes):
    price = count(load(recipe_file(recipe)))
    assert 1 <= price.act / MFLOP / forward(layers) < OTHERS
    assert 1 <= price.learn / MFLOP / (passes * gradient(layers)) < OTHERS


def test_a_step_has_its_share_of_the_gradients():
    """PPO learns from every step in four epochs; V-trace's windows of 20, in turns of 10, twice."""
    for recipe, times in (("ppo", 4), ("vtrace_cpu", 2), ("dqn", 8), ("r2d2", 0.5), ("a3c", 1)):
        price = table.read(recipe_file(recipe))
        expected = price.act + times * price.learn
        assert price.step == pytest.approx(expected, rel=2e-3)


def test_the_target_network_is_counted():
    """DQN: another forward pass of the step that follows; Munchausen's one of this step, too."""
    dqn, munchausen = (table.read(recipe_file(name)) for name in ("dqn", "munchausen_dqn"))
    assert (munchausen.learn - dqn.learn) / MFLOP == pytest.approx(forward(NATURE_84), rel=0.02)


def test_every_round_of_a_core_is_counted():
    """Of an LSTM of 512 units and dueling streams on it, in sequences of 80 steps after 40."""
    core = [(4 * 512, 512 + 6 + 1), (4 * 512, 512), (512, 512), (512, 512), (6 + 1, 512)]
    layers = [*NATURE_84[:-1], *core]
    # Of 80 steps: online and target 40 + 40 + 1 steps, and all but 40 with gradients.
    expected = ((2 * 121 - 81) * forward(layers) + 81 * gradient(layers)) / 80
    learn = table.read(recipe_file("r2d2")).learn / MFLOP
    assert 1 <= learn / expected < OTHERS


@pytest.mark.slow
@pytest.mark.rotating(10)
@pytest.mark.parametrize("path", FILES)
def test_the_table_is_what_xla_counts(path):
    """Else `python -m tools.prices > jaxrl/experiments/price/prices.csv`."""
    assert table.read(path) == pytest.approx(tuple(count(load(path))), rel=0.02)


def test_every_recipe_has_a_row_of_what_it_sets():
    file = CONFIGS.parent / "jaxrl" / "experiments" / "price" / table.FILE
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == list(table.COLUMNS)
    assert [row[:2] for row in rows[1:]] == [
        [path.stem, table.digest(path)] for path in sorted(CONFIGS.glob("*/*.toml"))
    ]


def test_the_row_of_a_file_is_of_what_it_sets(tmp_path):
    mine = tmp_path / "mine.toml"
    text = recipe_file("ppo").read_text(encoding="utf-8")
    mine.write_text("# other comments\n" + text)
    assert table.read(mine) == table.read(recipe_file("ppo"))
    mine.write_text(text.replace('torso = "nature"', 'torso = "nips"'))
    assert table.read(mine) is None
    price = table.Price(6.158e6, 1.619e7, 1.0222e10)
    assert table.row(mine, price)[2:] == ["6.158", "16.19", "1.022e+04"]


# --- the command ----------------------------------------------------------------------------------


def test_the_long_list_has_prices_and_replays(capsys):
    assert main(["configs", "--long"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    columns = "act MFLOP learn MFLOP step MFLOP replay GB description"
    assert " ".join(head.split()[4:]) == columns
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["btr"][4:8] == ["492", "1,942", "8,259", "7.4"]
    assert rows["vtrace_cpu"][4:8] == ["2.9", "7.4", "17.7", "-"]
    assert set(rows) >= {path.stem for path in CONFIGS.glob("*/*.toml")}
    # Descriptions stand below their heading, also of the longest stem.
    column = head.index("description")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)


def test_a_configuration_of_ones_own_is_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = recipe_file("a2c").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("num_envs = 16", "num_envs = 4"))
    (tmp_path / "wrong.toml").write_text("num_envs = 4\n[agent]\nmicro_batch = 7")
    assert main(["configs", "mine.toml", "--long"]) == 0
    out, errors = capsys.readouterr()
    assert out.splitlines()[1].split()[4:5] == ["18.8"]
    assert errors == ""
    assert main(["configs", "wrong.toml", "--long"]) == 0
    out, errors = capsys.readouterr()
    assert out.splitlines()[1].split()[4:8] == ["-", "-", "-", "-"]
    assert errors.startswith("no price of 'wrong.toml': agent.micro_batch = 7 does not divide")


def test_prices_of_the_recipes_need_no_jax():
    code = (
        "import sys; from jaxrl.cli.main import main; main(['configs', '--long']);"
        "sys.exit(bool({'jax', 'flax', 'orbax', 'envpool'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


def test_a_configuration_is_shown(capsys, tmp_path):
    """Below its path, and as TOML again."""
    assert main(["configs", "btr_fast"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"# {toml.find(toml.Path('btr_fast'))}"
    assert shown.partition("\n")[2] == recipe_file("btr_fast").read_text(encoding="utf-8")
    (tmp_path / "again.toml").write_text(shown)
    assert load(tmp_path / "again.toml") == load(recipe_file("btr_fast"))
    assert main(["configs", "btr_fats"]) == 2
    assert "no configuration file 'btr_fats': did you mean 'btr_fast'?" in capsys.readouterr().err
    assert main(["configs", "btr_fast", "--names"]) == 0
    assert capsys.readouterr().out == "btr_fast\n"


def test_columns_stand_below_their_headings(capsys):
    assert main(["configs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    column = head.index("description")
    assert any(line.startswith("vtrace_lstm_cpu ") for line in lines)
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)
