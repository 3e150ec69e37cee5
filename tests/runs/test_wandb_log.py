"""Weights & Biases gets each line once, and its failures never stop training."""

import importlib.util
import json
import struct
import sys
import types

import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.runs import directory, layout, metrics, wandb_log
from jaxrl.runs.wandb_log import WandbLog, check_installed
from tests.survival import SMALL

BLOCK, HEADER = 2**15, 7  # bytes, as in LevelDB's log


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """The package itself, without a network."""
    for name in ("WANDB_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    wandb.teardown()


def records(file):
    """What a file of Weights & Biases holds: a log of blocks, like LevelDB's."""
    data, place, parts = file.read_bytes(), HEADER, b""
    while place < len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + HEADER : place + HEADER + size]
        place += HEADER + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def stored(folder):
    """The runs, and the lines by step, of all files of a folder in their order."""
    wandb.teardown()  # its service still writes after it has said that a run is finished
    runs, lines = [], []
    for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for record in records(file):
            if record.WhichOneof("record_type") == "run":
                runs.append(record.run)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
                lines.append((record.history.step.num, row))
    return runs, lines


def row(step, **values):
    return {"step": step, "frames": 4 * step, "seconds": step / 10, "return_mean": None} | values


def written(run_dir, *rows):
    run_dir.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in rows)
    (run_dir / layout.METRICS).write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_the_same_run_and_sends_each_step_once(offline, tmp_path):
    run_dir, messages = tmp_path / "mine", []
    written(run_dir, row(100))  # from before Weights & Biases was asked for
    config = Config(game="catch").replaced(log={"wandb": True, "wandb_project": "study"})
    log = WandbLog(config, run_dir, metrics.read(run_dir), messages.append)
    log.write(row(200, **{"loss/value": 0.5}))
    log.write(row(300))
    log.close()
    # A kill has undone step 300; the second session plays it again, and goes on.
    written(run_dir, row(100), row(200))
    config = config.replaced(total_steps=5)
    log = WandbLog(config, run_dir, metrics.read(run_dir), messages.append)
    log.write(row(300, return_mean=7.0))
    log.write(row(400, return_mean=8.0))
    log.close()
    runs, lines = stored(tmp_path)
    assert [step for step, _ in lines] == [100, 200, 300, 400]
    assert lines[1][1]["loss/value"] == 0.5
    assert lines[1][1]["frames"] == 800
    assert "return_mean" not in lines[2][1]
    assert lines[3][1]["return_mean"] == 8.0
    assert {(run.project, run.display_name) for run in runs} == {("study", "mine")}
    assert len({run.run_id for run in runs}) == 1
    settings = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    assert settings["game"] == "catch"
    assert settings["log"]["wandb_project"] == "study"
    assert not messages
    assert {path.name for path in run_dir.iterdir()} == {layout.METRICS, layout.WANDB}


# --- failures, with a module that stands in ----------------------------------------------------


class ServiceError(Exception):
    pass


class Sent(list):
    """A run of Weights & Biases that keeps its lines."""

    dir, url, disabled = "w/offline-run-1/files", "https://wandb.ai/me/jaxrl/runs/1", False

    def log(self, values, step):
        self.append((step, values))

    def finish(self):
        pass


@pytest.fixture
def stand_in(monkeypatch):
    """A module in place of wandb; a test replaces what shall fail."""
    module = types.SimpleNamespace(
        sent=Sent(),
        options=[],
        Settings=lambda **options: types.SimpleNamespace(mode="online", **options),
        setup=lambda settings: types.SimpleNamespace(settings=settings),
        login=lambda **_: True,
        teardown=lambda: None,
        errors=types.SimpleNamespace(Error=ServiceError),
    )
    module.init = lambda **options: module.options.append(options) or module.sent
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def log_of(tmp_path, messages):
    return WandbLog(Config(), tmp_path, [], messages.append)


def test_a_run_that_is_online_says_where(stand_in, tmp_path):
    messages = []
    log_of(tmp_path, messages).write(row(100))
    assert messages == ["Weights & Biases: https://wandb.ai/me/jaxrl/runs/1"]
    assert stand_in.sent == [(100, {"frames": 400, "seconds": 10.0})]
    (options,) = stand_in.options
    assert (options["project"], options["name"]) == ("jaxrl", tmp_path.name)
    assert options["settings"].init_timeout == wandb_log.SECONDS_TO_START


def test_its_variables_come_before_our_limits(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "5")
    monkeypatch.setenv("WANDB_NAME", "baseline")
    log_of(tmp_path, [])
    (options,) = stand_in.options
    assert not hasattr(options["settings"], "init_timeout")
    assert options["name"] == "baseline"


