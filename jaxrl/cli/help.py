"""The help of a command, wrapped by the width of the terminal.

tyro reads the options, but its help (1.0.17) has the line breaks and the order of the source. Here
argparse formats: the options that most runs need, then the others by section.
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


def page(part: Any, command: str) -> str:
    """Returns the help of a command: of its dataclass, or an instance that has the defaults.

    Its `first_options` come first.
    """
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    listed = list(options_of(part))
    arguments = [option for option in listed if not option.names]
    options = [option for option in listed if option.names]
    usage = " ".join(["jaxrl", command, *(option.metavar for option in arguments), "[OPTIONS]"])
    parser = argparse.ArgumentParser(
        usage=usage,
        description=_description(part if isinstance(part, type) else type(part), width),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=max(24, min(width // 3, 40)), width=width
        ),
        add_help=False,
    )
    names = getattr(part, "first_options", None)
    first = [option for option in options if not option.section]
    if names:
        by_name = {name: option for option in options for name in option.names}
        first = [by_name[name] for name in names]
    if arguments:
        _add(parser, "arguments", "", arguments)
    help_option = Option(FLAGS, "", "show this page", "")
    _add(parser, FIRST_TITLE if names else "options", "", [*first, help_option])
    rest = [option for option in options if option not in first]
    for section in dict.fromkeys(option.section for option in rest):
        members = [option for option in rest if option.section == section]
        summary = textwrap.fill(members[0].summary, width - 4)
        _add(parser, f"{section} options".strip(), summary, members)
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
    for number, option in enumerate(options):
        default = option.default.replace(" ", "\N{NO-BREAK SPACE}")
        text = f"{option.text} {default}".strip().replace("%", "%%").translate(UNBREAKABLE)
        names = option.names or (f"{title} {number}",)
        if option.names and not option.metavar:
            group.add_argument(*names, action="store_true", help=text)
        else:
            group.add_argument(*names, metavar=option.metavar, help=text)
