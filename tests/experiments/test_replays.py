"""Whether a machine holds a replay: as `jaxrl train` decides, in a line that says what to do."""

import contextlib
import dataclasses

import pytest

from jaxrl.config.memory import memory_bytes
from jaxrl.config.toml import load
from jaxrl.errors import UserError
from jaxrl.experiments.doctor import doctor, replays
from jaxrl.experiments.doctor.host_checks import Check
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget
from tests.conftest import planned, recipe_file
from tests.experiments.test_doctor import GOOD

BTR = load(recipe_file("btr"))
CPU = {"platform": "cpu", "num_devices": 1, "device_memory_gb": None}
GPU = {"platform": "gpu", "num_devices": 1}


def checked(machine, **configs):
    return replays.check_replays(machine, configs)


def test_the_replay_of_beyond_the_rainbow_holds_each_frame_once():
    """84 x 84 bytes and 8 of 2²⁰ transitions: 7.4 GB."""
    assert memory_bytes(BTR) == (84 * 84 + 8) * 2**20 == pytest.approx(7.407e9, rel=1e-4)


def test_16_gb_of_host_memory_hold_it_where_checkpoints_do_not():
    """Twice 7.4 GB are 14.8; 0.9 of 16 GB are 14.4, of which 14,128 bytes go 1,019,252 times."""
    check = checked(CPU | {"host_memory_free_gb": 16.0}, btr=BTR)
    assert check == Check(
        "replays",
        "warning",
        "btr needs 14.8 GB of host memory, half of it for checkpoints, and 14.4 GB of 16.0 GB free "
        "may hold it",
        "--checkpoint.no-memory (7.4 GB), or jaxrl train --config btr --agent.replay-capacity "
        "1010000",
    )
    alone = BTR.replaced(checkpoint={"memory": False})
    check = checked(CPU | {"host_memory_free_gb": 16.0}, btr=alone)
    assert (check.mark, check.text) == ("ok", "btr needs 7.4 GB of host memory (16.0 GB free)")
    few = BTR.replaced(agent={"replay_capacity": 1_010_000})
    assert checked(CPU | {"host_memory_free_gb": 16.0}, btr=few).mark == "ok"


def test_16_gb_of_a_gpu_hold_it_and_the_host_its_checkpoints():
    both = GPU | {"device_memory_gb": 16.0, "host_memory_free_gb": 16.0}
    check = checked(both, btr=BTR)
    assert check.mark == "ok"
    assert check.text == (
        "btr needs 7.4 GB on the device (16.0 GB free) and 7.4 GB of host memory for checkpoints "
        "(16.0 GB free)"
    )
    check = checked(both | {"device_memory_gb": 6.0}, btr=BTR)
    assert check.text.startswith("btr needs 7.4 GB on the device, and 5.4 GB of 6.0 GB free may")
    assert check.remedy == "jaxrl train --config btr --agent.replay-capacity 760000"
    check = checked(both | {"host_memory_free_gb": 8.0}, btr=BTR)
    assert check.text.startswith("btr needs 7.4 GB of host memory for checkpoints, and 7.2 GB of")
    assert check.remedy.startswith("--checkpoint.no-memory, or jaxrl train --config btr --agent.re")
    # Each of several devices holds its share.
    two = both | {"device_memory_gb": 6.0, "num_devices": 2}
    assert checked(two, btr=BTR).text.startswith("btr needs 3.7 GB on each device (6.0 GB free)")


def test_one_line_is_for_all_configurations():
    found = replays.recipes()
    assert {"btr", "btr_fast", "rainbow", "r2d2"} <= set(found)
    assert "ppo" not in found
    check = checked(CPU | {"host_memory_free_gb": 60.0}, **found)
    assert check.text == (
        f"all {len(found)} fit: btr, the largest, needs 14.8 GB of host memory, half of it for "
        "checkpoints (60.0 GB free)"
    )
    check = checked(CPU | {"host_memory_free_gb": 12.0}, **found)
    assert check.text.startswith("btr needs 14.8 GB")
    assert "free may hold it; nor do " in check.text
    large = [name for name in found if not name.endswith("_fast")]
    assert check.text.endswith(f" and {len(large) - 1 - replays.MOST} more fit")
    two = {name: found[name] for name in ("btr", "rainbow")}
    assert checked(CPU | {"host_memory_free_gb": 9.0}, **two).text.endswith("nor does rainbow fit")


def test_what_is_unknown_or_not_needed_is_said():
    assert checked(CPU | {"host_memory_free_gb": None}, btr=BTR).mark == "warning"
    assert checked(CPU | {"host_memory_free_gb": 1.0}, a2c=load(recipe_file("a2c"))).mark == "ok"
    warning = Check("replays", "warning", "a needs 2 GB", "take less")
    assert replays.line(warning) == "replays: a needs 2 GB -> take less"


@pytest.mark.parametrize("name", ["btr", "btr_fast", "r2d2", "c51"])
@pytest.mark.parametrize("saved", [True, False])
def test_it_is_what_training_decides(name, saved, monkeypatch):
    config = load(recipe_file(name)).replaced(
        game="catch", num_envs=64, checkpoint={"memory": saved}, env={"random_start_steps": 0}
    )
    need = (1 + saved) * memory_bytes(config)
    refused = rf"needs {need / 1e9:.1f} GB of host memory".replace(".", r"\.")
    for free, fits in ((0.99 * need / 0.9, False), (1.01 * need / 0.9, True)):
        monkeypatch.setattr(memory_budget, "free_host_memory", lambda free=free: int(free))
        check = checked(CPU | {"host_memory_free_gb": free / 1e9}, x=config)
        assert (check.mark == "ok") == fits
        with contextlib.nullcontext() if fits else pytest.raises(UserError, match=refused):
            memory_budget.check_memory(planned(config), make_mesh(1))


def test_doctor_has_the_line_and_takes_a_configuration(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "ask", lambda *_: (x for x in ()))
    for configs, text in ((None, "all "), ({"btr": BTR}, "btr needs 3.7 GB on each device (60.0")):
        checks = doctor.diagnose(GOOD, tmp_path, lambda _: None, configs)
        (line,) = [check for check in checks if check.name == replays.NAME]
        assert line.text.startswith(text)
        assert line.mark == "ok"
    short = dataclasses.replace(GOOD, device_memory_gb=1.0)
    checks = list(doctor.diagnose(short, tmp_path, lambda _: None))
    assert not doctor.failures(checks)  # small machines train other configurations
