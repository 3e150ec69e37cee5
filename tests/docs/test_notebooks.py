import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jaxrl.config.toml import load
from jaxrl.evaluation import evaluate
from jaxrl.runs import checkpoint_files

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
POLICIES = sorted((FOLDER / "demo-policies").iterdir())
OF_C51 = [path for path in POLICIES if load(path / "config.toml").algorithm == "c51"]
# name -> pictures, films, and what the text says
CONTENTS = {
    "going_back": (2, 0, r"goes on as if nobody had gone back: True"),
    "learning_curves": (6, 0, r"vtrace_cpu: a return of 18 after 2\.39 million frames"),
    "playing": (
        len(POLICIES) + 2 * len(OF_C51),
        len(POLICIES),
        r"40 decisions, 6 games over, score \d",
    ),
    "using_a_policy": (2, 0, r"vtrace on pong, 25,000,000 agent steps of training"),
    "scaling": (3, 0, r"A2C, a2c\.toml: 149,637 steps/s with 256 devices, 0\.92 of the ideal"),
}


def read(path):
    return nbformat.read(path, as_version=4)


def check_outputs(notebook, pictures, films, said):
    """Of a notebook that has run."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    shown = [o.get("data", {}) for o in outputs]
    assert sum("image/png" in data for data in shown) == pictures
    assert sum("data:video/mp4" in data.get("text/html", "") for data in shown) == films
    text = "".join(o["text"] for o in outputs if o.output_type == "stream" and o.name == "stdout")
    assert re.search(said, text), text
    assert not [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert [c.execution_count for c in notebook.cells if c.cell_type == "code"] == list(
        range(1, sum(c.cell_type == "code" for c in notebook.cells) + 1)
    )


def test_each_notebook_is_known_here():
    assert {path.stem for path in NOTEBOOKS} == CONTENTS.keys()


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_from_top_to_bottom(path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # `import envpool` in other tests sets it
    notebook = read(path)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": path.parent}}).execute()
    check_outputs(notebook, *CONTENTS[path.stem])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_is_kept_small_with_its_outputs_and_without_paths(path):
    check_outputs(read(path), *CONTENTS[path.stem])
    assert path.stat().st_size < 1e6
    text = re.sub(r'"image/png": "[^"]*"|base64,[^"]*"', "", path.read_text(encoding="utf-8"))
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|var|opt)/\S*", text)


@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.name)
@pytest.mark.slow
def test_a_kept_policy_is_small_and_plays(path):
    assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < 3e6
    (step,) = checkpoint_files.steps(path)
    assert checkpoint_files.damage(path, step) == ""
    assert not {"learner", "local"} & {p.name for p in (path / "checkpoints" / str(step)).iterdir()}
    config, actor, found = evaluate.load_actor(path, None)
    assert found == step
    if config.game == "catch":  # -1 or 1; random play gives some -0.5
        assert evaluate.evaluate(config, actor, "noop", num_episodes=50).mean > 0.8
