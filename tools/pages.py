"""Parts of pages that tools write."""

from jaxrl.errors import UserError

TITLES = {"ms_pacman": "Ms. Pac-Man", "qbert": "Q*bert"}  # not the words of their names


def marked_section(page: str, name: str, text: str) -> str:
    """Returns a page with the text between the two marks of a name.

    Raises `UserError` without them.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise UserError(f"the page has no section between '{begin}' and '{end}'")
    return f"{before}{begin}\n{text}{end}{after}"


def title(game: str) -> str:
    """Returns the name of a game in a table: "Name This Game"."""
    return TITLES.get(game, game.replace("_", " ").title())
