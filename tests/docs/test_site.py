"""The site builds without warnings, and every local link of it leads somewhere."""

import os
import subprocess
import sys

import griffe
import pytest

from tests.survival import ROOT
from tools import site_links
from tools.site_fields import comment
from tools.site_hooks import adapted


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "site"
    words = ["build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_it_builds_without_warnings_and_every_local_link_leads_somewhere(site):
    assert len(site_links.pages(site)) == 1 + len(list((ROOT / "docs").rglob("*.md")))  # and 404
    assert list(site_links.broken(site)) == []
    hosts = {link.split("/")[2] for link in site_links.external(site)}
    assert hosts == {"squidfunk.github.io"}  # in the footer


@pytest.mark.slow
def test_it_shows_the_docstrings_with_the_shapes_of_their_fields(site):
    page = (site / "reference" / "contracts.html").read_text(encoding="utf-8")
    assert ":::" not in page.replace("<code>:::</code>", "")
    assert 'id="jaxrl.types.EnvEngine"' in page
    assert "return_mean" in (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert "u8[E, 84, 84], newest frame" in page
    assert "Begins new episodes." in page  # VectorEnv.reset


@pytest.mark.slow
def test_it_has_what_a_reader_uses(site):
    page = (site / "quickstart.html").read_text(encoding="utf-8")
    assert "content.code.copy" in page
    assert page.count('name="__palette"') == 2  # light and dark
    assert 'class="md-search__input"' in page
    assert "sh run" not in page
    concepts = (site / "concepts.html").read_text(encoding="utf-8")
    assert '<pre class="mermaid">' in concepts
    assert "../README.md" not in concepts


# --- the parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("[a](guides/setup.md#x) ![b](../c.png)", "[a](guides/setup.md#x) ![b](../c.png)"),
        ("See [the map](../README.md#where).", "See the map."),
        ("[web](https://example.org/../x)", "[web](https://example.org/../x)"),
        ("```sh run\njaxrl games\n```", "```sh\njaxrl games\n```"),
    ],
)
def test_pages_are_adapted(page, expected):
    assert adapted(page, "concepts.md", "") == expected


def test_links_out_of_the_documentation_lead_to_the_repository_where_it_is_known():
    found = adapted("[x](../../tests/a.py#L3)", "guides/setup.md", "https://example.org/jaxrl/")
    assert found == "[x](https://example.org/jaxrl/blob/main/tests/a.py#L3)"


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="a/b.html#here"></a><a href="a/b.html#there"></a>'
        '<img src="no.png"><a href="#top"></a><a href="https://example.org/x"></a>'
    )
    (tmp_path / "a" / "b.html").write_text('<p id="here"></p><a href="../index.html"></a>')
    assert list(site_links.broken(tmp_path)) == [
        "index.html: a/b.html#there",
        "index.html: no.png",
    ]
    assert site_links.external(tmp_path) == ["https://example.org/x"]


def test_comments_of_fields_are_found():
    lines = ["class A:", "    # f32[B],", "    # of all", "    x: int", "    y: int = 3  # shape"]
    assert comment(lines, 4) == "f32[B], of all"
    assert comment(lines, 5) == "shape"
    assert comment(lines, 1) == ""


def test_griffe_knows_the_extension(tmp_path):
    """It adds the comments to the docstring, but not of a field that has a docstring itself."""
    (tmp_path / "shapes.py").write_text(
        'class A:\n    """A type."""\n\n    x: int  # i32[B]\n    y: int  # no\n    """its."""\n'
    )
    extensions = griffe.load_extensions(ROOT / "tools" / "site_fields.py")
    module = griffe.load("shapes", search_paths=[tmp_path], extensions=extensions)
    assert module["A"].docstring.value == "A type.\n\nAttributes:\n    x: i32[B]"
