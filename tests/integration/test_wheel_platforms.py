"""A wheel with compiled libraries is named for its platform, and has one for each processor."""

import zipfile

import pytest

from tools import wheels


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", wheels.PLATFORMS)
def test_a_wheel_has_the_libraries_of_its_platform(tmp_path, monkeypatch, name):
    compiled = []

    def compile_library(source, platform, processor, out):
        compiled.append((source.name, processor))
        out.write_bytes(b"library")

    monkeypatch.setattr(wheels, "compile_library", compile_library)
    platform = wheels.PLATFORMS[name]
    wheel = wheels.build_wheel(platform, tmp_path / "dist")
    assert wheel.name == f"jaxrl-0.1.0-py3-none-{platform.tag}.whl"
    libraries = [file for file in zipfile.ZipFile(wheel).namelist() if file.endswith(".so")]
    assert sorted(libraries) == sorted(
        f"jaxrl/prebuilt/{source}-{processor}.so"
        for source in ("atari2600", "atari2600-vector", "kernels")
        for processor in platform.processors
    )
    assert len(compiled) == len(libraries)


def test_compilers_are_told_the_target_and_no_processor_of_this_machine(monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(wheels, "run", lambda *command: commands.append([str(c) for c in command]))
    platform = wheels.PLATFORMS["linux-x86_64"]
    for source in wheels.SOURCES:
        wheels.compile_library(source, platform, "x86_64_v3", tmp_path / "library.so")
    for command in commands:
        assert "-march=native" not in command
        assert command[command.index("-target") + 1] == "x86_64-linux-gnu.2.17"
        assert "-mcpu=x86_64_v3" in command
    # Averages are added without fused multiplications, as OpenCV does.
    assert ["-ffp-contract=off" in command for command in commands] == [True, True, False]
