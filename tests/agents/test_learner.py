"""The steps that agents share: how a batch is divided into passes of its gradient."""

import jax
import jax.numpy as jnp
import pytest

from jaxrl.agents.learner import dormant, policy_learner, rectified_biases
from jaxrl.config.network import NetworkConfig
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.kernels import library
from jaxrl.networks.heads import QuantileNetwork
from jaxrl.ops.gradients import Passes, _default_micro_batch
from jaxrl.types import EnvSpec

SPEC = EnvSpec(8, 3, ("NOOP", "LEFT", "RIGHT"), "catch")


@pytest.mark.parametrize(
    ("dtype", "lanes", "rows"), [("float32", 8, 128), ("bfloat16", 8, 128), ("float32", None, 48)]
)
def test_passes_are_longer_where_the_kernels_convolve(monkeypatch, dtype, lanes, rows):
    monkeypatch.setattr(library, "lanes", lambda: lanes)
    plan = resolve(Config(game="catch").replaced(network={"dtype": dtype}))
    assert policy_learner(plan, SPEC).passes == Passes(0, cpu_rows=rows, rows_per_item=1)


@pytest.mark.parametrize(
    ("items", "passes", "expected"),
    [
        (256, Passes(0, 128), 128),
        (256, Passes(0, 48), 32),  # the largest divisor
        (100, Passes(0, 128), 100),
        (84, Passes(0, 48), 42),
        (6, Passes(0, 128, rows_per_item=40), 3),  # 3 sequences of 40 rows
        (6, Passes(0, 128, rows_per_item=400), 1),
    ],
)
def test_a_pass_is_the_largest_part_within_the_rows(items, passes, expected):
    assert _default_micro_batch(items, passes) == expected


def test_an_accelerator_takes_the_whole_batch(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _default_micro_batch(256, Passes(0, 128)) == 256


@pytest.mark.parametrize("norm", ["", "layer_norm", "hidden_norm"])
def test_units_that_are_off_for_the_whole_batch_are_dormant(norm):
    """A third of the hidden units get a bias that no weighted sum of pixels can overcome."""
    network = {"torso": "nips"} | ({norm: True} if norm else {})
    plan = resolve(Config(game="catch").replaced(network=network))
    learner = policy_learner(plan, SPEC)
    stacks = jax.random.uniform(jax.random.key(1), (6, 44, 44, 4))
    params = learner.network.init(jax.random.key(0), stacks)["params"]

    def share(params):
        def loss(params):
            outputs = learner.network.apply({"params": params}, stacks)
            # No gradient reaches the second action.
            return jnp.sum(jnp.square(outputs.logits[:, 0])) + jnp.sum(jnp.square(outputs.value))

        return float(dormant(jax.grad(loss)(params)))

    before = share(params)
    torso = params["Torso_0"]
    norms = {"layer_norm": "LayerNorm_2", "hidden_norm": "HiddenNorm_0"}
    last = torso[norms[norm]] if norm else torso["Dense_0"]["Dense_0"]
    last["bias"] = jnp.where(jnp.arange(256) % 3 == 0, -1e4, jnp.abs(last["bias"]) + 1e4)
    # Of 16 and 32 filters and 256 numbers: heads and what a normalization follows do not count.
    assert share(params) == pytest.approx(86 / 304, abs=1e-6)
    assert before != pytest.approx(86 / 304, abs=1e-6)
    last["bias"] = jnp.full(256, -1e4)
    assert share(params) == 1  # no gradient passes the last layer


@pytest.mark.parametrize(
    ("options", "units"),
    [
        ({"torso": "nips"}, 16 + 32 + 256),
        ({"torso": "nips", "dueling": True}, 16 + 32 + 2 * 256),
        ({"torso": "nips", "dueling": True, "noisy": True}, 16 + 32 + 2 * 256),
        ({"torso": "nips", "dueling": True, "hidden_norm": True}, 16 + 32 + 2 * 256),
        ({"torso": "nips", "dueling": True, "layer_norm": True}, 16 + 32 + 2 * 256),
        ({"torso": "impala", "dueling": True, "noisy": True, "max_pool": 6}, 2 * 256),
    ],
)
def test_a_network_of_quantiles_counts_filters_and_hidden_units(options, units):
    network = QuantileNetwork(3, 8, NetworkConfig(**options))
    keys = jax.random.split(jax.random.key(1), (2, 8))
    made = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((2, 44, 44, 4)), keys)
    biases = rectified_biases(made["params"]).values()
    assert sum(bias.size for layer in biases for bias in layer) == units
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape), made["params"])
    assert float(dormant(nothing)) == 1
    assert float(dormant(jax.tree.map(jnp.ones_like, nothing))) == 0


def test_of_a_network_of_its_own_only_filters_are_known():
    """Which of its layers are heads nobody knows."""
    units = {"bias": jnp.zeros(4)}
    layers = {f"Dense_{n}": {"Dense_0": {"kernel": jnp.ones((9, 4)), **units}} for n in range(3)}
    assert rectified_biases({"Conv_0": units, **layers}).keys() == {"Conv_0"}


def test_a_network_without_biases_has_no_dormant_units():
    assert float(dormant({"kernel": jnp.zeros(3)})) == 0
