"""Checkpoints that are not what was written, of other formats, on a full disk; which are kept."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.errors import DamagedError, StorageError, UserError
from jaxrl.runs import checkpoint, checkpoint_files, checkpoint_tables, checksums, layout, metrics
from jaxrl.runs.checkpoint import Checkpoints
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.types import AgentState, LoopState, Mean
from tests.conftest import recipe_file
from tests.survival import SMALL, begin, check_metrics, finish

STEPS = [400, 800, 1200]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    arguments = ["train", *SMALL, "--log.interval", "200", "--checkpoint.interval", "400"]
    assert main([*arguments, "--total-steps", "1200", "--run-dir", str(path)]) == 0
    assert checkpoint_files.steps(path) == STEPS
    return path


@pytest.fixture
def run_dir(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "x"))


def largest(folder):
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def truncate(folder):
    os.truncate(largest(folder), 1000)


def flip_a_bit(folder):
    data = bytearray(largest(folder).read_bytes())
    data[len(data) // 2] ^= 4
    largest(folder).write_bytes(data)


def flip_a_bit_of_progress(folder):
    path = folder / "progress" / "metadata"
    path.write_text(path.read_text().replace('"step": 1200', '"step": 1208'))


def delete_half(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    for path in files[::2]:
        path.unlink()


def delete_an_item(folder):
    shutil.rmtree(folder / "actor")


def delete_the_sums(folder):
    (folder / layout.CHECKSUMS).unlink()


def garble_the_sums(folder):
    (folder / layout.CHECKSUMS).write_bytes(b"\xff\x00\n")


def add_a_file(folder):
    (folder / "actor" / "d" / "more").write_text("?")


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES = [
    truncate, flip_a_bit, flip_a_bit_of_progress, delete_half, delete_an_item, delete_the_sums,
    garble_the_sums, add_a_file, empty,
]  # fmt: skip


@pytest.mark.slow
def test_what_was_written_is_good(run_dir):
    assert checkpoint_files.survey(run_dir) == checkpoint_files.Survey(STEPS, {})
    check = ["sha256sum", "--check", "--quiet", "--strict", layout.CHECKSUMS]
    subprocess.run(check, cwd=run_dir / "checkpoints" / "400", check=True)


@pytest.mark.parametrize("harm", DAMAGES)
@pytest.mark.slow
def test_every_damage_is_found(run_dir, harm):
    harm(run_dir / "checkpoints" / "1200")
    survey = checkpoint_files.survey(run_dir)
    assert survey.good == [400, 800]
    assert survey.damaged[1200]


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_is_taken(
    trained, run_dir, capsys
):
    flip_a_bit(run_dir / "checkpoints" / "1200")
    assert main(["evaluate", str(run_dir), "--episodes", "2", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["step"] == 800
    assert "warning: checkpoint 1200 is damaged (" in output.err
    assert (run_dir / "checkpoints" / "1200").exists()  # who only reads moves nothing
    assert main(["evaluate", str(run_dir), "--checkpoint", "1200"]) == DamagedError.status
    assert "checkpoint 1200 of" in capsys.readouterr().err
    assert main(["resume", str(run_dir)]) == 0
    errors = capsys.readouterr().err
    assert "warning: checkpoint 1200 is damaged (" in errors
    assert "is not what was written): moved to" in errors
    assert "resumed at step 800" in errors
    assert (run_dir / checkpoint_files.DAMAGED / "1200").is_dir()
    assert checkpoint_files.survey(run_dir) == checkpoint_files.Survey(STEPS, {})
    assert len(check_metrics(run_dir)) == len(metrics.read(trained)) == 6


def tree(folder):
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "lock"
    }


@pytest.mark.slow
def test_where_all_are_damaged_nothing_is_touched_and_nothing_restarts(run_dir, capsys):
    for step, harm in zip(STEPS, (truncate, delete_an_item, flip_a_bit), strict=True):
        harm(run_dir / "checkpoints" / str(step))
    before = tree(run_dir)
    assert main(["resume", str(run_dir)]) == DamagedError.status
    assert tree(run_dir) == before
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxrl: every checkpoint of")
    assert "800: actor/" in line
    assert "is cut short: 1,000 of " in line
    assert "nothing was changed" in line
    assert main(["evaluate", str(run_dir)]) == DamagedError.status
    assert capsys.readouterr().err.splitlines() == [line]


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_gone_does_not_restart(run_dir, capsys):
    shutil.rmtree(run_dir / "checkpoints")
    before = tree(run_dir)
    assert main(["resume", str(run_dir)]) == DamagedError.status
    assert "are gone, and its metrics go to step 1,200" in capsys.readouterr().err
    assert tree(run_dir) == before


@pytest.mark.parametrize(
    ("form", "advice"), [(5, "use the jaxrl that wrote it"), (8, "install a newer jaxrl")]
)
@pytest.mark.slow
def test_other_formats_are_refused_with_advice(run_dir, capsys, form, advice):
    for step in STEPS:
        folder = run_dir / "checkpoints" / str(step)
        path = folder / "progress" / "metadata"
        path.write_text(path.read_text().replace('"format": 7', f'"format": {form}'))
        (folder / layout.CHECKSUMS).unlink()
        if form > checkpoint_files.FORMAT:  # the older had no sums
            checksums.write(folder)
    before = tree(run_dir)
    for command in ("resume", "evaluate"):
        assert main([command, str(run_dir)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"has format {form}, and this jaxrl reads 6 and 7: {advice}" in line
    assert tree(run_dir) == before


def tiny_state(value):
    actor = {"weight": jnp.full(3, value)}
    games = (jnp.zeros(2),)
    return LoopState(AgentState(actor, (), ()), games, jax.random.key(0), {"loss": jnp.float32(0)})


# Orbax lists folders by patterns and takes `gs:/` for a cloud, and TensorStore writes a path with a
# backslash elsewhere.
NAMES = ["r[1]", "r*", "r\\x", "r?\n", "[!a]/seed1", "\udcff", "gs:/r"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name_keeps_checkpoints_that_can_be_restored(tmp_path, name):
    run_dir = tmp_path / "in" / name
    run_dir.mkdir(parents=True)
    (tmp_path / "in" / "rx").mkdir()  # of which the patterns could be
    checkpoints = Checkpoints(run_dir, Config())
    checkpoints.save(tiny_state(3.0), Progress(7, 1, 0.0, 0), None)
    checkpoints.wait()
    state = checkpoints.restore(tiny_state(0.0), 7).state
    assert state.agent.actor["weight"].tolist() == [3.0] * 3
    checkpoints.close()
    assert checkpoint_files.survey(run_dir) == checkpoint_files.Survey([7], {})
    assert checkpoint.restore_actor(run_dir, tiny_state(0.0).agent.actor)[1] == 7
    assert {path.name for path in (tmp_path / "in").iterdir()} == {name.partition("/")[0], "rx"}
    assert not list((tmp_path / "in" / "rx").iterdir())


def test_a_save_that_could_not_be_restored_has_failed(tmp_path, monkeypatch):
    async def merge_nothing(*_, **__):
        pass

    monkeypatch.setattr(
        "orbax.checkpoint._src.serialization.ocdbt_utils.merge_ocdbt_per_process_files",
        merge_nothing,
    )
    checkpoints = Checkpoints(tmp_path, Config())
    checkpoints.save(tiny_state(3.0), Progress(7, 1, 0.0, 0), None)
    with pytest.raises(StorageError, match=r"^checkpoint 7 could not be written: actor/manifest"):
        checkpoints.wait()
    assert checkpoints.newest is None
    checkpoints.close()
    assert checkpoint_files.steps(tmp_path) == []


@pytest.mark.slow
def test_arrays_that_cannot_be_read_are_damage_in_one_line(run_dir, capsys):
    """Older versions wrote such checkpoints, with sums that are right."""
    for step in STEPS:
        folder = run_dir / "checkpoints" / str(step)
        (folder / "learner" / checkpoint_files.MANIFEST).unlink()
        checksums.write(folder)
    before = tree(run_dir)
    for command in ("resume", "evaluate"):
        assert main([command, str(run_dir)]) == DamagedError.status
        (line,) = capsys.readouterr().err.splitlines()
        assert "400: learner/manifest.ocdbt is missing; 800:" in line
        assert "configuration" not in line
    assert tree(run_dir) == before
    shutil.rmtree(run_dir / "checkpoints" / "400" / "actor" / "ocdbt.process_0")
    shape = jax.ShapeDtypeStruct((3,), "float32", sharding=jnp.zeros(3).sharding)
    with pytest.raises(DamagedError) as raised:
        checkpoint_tables.restore(run_dir, 400, {"learner": {"key": shape}}, ("learner",))
    assert len(str(raised.value)) < 600
    assert "tensorstore_spec" not in str(raised.value)


def test_the_best_is_kept_across_a_resume(tmp_path):
    config = Config().replaced(checkpoint={"keep": 1})
    for step, mean in ((1, None), (2, 5.0), (3, 1.0), (4, 2.0), (5, None)):
        checkpoints = Checkpoints(tmp_path, config)  # as a new process would
        checkpoints.save(tiny_state(step), Progress(step, step, 0.0, 0), mean)
        checkpoints.close()
    assert checkpoint_files.steps(tmp_path) == [2, 5]
    assert checkpoint_files.best(tmp_path) == 2
    shutil.rmtree(tmp_path / "checkpoints" / "2")
    with pytest.raises(UserError, match="take --checkpoint latest"):  # the other has no mean
        checkpoint_files.best(tmp_path)
    assert not (tmp_path / "checkpoints" / checkpoint_files.DELETED).exists()


def test_returns_and_evaluations_are_never_compared(tmp_path):
    """A resume may turn evaluations on, whose means are of other games."""
    steps = iter((1, 2, 3, 4))
    for interval, means in ((0, (9.0,)), (100, (5.0, 3.0)), (0, (2.0,))):
        config = Config().replaced(checkpoint={"keep": 1}, evaluation={"interval": interval})
        for mean in means:
            checkpoints = Checkpoints(tmp_path, config)
            step = next(steps)
            checkpoints.save(tiny_state(step), Progress(step, step, 0.0, 0), mean)
            checkpoints.close()
        if interval:
            assert checkpoint_files.steps(tmp_path) == [2, 3]  # not the return of 9
            assert checkpoint_files.best(tmp_path) == 2
    assert checkpoint_files.best(tmp_path) == 4


def with_metrics(train_state, **sums):
    """A state; its metrics' names have a slash."""
    state = tiny_state(7)
    metrics = {f"loss/{name}": Mean(jnp.float32(x), jnp.float32(1)) for name, x in sums.items()}
    train_state = {name: jnp.float32(x) for name, x in train_state.items()}
    return state._replace(agent=state.agent._replace(train_state=train_state), metrics=metrics)


