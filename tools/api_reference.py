"""The reference of the public API, made from its docstrings: `python -m tools.api_reference`."""

import inspect
import re
import textwrap
from typing import Any

import jaxrl

HEAD = """# API

What can a script or a notebook import from `jaxrl`? `make docs` writes this page from the
docstrings, and a test keeps it up to date. Nothing heavy is imported before it is used.

```python
import jaxrl

run = jaxrl.train("ppo_pong", game="breakout", total_steps=1_000_000, run_dir="runs/x")
print(run.evaluation.mean, run.metrics["return_mean"].max())

policy = jaxrl.load_policy("pong")  # one that comes with jaxrl, an exported file, or a run
action = policy.act(observation, seed=0)  # uint8[60, 60, 4], the oldest frame first
```

A policy with a recurrent core carries its state from step to step of a game:

```python
state = policy.new_state()
action = policy.act(observation, seed=0, state=state)
state.observe(reward, new_game)  # after each step of the game
```

[`docs/examples/play_policy.py`](../examples/play_policy.py) plays with a policy in a Gymnasium
environment.
"""
ORDER = (
    "load_config", "train", "resume", "Run", "load_policy", "Policy", "load_runs", "make_engine",
)  # fmt: skip


def _signature(name: str, function: Any) -> str:
    """Returns a signature as a reader types it, without the rooms of its types."""
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).replace("'", "")
    return f"{name}{text}"


def _body(thing: Any) -> str:
    """Returns a docstring in Markdown: Args and Raises as lists, Example as a block of code."""
    text, example, code = inspect.cleandoc(thing.__doc__ or "").partition("Example:\n")
    if example:
        block, _, rest = code.partition("\n\n")
        code = f"```python\n{textwrap.dedent(block)}\n```\n\n"
        return f"{_listed(text.rstrip())}\n\n{code}{_listed(rest)}"
    return _listed(text)


def _listed(text: str) -> str:
    """Returns the text with its arguments as a list."""
    lines = []
    for line in text.splitlines():
        if line.strip() in ("Args:", "Raises:"):
            continue
        argument = re.match(r"^  (\w+): (.*)", line)
        if argument:
            lines.append(f"- `{argument[1]}`: {argument[2]}")
        else:
            lines.append(line if not line.startswith("    ") else "  " + line.strip())
    return "\n".join(lines)


def _item(text: str) -> str:
    """Returns an item of a list, on lines of less than 120 characters."""
    return textwrap.fill("- " + " ".join(text.split()), 118, subsequent_indent="  ")


def _members(kind: type) -> list[str]:
    """Returns the paragraphs about a class: its fields, properties and methods."""
    paragraphs = []
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            paragraphs.append(_item(f"`.{name}`: {_body(member)}"))
        elif inspect.isfunction(member):
            paragraphs.append(_item(f"`.{_signature(name, member)}`: {_body(member)}"))
    return paragraphs


def markdown() -> str:
    """Returns the page."""
    parts = [HEAD]
    for name in ORDER:
        thing = getattr(jaxrl, name)
        if inspect.isclass(thing):
            fields = ", ".join(f"`{field}`" for field in thing.__dataclass_fields__)
            parts.append(f"## `jaxrl.{name}`\n\n{_body(thing)}\n\nFields: {fields}.\n")
            parts.append("\n".join(_members(thing)) + "\n")
        else:
            parts.append(f"## `jaxrl.{name}`\n\n```python\n{_signature(name, thing)}\n```\n")
            parts.append(_body(thing) + "\n")
    parts.append(
        "`jaxrl.Config` is the configuration ([every key](configuration.md)); `.replaced()` "
        "changes it.\n`jaxrl.UserError` is a mistake of the caller and `jaxrl.RunError` a failure "
        "of training, both in one line.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
