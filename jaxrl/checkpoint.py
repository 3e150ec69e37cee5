"""Checkpoints by Orbax: asynchronous, atomic, the newest and the best kept.

A checkpoint is two flat tables of arrays, `actor` (what playing needs) and `learner` (the rest),
and `progress`, a JSON object. Arrays are named by their path, so that the format does not depend
on the classes that held them.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from jaxrl.config import UserError
from jaxrl.program import LoopState
from jaxrl.types import PyTree

FORMAT = 3
GAMES = ("env", "timestep", "observation", "sent")  # of a group, where games cannot be saved


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for the host."""

    step: int  # agent steps over all devices
    updates: int
    seconds: float  # of training, compilation excluded


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _vacate(x: jax.Array) -> jax.ShapeDtypeStruct:
    """The place of an array, whose buffer is freed."""
    place = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    x.delete()
    return place


def _flatten(tree: PyTree) -> dict[str, jax.Array]:
    """A table of arrays by path; random keys as their data."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): jax.random.key_data(x) if _is_key(x) else x for path, x in leaves}


def _unflatten(template: PyTree, table: dict[str, jax.Array]) -> PyTree:
    def find(path: Any, leaf: jax.Array) -> jax.Array:
        array = table[_name(path)]
        return jax.random.wrap_key_data(array) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(find, template)


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(
        self, run_dir: Path, keep: int = 1, restorable: bool = True, memory: bool = True
    ) -> None:
        """Of `keep` newest checkpoints; with the games and the agent's memory, or without."""
        self._restorable, self._memory = restorable, memory
        policy = policies.AnyPreservationPolicy(
            [
                policies.LatestN(keep),
                policies.BestN(
                    get_metric_fn=lambda metrics: metrics["return_mean"],
                    n=1,
                    keep_checkpoints_without_metrics=False,
                ),
            ]
        )
        self._manager = ocp.CheckpointManager(
            (run_dir / "checkpoints").absolute(),
            options=ocp.CheckpointManagerOptions(preservation_policy=policy),
            item_names=("actor", "learner", "progress"),
        )

    def steps(self) -> list[int]:
        """Agent steps of the checkpoints that are there, oldest first."""
        return sorted(self._manager.all_steps())

    def _kept(self, state: LoopState) -> LoopState:
        """All but the actor, and what no checkpoint holds."""
        without: Any = ()
        state = state._replace(agent=state.agent._replace(actor=without))
        if not self._memory:
            state = state._replace(agent=state.agent._replace(memory=without))
        if not self._restorable:
            nothing = dict.fromkeys(GAMES, without)
            state = state._replace(games=tuple(g._replace(**nothing) for g in state.games))
        return state

    def save(self, state: LoopState, progress: Progress, return_mean: float | None) -> None:
        """Starts writing and returns; the state may be donated afterwards.

        A memory may be too large to copy: with one, it returns when all is written.
        """
        if progress.step in self._manager.all_steps():
            return
        # Copied on the device: the next compiled call overwrites these buffers in place.
        kept = self._kept(state)
        memory = kept.agent.memory
        kept = kept._replace(agent=kept.agent._replace(memory=()))
        actor, kept = jax.tree.map(jnp.copy, (state.agent.actor, kept))
        kept = kept._replace(agent=kept.agent._replace(memory=memory))
        self._manager.save(
            progress.step,
            args=ocp.args.Composite(
                actor=ocp.args.StandardSave(_flatten(actor)),
                learner=ocp.args.StandardSave(_flatten(kept)),
                progress=ocp.args.JsonSave(dataclasses.asdict(progress) | {"format": FORMAT}),
            ),
            metrics=None if return_mean is None else {"return_mean": return_mean},
        )
        if jax.tree.leaves(memory):
            self._manager.wait_until_finished()

    def restore(self, template: LoopState, step: int | None = None) -> tuple[LoopState, Progress]:
        """The newest checkpoint, or that of `step`, laid out as the template is.

        What no checkpoint holds (the games, the memory) is the template's, which is used up.
        """
        step = self._existing(step)
        self._check_format(step)
        learner = self._kept(template)
        if self._memory:
            # A device may have no room for a second one.
            memory = jax.tree.map(_vacate, template.agent.memory)
            learner = learner._replace(agent=learner.agent._replace(memory=memory))
        tables = self._manager.restore(
            step,
            args=ocp.args.Composite(
                actor=ocp.args.StandardRestore(_flatten(template.agent.actor)),
                learner=ocp.args.StandardRestore(_flatten(learner)),
                progress=ocp.args.JsonRestore(),
            ),
        )
        restored = _unflatten(learner, tables["learner"])
        if not self._restorable:
            games = tuple(
                kept._replace(**{name: getattr(new, name) for name in GAMES})
                for kept, new in zip(restored.games, template.games, strict=True)
            )
            restored = restored._replace(games=games)
        actor = _unflatten(template.agent.actor, tables["actor"])
        agent = restored.agent._replace(actor=actor)
        if not self._memory:
            agent = agent._replace(memory=template.agent.memory)
        progress = {k: v for k, v in tables["progress"].items() if k != "format"}
        return restored._replace(agent=agent), Progress(**progress)

    def restore_actor(self, template: PyTree, step: int | None = None) -> tuple[PyTree, int]:
        """What playing needs, and the agent step it is from."""
        step = self._existing(step)
        self._check_format(step)
        tables = self._manager.restore(
            step, args=ocp.args.Composite(actor=ocp.args.StandardRestore(_flatten(template)))
        )
        return _unflatten(template, tables["actor"]), step

    def close(self) -> None:
        """Waits for what is being written; raises what went wrong with it."""
        self._manager.wait_until_finished()
        self._manager.close()

    def _check_format(self, step: int) -> None:
        """Before arrays are read, whose names may be others."""
        arguments = ocp.args.Composite(progress=ocp.args.JsonRestore())
        if self._manager.restore(step, args=arguments)["progress"]["format"] != FORMAT:
            raise UserError(f"checkpoint {step} is of another format: use the jaxrl that wrote it")

    def _existing(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise UserError("no checkpoint yet: train longer, or lower checkpoint_interval")
        if step is None:
            return steps[-1]
        if step not in steps:
            raise UserError(f"no checkpoint {step}: there are {', '.join(map(str, steps))}")
        return step