def test_a_version_that_logs_other_metrics_reads_those_that_it_knows(tmp_path):
    """What a line still owes of the others begins again at zero."""
    writer = Checkpoints(tmp_path, Config())
    writer.save(with_metrics({"nu": 3}, kept=5, gone=6), Progress(7, 7, 0.0, 0), None)
    writer.close()
    reader = Checkpoints(tmp_path, Config())
    for template, found in (
        (with_metrics({"nu": 0}, kept=0, new=0), {"kept": 5, "new": 0}),
        (with_metrics({"nu": 0}, kept=0), {"kept": 5}),
        (with_metrics({"nu": 0}, kept=0, gone=0, new=0), {"kept": 5, "gone": 6, "new": 0}),
    ):
        restored = reader.restore(template, 7).state
        totals = {name: float(x.total) for name, x in restored.metrics.items()}
        assert totals == {f"loss/{name}": x for name, x in found.items()}
        assert float(restored.agent.train_state["nu"]) == 3
        assert list(restored.agent.actor["weight"]) == [7, 7, 7]
    # Another optimizer's arrays, older metrics or not.
    for arrays in ({"nu": 0, "mu": 0}, {"mu": 0}, {}):
        for names in ({"kept": 0}, {"kept": 0, "gone": 0}):
            with pytest.raises(UserError, match="does not fit its configuration"):
                reader.restore(with_metrics(arrays, **names), 7)
    reader.close()
    (tmp_path / "checkpoints/7/learner/_METADATA").write_text("{")
    with pytest.raises(DamagedError, match=r"checkpoint 7 of .* cannot be read"):
        checkpoint_tables.names(tmp_path, 7, "learner")


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    checkpoints = Checkpoints(tmp_path, Config())
    checkpoints.save(tiny_state(1), Progress(1, 1, 0.0, 0), None)
    checkpoints.close()
    for name in ("2.orbax-checkpoint-tmp", "3.orbax-checkpoint-tmp-summed", "deleted/1"):
        shutil.copytree(tmp_path / "checkpoints" / "1", tmp_path / "checkpoints" / name)
    assert checkpoint_files.steps(tmp_path) == [1]
    again = Checkpoints(tmp_path, Config())
    again.save(tiny_state(4), Progress(4, 4, 0.0, 0), None)
    again.close()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["1", "4"]


