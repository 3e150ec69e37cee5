"""Installed from a wheel, in another folder, jaxrl is whole."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

import jaxrl
from jaxrl.config.toml import stems
from jaxrl.runs import metrics
from tests.survival import ROOT, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the files that a clone would have."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
               "--no-build-isolation", "--wheel-dir", str(built), str(source)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (found,) = built.glob("jaxrl-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A bare environment with the wheel, which finds the packages that jaxrl needs."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    # A path in a .pth is not searched for further .pth files, as that of the editable jaxrl.
    needed = sysconfig.get_path("purelib")
    (home / own / "needed.pth").write_text(f"{needed}\n")
    return home / "bin"


def run(installed, cwd, *words):
    bare = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    return subprocess.run([str(installed / words[0]), *words[1:]], cwd=cwd, check=False,
                          env=bare, capture_output=True, text=True)  # fmt: skip


def test_the_wheel_holds_what_the_package_needs_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "jaxrl/py.typed" in names
    for path in sorted((ROOT / "configs").glob("*/*.toml")):
        assert f"jaxrl/{path.relative_to(ROOT).as_posix()}" in names
    for folder in ("jaxrl/envs/atari2600/native", "jaxrl/analysis/report/assets", "jaxrl/atari",
                   "jaxrl/policies", "jaxrl/experiments/price"):  # fmt: skip
        for path in (ROOT / folder).iterdir():
            if path.is_file():
                assert f"{folder}/{path.name}" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"jaxrl"}


def test_it_trains_in_a_bare_environment_elsewhere(installed, tmp_path):
    where = run(installed, tmp_path, "python", "-c", "import jaxrl; print(jaxrl.__file__)")
    assert where.stdout.startswith(str(installed.parent)), where
    version = run(installed, tmp_path, "jaxrl", "--version")
    assert version.stdout == f"jaxrl {jaxrl.__version__}\n"
    listed = run(installed, tmp_path, "jaxrl", "configs", "--names")
    assert set(listed.stdout.split()) == set(stems())
    priced = run(installed, tmp_path, "jaxrl", "configs", "ppo_pong", "--long")
    assert "14.9" in priced.stdout.splitlines()[1].split(), priced
    words = ["train", "--config", "ppo_pong", "--game", "catch", "--num-envs", "4",
             "--total-steps", "1024", "--log.interval", "512", "--parallel.num-devices", "1",
             "--evaluation.episodes", "2", "--run-dir", "x"]  # fmt: skip
    trained = run(installed, tmp_path, "jaxrl", *words)
    assert trained.returncode == 0, trained.stderr
    assert [row["step"] for row in metrics.read(tmp_path / "x")] == [512, 1024]
    played = run(installed, tmp_path, "jaxrl", "play", "x", "-o", "x.gif")
    assert played.returncode == 0, played.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "x.gif"]


def test_its_emulator_is_built_and_its_policy_plays(installed, tmp_path):
    played = run(installed, tmp_path, "jaxrl", "play", "pong", "--max-seconds", "2")
    assert played.returncode == 0, played.stderr
    assert "pong.mp4: pong after" in played.stdout
    assert "EnvPool plays" not in played.stderr


def test_the_folder_of_a_clone_does_not_shadow_the_package(tmp_path):
    """In its parent folder `jaxrl` is a folder without `__init__.py`, which Python would take."""
    (tmp_path / "jaxrl" / "jaxrl").mkdir(parents=True)
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = "import jaxrl; print(jaxrl.load_config.__name__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False, env=bare,
                           capture_output=True, text=True)  # fmt: skip
    assert found.stdout == "load_config\n", found.stderr
