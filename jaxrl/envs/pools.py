"""Pools of Atari emulators on threads of the host, one pool per local device.

What EnvPool's engine and our own share: which games a device holds, the calls that step them from
the compiled program, and the engine's life. How a pool is made, and what its rows mean, differs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl.atari.games import full_actions, minimal_actions
from jaxrl.config.schema import EnvConfig
from jaxrl.envs.base import (
    EnvGroup,
    call_local,
    checked_actions,
    cores_by_device,
    env_ids,
    first_env_seeds,
)
from jaxrl.envs.callback import Calls, check_host
from jaxrl.errors import EngineError
from jaxrl.runtime import cpus
from jaxrl.types import EnvEngine, EnvSpec, PyTree, TimeStep


@dataclass(frozen=True)
class Pools:
    """The pools of this process, one per local device, and the calls that step them."""

    emulator: str  # its name in messages
    env: EnvConfig
    spec: EnvSpec
    env_ids: np.ndarray  # i64[local devices, E], numbers of the environments among all
    cores: list[list[int]]  # those of each local device
    uses_xla: bool  # custom calls, not host callbacks
    # `init` fills these lists and `close` empties them. A compiled program does not keep its pools
    # alive, so they are held here.
    pools: list[Any] = field(default_factory=list)
    calls: list[Calls] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)  # errors of host callbacks

    def num_threads(self) -> int:
        """Returns the emulator threads of each local device."""
        wanted = self.env.num_threads or max(1, cpus.count() // len(self.cores))
        return min(wanted, self.spec.num_envs)


# start(pools, device, seeds) makes the pool of a local device, adds it and its calls to the pools,
# and returns the engine's state and the first rows. `seeds` i64[E] are those of environment 0 of
# each one's run.
Start = Callable[[Pools, int, np.ndarray], tuple[PyTree, TimeStep]]


def make_pools(
    emulator: str,
    game: str,
    env: EnvConfig,
    num_envs: int,
    num_local_devices: int,
    group: EnvGroup,
    uses_xla: bool,
) -> Pools:
    """Returns the pools of `num_envs` games on each of this process's devices, not yet started.

    Args:
      emulator: its name in messages.
      game: its name.
      env: its rules.
      num_envs: E, games on each device.
      num_local_devices: pools to make, one for each device.
      group: the part of each device's environments that the engine holds.
      uses_xla: whether custom calls reach the pools, not host callbacks.
    """
    actions = (full_actions if env.full_action_space else minimal_actions)(game)
    pools = Pools(
        emulator=emulator,
        env=env,
        spec=EnvSpec(num_envs, len(actions), actions, game, env.frame_shape, planes=env.planes),
        env_ids=env_ids(num_envs, num_local_devices, group),
        cores=cores_by_device(num_local_devices),
        uses_xla=uses_xla,
    )
    if not pools.uses_xla:
        check_host()
    return pools


def pools_engine(
    pools: Pools,
    start: Start,
    send: Callable[[Pools, PyTree, jax.Array], PyTree],
    recv: Callable[[Pools, PyTree], tuple[PyTree, TimeStep]],
    render: Callable[[Pools], np.ndarray],
    **saving: Any,
) -> EnvEngine:
    """Returns the engine of pools; its `init` closes the old pools and makes new ones.

    `saving` has the fields of engines whose games can be saved.
    """
    return EnvEngine(
        pools.spec,
        init=partial(init, pools, start),
        send=partial(send, pools),
        recv=partial(recv, pools),
        close=partial(close, pools),
        env_ids=pools.env_ids,
        render=partial(render, pools),
        check=partial(check, pools),
        **{"state_format": ""} | saving,
    )


def init(pools: Pools, start: Start, *seeds: int) -> tuple[PyTree, TimeStep]:
    """Makes the pools and returns their states and first rows, those of all devices in one."""
    close(pools)
    first = first_env_seeds(seeds, pools.spec.num_envs)
    started = [start(pools, device, first) for device in range(len(pools.env_ids))]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *started)


def send_action(pools: Pools, token: jax.typing.ArrayLike, action: jax.Array) -> jax.Array:
    """Starts a step of this device's games, actions i32[E], and returns the token u8[8] at once."""
    action = checked_actions(action, pools.spec)
    return call_local([calls.send for calls in pools.calls], token, action)


def receive_rows(pools: Pools, token: jax.typing.ArrayLike) -> tuple[jax.Array, Any]:
    """Waits for the step of this device's games; returns the token u8[8] and the pool's answer."""
    return call_local([calls.recv for calls in pools.calls], token)


def close(pools: Pools) -> None:
    """Closes the pools and forgets the failures of their calls."""
    for pool in pools.pools:
        pool.close()
    for made in (pools.pools, pools.calls, pools.failures):
        made.clear()


def check(pools: Pools) -> None:
    """Raises `EngineError` if a host callback has failed since `init`."""
    if pools.failures:
        error = pools.failures[0]
        reason = f"{type(error).__name__}: {error}"
        raise EngineError(
            f"{pools.emulator} failed while it played {pools.spec.game}: {reason}"
        ) from error