def test_a_reader_disturbs_no_writer(tmp_path):
    """`jaxrl evaluate` beside training must not remove what is being written."""
    checkpoints = Checkpoints(tmp_path, Config())
    checkpoints.save(tiny_state(1), Progress(1, 1, 0.0, 0), None)
    checkpoints.close()
    half = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "checkpoints" / "1", half)
    actor, step = checkpoint.restore_actor(tmp_path, {"weight": jnp.zeros(3)})
    assert (actor["weight"].tolist(), step) == ([1.0] * 3, 1)
    assert half.exists()


# --- a disk that is full --------------------------------------------------------------------------


@contextmanager
def small_disk(path, megabytes):
    """A small file system in memory."""
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path):
    """Takes all room there is; what is being written now may fail too."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def wait_until(holds, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@contextmanager
def training_on_small_disk(path, max_failures):
    """A disk with a run that has its first checkpoint, the run's process and its log."""
    log = path / "log"
    arguments = ["--log.interval", "200", "--checkpoint.interval", "200", "--checkpoint.keep", "1",
                 "--checkpoint.max-failures", max_failures]  # fmt: skip
    with small_disk(path / "disk", 48) as disk:
        process = begin(
            "train", *SMALL, *arguments, "--total-steps", "1e6", "--run-dir", disk / "x",
            stderr=log.open("w"),
        )  # fmt: skip
        wait_until(lambda: checkpoint_files.steps(disk / "x"), process)
        yield disk, process, log


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_full_disk_is_warned_of_and_training_goes_on_until_there_is_room(tmp_path):
    with training_on_small_disk(tmp_path, "1000") as (disk, process, log):
        fill(disk / "ballast")
        wait_until(lambda: "could not be written: No space left" in log.read_text(), process)
        survivors = checkpoint_files.steps(disk / "x")
        assert survivors, "the last good checkpoint must survive"
        fill(disk / "ballast")  # what the failed save gave back
        warned = log.read_text().count("warning")
        wait_until(lambda: log.read_text().count("warning") > warned + 2, process)
        (disk / "ballast").unlink()
        wait_until(lambda: checkpoint_files.steps(disk / "x")[-1] > survivors[-1], process)
        process.send_signal(signal.SIGINT)
        assert finish(process)[0] == 128 + signal.SIGINT, log.read_text()
        assert checkpoint_files.survey(disk / "x").damaged == {}
        check_metrics(disk / "x")
        assert "(failure 1 of 1000); training continues" in log.read_text()
        assert "Traceback" not in log.read_text()


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_disk_that_stays_full_ends_training_with_a_status_of_its_own(tmp_path):
    with training_on_small_disk(tmp_path, "3") as (disk, process, log):
        while process.poll() is None:  # also what failed saves give back
            fill(disk / "ballast")
            time.sleep(0.05)
        assert finish(process)[0] == StorageError.status, log.read_text()
        last = log.read_text().splitlines()[-1]
        assert last.startswith("jaxrl: ")
        assert "could not be written: No space left on device" in last
        newest = checkpoint_files.steps(disk / "x")[-1]
        assert f"the newest checkpoint is of step {newest:,}: make room, then jaxrl resume" in last
        assert checkpoint_files.survey(disk / "x").damaged == {}
        (disk / "ballast").unlink()
        goal = f"total_steps={newest + 400}"
        status, errors = finish(begin("resume", disk / "x", "--override", goal))
        assert status == 0, errors
        check_metrics(disk / "x")


@pytest.mark.slow
def test_a_hundred_checkpoints_keep_little_memory(tmp_path):
    """Less than half a megabyte each, where each writes five (docs/guides/reliability.md)."""
    arguments = ["--config", recipe_file("vtrace_cpu"), "--game", "catch", "--num-envs", "10",
                 "--parallel.num-devices", "1", "--evaluation.episodes", "0",
                 "--log.interval", "50",
                 "--checkpoint.interval", "50", "--total-steps", "5000"]  # fmt: skip
    status, errors = finish(begin("train", *arguments, "--run-dir", tmp_path / "x"), timeout=900)
    assert status == 0, errors
    resident = [row["memory_gb"] for row in check_metrics(tmp_path / "x")]
    assert len(resident) == 100
    assert resident[-1] - resident[39] < 0.03
