"""The pages of reference and the lineage say what the code says."""

import ast
import dataclasses
import re

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.config.algorithms import shipped
from jaxrl.config.descriptions import descriptions
from jaxrl.config.schema import SECTIONS, Config
from tests.conftest import CONFIGS
from tests.docs import check as docs_check
from tests.survival import ROOT
from tools import api_reference
from tools.config_reference import markdown

LINEAGE = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date():
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == markdown(), "run `make docs`"


def test_the_page_of_the_api_is_up_to_date():
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    assert page == api_reference.markdown(), "run `make docs`"
    for name in jaxrl.__all__:
        assert f"jaxrl.{name}" in page


def test_the_example_of_an_engine_runs(capsys):
    page = api_reference.markdown()
    (example,) = re.findall(r"```python\n(engine = .*?)```", page, re.S)
    assert example.splitlines()[-1] == "engine.close()"
    exec(example, {"jaxrl": jaxrl, "jax": jax, "jnp": jnp})
    assert capsys.readouterr().out.startswith("(8, 84, 84) [")


def test_every_key_has_its_description_and_default():
    page = markdown()
    assert (
        "| `num_envs` | whole number, at least 1 | `16` | environments over all devices |" in page
    )
    for kind in (Config, *SECTIONS.values(), *shipped().values()):
        described = descriptions(kind)
        keys = {field.name for field in dataclasses.fields(kind)} - {*SECTIONS, "agent"}
        assert set(described) >= keys
        assert all(described.values())


def test_blocks_are_found_and_failures_are_told(monkeypatch, tmp_path, capsys):
    text = "a\n```sh run\necho one\n```\nb\n```sh\nexit 3\n```\n```sh run\ntest -f README.md\n```\n"
    assert docs_check.RUNNABLE.findall(text) == ["echo one\n", "test -f README.md\n"]
    assert docs_check.run("x.md", "\n".join(docs_check.RUNNABLE.findall(text)))
    assert not docs_check.run("y.md", "echo before; false; echo after")
    said = capsys.readouterr()
    assert said.out.startswith("x.md: well, ")
    assert "y.md: FAILED" in said.out
    assert "before" in said.err
    assert "after" not in said.err.replace("echo after", "")


def test_tests_that_the_lineage_names_exist():
    named = re.findall(r"`([^`\s]+)::(\w+)`", LINEAGE)
    assert len(named) > 40
    for file, name in named:
        module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {x.name for x in module.body if isinstance(x, ast.FunctionDef)}, name


def test_every_algorithm_has_a_row_a_parent_and_a_pinned_trap():
    table = LINEAGE.split("|---|---|---|---|\n")[1].split("\n\n")[0]
    parents = dict(re.findall(r"^\| ([^|]+) \|([^|]*)\|", table, re.MULTILINE))
    assert {p for text in parents.values() for p in text.strip().split(", ") if p} <= set(parents)
    pinned = re.findall(r"^- \*\*([^*]+)\*\*: [^\n]+:\n  `tests/", LINEAGE, re.MULTILINE)
    assert set(pinned) == set(parents)
    assert len(re.findall("^- ", LINEAGE, re.MULTILINE)) == len(re.findall(":\n  `tests/", LINEAGE))
    for name in shipped():
        assert f"`agents/{name}/`" in LINEAGE, name
    # "V-trace" is vtrace_cpu's, "n-step Q" is nstep_q_fast's.
    rows = {re.sub(r"\W", "", name).lower() for name in parents}
    for path in CONFIGS.glob("*/*.toml"):
        words = path.stem.split("_")
        assert rows & {"".join(words[:n]) for n in range(1, len(words) + 1)}, path.stem
