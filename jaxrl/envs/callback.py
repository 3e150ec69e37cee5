"""Emulators behind host callbacks, for platforms without their custom calls (TPU).

A token orders the calls, as it orders the custom calls.

An error must not be raised inside the compiled program: other devices would wait forever for one
that has left a collective. So the first error is stored, every later call returns zeros at once,
and the host raises the error when the compiled call has returned (`EnvEngine.check`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import io_callback

from jaxrl.errors import UserError


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


def ordered_calls(
    send: Callable[[np.ndarray], None],
    receive: Callable[[Any], Any],
    answer_shapes: Any,
    failures: list[Exception],
) -> Calls:
    """Returns callbacks that send and receive a step.

    Args:
      send: starts a step with the actions i32[E].
      receive: waits for it; takes an answer of zeros and returns one of the same shapes and types.
      answer_shapes: shapes of an answer, as `jax.ShapeDtypeStruct`.
      failures: receives the error of a call; while it holds one, nothing is called.
    """
    token = np.zeros(8, np.uint8)
    token_shape = jax.ShapeDtypeStruct(token.shape, token.dtype)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), answer_shapes)

    def host_send(_: Any, action: Any) -> np.ndarray:
        _attempt(failures, lambda: send(np.asarray(action)), None)
        return token

    def host_recv(_: Any) -> tuple[np.ndarray, Any]:
        return token, _attempt(failures, lambda: receive(zeros), zeros)

    return Calls(
        token,
        recv=lambda token: io_callback(host_recv, (token_shape, answer_shapes), token),
        send=lambda token, action: io_callback(host_send, token_shape, token, action),
    )


def _attempt(failures: list[Exception], call: Callable[[], Any], otherwise: Any) -> Any:
    """Returns the result of `call`; after a failure, now or earlier, `otherwise`."""
    if failures:
        return otherwise
    try:
        return call()
    except Exception as error:
        failures.append(error)
        return otherwise
