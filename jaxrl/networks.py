"""Torsos, heads and observation normalisation (Flax Linen)."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig, convolutions
from jaxrl.convolution import conv2d
from jaxrl.optimizers import mean_over_devices, sum_over_devices
from jaxrl.types import AXIS, FRAME_SHAPE, STACK_SIZE, ActorState, Trajectory


class PolicyValue(NamedTuple):
    """What a policy-value network says of each row."""

    logits: jax.Array  # f32[B, A], of the policy
    value: jax.Array  # f32[B], expected return


# --- layers ---------------------------------------------------------------------------------------


def _uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """U(±1/sqrt(fan in)) for weights and biases: Torch 7's, used by A3C and PAAC."""
    bound = fan_in**-0.5

    def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class Conv(nn.Module):
    """A convolution with bias; see `conv2d`."""

    filters: int
    size: int
    stride: int
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, H, W, C] -> [B, H', W', filters], computed in the dtype of x."""
        uniform = _uniform_fan_in(self.size * self.size * x.shape[-1])
        orthogonal = self.init == "orthogonal"
        kernel = self.param(
            "kernel",
            nn.initializers.orthogonal(2**0.5) if orthogonal else uniform,
            (self.size, self.size, x.shape[-1], self.filters),
        )
        bias = self.param("bias", nn.initializers.zeros if orthogonal else uniform, (self.filters,))
        return conv2d(x, kernel.astype(x.dtype), self.stride) + bias.astype(x.dtype)


class Dense(nn.Module):
    """A fully connected layer, with the initialisation that the configuration names."""

    features: int
    gain: float
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, C] -> [B, features], computed in the dtype of x."""
        if self.init == "orthogonal":
            weights = nn.initializers.orthogonal(self.gain)
            return nn.Dense(self.features, kernel_init=weights, dtype=x.dtype)(x)
        uniform = _uniform_fan_in(x.shape[-1])
        return nn.Dense(self.features, kernel_init=uniform, bias_init=uniform, dtype=x.dtype)(x)


class NoisyDense(nn.Module):
    """A fully connected layer whose weights have learned noise (Fortunato 2018, section 3, b).

    y = (μ + σ ⊙ f(εₒ) f(εᵢ)ᵀ) x + μ_b + σ_b ⊙ f(εₒ),  f(ε) = sgn(ε) √|ε|

    with normal εᵢ and εₒ of every row's own.
    """

    features: int
    number: int  # of the layer in the network, so that no two have the same noise

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any) -> jax.Array:
        """[B, C], key[B] -> [B, features], in the dtype of x; without keys the mean weights."""
        inputs = x.shape[-1]
        uniform, shape = _uniform_fan_in(inputs), (inputs, self.features)
        deviation = nn.initializers.constant(NOISE * inputs**-0.5)
        kernel, bias = self.param("kernel", uniform, shape), self.param("bias", uniform, shape[1:])
        kernel_noise = self.param("kernel_noise", deviation, shape)
        bias_noise = self.param("bias_noise", deviation, shape[1:])
        y = x @ kernel.astype(x.dtype) + bias.astype(x.dtype)
        if noise is None:
            return y

        def draw(key: jax.Array) -> jax.Array:
            sample = jax.random.normal(jax.random.fold_in(key, self.number), (sum(shape),))
            return jnp.sign(sample) * jnp.sqrt(jnp.abs(sample))

        within, out = jnp.split(jax.vmap(draw)(noise).astype(x.dtype), [inputs], axis=1)
        return y + out * ((x * within) @ kernel_noise.astype(x.dtype) + bias_noise.astype(x.dtype))


# --- the networks --------------------------------------------------------------------------------

# Deviation of noisy weights at the start, times the root of the inputs (Fortunato 2018).
NOISE = 0.5
IMPALA_FILTERS, IMPALA_UNITS = (16, 32, 32), 256  # Espeholt 2018, figure 3, the deep network


