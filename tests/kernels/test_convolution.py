"""The kernels compute what XLA's convolution does in float64, on any number of threads."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.network import NetworkConfig
from jaxrl.kernels import library
from jaxrl.kernels.convolution import Form, convolution, fits
from jaxrl.networks import convolution as layers
from jaxrl.networks.actors import forward, init_actor
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.runtime import native_library
from tests import native

# (images, height, width, channels, kernel, filters, form): those of the networks, and odd ones
LAYERS = [
    (1, 60, 60, 4, 8, 16, Form(4, rectify=True)),
    (40, 14, 14, 16, 4, 32, Form(2, rectify=True)),
    pytest.param((3, 84, 84, 4, 8, 32, Form(4)), marks=pytest.mark.slow),
    pytest.param((21, 20, 20, 32, 4, 64, Form(2, rectify=True)), marks=pytest.mark.slow),
    (17, 9, 9, 64, 3, 64, Form(1, rectify=True)),
    (2, 42, 42, 16, 3, 16, Form(padding=1, rectify_inputs=True)),
    (5, 21, 17, 16, 3, 32, Form(padding=1)),
    (4, 45, 38, 12, 8, 16, Form(3, rectify=True)),
    (3, 11, 9, 5, 5, 48, Form(2, padding=2, rectify_inputs=True, rectify=True)),
    # As in the third one of Nature's, each tap has a product for the gradient of the inputs.
    (2, 6, 5, 16, 3, 32, Form(padding=1, rectify_inputs=True)),
    (3, 7, 6, 16, 3, 48, Form(2, padding=1, rectify_inputs=True)),
]


def arrays(images, height, width, channels, size, filters, dtype=jnp.float32):
    random = np.random.default_rng(0)
    shapes = (
        (images, height, width, channels),
        (size, size, channels, filters),
        (filters,),
    )
    x, kernel, bias = (random.normal(size=shape) for shape in shapes)
    return [jnp.asarray(array, dtype) for array in (x, kernel / size / channels**0.5, bias)]


def with_gradients(function, given):
    """Returns outputs and the gradients by all arguments, for a gradient that is not constant."""

    def loss(*given):
        y = function(*given)
        return jnp.sum(jnp.sin(y)), y

    (_, y), gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*given)
    return jax.device_get((y, *gradients))


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: "-".join(map(str, case[:6])))
def test_a_layer_and_its_gradients_equal_xlas_in_float64(case):
    form = case[-1]
    ours = with_gradients(lambda *given: convolution(*given, form), arrays(*case[:-1]))
    with jax.enable_x64():
        exact = with_gradients(
            lambda *given: layers.product_layer(*given, form, layers.xla_convolution),
            arrays(*case[:-1], dtype=jnp.float64),
        )
    for mine, theirs in zip(ours, exact, strict=True):
        assert (mine.dtype, theirs.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=4e-6 * np.abs(theirs).max())


def rounded(x):
    """Rounds to bfloat16, exactly kept in float64."""
    return jnp.asarray(jnp.asarray(x, jnp.float32).astype(jnp.bfloat16), jnp.float64)


@pytest.mark.parametrize(
    "case", [LAYERS[1], *LAYERS[4:8], *LAYERS[-2:]], ids=lambda case: "-".join(map(str, case[:6]))
)
def test_products_of_bfloat16_are_exact_but_for_their_factors(case):
    """Of factors that are rounded to bfloat16, products and sums are those of float64."""
    form = case[-1]._replace(bfloat16=True)
    x, kernel, bias = arrays(*case[:-1])
    y, pullback = jax.vjp(lambda *given: convolution(*given, form), x, kernel, bias)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=y.shape), jnp.float32)
    ours = jax.device_get((y, *pullback(gradient)))
    with jax.enable_x64():
        surroundings = form._replace(rectify=False, rectify_inputs=False)
        inputs = jnp.maximum(x, 0) if form.rectify_inputs else x
        exact, product_of = jax.vjp(
            lambda x, kernel: layers.product_layer(
                x, kernel, jnp.asarray(bias, jnp.float64), surroundings, layers.xla_convolution
            ),
            rounded(inputs),
            rounded(kernel),
        )
        assert exact.dtype == jnp.float64
        passed = jnp.where(exact > 0, gradient, 0) if form.rectify else gradient
        of_x, of_kernel = product_of(rounded(passed))
        of_x = jnp.where(x > 0, of_x, 0) if form.rectify_inputs else of_x
        of_bias = jnp.sum(jnp.asarray(passed, jnp.float64), (0, 1, 2))
        theirs = jnp.maximum(exact, 0) if form.rectify else exact, of_x, of_kernel, of_bias
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, other, rtol=0, atol=4e-6 * np.abs(other).max())


def test_an_odd_number_of_channels_has_products_of_float32():
    *sizes, form = LAYERS[8]
    half, single = (
        with_gradients(lambda *given, f=form: convolution(*given, f), arrays(*sizes))
        for form in (form._replace(bfloat16=True), form)
    )
    for one, other in zip(half, single, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_nothing_wrong(source, tmp_path, *flags):
    flags = ("-std=c++20", "-O2", "-Wno-psabi", "-pthread", *flags)
    program = native.build(Path(__file__).with_name(source), library.NATIVE, tmp_path, *flags)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lanes, 0 wrong" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-march=native", "-mavx2 -mfma", "-msse2"])
def test_kernels_of_every_width_stay_in_their_memory(flags, tmp_path):
    machine = native_library._processor()
    if any(flag not in machine for flag in flags.replace("-m", "").split() if "=" not in flag):
        pytest.skip("not of this processor")
    for source in ("convolution.cc", "dense.cc", "normalization.cc"):
        assert_nothing_wrong(source, tmp_path, *flags.split(), *native.SANITIZED)


@pytest.mark.slow
@pytest.mark.parametrize("sanitized", [native.SANITIZED, ("-fsanitize=thread",)], ids="-".join)
def test_threads_that_share_a_batch_stay_in_their_part(sanitized, tmp_path):
    """Padded, rectified and of bytes; and a pool whose threads never come holds up nobody."""
    for source in ("layers.cc", "dense.cc", "normalization.cc"):
        assert_nothing_wrong(source, tmp_path, "-march=native", *sanitized)


def test_one_function_shuffles_as_the_oldest_compiler_does():
    """g++ 11 has no __builtin_shufflevector, and would leave everything to XLA."""
    sources = sorted(library.NATIVE.glob("*.*"))
    users = [path.name for path in sources if "__builtin_shuffle" in path.read_text("utf-8")]
    assert users == ["lanes.h"]


def test_images_below_the_kernel_are_refused():
    x, kernel, bias = arrays(1, 7, 9, 4, 8, 16)
    with pytest.raises(ValueError, match=r"images \(7, 9\) are too small for a kernel of 8"):
        convolution(x, kernel, bias, Form(4))


# Of a batch that is shared among threads.
DIGEST = """
import hashlib
from tests.kernels.test_convolution import LAYERS, arrays, with_gradients
from jaxrl.kernels.convolution import convolution
half = LAYERS[5][-1]._replace(bfloat16=True)
for case in (LAYERS[1], LAYERS[4], LAYERS[5], (*LAYERS[5][:-1], half)):
    results = with_gradients(lambda *given: convolution(*given, case[-1]), arrays(*case[:-1]))
    print(hashlib.sha256(b"".join(x.tobytes() for x in results)).hexdigest())
