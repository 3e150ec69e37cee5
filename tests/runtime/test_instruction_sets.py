"""A wheel's libraries are chosen by what the processor has; else they are built."""

import pytest

from jaxrl.errors import UserError
from jaxrl.runtime import instruction_sets, native_library

V2 = "cx16 popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe"
V4 = f"{V3} avx512bw avx512cd avx512dq avx512f avx512vl"


@pytest.fixture
def cpuinfo(tmp_path):
    def write(flags):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: fpu {flags} vme\n")
        return tmp_path / "cpuinfo"

    return write


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (V4, ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        (V3, ["x86-64-v3", "x86-64-v2"]),
        (V3.replace(" fma", ""), ["x86-64-v2"]),
        (V4.replace(" avx2", ""), ["x86-64-v2"]),  # a level has all of those below
        ("sse4_1", []),
    ],
)
def test_levels_of_x86_64_are_those_whose_flags_are_all_there(cpuinfo, flags, levels):
    assert instruction_sets.supported("linux", "x86_64", cpuinfo(flags)) == tuple(levels)


def test_other_machines(tmp_path):
    missing = tmp_path / "missing"
    assert instruction_sets.supported("linux", "aarch64", missing) == ("aarch64",)
    assert instruction_sets.supported("darwin", "arm64", missing) == ("aarch64",)
    assert instruction_sets.supported("darwin", "x86_64", missing) == ()
    assert instruction_sets.supported("linux", "x86_64", missing) == ()
    assert instruction_sets.supported("linux", "riscv64", missing) == ()


@pytest.fixture
def source(tmp_path, monkeypatch):
    """What a library is built from, on a processor of two sets, and a wheel's empty folder."""
    monkeypatch.delenv(instruction_sets.VARIABLE, raising=False)
    monkeypatch.setattr(instruction_sets, "supported", lambda: ("x86-64-v3", "x86-64-v2"))
    monkeypatch.setattr(native_library, "PREBUILT", tmp_path / "prebuilt")
    (tmp_path / "prebuilt").mkdir()
    return native_library.Source("game", tmp_path / "game.cc", (), (), "the game", "it", "none")


def test_the_fastest_set_that_a_wheel_has_is_taken(source):
    assert native_library.prebuilt(source) is None
    for name in ("x86-64-v2", "x86-64-v4", "x86-64-v3"):
        (native_library.PREBUILT / f"game-{name}.so").touch()
    assert native_library.built(source).name == "game-x86-64-v3.so"
    (native_library.PREBUILT / "game-x86-64-v3.so").unlink()
    assert native_library.built(source).name == "game-x86-64-v2.so"


def test_a_variable_names_the_set(source, monkeypatch):
    for name in ("x86-64-v2", "x86-64-v3"):
        (native_library.PREBUILT / f"game-{name}.so").touch()
    monkeypatch.setenv(instruction_sets.VARIABLE, "x86-64-v2")
    assert native_library.prebuilt(source).name == "game-x86-64-v2.so"
    monkeypatch.setenv(instruction_sets.VARIABLE, "native")
    assert native_library.prebuilt(source) is None
    monkeypatch.setenv(instruction_sets.VARIABLE, "x86-64-v4")
    with pytest.raises(UserError, match="this processor has x86-64-v3, x86-64-v2; name one of"):
        native_library.prebuilt(source)


def test_a_set_that_this_installation_has_not_got_is_refused(source, monkeypatch):
    monkeypatch.setenv(instruction_sets.VARIABLE, "x86-64-v2")
    with pytest.raises(
        UserError, match="this installation is not of a wheel that has it; unset it"
    ):
        native_library.prebuilt(source)


def test_building_without_a_compiler_names_what_does_without(source, monkeypatch):
    """Of a wheel the variable that asks for a compiler; of a clone a wheel."""
    monkeypatch.setattr(native_library, "compiler", lambda: None)
    with pytest.raises(UserError, match=r"install g\+\+ .* or clang\+\+, or none$"):
        native_library.built(source)  # a wheel that has other libraries
    (native_library.PREBUILT / "game-x86-64-v2.so").touch()
    monkeypatch.setenv(instruction_sets.VARIABLE, "native")
    message = "needs a C.* compiler, and none is found; unset JAXRL_INSTRUCTION_SET: the wheel has"
    with pytest.raises(UserError, match=message):
        native_library.built(source)
    monkeypatch.setattr(native_library, "PREBUILT", native_library.PREBUILT / "clone")
    with pytest.raises(UserError, match=r"clang\+\+, a wheel \(make wheels, then pip install dist"):
        native_library.built(source)


def test_what_a_wheel_leaves_out_is_built(source, monkeypatch):
    (native_library.PREBUILT / "other-x86-64-v2.so").touch()
    monkeypatch.setenv(instruction_sets.VARIABLE, "x86-64-v2")
    assert native_library.prebuilt(source) is None
