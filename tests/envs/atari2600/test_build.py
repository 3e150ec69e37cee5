"""The emulator is built once, for this machine, and without a compiler there is one line."""

import os
import re
import subprocess
import sys

import pytest

from jaxrl.envs.atari2600 import build
from jaxrl.envs.atari2600.__main__ import main as build_main
from jaxrl.errors import UserError
from jaxrl.kernels import library as kernels
from jaxrl.runtime import native_library


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.library.cache_clear()
    yield tmp_path / "jaxrl"
    build.library.cache_clear()


def stub(path, folder):
    """A compiler that writes down each call and makes a file."""
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo stub 1.0 && exit\n'
        f"echo call >> {folder}/calls\nsleep 0.5\n"
        'while [ "$1" != -o ]; do shift; done\necho built > "$2"\n'
    )
    path.chmod(0o755)
    return str(path)


def test_processes_that_come_at_once_build_once(empty_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", stub(tmp_path / "stub", tmp_path))
    code = "from jaxrl.envs.atari2600 import build; print(build.library())"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate()[0].strip() for process in both}
    assert len(paths) == 1
    assert (tmp_path / "calls").read_text() == "call\n"
    assert paths.pop().startswith(str(empty_cache))


def test_another_compiler_or_flag_is_another_library(empty_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", stub(tmp_path / "one", tmp_path))
    first = build.library()
    build.library.cache_clear()
    assert build.library() == first
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    build.library.cache_clear()
    assert build.library() != first
    assert (tmp_path / "calls").read_text() == "call\n" * 2


def test_a_change_in_a_room_is_another_library(empty_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", stub(tmp_path / "compiler", tmp_path))
    room = tmp_path / "native" / "chips"
    room.mkdir(parents=True)
    (tmp_path / "native" / "ffi.cc").write_text('#include "chips/riot.h"')
    (room / "riot.h").write_text("int ram;")
    monkeypatch.setattr(build, "NATIVE", tmp_path / "native")
    first = build.library()
    (room / "riot.h").write_text("int timer;")
    build.library.cache_clear()
    assert build.library() != first


def test_without_a_compiler_there_is_one_line(empty_cache, monkeypatch, capsys):
    monkeypatch.setattr(native_library, "compiler", lambda: None)
    with pytest.raises(UserError, match="install g"):
        build.library()
    assert build_main() == 0
    assert "no C++ compiler" in capsys.readouterr().err


def test_a_compiler_that_fails_leaves_a_log(empty_cache, tmp_path, monkeypatch, capsys):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho it hurts >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert build_main() == 2
    assert "CXX" in capsys.readouterr().err
    (log,) = empty_cache.glob("*.log")
    assert "it hurts" in log.read_text()
    assert not list(empty_cache.glob("*.so"))


def test_a_compiler_that_does_not_know_the_processor_builds_for_any(
    empty_cache, tmp_path, monkeypatch
):
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\nfor flag; do [ $flag = -march=native ] && "
        "echo 'error: unsupported argument for -march=native' >&2 && exit 1; done\n"
        'while [ "$1" != -o ]; do shift; done\necho built > "$2"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build.library().read_text() == "built\n"
    assert not list(empty_cache.glob("*.log"))


def test_a_compiler_that_is_not_there_is_named(empty_cache, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler --flag")
    with pytest.raises(UserError, match="no-such-compiler"):
        build.library()


def test_a_command_whose_quotation_does_not_end_is_refused(empty_cache, monkeypatch):
    monkeypatch.setenv("CXX", "'g++")
    with pytest.raises(UserError, match=r"CXX = .*No closing quotation; name a C\+\+ compiler"):
        build.library()


def test_a_command_with_flags_is_a_compiler(empty_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", stub(tmp_path / "stub", tmp_path) + " -m64")
    assert build.library().exists()


def test_a_home_that_cannot_be_written_to_is_said(tmp_path, monkeypatch):
    place = tmp_path / "file"
    place.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    build.library.cache_clear()
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        build.library()
    build.library.cache_clear()


def engine_of(game: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `auto` takes, in a process of its own."""
    code = (
        "from jaxrl.config.schema import Config; from jaxrl.envs import choose_engine;"
        f"print(choose_engine({game!r}, Config().env).engine)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_auto_takes_the_emulator():
    assert engine_of("pong").stdout == "atari2600\n"


def test_auto_takes_envpool_without_a_compiler(tmp_path):
    done = engine_of("pong", PATH=str(tmp_path), CXX="", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == "envpool\n"
    assert done.stderr.startswith("warning: EnvPool plays, which is slower: ")
    assert "install g++ (apt-get install g++) or clang++, a wheel (make wheels" in done.stderr


@pytest.mark.parametrize(
    "library",
    [
        build.library,
        build.vector_library,
        build.gpu_library,
        lambda: native_library.built(kernels.SOURCE),
    ],
)
def test_libraries_of_one_process_share_no_table(library):
    # GCC makes tables of inline functions unique in a process ("u"), whichever library asks: the
    # interpreter of one jumped to the labels of another.
    command = ["nm", "--dynamic", "--defined-only", "--demangle", str(library())]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.search(r"T jaxrl_\w+\n", names)
    assert not re.findall(r"u .*jaxrl::.*", names)