def test_without_a_login_the_lines_are_kept(stand_in, tmp_path):
    stand_in.login = lambda prompt, verify: prompt  # nobody is asked
    messages = []
    log_of(tmp_path, messages).write(row(100))
    (line,) = messages
    assert "no login here (wandb login)" in line
    assert "`wandb sync w/offline-run-1` sends" in line
    assert stand_in.options[0]["mode"] == "offline"
    assert len(stand_in.sent) == 1


def test_without_a_network_the_lines_are_kept(stand_in, tmp_path):
    def init(**options):
        if "mode" not in options:
            raise ServiceError("no such host\nwhile retrying")
        return stand_in.sent

    stand_in.init, messages = init, []
    log_of(tmp_path, messages).write(row(100))
    (line,) = messages
    assert line.startswith("warning: Weights & Biases: no such host: the lines stay")
    assert len(stand_in.sent) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ServiceError("")])
def test_a_failure_costs_one_warning_and_the_next_session_sends_what_is_missing(
    error, stand_in, tmp_path
):
    def fail(*_, **__):
        raise error

    messages = []
    log = log_of(tmp_path, messages)
    log.write(row(100))
    stand_in.sent.log = fail
    log.write(row(200))
    log.write(row(300))
    log.close()
    assert len(messages) == 2
    assert messages[1].startswith("warning: Weights & Biases failed (")
    assert "\n" not in messages[1]
    del stand_in.sent.log
    WandbLog(Config(), tmp_path, [row(100), row(200), row(300)], messages.append)
    assert [step for step, _ in stand_in.sent] == [100, 200, 300]
    assert {options["id"] for options in stand_in.options} == {stand_in.options[0]["id"]}


def test_lines_that_the_end_does_not_take_are_named(stand_in, tmp_path):
    def finish():
        raise TimeoutError("60 seconds have passed")

    stand_in.sent.finish, messages = finish, []
    log_of(tmp_path, messages).close()
    assert messages[1].endswith(
        "(60 seconds have passed): `wandb sync w/offline-run-1` sends the rest"
    )


def test_nothing_is_recorded_where_it_is_disabled(stand_in, tmp_path):
    stand_in.sent.disabled = True
    log = log_of(tmp_path, [])
    log.write(row(100))
    log.close()
    assert not stand_in.sent
    assert not (tmp_path / layout.WANDB).exists()


@pytest.mark.parametrize("spec", [None, types.SimpleNamespace(origin=None)])
def test_a_missing_package_is_named_before_anything_compiles(spec, monkeypatch, tmp_path, capsys):
    """A folder named wandb is no package: each of its runs leaves one behind."""
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: spec if name == "wandb" else known(name)
    )
    check_installed(Config())
    with pytest.raises(UserError, match="pip install"):
        check_installed(Config().replaced(log={"wandb": True}))
    run_dir = tmp_path / "x"
    assert main(["train", *SMALL, "--log.wandb", "--run-dir", str(run_dir)]) == 2
    messages = capsys.readouterr().err
    assert "pip install -e '.[wandb]'" in messages
    assert messages.count("\n") == 1
    assert not run_dir.exists()


def test_a_run_that_never_trained_is_taken_over_without_its_id(tmp_path):
    for name in (layout.LOCK, layout.CONFIG, layout.WANDB):
        (tmp_path / name).touch()
    assert directory.never_trained(tmp_path)
    directory._clear(tmp_path)
    assert not (tmp_path / layout.WANDB).exists()


@pytest.mark.slow
def test_a_training_and_its_resume_are_one_run(offline, tmp_path, capfd):
    run_dir = tmp_path / "x"
    options = [*SMALL, "--log.interval", "200", "--total-steps", "400", "--log.wandb"]
    assert main(["train", *options, "--evaluation.episodes", "0", "--run-dir", str(run_dir)]) == 0
    assert main(["resume", str(run_dir), "--override", "total_steps=800"]) == 0
    runs, lines = stored(tmp_path)
    file = (run_dir / layout.METRICS).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in file]
    assert [step for step, _ in lines] == [line["step"] for line in rows] == [200, 400, 600, 800]
    for sent_row, (step, sent) in zip(rows, lines, strict=True):
        values = {name: value for name, value in sent_row.items() if value is not None}
        assert {k: v for k, v in sent.items() if k[0] != "_"} | {"step": step} == values
    assert len({run.run_id for run in runs}) == 1
    assert "wandb:" not in capfd.readouterr().err
    assert json.loads((run_dir / layout.WANDB).read_text())["step"] == 800
