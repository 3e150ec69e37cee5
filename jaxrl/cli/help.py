"""The help of a command, wrapped by the width of the terminal.

tyro reads the options, but its help shows the line breaks of the source, and only sections. Here
argparse formats: the options that people use first, then the others by section.
"""

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from jaxrl.cli.options import Option, options_of
from jaxrl.config.descriptions import docstring

FLAGS = ("-h", "--help")
NARROWEST = 50  # columns
FIRST_TITLE = "options that most runs need"
# Lines break neither within a default nor within a name: these characters stand for " " and "-".
UNBREAKABLE = str.maketrans({"-": "\N{NON-BREAKING HYPHEN}"})
BREAKABLE = str.maketrans({"\N{NON-BREAKING HYPHEN}": "-", "\N{NO-BREAK SPACE}": " "})


def page(kind: Any, command: str, part: Any) -> str:
    """Returns the help of a command.

    Args:
      kind: its dataclass; `first_options` names those to show first.
      command: its name.
      part: the dataclass, or an instance whose values are the defaults.
    """
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    found = list(options_of(part))
    arguments = [option for option in found if not option.names]
    usage = " ".join(["jaxrl", command, *(one.metavar for one in arguments), "[OPTIONS]"])
    parser = argparse.ArgumentParser(
        usage=usage,
        description=_description(kind, width),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=max(24, min(width // 3, 40)), width=width
        ),
        add_help=False,
    )
    names = getattr(kind, "first_options", None)
    first = [one for one in found if one.names and not one.section]
    if names:
        first = [next(one for one in found if name in one.names) for name in names]
    rest = [one for one in found if one.names and one not in first]
    if arguments:
        _add(parser, "arguments", "", arguments)
    help_option = Option(FLAGS, "", "show this page", "")
    _add(parser, FIRST_TITLE if names else "options", "", [*first, help_option])
    for section in dict.fromkeys(one.section for one in rest):
        options = [one for one in rest if one.section == section]
        summary = textwrap.fill(options[0].summary, width - 4)
        _add(parser, f"{section} options".strip(), summary, options)
    return parser.format_help().translate(BREAKABLE)


def _description(kind: Any, width: int) -> str:
    """Returns the docstring of a command, its paragraphs wrapped and its example on one line."""
    lines = docstring(kind).split("\n")
    paragraphs = [""]
    for line in lines:
        if not line or line.startswith("Example: "):
            paragraphs.append("")
        paragraphs[-1] = f"{paragraphs[-1]} {line}".strip()
    wrapped = [
        text
        if text.startswith("Example: ")
        else textwrap.fill(text, width - 2, break_on_hyphens=False)
        for text in paragraphs
        if text
    ]
    return "\n\n".join(wrapped)


def _add(
    parser: argparse.ArgumentParser, title: str, summary: str, options: Sequence[Option]
) -> None:
    """Adds a section to the page."""
    group = parser.add_argument_group(title, summary or None)
    for number, one in enumerate(options):
        names = one.names or (f"{title} {number}",)
        default = one.default.replace(" ", "\N{NO-BREAK SPACE}")
        text = f"{one.text} {default}".strip().replace("%", "%%").translate(UNBREAKABLE)
        if one.names and not one.metavar:
            group.add_argument(*names, action="store_true", help=text)
        else:
            group.add_argument(*names, metavar=one.metavar, help=text)
