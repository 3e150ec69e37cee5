"""The files that describe the project agree: citation, changelog, contributing, pyproject."""

import re
import subprocess
import tomllib

import pytest
import yaml

from jaxrl.cli.main import COMMANDS
from tests.docs.test_docs import anchors
from tests.survival import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", [CITATION, CITATION["preferred-citation"]], ids=["file", "entry"])
def test_the_citation_is_of_this_version_as_readme_has_it(entry):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", readme, re.MULTILINE))
    assert entry["title"] == shown["title"] == f"jaxrl: {PROJECT['description']}"
    assert entry["version"] == shown["version"] == PROJECT["version"]
    assert [author["name"] for author in entry["authors"]] == [shown["author"]]
    assert entry.get("year", 2026) == int(shown["year"])


def test_the_citation_has_the_form_of_version_1_2():
    """https://citation-file-format.github.io: what is required, and keys that it knows."""
    assert CITATION["cff-version"] == "1.2.0"
    assert {"authors", "cff-version", "message", "title"} <= CITATION.keys()
    assert {"authors", "title", "type"} <= CITATION["preferred-citation"].keys()
    optional = {"type", "version", "license", "keywords", "preferred-citation"}
    assert CITATION.keys() <= {"authors", "cff-version", "message", "title"} | optional
    assert CITATION["license"] == PROJECT["license"]
    assert all(isinstance(word, str) for word in CITATION["keywords"])


def test_the_changelog_keeps_its_form():
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", CHANGELOG, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert all(date for _, date in versions[1:])
    assert len(versions) == len(re.findall(r"^## ", CHANGELOG, re.MULTILINE))
    kinds = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    released = {version for version, _ in versions}
    assert PROJECT["version"] in released or f"This will be {PROJECT['version']}" in CHANGELOG
    assert all(f"`{name}`" in CHANGELOG for name in COMMANDS)


@pytest.mark.parametrize("text", [CHANGELOG, CONTRIBUTING], ids=["changelog", "contributing"])
def test_links_lead_somewhere(text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", text):
        if target.startswith("http"):
            continue
        assert (ROOT / target).is_file(), target
        assert not anchor or anchor in anchors(ROOT / target), anchor
    assert max(map(len, text.splitlines())) <= 120


def test_commands_of_contributing_exist():
    targets = set(re.findall(r"\bmake ([a-z-]+)", CONTRIBUTING))
    assert {"setup-dev", "test", "test-long", "test-thorough", "lint", "site"} <= targets
    command = ["make", "--dry-run", *sorted(targets)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


def test_each_extra_is_described():
    page = (ROOT / "docs" / "guides" / "setup.md").read_text(encoding="utf-8")
    table = page.partition("| extra | purpose |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(
        PROJECT["optional-dependencies"]
    )


@pytest.mark.parametrize("target", ["setup", "setup-dev"])
def test_what_sets_up_ends_with_what_to_do_next(target):
    """The commands that the last line names exist."""
    command = ["make", "--no-print-directory", "--dry-run", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    *_, last = done.stdout.strip().splitlines()
    assert last.startswith("echo ")
    targets = re.findall(r"make ([a-z]+)", last)
    subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, check=True)
    assert targets
    assert set(re.findall(r"bin/jaxrl (\w+)", last)) <= set(COMMANDS)


def test_extras_are_installed_from_the_clone():
    """No registry has the package: `pip install 'jaxrl[search]'` would find nothing."""
    extras = set()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("jaxrl/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"pip install[^\n]*(?<!dist/)\bjaxrl\b[^\n]*", text), path
        extras |= set(re.findall(r"pip install -e '\.\[(\w+)\]'", text))
    assert {"search", "slurm", "wandb"} <= extras <= set(PROJECT["optional-dependencies"])
