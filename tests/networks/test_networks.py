import dataclasses
import math
import re
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.network import NetworkConfig
from jaxrl.kernels import library
from jaxrl.networks import convolution, running_statistics
from jaxrl.networks.actors import forward, init_params
from jaxrl.networks.core import core_of, first_observation
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.networks.running_statistics import (
    CLIP,
    RunningStatistics,
    init_statistics,
    normalize,
    update_statistics,
)
from jaxrl.networks.torsos import Torso
from jaxrl.types import AXIS

# (size of the image, channels, filters, kernel, stride): those of the networks, and odd ones
SHAPES = [
    (84, 4, 16, 8, 4),
    (20, 16, 32, 4, 2),
    (9, 64, 64, 3, 1),
    (17, 3, 5, 5, 3),
    (10, 2, 3, 2, 4),
    (22, 4, 16, 8, 3),
]


def example(size, channels, filters, kernel, stride):
    random = np.random.default_rng(0)
    x = jnp.asarray(random.normal(size=(3, size, size, channels)), jnp.float32)
    w = jnp.asarray(random.normal(size=(kernel, kernel, channels, filters)), jnp.float32) / kernel
    return x, w, stride


@pytest.mark.parametrize("shape", [pytest.param(SHAPES[0], marks=pytest.mark.slow), *SHAPES[1:]])
def test_both_lowerings_agree_in_values_and_gradients(shape):
    x, w, stride = example(*shape)

    def of(form):
        def loss(x, w):
            y = form(x, w, stride)
            return jnp.sum(jnp.sin(y)), y

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(x, w)

    (_, expected), expected_gradients = of(convolution.xla_convolution)
    for form in (convolution.block_convolution, convolution.conv2d):
        (_, y), gradients = jax.jit(lambda form=form: of(form))()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
        alone = jax.jit(lambda form=form: form(x, w, stride))()
        np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-4)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_on_a_cpu_the_gradient_has_no_convolution():
    x, w, stride = example(*SHAPES[0])
    gradient = jax.grad(lambda w: convolution.conv2d(x, w, stride).sum())
    text = jax.jit(gradient).lower(w).compile().as_text()
    assert "convolution(" not in text


@pytest.mark.parametrize(
    ("torso", "parameters"),
    [
        *(("nips", 677_943), ("nature", 1_687_719), ("gamma", 1_726_359), ("impala", 1_091_031)),
        *(("hadamax", 4_124_999), ("gamma_hadamax", 1_842_983)),
    ],
)
@pytest.mark.parametrize("init", ["orthogonal", "uniform"])
def test_torsos_have_the_published_sizes(torso, parameters, init):
    network = PolicyValueNetwork(6, NetworkConfig(torso=torso, init=init))
    made = lambda: init_params(network, jax.random.key(0))  # noqa: E731
    params = jax.eval_shape(made)
    # nips: 8*8*4*16+16 + 4*4*16*32+32 + 2592*256+256 + 256*7+7
    # nature: 8*8*4*32+32 + 4*4*32*64+64 + 3*3*64*64+64 + 3136*512+512 + 512*7+7
    # impala: (9*4*16+16 + 4*(9*16*16+16)) + (9*16*32+32 + 4*(9*32*32+32)) + 5*(9*32*32+32)
    #         + 11*11*32*256+256 + 256*7+7
    # hadamax: 2 of each convolution of nature's + 11*11*64*512+512 + 512*7+7
    # gamma_hadamax: 2 of each convolution of gamma's + 3136*512+512 + 512*7+7
    assert sum(x.size for x in jax.tree.leaves(params)) == parameters
    outputs = jax.eval_shape(network.apply, {"params": params}, jnp.zeros((2, 84, 84, 4)))
    assert outputs.logits.shape == (2, 6)
    assert outputs.value.shape == (2,)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gamma_equals_the_layers_of_flax(layer_norm):
    layers = [(32, 2, 1), (48, 2, 1), (64, 1, 0), (64, 2, 0), (64, 1, 0)]  # filters, stride, border
    config = NetworkConfig(torso="gamma", layer_norm=layer_norm)
    images = np.random.default_rng(0).random((2, 44, 40, 4)).astype(np.float32)
    torso = Torso(config)
    shapes = jax.eval_shape(lambda: torso.init(jax.random.key(0), images))["params"]
    leaves, tree = jax.tree.flatten(shapes)
    random = np.random.default_rng(1)
    # Scales, offsets and biases that matter.
    leaves = [jnp.asarray(random.normal(size=x.shape) / 10, jnp.float32) for x in leaves]
    params = jax.tree.unflatten(tree, leaves)

    def activated(x, number):
        norm = nn.LayerNorm()
        return nn.relu(
            norm.apply({"params": params[f"LayerNorm_{number}"]}, x) if layer_norm else x
        )

    @jax.jit
    def expected(x):
        for number, (filters, stride, border) in enumerate(layers):
            edges = ((border, border), (border, border))
            conv = nn.Conv(filters, (3, 3), (stride, stride), edges)
            x = activated(conv.apply({"params": params[f"Conv_{number}"]}, x), number)
        x = nn.Dense(512).apply({"params": params["Dense_0"]["Dense_0"]}, x.reshape(len(x), -1))
        return activated(x, len(layers))

    (ours,) = jax.jit(torso.apply)({"params": params}, images)
    np.testing.assert_allclose(ours, expected(images), rtol=1e-4, atol=1e-5)


