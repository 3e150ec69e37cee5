"""Every sink keeps one contract; a sink of another package, whose errors name it."""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from jaxrl.config import extensions, overrides
from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table
from jaxrl.config.validation import check
from jaxrl.errors import RunError, UserError
from jaxrl.runs import metrics, tensorboard
from jaxrl.runs.sinks import CallbackSink, PackageSink
from jaxrl.runs.wandb_log import WandbLog
from jaxrl.training import recorder
from tests import survival
from tests.runs.test_wandb_log import stand_in  # noqa: F401
from tests.survival import ROOT


def row(step):
    return {"step": step, "frames": 4 * step, "seconds": step / 10, "return_mean": None}


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["metrics", "tensorboard", "wandb", "callback", "package"])
def kind(request, tmp_path, monkeypatch):
    """How to open a sink with the rows before it, and the steps that it has got."""
    config, seen = Config(), []
    match request.param:
        case "metrics":
            return (
                lambda rows: metrics.open_sink(tmp_path, rows, print),
                lambda: [line["step"] for line in metrics.read(tmp_path)],
            )
        case "tensorboard":
            return (
                lambda rows: tensorboard.open_sink(tmp_path, rows, print),
                lambda: [step for step, _ in survival.tensorboard(tmp_path)],
            )
        case "wandb":
            sent = request.getfixturevalue("stand_in").sent
            return (
                lambda rows: WandbLog(config, tmp_path, rows, print),
                lambda: [step for step, _ in sent],
            )
        case "callback":  # it gets what each session writes
            return lambda rows: CallbackSink(seen.append), lambda: [line["step"] for line in seen]
    monkeypatch.chdir(tmp_path)
    mlflow = module_of(ROOT / "tests" / "extension" / "mlflow.py", "mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    module = module_of(ROOT / "docs" / "examples" / "mlflow_sink.py", "mlflow_sink")
    (tmp_path / "x").mkdir()
    return (
        lambda rows: PackageSink("mlflow", module, config, tmp_path / "x", rows),
        lambda: json.loads((tmp_path / "mlflow.json").read_text())["x"]["steps"],
    )


def test_every_sink_has_each_row_once_also_across_a_resume(kind):
    open_sink, steps = kind
    sink = open_sink([])
    sink.write(row(1))
    sink.write(row(2))
    sink.flush()
    assert steps() == [1, 2]
    sink.flush()
    sink.close()
    assert steps() == [1, 2]
    sink = open_sink([row(1), row(2)])
    sink.write(row(3))
    sink.flush()
    sink.close()
    assert steps() == [1, 2, 3]


@pytest.fixture
def register(monkeypatch):
    """Registers modules by name, as entry points of packages that are called of-NAME do."""

    def put(**modules):
        monkeypatch.setattr(extensions, "load", lambda group, name: modules[name])
        monkeypatch.setattr(extensions, "package_of", lambda group, name: f"of-{name}")
        monkeypatch.setattr("jaxrl.runs.sinks.package_of", lambda group, name: f"of-{name}")

    return put


class Sink:
    """A sink that keeps what it is called with, and fails where it is told to."""

    def __init__(self, fails="", calls=None):
        self.fails, self.calls = fails, [] if calls is None else calls

    def make(self, config, run_dir, rows):
        self.calls.append(("make", config.seed, run_dir.name, len(rows)))
        return self._fail("make") or self

    def write(self, given):
        self.calls.append(("write", given.pop("step")))
        self._fail("write")

    def flush(self):
        self.calls.append(("flush",))
        self._fail("flush")

    def close(self):
        self.calls.append(("close",))
        self._fail("close")

    def _fail(self, name):
        if name == self.fails:
            raise ValueError("no such server\nTraceback")


@pytest.fixture
def session(tmp_path):
    """What a recorder needs of a session."""
    saved = SimpleNamespace(newest=None, poll=lambda: None, wait=lambda: None, save=lambda *_: None)
    display = SimpleNamespace(say=print)
    config = Config().replaced(seed=7, log={"sinks": "one, two"})
    return SimpleNamespace(
        run_dir=tmp_path, config=config, display=display, checkpoints=saved, on_metrics=None,
        members=1,
    )  # fmt: skip


def run_session(session, step, *steps):
    log = recorder.Recorder(session, step)
    for later in steps:
        log.write(row(later) | {"loss": float("nan")})
    log.save_last(None, SimpleNamespace(step=steps[-1]), None)


def test_sinks_are_called_in_order_and_get_rows_of_their_own(register, session, tmp_path):
    one, two, seen = Sink(), Sink(), []
    register(one=one, two=two)
    run_session(session, 0, 100, 200)
    begun = [("make", 7, tmp_path.name, 0), ("write", 100), ("write", 200), ("flush",), ("close",)]
    assert one.calls == two.calls == begun
    session.on_metrics = seen.append
    run_session(session, 100, 200)  # a kill has undone the last row
    assert two.calls[5] == ("make", 7, tmp_path.name, 1)
    assert seen == [row(200) | {"loss": None}]  # the line of metrics.jsonl
    assert [line["step"] for line in metrics.read(tmp_path)] == [100, 200]
    assert [step for step, _ in survival.tensorboard(tmp_path)] == [100, 200]


@pytest.mark.parametrize("fails", ["make", "write", "flush", "close"])
def test_an_error_of_a_package_names_it_in_one_line(register, session, tmp_path, fails):
    one, two = Sink(fails), Sink()
    register(one=one, two=two)
    with pytest.raises(RunError) as error:
        run_session(session, 0, 100)
    assert str(error.value) == (
        "jaxrl.sinks: 'one' of the package of-one failed (ValueError: no such server): resume when "
        "it works again, or without it by --override log.sinks="
    )
    assert error.value.status == 1
    lines = [line["step"] for line in metrics.read(tmp_path)]
    assert lines == [100] * (fails != "make")
    assert (("close",) in two.calls) == (fails in ("flush", "close"))  # whatever another raises


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ("absent", "jaxrl.sinks: no installed package registers 'absent'"),
        ("empty", r"jaxrl.sinks: empty must define make\(config, run_dir, rows\)"),
    ],
)
def test_a_sink_that_cannot_be_made_is_refused_with_the_options(monkeypatch, sinks, message):
    load = extensions.load
    monkeypatch.setattr(
        extensions, "load", lambda *of: ModuleType("empty") if of[1] == "empty" else load(*of)
    )
    check(Config())
    with pytest.raises(UserError, match=message):
        check(Config().replaced(log={"sinks": sinks}))


def test_a_run_is_read_and_resumed_without_the_package_of_its_sink():
    config = from_table({"log": {"sinks": "absent"}})
    check(overrides.apply(config, ("log.sinks=",)))


def test_only_process_0_has_sinks(register, session, tmp_path, monkeypatch):
    one = Sink()
    register(one=one, two=one)
    session.on_metrics = one.calls.append
    monkeypatch.setattr(recorder.processes, "index", lambda: 1)
    run_session(session, 0, 100)
    assert not one.calls
    assert not list(tmp_path.iterdir())
