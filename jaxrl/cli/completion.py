"""`jaxrl completion`."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from jaxrl.cli.help import FLAGS
from jaxrl.cli.options import Option, options_of

Shell = Annotated[Literal["bash", "zsh"], tyro.conf.Positional, tyro.conf.arg(metavar="{bash,zsh}")]

# tyro (1.0.17) writes such scripts too: they start Python for every word, and know neither the
# games nor the options of an algorithm that is not the default.
SCRIPT = """\
_jaxrl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} last= words= place
  for ((place = COMP_CWORD - 1; place > 1; place--)); do
    case ${{COMP_WORDS[place]}} in -*) last=${{COMP_WORDS[place]}}; break ;; esac
  done
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case $word in
      -*) case ${{COMP_WORDS[1]}} in
{options}
      esac ;;
      *) case "${{COMP_WORDS[1]}} $before" in
{values}
      esac
      case "${{COMP_WORDS[1]}} $last" in
{repeated}
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _jaxrl jaxrl
"""
ZSH_SETUP = """\
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
"""


@dataclass(frozen=True)
class Completion:
    """Print a script that lets a shell complete commands, options, games and configurations.

    Write it into a file, ~/.jaxrl-completion, and let ~/.bashrc or ~/.zshrc end with the line
    `source ~/.jaxrl-completion`. Write it again after an update of jaxrl.
    Example: jaxrl completion bash > ~/.jaxrl-completion
    """

    shell: Shell
    """shell that reads the script"""


def completion(commands: Mapping[str, Any], arguments: Completion) -> int:
    """Prints the script for a table of commands."""
    print(ZSH_SETUP * (arguments.shell == "zsh") + script(commands), end="")
    return 0


def script(commands: Mapping[str, Any]) -> str:
    """Returns a script for bash, which zsh can read too."""
    options = {
        name: [
            option for kind in (command, *command.by_option.values()) for option in _options(kind)
        ]
        for name, command in commands.items()
    }
    values = [
        (f"{command} {name}", option, choices)
        for command, members in options.items()
        for option in members
        if (choices := _choices(option))
        for name in option.names or (command,)
    ]
    return SCRIPT.format(
        commands=" ".join([*commands, "--help", "--version"]),
        options=_cases((name, _names(members)) for name, members in options.items()),
        values=_cases((position, choices) for position, _, choices in values),
        repeated=_cases(
            (position, choices)
            for position, option, choices in values
            if option.metavar.endswith("...")
        ),
    )


def _options(command: Any) -> Iterator[Option]:
    """Yields the options of a command: under agent those of every algorithm."""
    from jaxrl.config.algorithms import shipped
    from jaxrl.config.schema import Config

    if "settings" not in command.arguments.__dataclass_fields__:
        yield from options_of(command.arguments)
        return
    for algorithm in shipped().values():
        yield from options_of(command.arguments(settings=Config(agent=algorithm())))


def _names(options: Iterable[Option]) -> list[str]:
    """Returns every name of the options once."""
    names = [name for option in options for name in option.names if name.startswith("--")]
    return list(dict.fromkeys([*names, FLAGS[-1]]))


@functools.cache
def _known() -> dict[str, tuple[str, ...]]:
    """Returns the values of options that take a game or a configuration."""
    from jaxrl.atari.games import known_games
    from jaxrl.config.toml import stems

    games, configs = known_games(), tuple(stems())
    return {
        "--game": games,
        "--games": (*games, "atari5", "atari57"),
        "--config": configs,
        "--configs": configs,
        "[CONFIG]": configs,
    }


def _choices(option: Option) -> list[str]:
    """Returns the values of an option, or of an argument; empty where they cannot be listed."""
    names = option.names or (option.metavar,)
    known = (value for name in names for value in _known().get(name, ()))
    return [*option.choices, *known]


def _cases(branches: Iterable[tuple[str, list[str]]]) -> str:
    """Returns the branches of a `case`: patterns with the same choices share one."""
    patterns: dict[str, list[str]] = {}
    for pattern, choices in branches:
        patterns.setdefault(" ".join(choices), []).append(f'"{pattern}"')
    return "\n".join(
        f'        {" | ".join(dict.fromkeys(alike))}) words="{choices}" ;;'
        for choices, alike in patterns.items()
    )
