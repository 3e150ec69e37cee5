"""JAX's own settings that programs of jaxrl do not run with, from the environment or a script."""

from typing import Any, NamedTuple

import jax

from jaxrl.errors import UserError


class Refusal(NamedTuple):
    """A setting of JAX, the values that are refused, why, and what to do."""

    name: str
    values: tuple[Any, ...]
    reason: str
    option: str  # JAX's name for it, which the environment has in capitals
    default: Any


GUARDED = ("disallow", "disallow_explicit")
REFUSED = (
    Refusal("jax_enable_x64", (True,), "jaxrl computes in 32 bits", "jax_enable_x64", False),
    Refusal("jax_disable_jit", (True,), "emulators run in compiled programs", "jax_disable_jit",
            False),
    Refusal("jax_numpy_rank_promotion", ("raise",), "jaxrl and its libraries promote ranks",
            "jax_numpy_rank_promotion", "allow"),
    Refusal("jax_numpy_dtype_promotion", ("strict",), "jaxrl and its libraries promote dtypes",
            "jax_numpy_dtype_promotion", "standard"),
    Refusal("jax_debug_key_reuse", (True,), "each part of a program splits keys for itself",
            "jax_debug_key_reuse", False),
    *(
        Refusal(f"jax_transfer_guard_{way}", GUARDED, "frames and figures cross between host and "
                "device", "jax_transfer_guard", "allow")
        for way in ("host_to_device", "device_to_device", "device_to_host")
    ),
)  # fmt: skip


def check() -> None:
    """Raises `UserError` for a setting of JAX that nothing here would run with."""
    for refusal in REFUSED:
        value = getattr(jax.config, refusal.name, None)  # versions of JAX differ in these
        if value in refusal.values:
            option = refusal.option
            raise UserError(
                f"{refusal.name} = {value}: {refusal.reason}: unset {option.upper()}, or call "
                f"jax.config.update({option!r}, {refusal.default!r})"
            )
