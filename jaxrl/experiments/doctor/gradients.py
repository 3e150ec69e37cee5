"""Gradients on an accelerator against the CPU's, for `jaxrl doctor`."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.network import NetworkConfig
from jaxrl.experiments.doctor.protocol import Answer
from jaxrl.kernels import library
from jaxrl.networks import convolution, heads, layers
from jaxrl.networks.actors import forward
from jaxrl.types import FRAME_SHAPE, STACK_SIZE

SEED = 1
# Hadamax is left out: its maxima of many products choose by rounding, which moved one by 4e-4.
TORSOS = ("nips", "nature", "gamma", "impala")
BATCH = 4  # images for a gradient
# Largest relative difference of a parameter's gradient that float32's rounding explains; on two
# cores up to 2e-6 was seen.
ROUNDING = 1e-4
# Below this, a few units with inputs near 0 have changed sides: a single unit moved a gradient by
# 2e-2.
WRONG = 0.05
COARSE = 0.05  # largest difference in the precision of training, TF32 or bfloat16


def _params(network: heads.PolicyValueNetwork) -> Any:
    """Returns random parameters of the usual size; nothing is compiled for them."""
    images = jax.ShapeDtypeStruct((1, *FRAME_SHAPE, STACK_SIZE), jnp.float32)
    shapes = jax.eval_shape(network.init, jax.random.key(SEED), images)["params"]
    random = np.random.default_rng(SEED)

    def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        fan_in = np.prod(leaf.shape[:-1])
        return (random.normal(size=leaf.shape) / np.sqrt(fan_in)).astype(np.float32)

    return jax.tree.map(draw, shapes)


def _networks() -> dict[str, NetworkConfig]:
    """Returns the networks by name. A normalized one hides factors, so it comes in addition."""
    plain = {torso: NetworkConfig(torso=torso) for torso in TORSOS}
    return plain | {"nips with layer_norm": NetworkConfig(torso="nips", layer_norm=True)}


def _gradient(config: NetworkConfig, device: jax.Device, precision: str | None) -> Any:
    """Returns the gradient of a network, computed on a device, on the host."""
    network = heads.PolicyValueNetwork(6, config)
    random = np.random.default_rng(SEED)
    images = random.integers(0, 256, (BATCH, *FRAME_SHAPE, STACK_SIZE)).astype(np.uint8)
    targets = random.normal(size=(BATCH, 7)).astype(np.float32)

    def loss(params: Any, images: jax.Array, targets: jax.Array) -> jax.Array:
        predicted = forward(network, params, (), images)
        outputs = jnp.concatenate([predicted.logits, predicted.value[:, None]], axis=1)
        return jnp.mean(jnp.square(outputs - targets))

    arguments = jax.device_put((_params(network), images, targets), device)
    with jax.default_matmul_precision(precision):
        return jax.device_get(jax.jit(jax.grad(loss))(*arguments))


def _difference(ours: Any, theirs: Any) -> float:
    """Returns the largest difference of a parameter's gradient, relative to its norm."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30)) for a, b in pairs)


@contextlib.contextmanager
def xla_layers() -> Iterator[None]:
    """Makes networks use XLA's layers on CPUs too, of images that XLA has normalized."""
    modules: tuple[Any, Any] = layers, library
    before = modules[0].layer, modules[1].lanes
    by_xla = partial(convolution.product_layer, conv=convolution.xla_convolution)
    modules[0].layer, modules[1].lanes = by_xla, lambda: None
    try:
        yield
    finally:
        modules[0].layer, modules[1].lanes = before


def compare() -> Answer:
    """Compares gradients on an accelerator with the CPU's; on a CPU its two convolutions."""
    device = jax.local_devices()[0]
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:
        names = os.environ.get("JAX_PLATFORMS") or "cuda"
        remedy = f"let JAX have the CPU too: JAX_PLATFORMS={names},cpu"
        return {
            "mark": "warning",
            "text": "cannot be determined without a CPU device",
            "remedy": remedy,
        }
    on_cpu = device.platform == "cpu"
    exact, rounded = {}, {}
    for name, config in _networks().items():
        with xla_layers():
            expected = _gradient(config, cpu, "highest")
        exact[name] = _difference(_gradient(config, device, "highest"), expected)
        if not on_cpu:
            rounded[name] = _difference(_gradient(config, device, None), expected)
    text = ", ".join(f"{name} {difference:.0e}" for name, difference in exact.items())
    against = "our convolution against XLA's own" if on_cpu else "against the CPU's"
    text = f"relative difference {against}: {text}"
    if rounded:
        # TF32 or bfloat16 products, where the platform takes them for float32.
        text += f"; {max(rounded.values()):.0e} in the precision of training"
    # A difference that is not a number fails both comparisons.
    right = all(difference <= WRONG for difference in exact.values())
    right = right and all(difference <= COARSE for difference in rounded.values())
    equal = all(difference <= ROUNDING for difference in exact.values())
    return {"mark": "cross" if not right else "ok" if equal else "warning", "text": text}
