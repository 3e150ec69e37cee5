"""The kernels pool as Flax does, and lead a gradient to the same pixel."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.kernels import library, pooling
from jaxrl.networks import layers


def by_flax(x):
    return nn.max_pool(x, (3, 3), (2, 2), "SAME")


def numbers(shape):
    """Of which many are equal, as after a rectifier."""
    return jnp.asarray(np.random.default_rng(0).normal(size=shape).round(), jnp.float32)


def with_gradient(pool, x):
    y, pullback = jax.vjp(pool, x)
    return y, pullback(jnp.arange(y.size, dtype=jnp.float32).reshape(y.shape))[0]


def test_the_largest_pixel_has_the_gradient():
    """Windows of 5 pixels begin at -1, 1 and 3; of two equal pixels the first counts."""
    lanes = library.lanes()
    x = jnp.tile(jnp.array([[3.0, 1, 2, 2, 0]]).reshape(1, 1, 5, 1), (1, 1, 1, lanes))
    y, pullback = jax.vjp(pooling.max_pool, x)
    np.testing.assert_array_equal(y[0, 0, :, 0], [3, 2, 2])
    (of_x,) = pullback(jnp.tile(jnp.array([1.0, 10, 100]).reshape(1, 1, 3, 1), (1, 1, 1, lanes)))
    np.testing.assert_array_equal(of_x[0, 0, :, lanes - 1], [1, 0, 10, 100, 0])


@pytest.mark.parametrize("shape", [(3, 42, 42, 16), (2, 21, 11, 32), (5, 1, 2, 16)])
def test_images_of_every_size_are_pooled_as_by_flax(shape):
    x = numbers(shape)
    (ours, of_ours), (theirs, of_theirs) = (
        with_gradient(jax.jit(pool), x) for pool in (pooling.max_pool, by_flax)
    )
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(of_ours, of_theirs, rtol=1e-6)


def test_members_of_a_population_are_pooled_one_after_another():
    x = numbers((2, 3, 9, 8, 16))
    together = with_gradient(jax.vmap(pooling.max_pool), x)
    theirs = with_gradient(jax.vmap(by_flax), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), together, theirs)


def test_what_is_not_a_number_stays_so():
    x = numbers((1, 5, 5, 16)).at[0, 2, 2, 3].set(jnp.nan)
    np.testing.assert_array_equal(pooling.max_pool(x), by_flax(x))


def test_what_does_not_fit_is_left_to_xla():
    x = numbers((1, 5, 5, 16))
    assert pooling.fits(x)
    for other in (x[..., :5], x.astype(jnp.bfloat16)):
        assert not pooling.fits(other)
        assert layers.max_pool(other).shape == (1, 3, 3, other.shape[-1])
