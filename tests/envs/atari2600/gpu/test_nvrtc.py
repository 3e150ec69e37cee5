"""NVIDIA's own compiler takes the kernels, for cards that are not here."""

import re
from pathlib import Path

import pytest

from jaxrl.envs.atari2600 import build, build_gpu
from jaxrl.errors import UserError
from tests.envs.atari2600.gpu import standin
from tests.envs.atari2600.gpu.standin import KERNELS

# Bytes of a lane's own memory, which is slow: of all, and of registers that do not fit. The last
# kernel plays what is rare.
BOUNDS = {"jaxrl_step": (800, 128), "jaxrl_draw": (512, 0), "jaxrl_again": (4096, 2048)}


def functions_of(log: str) -> dict[str, tuple[int, int]]:
    """Stack and spilled bytes of each function, by its name, as ptxas tells them."""
    pattern = (
        r"Function properties for (\S+)\s+ptxas\s+\.\s+(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores"
    )
    return {name: (int(stack), int(spilled)) for name, stack, spilled in re.findall(pattern, log)}


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_nvrtc_compiles_the_kernels(target):
    compiled = build_gpu.Nvrtc().compiled(target)
    assert compiled.image.startswith(b"\x7fELF")
    found = functions_of(compiled.log)
    for kernel in KERNELS:
        assert kernel.encode() in compiled.image
        stack, spilled = found[kernel]
        most_stack, most_spilled = BOUNDS[kernel]
        assert stack <= most_stack, kernel
        assert spilled <= most_spilled, kernel
    assert "warning" not in compiled.log


def test_a_card_gets_its_own_code_or_what_its_driver_finishes():
    nvrtc = build_gpu.Nvrtc()
    assert nvrtc.target(90) == "sm_90"
    assert re.fullmatch(r"compute_\d+", nvrtc.target(999))
    with pytest.raises(UserError, match=r"compute capability 2\.0"):
        nvrtc.target(20)


def test_the_newest_compiler_that_the_driver_knows_is_taken():
    names = ["/a/libnvrtc.so.13", "/a/libnvrtc.so.12", "libnvrtc.so.12", "libnvrtc.so"]
    of_12 = ["/a/libnvrtc.so.12", "libnvrtc.so.12", "libnvrtc.so", "/a/libnvrtc.so.13"]
    assert build_gpu.preferred(names, 12) == of_12
    assert build_gpu.preferred(names, 13) == names == build_gpu.preferred(names, None)
    # Nothing is left out: a driver of an older kind may still take what they make.
    assert build_gpu.preferred(names, 11) == ["libnvrtc.so", *names[1:3], names[0]]


@pytest.fixture
def driver(monkeypatch):
    """The stand-in for a driver."""
    build_gpu.card.cache_clear()
    monkeypatch.setenv("JAXRL_LIBCUDA", str(standin.built()))
    found = standin.StandIn(standin.built())
    yield found
    found.set_devices(1)
    build_gpu.card.cache_clear()


@pytest.mark.slow
def test_the_driver_says_what_the_cards_are(driver):
    assert build_gpu.card() == (90, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "said"), [(2, "capability 8.0 and 9.0"), (0, "no GPU")])
def test_cards_of_several_kinds_or_none_are_refused(driver, number, said):
    driver.set_devices(number)
    with pytest.raises(UserError, match=said) as raised:
        build_gpu.card()
    assert "\n" not in str(raised.value)


@pytest.fixture
def card(tmp_path, monkeypatch):
    """A card of compute capability 9.0, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build_gpu, "card", lambda: build_gpu.Card(90, 12))
    build_gpu.kernels.cache_clear()
    yield tmp_path / "jaxrl"
    build_gpu.kernels.cache_clear()


def test_kernels_are_compiled_once(card, monkeypatch, capsys):
    calls = []

    def compiled(self, target):
        calls.append(target)
        return build_gpu.Compiled(b"image", "")

    monkeypatch.setattr(build_gpu.Nvrtc, "compiled", compiled)
    assert build_gpu.kernels().image == b"image"
    assert "once" in capsys.readouterr().err
    build_gpu.kernels.cache_clear()  # as another process
    (file,) = card.glob("*.cubin")
    assert build_gpu.kernels() == (b"image", str(file))
    assert calls == ["sm_90"]
    assert file.name.startswith("atari2600-sm_90-")
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_leaves_nothing(card, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_gpu.Nvrtc, "compiled", lambda *_: build_gpu.Compiled(b"image", ""))
    monkeypatch.setattr(build_gpu.os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        build_gpu.kernels()
    assert [file.suffix for file in card.iterdir()] == [".lock"]


def test_what_nvrtc_says_of_a_mistake_is_said(card, tmp_path, monkeypatch):
    source = tmp_path / "broken.cu"
    source.write_text("this is no program")
    monkeypatch.setattr(build_gpu, "SOURCE", source)
    with pytest.raises(UserError, match="cannot compile"):
        build_gpu.kernels()
    assert not list(card.glob("*.cubin"))


def test_without_a_driver_or_nvrtc_there_is_one_line(monkeypatch):
    build_gpu.card.cache_clear()
    monkeypatch.setenv("JAXRL_LIBCUDA", "no-such-driver.so")
    with pytest.raises(UserError, match="no CUDA driver"):
        build_gpu.card()
    monkeypatch.setattr(build_gpu, "_installed", lambda: [])
    monkeypatch.setattr(build_gpu, "NAMES", ("no-such-compiler.so",))
    with pytest.raises(UserError, match="not installed"):
        build_gpu.Nvrtc()


def test_the_sources_of_the_kernels_come_with_the_package():
    assert build_gpu.SOURCE.is_file()
    assert Path(build.__file__).parent / "native" == build.NATIVE
    assert build_gpu.SOURCE.is_relative_to(build.NATIVE)
