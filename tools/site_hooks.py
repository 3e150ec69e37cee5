"""Changes of the pages of docs/ for the site, called by MkDocs (mkdocs.yml).

A page of the repository may link to files outside docs/, and marks the shell blocks that tests run
with "sh run". A site has neither.
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")
RUNNABLE = re.compile(r"^```sh run$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Returns the text of a page as the site shows it."""
    return adapted(markdown, page.file.src_uri, config.repo_url or "")


def adapted(markdown: str, path: str, repo_url: str) -> str:
    """Returns a page without the marks of tests, and without links that leave docs/.

    Args:
      markdown: the page's text.
      path: within docs/.
      repo_url: where the repository can be read; without one such a link becomes its text.
    """

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), target))
        if place.startswith("docs/"):
            return link[0]
        return f"[{text}]({repo_url.rstrip('/')}/blob/main/{place}{anchor})" if repo_url else text

    return LINK.sub(replace, RUNNABLE.sub("```sh", markdown))
