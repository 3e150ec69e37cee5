"""The configuration reference says what the dataclasses say."""

import dataclasses
import re

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.config.algorithms import ALGORITHMS
from jaxrl.config.descriptions import descriptions
from jaxrl.config.schema import SECTIONS, Config
from tests.docs import check as docs_check
from tests.survival import ROOT
from tools import api_reference
from tools.config_reference import markdown


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
    for kind in (Config, *SECTIONS.values(), *ALGORITHMS.values()):
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
