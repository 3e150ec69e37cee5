"""Files are whole or not there, whatever fails, and no temporary file stays."""

import contextlib
import errno
import os
import resource

import pytest

from jaxrl.analysis import drawing
from jaxrl.errors import StorageError, UserError
from jaxrl.runs import files


@contextlib.contextmanager
def growing_to(size):
    """As on a disk that is full: files of this process, and of those it starts, do not grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_text(target):
    files.replace_text(target, "new" * 2000)


def write_for_a_user(target):
    with files.writing(target) as temporary:
        temporary.write_bytes(b"new" * 2000)


def write_picture(target):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    drawing.save(figure, target)


WRITERS = {"text": write_text, "bytes": write_for_a_user, "picture": write_picture}


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_leaves_the_old_file_alone(name, tmp_path):
    target = tmp_path / "x.png"
    target.write_text("old")
    with growing_to(1000), pytest.raises((OSError, StorageError)) as error:
        WRITERS[name](target)
    if name == "text":
        assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(target))
    else:
        assert str(error.value) == f"cannot write '{target}': File too large"
        assert error.value.status == 74
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    assert target.read_text() == "old"
    WRITERS[name](target)
    assert target.stat().st_size > 3
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


def umask():
    old = os.umask(0)
    os.umask(old)
    return old


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/x.png", "No such file or directory"),
        ("file/x.png", "Not a directory"),
        ("folder", "Is a directory"),
        ("x" * 256, "File name too long"),
    ],
)
def test_a_place_that_cannot_be_is_a_mistake_of_the_user(name, reason, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as error:
        write_for_a_user(tmp_path / name)
    assert str(error.value) == f"cannot write '{tmp_path / name}': {reason}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_name_may_be_as_long_as_names_may_be(tmp_path):
    write_for_a_user(tmp_path / ("x" * 251 + ".png"))
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [6000]


def test_nobody_sees_a_file_before_it_is_whole(tmp_path):
    def write_half(target):
        with files.writing(target) as temporary:
            temporary.write_text("half")
            assert not target.exists()
            assert temporary.parent == tmp_path  # a rename must not cross file systems
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_failure_of_another_file_is_not_blamed_on_this_one(tmp_path):
    with pytest.raises(FileNotFoundError) as error, files.writing(tmp_path / "x"):
        (tmp_path / "missing").read_text()
    assert error.value.filename == str(tmp_path / "missing")


def test_an_object_is_read_whole_or_its_fault_is_named(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    assert files.read_object(path) is None
    path.write_text('{"a": [1, 2]}')
    assert files.read_object(path) == {"a": [1, 2]}
    for text, fault in (("[]", "it holds no object"), ("{", "Expecting"), ("[" * 100_000, "")):
        path.write_text(text)
        with pytest.raises(UserError, match=rf"^x\.json cannot be read: .*{fault}"):
            files.read_object(path)
    monkeypatch.setattr(files, "LARGEST_OBJECT", 10)
    path.write_text('{"a": [1, 2]}')
    with pytest.raises(UserError, match="it is too large"):
        files.read_object(path)
    path.unlink()
    os.mkfifo(path)
    assert files.read_object(path) is None  # whoever opens a pipe waits for its writer
