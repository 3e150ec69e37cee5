"""EnvPool behind host callbacks.

`host_calls` returns the same three values as `pool.xla()`, so an engine only chooses between the
two.
"""

from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl.envs.callback import Calls, ordered_calls
from jaxrl.types import FRAME_SHAPE

# The fields of EnvPool's `info` that engines read.
INFO = {"lives": np.int32, "reward": np.float32, "terminated": np.int32}


def host_calls(
    pool: Any,
    num_envs: int,
    failures: list[Exception],
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> Calls:
    """Returns callbacks that send and receive a step of `num_envs` environments.

    The pool is EnvPool's, or anything with its `send(action)` and `recv()`; `failures` is as
    `ordered_calls` takes it.
    """
    shapes = _answer_shapes(num_envs, frame_shape)
    return ordered_calls(
        lambda action: pool.send(action), partial(_receive, pool), shapes, failures
    )


def _answer_shapes(num_envs: int, frame_shape: tuple[int, int]) -> Any:
    """Returns the shapes of EnvPool's (observation, reward, terminated, truncated, info)."""
    info = {name: jax.ShapeDtypeStruct((num_envs,), dtype) for name, dtype in INFO.items()}
    flag = jax.ShapeDtypeStruct((num_envs,), np.bool_)
    frames = jax.ShapeDtypeStruct((num_envs, 1, *frame_shape), np.uint8)
    return frames, info["reward"], flag, flag, info


def _receive(pool: Any, zeros: Any) -> Any:
    """Waits for a step of the pool; returns it in the shapes and types of `zeros`."""
    observation, reward, terminated, truncated, info = pool.recv()
    rows = observation, reward, terminated, truncated, {name: info[name] for name in INFO}
    # Converted here, where an error is caught; inside the program it would end the process.
    return jax.tree.map(lambda x, like: np.asarray(x, like.dtype).reshape(like.shape), rows, zeros)
