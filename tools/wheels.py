"""Builds wheels whose libraries are compiled, and tries them: `make wheels`.

    python -m tools.wheels                              all platforms, into dist/
    python -m tools.wheels --platforms linux-x86_64
    python -m tools.wheels --try-only                   tries those that dist/ has
    python -m tools.wheels --try-only --every-game      with all cartridges: minutes in QEMU

Clang of the `ziglang` package compiles for every platform, against a C library of 2014 (glibc
2.17) on Linux; C++'s own library is linked into each. A wheel has a library for each instruction
set of its platform (`jaxrl.runtime.instruction_sets`), so it needs no compiler where it is used.

An x86-64 wheel is tried in an empty environment without a compiler, each of its instruction sets
that this processor has: games are played there, and with this environment's packages beside it an
agent trains. Libraries for Linux on aarch64 play in QEMU, where it is installed (`apt-get install
qemu-user-static libc6-arm64-cross`). Those for macOS are not tried.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from jaxrl.atari.games import atari_games
from jaxrl.envs.atari2600 import build
from jaxrl.kernels import library as kernels
from jaxrl.runtime import instruction_sets, native_library

ROOT = Path(__file__).parents[1]
DIGEST = ROOT / "tools" / "vector_digest.cc"
SOURCES = (build.engine_source(), build.vector_source(), kernels.SOURCE)
QEMU, QEMU_ROOT = "qemu-aarch64-static", Path("/usr/aarch64-linux-gnu")
GAMES = ("pong", "breakout", "ms_pacman", "pitfall2", "robotank", "montezuma_revenge")
PLAY = """
import sys
from jaxrl.envs import VectorEnv
import hashlib, numpy
digest = hashlib.sha256()
for game in sys.argv[1:]:
    envs = VectorEnv(game, 4, repeat_action_probability=0.25)
    actions = numpy.random.default_rng(0).integers(0, envs.single_action_space.n, (60, 4))
    for arrays in (envs.reset(seed=1)[:1], *(envs.step(row)[:4] for row in actions)):
        for array in arrays:
            digest.update(array.tobytes())
    envs.close()
assert not {"jax", "envpool"} & set(sys.modules)
print(digest.hexdigest())
"""
# Prints all that the command says; its libraries must be the wheel's.
TRAIN = """
import sys
sys.stderr = sys.stdout
from jaxrl.cli.main import main
from jaxrl.envs.atari2600 import build
from jaxrl.kernels import library
assert not main(sys.argv[1:])
assert library.lanes() and "prebuilt" in str(build.library())
"""
TRAINING = ("train", "--config", "vtrace_cpu", "--game", "pong", "--total-steps", "3e3")


@dataclass(frozen=True)
class Platform:
    """A system and processor that wheels are made for."""

    target: str  # as Zig names it
    tag: str  # as pip names it
    processors: dict[str, str]  # Zig's name of a processor, by the instruction set


PLATFORMS = {
    "linux-x86_64": Platform(
        "x86_64-linux-gnu.2.17",
        "manylinux_2_17_x86_64",
        {level: level.replace("-", "_") for level in instruction_sets.X86_LEVELS},
    ),
    "linux-aarch64": Platform(
        "aarch64-linux-gnu.2.17",
        "manylinux_2_17_aarch64",
        {instruction_sets.ARM: "generic"},
    ),
    "macos-arm64": Platform(
        "aarch64-macos.11.0", "macosx_11_0_arm64", {instruction_sets.ARM: "apple_m1"}
    ),
}

PlatformName = Literal["linux-x86_64", "linux-aarch64", "macos-arm64"]


def run(*command: str | Path, **more: str) -> str:
    """Runs a command with more variables in its environment; returns what it prints."""
    environment = os.environ | more
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def compile_library(
    source: native_library.Source, platform: Platform, processor: str, out: Path
) -> None:
    """Compiles a library for a processor of a platform."""
    flags = [flag for flag in source.flags if flag != native_library.NATIVE_FLAG]
    folders = [part for folder in source.folders for part in ("-iquote", str(folder))]
    if source.calls_xla:
        folders += ["-isystem", native_library.include_dir()]
    machine = ("-target", platform.target, f"-mcpu={processor}", "-s", "-Wno-everything")
    compiler = (sys.executable, "-m", "ziglang", "c++")
    run(*compiler, *machine, *flags, *folders, str(source.file), "-o", out)


def build_wheel(platform: Platform, dist: Path) -> Path:
    """Returns a platform's wheel, which it puts into `dist`."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        tracked = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
        for name in tracked.splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        folder = tree / "jaxrl" / native_library.PREBUILT.name
        folder.mkdir()
        for source in SOURCES:
            for name, processor in platform.processors.items():
                print(f"compiling {source.name} for {name}", flush=True)
                out = folder / native_library.prebuilt_name(source, name)
                compile_library(source, platform, processor, out)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
        tag = f"--config-settings=--build-option=--plat-name={platform.tag}"
        run(*pip, "--no-deps", "--no-build-isolation", tag, "--wheel-dir", scratch, tree)
        (wheel,) = Path(scratch).glob("*.whl")
        dist.mkdir(exist_ok=True)
        return Path(shutil.move(wheel, dist / wheel.name))


