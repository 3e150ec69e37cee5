"""EnvPool behind host callbacks, for platforms without its custom call (TPU).

`host_calls` returns the same three values as `pool.xla()`, so an engine only chooses between the
two. A token orders the calls, as it orders the custom calls.

An error must not be raised inside the compiled program: other devices would wait forever for one
that has left a collective. So the first error is kept, every later call returns zeros at once, and
the host raises the error when the compiled call has returned (`EnvEngine.check`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import io_callback

from jaxrl.errors import UserError
from jaxrl.types import FRAME_SHAPE

# The fields of EnvPool's `info` that engines read.
INFO = {"lives": np.int32, "reward": np.float32, "terminated": np.int32}


class Calls(NamedTuple):
    """The calls of a pool that a compiled program makes."""

    token: np.ndarray  # u8[8]
    recv: Callable[[jax.Array], Any]  # token -> (token, answer)
    send: Callable[[jax.Array, jax.Array], jax.Array]  # (token, action i32[E]) -> token


def check_host() -> None:
    """Raises `UserError` if JAX has no CPU device, where it puts the arguments of callbacks."""
    try:
        jax.local_devices(backend="cpu")
    except RuntimeError:
        raise UserError(
            "host callbacks need JAX's CPU too: name it last, as in JAX_PLATFORMS=cuda,cpu"
        ) from None


def host_calls(
    pool: Any,
    num_envs: int,
    failures: list[Exception],
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> Calls:
    """Returns callbacks that send and receive a step of `num_envs` environments.

    Args:
      pool: EnvPool's, or anything with its `send(action)` and `recv()`.
      num_envs: E.
      failures: receives the error of a call; while it holds one, the pool is not called.
      frame_shape: pixels of a frame.
    """
    token = np.zeros(8, np.uint8)
    token_shape = jax.ShapeDtypeStruct(token.shape, token.dtype)
    answer_shapes = _answer_shapes(num_envs, frame_shape)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), answer_shapes)

    def host_send(_: Any, action: Any) -> np.ndarray:
        _attempt(failures, lambda: pool.send(np.asarray(action)), None)
        return token

    def host_recv(_: Any) -> tuple[np.ndarray, Any]:
        return token, _attempt(failures, lambda: _receive(pool, zeros), zeros)

    return Calls(
        token,
        recv=lambda token: io_callback(host_recv, (token_shape, answer_shapes), token),
        send=lambda token, action: io_callback(host_send, token_shape, token, action),
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


def _attempt(failures: list[Exception], call: Callable[[], Any], otherwise: Any) -> Any:
    """Returns the result of `call`; after a failure, its own or an earlier one, `otherwise`."""
    if failures:
        return otherwise
    try:
        return call()
    except Exception as error:
        failures.append(error)
        return otherwise
