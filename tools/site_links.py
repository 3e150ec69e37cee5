"""Checks every local link and anchor of the built site: `python -m tools.site_links`.

External links are listed and not fetched.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

EXTERNAL = ("http:", "https:", "mailto:", "data:", "//")


class _Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "__comments"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := attributes.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := attributes.get(name))}


def pages(site: Path) -> dict[Path, _Page]:
    """Returns every page of a site."""
    return {
        path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }


def broken(site: Path) -> Iterator[str]:
    """Yields each local link that leads nowhere, with its page."""
    by_path = pages(site)
    for path, page in by_path.items():
        for link in page.links:
            if link.startswith(EXTERNAL):
                continue
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.path.startswith("/"):  # from the page for missing addresses
                target = (site / unquote(parts.path[1:])).resolve()
            target = target / "index.html" if target.is_dir() else target
            missing = not target.exists()
            if target in by_path:
                missing = unquote(parts.fragment) not in by_path[target].anchors
            if missing:
                yield f"{path.relative_to(site.resolve())}: {link}"


def external(site: Path) -> list[str]:
    """Returns the links that leave the site."""
    links = {link for page in pages(site).values() for link in page.links}
    return sorted(link for link in links if link.startswith(("http", "//")))


def main() -> int:
    """Prints both lists; the exit status is 1 where a link is broken."""
    site = Path("site")
    print("\n".join(["external links, which are not fetched:", *external(site)]))
    wrong = list(broken(site))
    print("\n".join(f"broken: {line}" for line in wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