def try_here(wheel: Path, games: Sequence[str]) -> None:
    """Installs a wheel into an empty environment; all instruction sets must play the same games.

    Each of them trains an agent there, too, on the emulator and with the kernels.
    """
    with tempfile.TemporaryDirectory() as scratch:
        python = Path(scratch) / "bin" / "python"
        run(sys.executable, "-m", "venv", scratch)
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, "numpy", "gymnasium", "ale-py")
        run(*pip, "--no-deps", wheel)
        alone = {"PATH": "", "XDG_CACHE_HOME": f"{scratch}/cache"}
        expected = run(sys.executable, "-c", PLAY, *games, JAXRL_INSTRUCTION_SET="native")
        sets = ("", *instruction_sets.supported())
        for name in sets:
            # -I: without the clone's folder, which has no libraries of a wheel.
            got = run(python, "-I", "-c", PLAY, *games, **alone, JAXRL_INSTRUCTION_SET=name)
            if got != expected:
                sys.exit(f"{wheel.name} plays other games with {name or 'its choice'}")
            print(f"{wheel.name}: {name or 'its own choice'} plays as the library built here")
        # Of a folder that a .pth file names Python reads no such files, so jaxrl is the wheel's.
        packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
        (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
        for name in sets:
            made = f"{scratch}/run-{name}"
            command = (python, "-I", "-c", TRAIN, *TRAINING, "--run-dir", made)
            told = run(*command, **alone, JAXRL_INSTRUCTION_SET=name)
            if "warning: " in told:  # EnvPool would play, or XLA convolve
                sys.exit(f"{wheel.name} does not train with {name or 'its choice'}:\n{told}")
            print(f"{wheel.name}: {name or 'its own choice'} trains")


def try_in_qemu(wheel: Path, games: Sequence[str]) -> None:
    """Plays with an aarch64 library in QEMU, and compares with the library that is built here."""
    if not shutil.which(QEMU) or not QEMU_ROOT.is_dir():
        print(f"{wheel.name}: not tried, {QEMU} or {QEMU_ROOT} is not installed")
        return
    from jaxrl.envs.atari2600.roms import path

    platform = PLATFORMS["linux-aarch64"]
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(wheel, scratch, "zip")
        name = native_library.prebuilt_name(build.vector_source(), instruction_sets.ARM)
        roms = [str(path(game)) for game in games]
        compiler = (sys.executable, "-m", "ziglang", "c++", "-std=c++20", "-O2")
        headers = ("-iquote", build.NATIVE, DIGEST, "-ldl", "-o")
        player, here = Path(scratch) / "player", Path(scratch) / "here"
        run(*compiler, "-target", platform.target, *headers, player)
        run(*compiler, *headers, here)
        arm = Path(scratch) / "jaxrl" / native_library.PREBUILT.name / name
        played = run(QEMU, "-L", QEMU_ROOT, player, arm, *roms)
        if played != run(here, build.vector_library(), *roms):
            sys.exit(f"{wheel.name} plays other games in QEMU than the library built here")
        print(f"{wheel.name}: plays in QEMU as the library built here")


def main(
    platforms: tuple[PlatformName, ...] = typing.get_args(PlatformName),
    dist: Path = ROOT / "dist",
    try_only: bool = False,
    every_game: bool = False,
) -> None:
    """Builds and tries the wheels of platforms."""
    games = atari_games() if every_game else GAMES
    for name in platforms:
        platform = PLATFORMS[name]
        if try_only:
            wheels = list(dist.glob(f"*{platform.tag}.whl"))
            if len(wheels) != 1:
                sys.exit(
                    f"'{dist}' has {len(wheels)} wheels of {name}: build one without --try-only"
                )
            (wheel,) = wheels
        else:
            wheel = build_wheel(platform, dist)
        size = wheel.stat().st_size / 1e6
        print(f"{wheel.name}: {size:.1f} MB", flush=True)
        if name == "linux-x86_64":
            try_here(wheel, games)
        elif name == "linux-aarch64":
            try_in_qemu(wheel, games)
        else:
            print(f"{wheel.name}: not tried, this is no such machine")


if __name__ == "__main__":
    tyro.cli(main)
