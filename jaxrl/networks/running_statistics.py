"""Running statistics of observations and values, equal on every device."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config.bounds import EXACT_FRAMES
from jaxrl.config.network import NetworkConfig
from jaxrl.kernels.convolution import CLIP, Pixels
from jaxrl.networks.convolution import cut, cut_bytes, join
from jaxrl.runtime.collectives import gather_over_devices, sum_over_devices
from jaxrl.types import AXIS, FRAME_SHAPE


class RunningStatistics(NamedTuple):
    """Mean and variance of all samples so far, over all environments and devices."""

    samples: jax.Array  # f32[], so far
    mean: jax.Array  # f32[...], of observations f32[84, 84, 1], pixels scaled to [0, 1]
    variance: jax.Array  # f32[...]


MAX_COUNT = 1e7  # beyond it float32 loses increments; the statistics then forget exponentially


def new_statistics(shape: tuple[int, ...]) -> RunningStatistics:
    """Returns the statistics of no samples: mean 0, variance 1."""
    return RunningStatistics(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def merge_statistics(
    statistics: RunningStatistics, mean: jax.Array, variance: jax.Array, count: jax.Array | float
) -> RunningStatistics:
    """Adds `count` samples by their mean and variance (Chan 1979).

    Both are those of all devices together, which keeps the statistics equal on every device.
    """
    seen = statistics.samples + count
    share = count / jnp.maximum(seen, 1)
    delta = mean - statistics.mean
    joint = (
        statistics.variance * (1 - share)
        + variance * share
        + jnp.square(delta) * share * (1 - share)
    )
    return RunningStatistics(jnp.minimum(seen, MAX_COUNT), statistics.mean + delta * share, joint)


def join_statistics(before: RunningStatistics, local: RunningStatistics) -> RunningStatistics:
    """Joins the statistics that learners continued separately, [L, ...] on each device.

    Learner d has added n_d - n₀ samples to the n₀ before. With N = n₀ + Σ_d (n_d - n₀)

    x̄ = x₀ + Σ_d (x_d - x₀) n_d / N

    is the mean; the mean square about x̄ follows the same rule.

    Args:
      before: the statistics that all began with; samples f32[], the rest f32[...].
      local: the statistics of this device's learners; samples f32[L], the rest f32[L, ...].
    """
    # All learners in their order on every device: the sums do not depend on where they are.
    learners = gather_over_devices(local)
    seen = before.samples + (learners.samples - before.samples).sum()
    share = learners.samples / jnp.maximum(seen, 1)
    share = share.reshape(-1, *[1] * before.mean.ndim)
    # Exactly 0 where nothing was seen before, however far the mean has come.
    rest = (seen - learners.samples.sum()) / jnp.maximum(seen, 1)
    mean = before.mean + ((learners.mean - before.mean) * share).sum(0)
    old = before.variance + jnp.square(before.mean - mean)
    new = learners.variance + jnp.square(learners.mean - mean)
    variance = jnp.maximum(old * rest + (new * share).sum(0), 0)
    return RunningStatistics(jnp.minimum(seen, MAX_COUNT), mean, variance)


def init_statistics(config: NetworkConfig, frame_shape: tuple[int, int] = FRAME_SHAPE) -> Any:
    """Returns initial statistics of each pixel; () where the configuration does not normalize."""
    return new_statistics((*frame_shape, 1)) if config.normalize_observations else ()


def update_statistics(statistics: Any, frames: jax.Array, skip_blank: bool = False) -> Any:
    """Adds a batch u8[T, ..., 84, 84] of every device to the statistics of the pixels.

    With `skip_blank`, frames without light, as `env.flicker` makes them, are left out.
    """
    if statistics == ():
        return ()
    frames_per_step = math.prod(frames.shape[1:-2]) * jax.lax.axis_size(AXIS)
    assert frames_per_step <= EXACT_FRAMES  # which `config.plan.resolve` refuses
    steps = EXACT_FRAMES // frames_per_step
    for first in range(0, len(frames), steps):
        statistics = _add_frames(statistics, frames[first : first + steps], skip_blank)
    return statistics


def _add_frames(
    statistics: RunningStatistics, frames: jax.Array, skip_blank: bool
) -> RunningStatistics:
    """Adds at most EXACT_FRAMES frames by integer sums, which no number of devices changes."""
    x = frames.reshape(-1, *frames.shape[-2:], 1).astype(jnp.uint32)
    # A frame without light adds nothing to the sums.
    frames_here = x.any((1, 2, 3)).sum(dtype=jnp.uint32) if skip_blank else jnp.uint32(len(x))
    sums = sum_over_devices((*_sums(x), frames_here))
    # A loop of one round, or of none without frames, is compiled by itself. Outside of one, which
    # products become part of a sum without rounding depends on the sums' way here, so on devices.
    rounds = (sums[2] > 0).astype(jnp.int32)
    return jax.lax.fori_loop(0, rounds, lambda _, before: _merge_sums(before, *sums), statistics)


def _merge_sums(
    statistics: RunningStatistics, total: jax.Array, squares: jax.Array, count: jax.Array
) -> RunningStatistics:
    """Adds `count` > 0 frames by Σx and Σx² of their bytes, u32[84, 84, 1]."""
    center = (total + count // 2) // count  # the byte closest to the mean
    # Integers of 32 bits wrap: Σx² may, Σ(x - c)² has not once the multiples of 2³² cancel.
    first = jax.lax.bitcast_convert_type(total - center * count, jnp.int32)
    second = squares + center * (center * count - 2 * total)
    number = count.astype(jnp.float32)
    offset = first / number
    mean = (center + offset) / 255
    variance = (second / number - jnp.square(offset)) / 255**2
    return merge_statistics(statistics, mean, variance, number)


def _sums(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns Σx and Σx² of u32[B, ...] in one pass, which two sums are not on a CPU."""
    zero = jnp.uint32(0)
    total, squares = jax.lax.reduce(
        (x, x * x), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,)
    )
    return total, squares


