"""`jaxrl export` and `jaxrl policies`."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.cli.parsing import Listing, RunDir, check_runs, check_target
from jaxrl.errors import UserError
from jaxrl.formatting import shell_word
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs.checkpoint_files import named
from jaxrl.runs.paths import run_dir_of

if TYPE_CHECKING:
    from jaxrl.evaluation.policy import Policy
    from jaxrl.runs.evaluation_record import Evaluation

Target = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY.safetensors")]


@dataclass(frozen=True)
class Export:
    """Write a run's policy into one file that travels, with a card in Markdown beside it.

    The file has the parameters, the configuration, the scores, the learning curve and the
    provenance. `play`, `evaluate`, `report` and `jaxrl.load_policy` take it like a run.
    Example: jaxrl export runs/x policy.safetensors
    """

    run: RunDir
    """run directory"""
    target: Target
    """file to write; the card has the same name with .md"""
    checkpoint: str | None = None
    """checkpoint to export: its agent step, latest or best; default is the latest"""
    half: bool = False
    """round the parameters to float16, which halves the file; the evaluations in it are played
    again, as many games of each protocol"""


def export(arguments: Export) -> int:
    """Writes a policy's file and its card, and prints their paths."""
    run_dir, target = arguments.run, arguments.target
    check_target(target, (SUFFIX,))
    card = target.with_suffix(".md")
    for path in (target, card):
        if path.exists():
            raise UserError(f"'{path}' exists: choose another name")
    check_runs((run_dir,), "export")
    from jaxrl.analysis import policy_card
    from jaxrl.evaluation.policy import load_policy
    from jaxrl.runs import policy_file
    from jaxrl.runs.files import writing

    policy = load_policy(run_dir, named(run_dir, arguments.checkpoint))
    actor, step, results = policy.actor, policy.step, policy_file.results_of(run_dir, policy.step)
    if arguments.half:
        actor = policy_file.halved(actor)
        rounded = dataclasses.replace(policy, actor=policy_file.widened(actor))
        results = {name: _evaluate_again(rounded, result) for name, result in results.items()}
    text = policy_card.card(run_dir, target.name, step, results.values(), arguments.half)
    with writing(card) as temporary:  # neither is there without the other
        temporary.write_text(text, encoding="utf-8")
        policy_file.write(target, run_dir, actor, step, results)
    if not results:
        print(f"the file has no scores: no evaluation is of step {step:,} (jaxrl evaluate "
              f"{shell_word(run_dir)} --checkpoint {step})", file=sys.stderr)  # fmt: skip
    print(target)
    print(card)
    return 0


def _evaluate_again(policy: "Policy", result: "Evaluation") -> "Evaluation":
    """Plays as many games by the same protocol and epsilon with a policy."""
    from jaxrl.evaluation.evaluate import replace_epsilon

    if result.epsilon is not None:
        config = replace_epsilon(policy.config, result.epsilon)
        policy = dataclasses.replace(policy, config=config)
    return policy.evaluate(result.protocol, result.episodes)


@dataclass(frozen=True)
class Policies(Listing):
    """List the trained policies that come with jaxrl, each with its measured scores.

    Example: jaxrl policies
    """


def list_policies(arguments: Policies) -> int:
    """Prints the policies that come with the package."""
    if arguments.names:
        print("\n".join(policies()))
        return 0
    from jaxrl.formatting import games
    from jaxrl.runs.directory import load_config
    from jaxrl.runs.evaluation_record import read_all

    print(f"{'policy':<16} {'algorithm':<10} {'agent steps':>12}   scores")
    for name in policies():
        run_dir = run_dir_of(Path(name))
        config, results = load_config(run_dir), read_all(run_dir)
        scores = ", ".join(
            f"{protocol} {result.mean:.1f} ({games(result.episodes)})"
            for protocol, result in results.items()
        )
        steps = max((result.step or 0 for result in results.values()), default=0)
        print(f"{name:<16} {config.algorithm:<10} {steps:>12,}   {scores}")
    print("jaxrl play NAME films one; the cards are in jaxrl/policies")
    return 0