class ImpalaSection(nn.Module):
    """A convolution, max-pooling by 2, and two residual blocks of two convolutions each."""

    filters: int
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, C] -> f32[B, ceil(H / 2), ceil(W / 2), filters]."""

        def same(x: jax.Array) -> jax.Array:
            x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            return Conv(self.filters, 3, 1, self.init)(x)

        x = nn.max_pool(same(x), (3, 3), (2, 2), "SAME")
        for _ in range(2):
            x = x + same(nn.relu(same(nn.relu(x))))
        return x


class Torso(nn.Module):
    """Pixels to features, and as many hidden layers of units on top as heads want their own."""

    config: NetworkConfig
    streams: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any = None) -> tuple[jax.Array, ...]:
        """f32[B, 84, 84, 4], as `normalise` gives it -> one f32[B, units] per stream."""
        init = self.config.init

        def activate(x: jax.Array) -> jax.Array:
            return nn.relu(nn.LayerNorm(dtype=x.dtype)(x) if self.config.layer_norm else x)

        x = x.astype(self.config.dtype)
        if self.config.torso == "impala":
            for filters in IMPALA_FILTERS:
                x = ImpalaSection(filters, init)(x)
            x, units = nn.relu(x), IMPALA_UNITS
        else:
            layers, units = convolutions(self.config)
            for filters, size, stride in layers:
                x = activate(Conv(filters, size, stride, init)(x))
        x = x.reshape(x.shape[0], -1)
        hidden = []
        for number in range(self.streams):
            if self.config.noisy:
                hidden.append(NoisyDense(units, number)(x, noise))
            else:
                hidden.append(Dense(units, 2**0.5, init)(x))
        return tuple(activate(layer).astype(jnp.float32) for layer in hidden)


class PolicyValueNetwork(nn.Module):
    """A torso shared by a policy head and a value head."""

    num_actions: int
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> PolicyValue:
        """f32[B, 84, 84, 4], as `normalise` gives it."""
        (x,) = Torso(self.config)(x)
        logits = Dense(self.num_actions, 0.01, self.config.init)(x)
        value = Dense(1, 1.0, self.config.init)(x)
        return PolicyValue(logits, value[:, 0])


class ActionValueNetwork(nn.Module):
    """For every action its value, or the logits of its return's distribution.

    With `config.dueling` (Wang 2016, eq. 9): Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'),
    for each atom.
    """

    num_actions: int
    num_atoms: int  # 1 for plain action values
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any = None) -> jax.Array:
        """f32[B, 84, 84, 4], as `normalise` gives it -> f32[B, A, atoms]; f32[B, A] for 1 atom.

        Of noisy networks with the noise of key[B], or with none.
        """

        def head(features: int, number: int, x: jax.Array) -> jax.Array:
            if self.config.noisy:
                return NoisyDense(features, number)(x, noise)
            return Dense(features, 1.0, self.config.init)(x)

        streams = Torso(self.config, streams=2 if self.config.dueling else 1)(x, noise)
        x = head(self.num_actions * self.num_atoms, 2, streams[0])
        x = x.reshape(-1, self.num_actions, self.num_atoms)
        if self.config.dueling:
            state_value = head(self.num_atoms, 3, streams[1])
            x = state_value[:, None] + x - x.mean(axis=1, keepdims=True)
        return x[..., 0] if self.num_atoms == 1 else x


# --- running statistics ---------------------------------------------------------------------------


class RunningStatistics(NamedTuple):
    """Mean and variance of all that was seen, over all environments and devices."""

    samples: jax.Array  # f32[], seen so far
    mean: jax.Array  # f32[...], of observations f32[84, 84, 1], pixels scaled to [0, 1]
    variance: jax.Array  # f32[...]


MAX_COUNT = 1e7  # beyond it float32 loses increments; the statistics then forget exponentially
CLIP = 5.0  # standard deviations


def new_statistics(shape: tuple[int, ...]) -> RunningStatistics:
    """Of nothing yet: mean 0, variance 1."""
    return RunningStatistics(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def merge_statistics(
    statistics: RunningStatistics, mean: jax.Array, square: jax.Array, count: jax.Array | float
) -> RunningStatistics:
    """Adds `count` samples whose mean and mean square are given (Chan 1979).

    Both are those of all devices together, so that every device holds the same statistics.
    """
    seen = statistics.samples + count
    share = count / jnp.maximum(seen, 1)
    delta = mean - statistics.mean
    variance = (
        statistics.variance * (1 - share)
        + jnp.maximum(square - jnp.square(mean), 0) * share
        + jnp.square(delta) * share * (1 - share)
    )
    return RunningStatistics(
        jnp.minimum(seen, MAX_COUNT), statistics.mean + delta * share, variance
    )


def join_statistics(before: RunningStatistics, own: RunningStatistics) -> RunningStatistics:
    """Statistics that learners went on with apart, [L, ...] on each device, as of all samples.

    Learner d has added n_d - n₀ samples to the n₀ before, so that with N = n₀ + Σ_d (n_d - n₀)

    x̄ = x₀ + Σ_d (x_d - x₀) n_d / N

    for the mean, and for the mean square about the mean before.

    Args:
      before: what all began with; samples f32[], the rest f32[...].
      own: of this device's learners; samples f32[L], the rest f32[L, ...].
    """
    rank = before.mean.ndim
    added = own.samples - before.samples
    seen = before.samples + sum_over_devices(added.sum())
    share = (own.samples / jnp.maximum(seen, 1)).reshape(-1, *[1] * rank)

    def join(old: jax.Array, new: jax.Array) -> jax.Array:
        return old + sum_over_devices(((new - old) * share).sum(0))

    mean = join(before.mean, own.mean)
    square = join(before.variance, own.variance + jnp.square(own.mean - before.mean))
    variance = jnp.maximum(square - jnp.square(mean - before.mean), 0)
    return RunningStatistics(jnp.minimum(seen, MAX_COUNT), mean, variance)


def init_statistics(config: NetworkConfig, frame_shape: tuple[int, int] = FRAME_SHAPE) -> Any:
    """Of each pixel; () where the configuration does not normalise."""
    return new_statistics((*frame_shape, 1)) if config.normalise_observations else ()


def update_statistics(statistics: Any, frames: jax.Array) -> Any:
    """Adds a batch u8[..., 84, 84] of every device to the statistics of the pixels."""
    if statistics == ():
        return ()
    x = frames.reshape(-1, *frames.shape[-2:], 1).astype(jnp.float32) / 255
    mean, square = mean_over_devices((x.mean(0), jnp.square(x).mean(0)))
    return merge_statistics(statistics, mean, square, x.shape[0] * jax.lax.axis_size(AXIS))


def normalise(observation: jax.Array, statistics: Any) -> jax.Array:
    """u8[..., 84, 84, 4] -> f32: scaled to [0, 1], or by the statistics and clipped to ±5."""
    x = observation.astype(jnp.float32) / 255
    if statistics == ():
        return x
    # A pixel that has never changed has no variance; what it shows later is clipped.
    x = (x - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-5)
    return jnp.clip(x, -CLIP, CLIP)


def init_params(
    network: nn.Module, key: jax.Array, frame_shape: tuple[int, int] = FRAME_SHAPE
) -> Any:
    """Parameters for stacks of such frames."""
    # Compiled, as one by one the operations of an initialisation take seconds.
    return jax.jit(network.init)(key, jnp.zeros((1, *frame_shape, STACK_SIZE)))["params"]


def init_actor(
    network: PolicyValueNetwork | ActionValueNetwork,
    key: jax.Array,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> ActorState:
    """What acts before the first update, by stacks u8[..., 84, 84, 4] of such frames H, W."""
    params = init_params(network, key, frame_shape)
    return ActorState(params, init_statistics(network.config, frame_shape), jnp.int32(0))


def next_actor(actor: ActorState, params: Any, trajectory: Trajectory) -> ActorState:
    """What acts after an update with the trajectory [T, E] that ended in such parameters.

    Its frames u8[T, E, 84, 84] join the statistics, of all devices. To be called after the
    gradients: a loss must see the statistics that acting saw.
    """
    newest_frames = trajectory.observation[:-1, ..., -1]
    statistics = update_statistics(actor.statistics, newest_frames)
    return ActorState(params, statistics, actor.updates + 1)
