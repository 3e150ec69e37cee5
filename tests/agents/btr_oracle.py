"""Beyond the Rainbow's loss by its equations, in float64, with operations that the agent has not.

Kernels are divided by the norm of a singular value decomposition, convolutions are XLA's, noisy
weights are whole matrices, pooling goes through all windows, and targets are sums over actions.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import q_learning
from jaxrl.agents.iqn import agent as iqn
from jaxrl.config.plan import resolve
from jaxrl.networks.actors import init_params
from jaxrl.ops import batches
from jaxrl.replay import buffer
from jaxrl.types import AXIS, ActorState
from tests.agents.test_c51 import SPEC

BATCH = 256  # transitions of btr.toml's update


def convolve(x, layer, stride=1, padding="SAME", normalized=False):
    kernel = layer["kernel"]
    if normalized:
        kernel = kernel / jnp.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), ord=2)
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=numbers
    )
    return y + layer["bias"]


def largest(x, axis, parts):
    """The maximum of each part, which PyTorch's AdaptiveMaxPool2d describes."""
    length = x.shape[axis]
    rows = []
    for i in range(parts):
        start, end = int(np.floor(i * length / parts)), int(np.ceil((i + 1) * length / parts))
        rows.append(jnp.max(jnp.take(x, np.arange(start, end), axis), axis))
    return jnp.stack(rows, axis)


def features(config, params, images):
    x = images.astype(jnp.float64) / 255
    if config.torso == "nips":
        x = jnp.maximum(convolve(x, params["Conv_0"], 4, "VALID"), 0)
        return jnp.maximum(convolve(x, params["Conv_1"], 2, "VALID"), 0).reshape(len(x), -1)
    for section in range(3):
        layers = params[f"ImpalaSection_{section}"]
        x = convolve(x, layers["Conv_0"])
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for block in range(2):
            y = x
            for number in (1 + 2 * block, 2 + 2 * block):
                layer = layers[f"Conv_{number}"]
                y = convolve(jnp.maximum(y, 0), layer, normalized=config.spectral_norm)
            x = x + y
    if config.max_pool:
        x = largest(largest(x, 1, config.max_pool), 2, config.max_pool)
    return jnp.maximum(x, 0).reshape(len(x), -1)


def noise_of(key, number, inputs, outputs):
    drawn = jax.random.normal(jax.random.fold_in(key, number), (inputs + outputs,), jnp.float32)
    drawn = drawn.astype(jnp.float64)
    drawn = jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))
    return drawn[:inputs], drawn[inputs:]


def dense(config, layers, x, number, keys):
    """A layer of each row's own weights; f64[B, N, C] -> f64[B, N, outputs]."""
    if not config.noisy:
        return x @ layers["kernel"] + layers["bias"]
    rows = []
    for row, key in zip(x, keys, strict=True):
        within, out = noise_of(key, number, *layers["kernel"].shape)
        kernel = layers["kernel"] + layers["kernel_noise"] * within[:, None] * out
        rows.append(row @ kernel + layers["bias"] + layers["bias_noise"] * out)
    return jnp.stack(rows)


def _quantiles(config, params, images, keys):
    psi = features(config, params, images)
    level = jax.vmap(
        jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 0), dtype=jnp.float32))
    )(keys).astype(jnp.float64)
    noise = [jax.random.fold_in(key, 1) for key in keys[:, 0]]
    inner = lambda layer: layer.get("Dense_0", layer)  # noqa: E731
    cosines = jnp.stack([jnp.cos(np.pi * i * level) for i in range(64)], axis=-1)
    embedding = inner(params["Dense_0"])
    phi = jnp.maximum(cosines @ embedding["kernel"] + embedding["bias"], 0)
    x = psi[:, None] * phi
    kind, first = ("NoisyDense", 0) if config.noisy else ("Dense", 1)
    streams = []
    for stream in range(2 if config.dueling else 1):
        layers = [inner(params[f"{kind}_{first + 2 * stream + i}"]) for i in range(2)]
        hidden = jnp.maximum(dense(config, layers[0], x, stream, noise), 0)
        streams.append(dense(config, layers[1], hidden, stream + 2, noise))
    value = streams[0]
    if config.dueling:
        value = streams[1] + value - value.mean(axis=-1, keepdims=True)
    return value, level  # f64[B, N, A], f64[B, N]


def in_float64(function):
    @functools.wraps(function)
    def call(config, params, images, keys):
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
            return jax.device_get(function(config, wide, jnp.asarray(images), keys))

    return call


quantiles = in_float64(_quantiles)


