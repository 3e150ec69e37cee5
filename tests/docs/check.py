"""Runs the shell blocks of README and docs/ that are marked "sh run": `make docs-check`.

Those of one page run in order in a copy of the repository, as its reader would run them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = re.compile(r"^```sh run\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pages() -> dict[str, str]:
    """The script of every page that has one."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = RUNNABLE.findall(path.read_text(encoding="utf-8"))
        if blocks:
            found[str(path.relative_to(ROOT))] = "\n".join(blocks)
    return found


def copy(target: Path) -> None:
    """The files that a clone would have, with their times, and this checkout's .venv."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").symlink_to(Path(sys.prefix))


def run(page: str, script: str) -> bool:
    """Whether every command of a page ends well; what it said is shown where not."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "jaxrl"
        place.mkdir()
        copy(place)
        began = time.perf_counter()
        path = os.pathsep.join([str(place / ".venv" / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=place,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
    print(f"{page}: {'well' if not done.returncode else 'FAILED'}, {seconds:.0f} s", flush=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return not done.returncode


def main() -> int:
    """The exit status: 0 where all pages run."""
    outcomes = [run(page, script) for page, script in pages().items()]
    if not outcomes:
        print("no page has a block marked 'sh run'", file=sys.stderr)
    return int(not outcomes or not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