def test_statistics_equal_numpy_over_batches_and_devices():
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, 5, 84, 84), dtype=np.uint8)
    config = NetworkConfig(normalize_observations=True)
    one = init_statistics(config)
    statistics = jax.tree.map(lambda x: jnp.stack([x, x]), one)
    update = jax.jit(jax.vmap(update_statistics, axis_name=AXIS))
    for batch in frames:
        statistics = update(statistics, batch)
    scaled = frames.reshape(-1, 84, 84, 1) / 255
    for device in range(2):
        np.testing.assert_allclose(statistics.mean[device], scaled.mean(0), rtol=1e-6)
        np.testing.assert_allclose(statistics.variance[device], scaled.var(0), rtol=2e-6)
        assert statistics.samples[device] == 30


def batch_statistics(frames, devices=1):
    """Returns the statistics of frames u8[T, E, H, W] alone, their E divided among devices."""
    config = NetworkConfig(normalize_observations=True)
    parts = np.stack(np.split(frames, devices, axis=1))
    one = init_statistics(config, frames.shape[-2:])
    update = jax.jit(jax.vmap(update_statistics, (None, 0), axis_name=AXIS))
    return jax.tree.map(lambda x: np.asarray(x[0]), update(one, parts))


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_nearly_constant_pixels_have_their_variance_on_any_devices(devices):
    """One frame in 320 is a level off: Var = (1/320)(1 - 1/320), by 255² as pixels are scaled."""
    frames = np.full((20, 16, 16, 16), np.arange(256, dtype=np.uint8).reshape(16, 16))
    frames[3, 5] ^= 1
    statistics = batch_statistics(frames, devices)
    exact = (1 / 320) * (1 - 1 / 320) / 255**2
    np.testing.assert_allclose(statistics.variance, exact, rtol=1e-6)
    np.testing.assert_allclose(statistics.mean[..., 0], frames.mean((0, 1)) / 255, rtol=1e-6)
    for ours, whole in zip(statistics, batch_statistics(frames), strict=True):
        np.testing.assert_array_equal(ours, whole)


def test_sums_of_bytes_stay_exact_in_large_batches(monkeypatch):
    """The squares of 2¹⁸ bytes sum to up to four times 2³²; more bytes go in several parts."""
    bright = np.full((64, 4096, 1, 2), 255, np.uint8)
    bright[:32, :, :, 1] = 0  # of the largest variance there is
    bright[0] = 254
    for exact_frames in (2**18, 2**16):
        monkeypatch.setattr(running_statistics, "EXACT_FRAMES", exact_frames)
        statistics = batch_statistics(bright)
        scaled = bright.reshape(-1, 1, 2, 1) / 255
        assert statistics.samples == 2**18
        np.testing.assert_allclose(statistics.mean, scaled.mean(0), rtol=1e-6)
        np.testing.assert_allclose(statistics.variance, scaled.var(0), rtol=1e-4)


def test_normalization_is_the_standard_score_and_is_clipped():
    statistics = RunningStatistics(
        jnp.float32(10), jnp.full((84, 84, 1), 0.2), jnp.full((84, 84, 1), 0.04)
    )
    observation = jnp.full((1, 84, 84, 4), 102, jnp.uint8)  # 0.4: one standard deviation up
    np.testing.assert_allclose(normalize(observation, statistics), 1.0, atol=1e-3)
    still = statistics._replace(variance=jnp.zeros((84, 84, 1)))
    np.testing.assert_allclose(normalize(observation, still), CLIP)
    np.testing.assert_allclose(normalize(observation, ()), 0.4, atol=1e-6)