def check_update(config, rows, pixels, actions, tolerance, flips=0.0):
    """Compares an update's loss, priorities and gradients with the equations, part by part.

    Of millions of units some have inputs so near 0 that float32 has them on the other side: `flips`
    is the share of a parameter's numbers whose gradient may be further away.
    """
    random = np.random.default_rng(0)
    setup, params = setup_of(config, rows, pixels, actions)
    count = min(rows, 8)
    agent, oracle = jax.jit(functools.partial(agents, setup)), equations(setup, count)
    loss, gradients, priorities = [], None, []
    for part in range(rows // count):
        data = buffer.Transitions(
            observation=random.integers(0, 256, (count, *pixels, 4)).astype(np.uint8),
            action=random.integers(0, actions, count),
            reward=random.choice([-1.0, 0.0, 1.0], count).astype(np.float32),
            discount=(0.997**3 * random.choice([0.0, 1.0, 1.0], count)).astype(np.float32),
            next_observation=random.integers(0, 256, (count, *pixels, 4)).astype(np.uint8),
            valid=np.ones(count, bool),
        )
        importance = random.uniform(0.5, 1.0, count).astype(np.float32)
        key = jax.random.key(part)
        ours = jax.device_get(agent(params, data, importance, key))
        right = oracle(params, data, importance, keys_of(setup, count, key))
        loss.append((ours[0][0], right[0][0]))
        priorities.append((ours[0][1], right[0][1]))
        both = ours[1], right[1]
        gradients = both if gradients is None else jax.tree.map(np.add, gradients, both)
    np.testing.assert_allclose(*np.sum(loss, axis=0), rtol=1e-4)
    np.testing.assert_allclose(*np.concatenate(priorities, axis=1), rtol=1e-3)
    ours, right = gradients
    for (path, x), wanted in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(right), strict=True
    ):
        scale = np.abs(wanted).max()
        assert scale > 0, jax.tree_util.keystr(path)
        error = np.abs(x - wanted) / scale
        name, far = jax.tree_util.keystr(path), int((error >= tolerance).sum())
        distance = np.linalg.norm(x - wanted) / np.linalg.norm(wanted)
        assert distance < tolerance, (name, distance)
        assert far <= flips * error.size, (name, far, error.max())


def setup_of(config, rows, pixels, actions):
    """The agent's setup, and parameters of the network that learns and of the target network."""
    config = config.replaced(env={"frame_height": pixels[0], "frame_width": pixels[1]})
    spec = SPEC._replace(num_envs=config.num_envs, num_actions=actions, frame_shape=pixels)
    setup = iqn.make(resolve(config), spec).update.args[0]
    network = setup.learner.network
    return setup, tuple(init_params(network, jax.random.key(seed), pixels) for seed in (0, 1))


def on_device(function):
    """The result of a function that must know its device, of one."""
    mapped = jax.vmap(lambda _: function(), axis_name=AXIS)
    return jax.tree.map(lambda x: x[0], mapped(jnp.zeros(1)))


def keys_of(setup, count, key):
    """The keys of the target network, of acting and of what is learned."""
    return on_device(
        lambda: [
            setup.keys(batches.keys_per_index(key, count), part)
            for key, part in zip(
                jax.random.split(key, 3), ("target", "acting", "online"), strict=True
            )
        ]
    )


def agents(setup, params, data, importance, key):
    """The agent's own loss and priorities, and its gradient."""
    actor = ActorState(params[0], (), jnp.int32(0))
    batch = on_device(lambda: q_learning.make_batch(setup, actor, params[1], data, key))
    weight = jnp.full(len(importance), 1 / setup.settings.batch_size)
    batch = batch._replace(weight=weight, importance=importance)

    def loss(params):
        total, (_, priorities) = q_learning.objective(setup, (), params, batch)
        return total, priorities

    return jax.value_and_grad(loss, has_aux=True)(params[0])


def equations(setup, rows):
    """The same by the equations, in float64, as a function."""
    config, tau, alpha = setup.learner.network.config, 0.03, 0.9
    network = jax.jit(functools.partial(_quantiles, config))

    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(params, there, before, data, importance, key):
        value, level = _quantiles(config, params, data.observation, key)
        taken = jnp.eye(setup.learner.spec.num_actions)[data.action]
        z = (value * taken[:, None]).sum(axis=-1)
        log_policy = tau * jax.nn.log_softmax(before.mean(axis=1) / tau, axis=-1)
        raised = data.reward + alpha * jnp.clip((log_policy * taken).sum(axis=-1), -1, 0)
        q = there.mean(axis=1) / tau
        policy, entropy = jax.nn.softmax(q, axis=-1), -tau * jax.nn.log_softmax(q, axis=-1)
        future = sum(
            policy[:, None, a] * (there[:, :, a] + entropy[:, None, a])
            for a in range(taken.shape[1])
        )
        goal = raised[:, None] + data.discount[:, None] * future
        total, priority = 0.0, jnp.zeros(rows)
        for i in range(z.shape[1]):
            delta = goal - z[:, i, None]
            size = jnp.abs(delta)
            huber = jnp.where(size <= 1, 0.5 * delta**2, size - 0.5)
            weight = jnp.abs(level[:, i, None] - (delta < 0))
            total += jnp.sum(importance * jnp.mean(weight * huber, axis=1)) / BATCH
            priority += size.mean(axis=1) / z.shape[1]
        return total, priority

    loss = jax.jit(loss)

    def call(params, data, importance, keys):
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
            there, _ = network(wide[1], data.next_observation, keys[0])
            # The log-probability is that of the pass that learns.
            before, _ = network(wide[0], data.observation, keys[2])
            return jax.device_get(loss(wide[0], there, before, data, importance, keys[2]))

    return call
