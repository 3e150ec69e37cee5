"""The card of a trained policy: its use, training and scores, in Markdown."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from jaxrl.config import needs
from jaxrl.config.algorithms import algorithm_config
from jaxrl.config.diff import flat
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.formatting import count, duration, shell_word
from jaxrl.runs import evaluation_record, layout, metrics
from jaxrl.runs.directory import load_config
from jaxrl.runs.evaluation_record import Evaluation
from jaxrl.runs.files import read_object


def card(
    run_dir: Path, name: str, step: int, results: Iterable[Evaluation], half: bool = False
) -> str:
    """Returns the card of a run's policy in the file `name`, which was trained for `step` steps.

    `results` are its evaluations; `half` says that its parameters are rounded to float16.
    """
    config = load_config(run_dir)
    lines = [
        f"# {config.game}, {config.algorithm}",
        "",
        f"A policy that jaxrl trained on {config.game} with {config.algorithm} for {step:,} agent "
        f"steps ({count(step * config.env.frame_skip)} frames)."
        f"{' Its parameters are float16, also where it was evaluated.' * half}",
        "",
        *_scores(list(results)),
        "## Use",
        "",
        *_needs(config),
        "```sh",
        f"jaxrl play {shell_word(name)}                      # a video of one game",
        f"jaxrl evaluate {shell_word(name)} --episodes 30    # whole games by a named protocol",
        "```",
        "",
        "```python",
        f"policy = jaxrl.load_policy({json.dumps(name)})",
        *_acting(config),
        "```",
        "",
        "## Training",
        "",
        *_training(run_dir, config, step),
        "",
        "Settings other than the defaults of the algorithm:",
        "",
        "```toml",
        *_settings(config),
        "```",
        "",
    ]
    return "\n".join(lines)


def _needs(config: Config) -> list[str]:
    """Returns a sentence about the packages that the policy needs beside jaxrl, if any."""
    needed = needs.described(config)
    return [f"It needs what another package registers: {', '.join(needed)}.", ""] if needed else []


def _acting(config: Config) -> list[str]:
    """Returns the lines of Python that choose an action."""
    height, width = config.env.frame_shape
    shape = f"uint8[{height}, {width}, {config.env.stack}], the oldest frame first"
    if not config.env.grayscale:
        shape += "; each frame red, green and blue, one below the other"
    if not config.network.remembers:
        return [f"action = policy.act(observation, seed=0)  # {shape}"]
    return [
        "state = policy.new_state()  # where a game begins",
        f"action = policy.act(observation, seed=0, state=state)  # {shape}",
        "state.observe(reward, new_game)  # after each step of the game",
    ]


def _scores(results: list[Evaluation]) -> list[str]:
    """Returns a table of the evaluations; a sentence where there are none."""
    if not results:
        return ["It has not been evaluated.", ""]
    lines = [
        "| protocol | games | mean | standard deviation | median | human-normalized |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        human = result.human_normalized_mean
        lines.append(
            f"| {result.protocol} | {result.episodes} | {result.mean:.1f} | {result.std:.1f} | "
            f"{result.median:.1f} | {'-' if human is None else f'{human:.2f}'} |"
        )
    played = [f"- {result.protocol}: {evaluation_record.played([result])}" for result in results]
    return [*lines, "", *played, ""]


def _training(run_dir: Path, config: Config, step: int) -> list[str]:
    """Returns the seed, time, versions and devices of the training, as a list in Markdown."""
    items = [f"- seed {config.seed}, {config.num_envs} environments"]
    rows = [row for row in metrics.read(run_dir) if row["step"] <= step]
    if rows:
        items.append(f"- {duration(rows[-1]['seconds'])} of training")
    try:
        provenance = read_object(run_dir / layout.PROVENANCE)
        if provenance is None:
            raise UserError(f"there is no {layout.PROVENANCE}")
        packages = provenance.get("packages", {})
        versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        for label, value in (
            ("commit", provenance.get("git_commit")),
            ("started", provenance.get("started")),
            ("devices", ", ".join(provenance.get("devices", []))),
            ("emulator", provenance.get("engine")),
            ("packages", versions),
        ):
            if value:
                items.append(f"- {label}: {value}")
    except (UserError, TypeError, AttributeError):
        items.append(f"- no {layout.PROVENANCE} can be read: commit and devices are unknown")
    return items


def _settings(config: Config) -> list[str]:
    """Returns the settings that differ from the defaults of the algorithm, as dotted keys."""
    defaults = Config(algorithm=config.algorithm, agent=algorithm_config(config.algorithm)())
    usual = flat(dataclasses.asdict(defaults))
    actual = flat(dataclasses.asdict(config.replaced(run_dir="")))
    return [f"{key} = {json.dumps(value)}" for key, value in actual.items() if value != usual[key]]