def test_a_blank_frame_enters_no_statistics():
    frames = np.random.default_rng(0).integers(1, 256, (2, 5, 12, 8), dtype=np.uint8)
    frames[0, 3] = frames[1, :2] = 0
    config = NetworkConfig(normalize_observations=True)
    one = init_statistics(config, (12, 8))
    skip = partial(update_statistics, skip_blank=True)
    update = jax.jit(jax.vmap(skip, axis_name=AXIS))
    nothing = update(jax.tree.map(lambda x: jnp.stack([x, x]), one), frames * np.uint8(0))
    for before, after in zip(one, nothing, strict=True):
        np.testing.assert_array_equal(after[1], before)
    statistics = update(nothing, frames)
    lit = frames[frames.any((-2, -1))][..., None] / 255
    np.testing.assert_array_equal(statistics.samples, 7)
    np.testing.assert_allclose(statistics.mean[1], lit.mean(0), atol=1e-6)
    np.testing.assert_allclose(statistics.variance[1], lit.var(0), atol=1e-6)
    every = jax.jit(jax.vmap(update_statistics, axis_name=AXIS))(nothing, frames)
    np.testing.assert_allclose(every.mean[1], frames.mean((0, 1))[..., None] / 255, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("skip_blank", [True, False])
def test_the_order_of_blocks_changes_no_value(size, normalized, skip_blank):
    """Of each pixel of each frame: its standard score, or 0 where its frame is blank."""
    random = np.random.default_rng(0)
    observation = random.integers(0, 256, (2, 3, 12, 8, size), np.uint8)
    observation[0, 1, ..., size // 2] = observation[1, 2] = 0
    mean, variance = random.random((2, 12, 8, 1)).astype(np.float32)
    statistics = RunningStatistics(jnp.float32(10), mean, variance) if normalized else ()
    plain = normalize(jnp.asarray(observation), statistics, 1, skip_blank)
    expected = observation / 255
    if normalized:
        expected = np.clip((expected - mean) / np.sqrt(variance + 1e-5), -CLIP, CLIP)
        blank = ~observation.any((-3, -2), keepdims=True)
        expected = np.where(blank & skip_blank, 0, expected)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(normalize(observation, statistics, 4, skip_blank), plain)
    blocks = convolution.cut(plain, 4)
    np.testing.assert_array_equal(blocks[1, 2, 2, 1, 3, 0], plain[1, 2, 11, 4])
    np.testing.assert_array_equal(convolution.join(blocks), plain)
    cut_bytes = jax.jit(convolution.cut_bytes, static_argnums=1)
    np.testing.assert_array_equal(cut_bytes(observation, 4), convolution.cut(observation, 4))


@pytest.mark.parametrize(
    ("torso", "stride", "shape", "core"),
    [
        pytest.param("nips", 4, (44, 40), "none", marks=pytest.mark.slow),
        pytest.param("nips", 4, (44, 40), "lstm", marks=pytest.mark.slow),
        pytest.param("nips", 3, (33, 36), "none", marks=pytest.mark.slow),
        ("nips", 4, (45, 38), "none"),
        pytest.param("nips", 4, (45, 38), "lstm", marks=pytest.mark.slow),
        pytest.param("impala", 4, (20, 16), "none", marks=pytest.mark.slow),
    ],
)
def test_the_network_sees_what_is_normalized(torso, stride, shape, core):
    """A frame without light is the mean frame, which is 0, with a core too."""
    config = NetworkConfig(
        torso,
        first_stride=stride,
        normalize_observations=True,
        skip_blank_frames=True,
        core=core,
        core_units=8,
    )
    network = PolicyValueNetwork(3, config)
    params = init_params(network, jax.random.key(0), shape)
    random = np.random.default_rng(0)
    stacks = jnp.asarray(random.integers(0, 256, (2, *shape, 4)), jnp.uint8)
    stacks = stacks.at[0, ..., 3].set(0)
    mean, variance = random.random((2, *shape, 1)).astype(np.float32)
    statistics = RunningStatistics(jnp.float32(10), mean, variance)
    x = (stacks / 255 - mean) / np.sqrt(variance + 1e-5)
    x = jnp.clip(x, -CLIP, CLIP).at[0, ..., 3].set(0)
    observation, normalized = stacks, x
    if core != "none":
        observation = first_observation(stacks, core_of(config))
        one_step = jax.tree.map(lambda row: row[:, None], observation)
        normalized = one_step._replace(stack=x[:, None])
    ours = jax.jit(partial(forward, network))(params, statistics, observation)
    expected = network.apply({"params": params}, normalized)
    for name in ("logits", "value"):
        got, wanted = getattr(ours, name), getattr(expected, name)
        np.testing.assert_allclose(got, wanted.reshape(got.shape), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("core", "dtype"),
    [
        ("none", "float32"),
        pytest.param("lstm", "float32", marks=pytest.mark.slow),
        pytest.param("none", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_on_a_cpu_without_kernels_no_pixel_is_moved_as_a_float(core, dtype, monkeypatch):
    monkeypatch.setattr(library, "lanes", lambda: None)
    config = NetworkConfig(
        "nips", normalize_observations=True, core=core, core_units=8, dtype=dtype
    )
    network = PolicyValueNetwork(3, config)
    statistics = init_statistics(config, (24, 20))
    params = init_params(network, jax.random.key(0), (24, 20))
    stacks = jnp.zeros((7, 5, 24, 20, 4), jnp.uint8)

    def value(params, stacks):
        observation = stacks
        if core != "none":
            first = first_observation(stacks[:, 0], core_of(config))
            observation = jax.tree.map(lambda x: jnp.repeat(x[:, None], 5, 1), first)
            observation = observation._replace(stack=stacks)
        return forward(network, params, statistics, observation).value.sum()

    for function in (value, jax.grad(value)):
        text = jax.jit(function).lower(params, stacks).compile().as_text()
        moved = re.findall(r"= (\w+)\[([\d,]+)\]\S* transpose\(", text)
        sizes = {(kind, math.prod(map(int, shape.split(",")))) for kind, shape in moved}
        assert ("u32", stacks.size // 4) in sizes
        assert not {("f32", stacks.size), ("bf16", stacks.size)} & sizes


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_bfloat16_computes_about_the_same_with_float32_parameters(platform, monkeypatch):
    """By the kernels of a CPU, and by XLA's operations, as GPUs have it."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(library, "multiplies_bfloat16", lambda: True)
    x = jnp.asarray(np.random.default_rng(0).random((4, 84, 84, 4)), jnp.float32)
    outputs = {}
    for dtype in ("float32", "bfloat16"):
        config = NetworkConfig(torso="nips", dtype=dtype)
        network = PolicyValueNetwork(3, config)
        params = init_params(network, jax.random.key(0))

        def value(params, network=network):
            return network.apply({"params": params}, x).value.sum()

        gradient = jax.jit(jax.grad(value))(params)
        assert {leaf.dtype for leaf in jax.tree.leaves((params, gradient))} == {
            jnp.dtype("float32")
        }
        outputs[dtype] = jax.jit(network.apply)({"params": params}, x).value, gradient
    exact, rounded = (np.asarray(outputs[dtype][0]) for dtype in ("float32", "bfloat16"))
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded - exact).max() < 0.02 * np.abs(exact).max()
    for a, b in zip(*(jax.tree.leaves(outputs[d][1]) for d in outputs), strict=True):
        assert np.linalg.norm(a - b) <= 0.2 * np.linalg.norm(a)


@pytest.mark.parametrize("dueling", [False, True])
def test_hidden_norm_gives_each_stream_numbers_of_mean_0_and_deviation_1(dueling):
    """Against the layer computed by hand; convolutions stay as they are."""
    config = NetworkConfig(torso="nips", hidden_norm=True, dueling=dueling, units=16)
    network = Torso(config, streams=1 + dueling)
    frames = jax.random.uniform(jax.random.key(1), (5, 44, 44, 4))
    params = network.init(jax.random.key(0), frames)["params"]
    streams = range(1 + dueling)
    norms = {f"HiddenNorm_{n}" for n in streams}
    assert params.keys() == {"Conv_0", "Conv_1", *(f"Dense_{n}" for n in streams), *norms}
    outputs = network.apply({"params": params}, frames)
    plain = Torso(dataclasses.replace(config, hidden_norm=False), streams=1 + dueling)
    kept = {name: x for name, x in params.items() if name not in norms}
    for n, output in zip(streams, outputs, strict=True):
        # Of both signs after the shift, so that the rectifier hides nothing: relu(x) - relu(-x).
        turned = kept | {f"Dense_{n}": jax.tree.map(jnp.negative, params[f"Dense_{n}"])}
        positive = plain.apply({"params": kept}, frames)[n]
        x = np.asarray(positive - plain.apply({"params": turned}, frames)[n], np.float64)
        assert (x < 0).any()
        mean = x.mean(axis=1, keepdims=True)
        score = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + 1e-6)
        scale = 1 + np.arange(16) / 16
        shifted = params | {
            f"HiddenNorm_{n}": {"scale": jnp.asarray(scale), "bias": jnp.full(16, 0.25)}
        }
        np.testing.assert_allclose(output, np.maximum(score, 0), rtol=1e-4, atol=1e-5)
        moved = network.apply({"params": shifted}, frames)[n]
        np.testing.assert_allclose(moved, np.maximum(score * scale + 0.25, 0), rtol=1e-4, atol=1e-5)


def test_layer_norm_includes_hidden_norm():
    both = Torso(NetworkConfig(torso="nips", hidden_norm=True, layer_norm=True))
    params = jax.eval_shape(both.init, jax.random.key(0), jnp.zeros((1, 44, 44, 4)))["params"]
    assert {name for name in params if "Norm" in name} == {f"LayerNorm_{n}" for n in range(3)}
