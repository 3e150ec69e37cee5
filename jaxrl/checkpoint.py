"""Checkpoints by Orbax: asynchronous, atomic, the newest and the best kept.

A checkpoint is three flat tables of arrays and `progress`, a JSON object: `actor` is what playing
needs, `learner` what else is the same on every device, `local` what each device has of its own
(games, their statistics and keys, memory). Arrays are named by their path, so that the format does
not depend on the classes that held them. On another number of devices `local` is not read.
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
from jaxrl.types import AgentState, PyTree

FORMAT = 4
GAMES = ("env", "timestep", "observation", "sent")  # of a group, where games cannot be saved


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for the host."""

    step: int  # agent steps over all devices
    updates: int
    seconds: float  # of training, compilation excluded
    episodes: int  # games that have ended


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


def _learner(state: LoopState) -> dict[str, PyTree]:
    """What is the same on every device, beside the actor."""
    return {"optimizer": state.agent.optimizer, "key": state.key, "metrics": state.metrics}


def num_devices(state: LoopState) -> int:
    """Devices that the state lies on."""
    return len(state.key.sharding.device_set)


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(
        self, run_dir: Path, keep: int = 1, restorable: bool = True, memory: bool = True
    ) -> None:
        """Of `keep` newest checkpoints; with the games and the agent's memory, or without.

        Several processes share one directory, and call everything together.
        """
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
            item_names=("actor", "learner", "local", "progress"),
        )

    def steps(self) -> list[int]:
        """Agent steps of the checkpoints that are there, oldest first."""
        return sorted(self._manager.all_steps())

    def _local(self, state: LoopState) -> dict[str, PyTree]:
        """What each device has of its own, without what no checkpoint holds."""
        games: Any = state.games
        if not self._restorable:
            nothing: Any = dict.fromkeys(GAMES, ())
            games = tuple(group._replace(**nothing) for group in games)
        return {"games": games, "memory": state.agent.memory if self._memory else ()}

    def save(self, state: LoopState, progress: Progress, return_mean: float | None) -> None:
        """Starts writing and returns; the state may be donated afterwards.

        A memory may be too large to copy: with one, it returns when all is written.
        """
        if progress.step in self._manager.all_steps():
            return
        local = self._local(state)
        # Copied on the device: the next compiled call overwrites these buffers in place.
        actor, learner, games = jax.tree.map(
            jnp.copy, (state.agent.actor, _learner(state), local["games"])
        )
        described = {"format": FORMAT, "devices": num_devices(state)}
        self._manager.save(
            progress.step,
            args=ocp.args.Composite(
                actor=ocp.args.StandardSave(_flatten(actor)),
                learner=ocp.args.StandardSave(_flatten(learner)),
                local=ocp.args.StandardSave(_flatten(local | {"games": games})),
                progress=ocp.args.JsonSave(dataclasses.asdict(progress) | described),
            ),
            metrics=None if return_mean is None else {"return_mean": return_mean},
        )
        if jax.tree.leaves(local["memory"]):
            self._manager.wait_until_finished()

    def restore(
        self, template: LoopState, step: int | None = None
    ) -> tuple[LoopState, Progress, int]:
        """The newest checkpoint, or that of `step`, laid out as the template is.

        What no checkpoint holds (the games, the memory) is the template's, which is used up. So is
        all that a device has of its own, where the checkpoint is from another number of devices.

        Returns:
          The state, where it stands, and the number of devices that it was trained on.
        """
        step = self._existing(step)
        described = self._described(step)
        saved_on = described.pop("devices")
        same = saved_on == num_devices(template)
        tables: dict[str, PyTree] = {"actor": template.agent.actor, "learner": _learner(template)}
        if same:
            local = self._local(template)
            # A device may have no room for a second one.
            tables["local"] = local | {"memory": jax.tree.map(_vacate, local["memory"])}
        arguments = {name: ocp.args.StandardRestore(_flatten(t)) for name, t in tables.items()}
        found = self._manager.restore(step, args=ocp.args.Composite(**arguments))
        restored = {name: _unflatten(tree, found[name]) for name, tree in tables.items()}
        actor, learner = restored["actor"], restored["learner"]
        games, memory = template.games, template.agent.memory
        if same:
            games = restored["local"]["games"]
            memory = restored["local"]["memory"] if self._memory else memory
            if not self._restorable:
                games = tuple(
                    kept._replace(**{name: getattr(new, name) for name in GAMES})
                    for kept, new in zip(games, template.games, strict=True)
                )
        state = LoopState(
            agent=AgentState(actor, learner["optimizer"], memory),
            games=games,
            key=learner["key"],
            metrics=learner["metrics"],
        )
        return state, Progress(**described), saved_on

    def restore_actor(self, template: PyTree, step: int | None = None) -> tuple[PyTree, int]:
        """What playing needs, and the agent step it is from."""
        step = self._existing(step)
        self._described(step)
        tables = self._manager.restore(
            step, args=ocp.args.Composite(actor=ocp.args.StandardRestore(_flatten(template)))
        )
        return _unflatten(template, tables["actor"]), step

    def close(self) -> None:
        """Waits for what is being written; raises what went wrong with it."""
        self._manager.wait_until_finished()
        self._manager.close()

    def _described(self, step: int) -> dict[str, Any]:
        """Where it stands. Read first: in another format, arrays may have other names."""
        arguments = ocp.args.Composite(progress=ocp.args.JsonRestore())
        described = dict(self._manager.restore(step, args=arguments)["progress"])
        if described.pop("format") != FORMAT:
            raise UserError(f"checkpoint {step} is of another format: use the jaxrl that wrote it")
        return described

    def _existing(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise UserError("no checkpoint yet: train longer, or lower checkpoint_interval")
        if step is None:
            return steps[-1]
        if step not in steps:
            raise UserError(f"no checkpoint {step}: there are {', '.join(map(str, steps))}")
        return step