"""


@pytest.mark.slow
def test_threads_change_no_bit():
    """Of one thread and of three, which XLA counts by this variable: on any number of cores."""
    command = [sys.executable, "-c", DIGEST]
    one, three = (
        subprocess.run(
            command, env=os.environ | {"NPROC": threads}, capture_output=True, text=True, check=True
        ).stdout.split()
        for threads in ("1", "3")
    )
    assert len(one) == len(set(one)) == 4
    assert one == three


def test_members_of_a_population_equal_layers_alone():
    case = LAYERS[6]
    x, kernel, bias = arrays(*case[:-1])
    kernels, biases = (jnp.stack([a, 2 * a]) for a in (kernel, bias))

    def both(x, kernels, biases):
        return jax.vmap(lambda *given: convolution(*given, case[-1]), (None, 0, 0))(
            x, kernels, biases
        )

    together = with_gradients(both, (x, kernels, biases))
    alone = [
        with_gradients(lambda *given: convolution(*given, case[-1]), (x, kernels[i], biases[i]))
        for i in (0, 1)
    ]
    for i in (0, 1):
        np.testing.assert_array_equal(together[0][i], alone[i][0])
        np.testing.assert_array_equal(together[2][i], alone[i][2])
        np.testing.assert_array_equal(together[3][i], alone[i][3])
    np.testing.assert_allclose(together[1], alone[0][1] + alone[1][1], rtol=1e-6, atol=1e-6)


def test_what_is_not_a_number_stays_so_and_has_no_gradient_through_a_rectifier():
    form = Form(1, rectify_inputs=True, rectify=True)
    x, kernel, bias = arrays(1, 3, 3, 16, 3, 16)
    bias = jnp.full_like(bias, 5.0)  # outputs are above 0
    spoilt = x.at[0, 1, 1, 2].set(jnp.nan)
    for function in (convolution, layers.product_layer):
        y, of_x, _, _ = with_gradients(
            lambda *given, f=function: f(*given, form), (x, kernel, bias)
        )
        assert np.isfinite(y).all()
        assert (of_x[np.asarray(x) <= 0] == 0).all()
        y, *_ = with_gradients(lambda *given, f=function: f(*given, form), (spoilt, kernel, bias))
        assert np.isnan(y).all()


def test_a_member_of_a_population_needs_no_loop():
    """XLA keeps a loop of one round, and copies what it carries."""
    x, kernel, bias = arrays(1, 9, 9, 4, 3, 16)
    layer = jax.vmap(lambda *given: convolution(*given, Form(2)))
    text = jax.jit(layer).lower(x[None], kernel[None], bias[None]).as_text()
    assert library.FORWARD in text
    assert "while" not in text


def test_what_does_not_fit_is_left_to_xla():
    x, kernel, _ = arrays(1, 3, 3, 4, 3, 16)
    assert fits(x, kernel)
    assert not fits(x, kernel[..., :5])
    assert not fits(x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    "torso",
    [
        "nips",
        *(
            pytest.param(t, marks=pytest.mark.slow)
            for t in ("nature", "gamma", "hadamax", "gamma_hadamax", "impala")
        ),
    ],
)
@pytest.mark.parametrize("normalized", [pytest.param(False, marks=pytest.mark.slow), True])
def test_gradients_of_networks_equal_those_of_products(torso, normalized, monkeypatch):
    """From bytes: scaled, or by statistics, of which one pixel has never changed."""
    config = NetworkConfig(torso=torso, layer_norm=normalized, normalize_observations=normalized)
    network = PolicyValueNetwork(6, config)
    actor = init_actor(network, jax.random.key(0), (44, 40))
    random = np.random.default_rng(0)
    stacks = jnp.asarray(random.integers(0, 256, (3, 44, 40, 4), np.uint8))
    statistics = actor.statistics
    if normalized:
        mean, variance = (random.random((44, 40, 1)).astype(np.float32) / n for n in (1, 10))
        variance[3, 5] = 0
        statistics = statistics._replace(mean=mean, variance=variance)

    def loss(params):
        outputs = forward(network, params, statistics, stacks)
        return jnp.sum(outputs.value**2) + jnp.sum(jnp.sin(outputs.logits))

    ours = jax.jit(jax.grad(loss))(actor.params)
    monkeypatch.setattr(library, "lanes", lambda: None)
    theirs = jax.jit(jax.grad(lambda params: loss(params)))(actor.params)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=3e-5 * max(np.abs(other).max(), 1e-3))


def test_a_processor_without_bfloat16_multiplies_float32_and_one_line_says_so(monkeypatch, capsys):
    network = PolicyValueNetwork(6, NetworkConfig(torso="nips", dtype="bfloat16"))
    actor = init_actor(network, jax.random.key(0), (44, 40))
    stacks = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 44, 40, 4), np.uint8))

    def values():
        return forward(network, actor.params, actor.statistics, stacks).value

    class Old:
        def jaxrl_multiplies_bfloat16(self):
            return 0

    monkeypatch.setattr(library, "multiplies_bfloat16", lambda: True)
    half = values()
    monkeypatch.undo()
    monkeypatch.setattr(library, "_load", Old)
    library.multiplies_bfloat16.cache_clear()
    try:
        single = values()
        assert not library.multiplies_bfloat16()
    finally:
        library.multiplies_bfloat16.cache_clear()
    errors = capsys.readouterr().err
    assert errors.startswith("warning: network.dtype = 'bfloat16': this processor")
    assert errors.count("\n") == 1
    network = PolicyValueNetwork(6, NetworkConfig(torso="nips"))
    np.testing.assert_array_equal(single, values())
    assert 0 < np.abs(half - single).max() < 0.02 * np.abs(single).max()


def test_without_a_compiler_xla_takes_over_and_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(native_library, "compiler", lambda: None)
    library.lanes.cache_clear()
    x, kernel, bias = arrays(1, 9, 9, 4, 3, 16)
    try:
        assert not fits(x, kernel)
        assert layers.cuts_blocks()
        assert layers.layer(x, kernel, bias, Form(2)).shape == (1, 4, 4, 16)
    finally:
        library.lanes.cache_clear()
    errors = capsys.readouterr().err
    assert errors.startswith("warning: learning at the full speed of the cores: needs a C++")
    assert errors.count("\n") == 1