def normalize(
    observation: jax.Array, statistics: Any, block: int = 1, skip_blank: bool = False
) -> jax.Array:
    """Scales u8[..., 84, 84, 4] to [0, 1], or by the statistics with a clip at ±5; f32.

    Args:
      observation: stacks of frames.
      statistics: those of each pixel; () scales to [0, 1].
      block: pixels in the rows of the blocks that a convolution will cut. More than 1 computes the
        same values in the order of these blocks: XLA drops the joining here with the cutting there.
      skip_blank: with statistics, frames without light become 0, which is the mean frame.
    """
    pixels = observation
    if block > 1:
        pixels = cut_bytes(pixels, block)
        if statistics != ():
            mean, variance = (cut(x, block) for x in statistics[1:])
            statistics = statistics._replace(mean=mean, variance=variance)
    x = pixels.astype(jnp.float32) / 255
    if statistics != ():
        # A pixel that has never changed has no variance; later values are clipped.
        x = (x - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-5)
        x = jnp.clip(x, -CLIP, CLIP)
        if skip_blank:
            lit = _lit(observation)
            x = jnp.where(jnp.expand_dims(lit, tuple(range(lit.ndim - 1, x.ndim - 1))), x, 0.0)
    return join(x) if block > 1 else x


def pixels(observation: jax.Array, statistics: Any) -> Pixels:
    """Returns what `normalize` does to u8[..., H, W, C] for the layer that does it by itself."""
    shape = observation.shape[-3:-1]
    if statistics == ():
        zeros = jnp.zeros(shape, jnp.float32)
        return Pixels(observation, zeros + 1 / 255, zeros)
    scale = jax.lax.rsqrt(statistics.variance + 1e-5)[..., 0]
    return Pixels(observation, scale / 255, statistics.mean[..., 0] * scale)


def _lit(observation: jax.Array) -> jax.Array:
    """Returns which frames of stacks u8[..., H, W, 4] have a pixel that is not 0: b[..., 4]."""
    if observation.shape[-1] != 4:
        return (observation != 0).any((-3, -2))
    words = jax.lax.bitcast_convert_type(observation, jnp.uint32)  # four frames at once
    word = jax.lax.reduce_or(words, (words.ndim - 2, words.ndim - 1))
    return jax.lax.bitcast_convert_type(word, jnp.uint8) != 0


def to_returns(value: jax.Array, statistics: Any) -> jax.Array:
    """Converts values from the network's units to those of the return."""
    if statistics == ():
        return value
    return value * jnp.sqrt(statistics.variance + 1e-5) + statistics.mean


def from_returns(value: jax.Array, statistics: Any) -> jax.Array:
    """Converts values from units of the return to those of the network."""
    if statistics == ():
        return value
    return (value - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-5)
