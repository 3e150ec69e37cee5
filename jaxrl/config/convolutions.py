"""The convolutions of the torsos, and the units above them."""

from typing import Literal, NamedTuple

from jaxrl.config import extensions
from jaxrl.config.network import NetworkConfig


class Convolution(NamedTuple):
    """A layer of a torso that is a chain of convolutions."""

    filters: int
    size: int  # pixels of the kernel's side
    stride: int = 1
    padding: int = 0  # pixels of zeros on each side


# The convolutions, then the units of the dense layer.
CONVOLUTIONS: dict[str, tuple[tuple[Convolution, ...], int]] = {
    "nips": ((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),  # Mnih 2013
    "nature": (
        (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3)),
        512,
    ),  # Mnih 2015
    # Shieenavaz 2026 (tahashieenavaz/aftab). As Nature's, 7 x 7 x 64 numbers of 84 x 84 pixels are
    # left, and its smaller kernels take 2.6 times as many products.
    "gamma": (
        (
            *(Convolution(32, 3, 2, 1), Convolution(48, 3, 2, 1), Convolution(64, 3)),
            *(Convolution(64, 3, 2), Convolution(64, 3)),
        ),
        512,
    ),
}
HAS_FIRST_STRIDE = ("nips", "nature")


class Block(NamedTuple):
    """A block of Hadamax: two convolutions that keep the image's size, and max pooling."""

    filters: int
    size: int  # pixels of the kernels' sides
    window: int  # pixels of the pooled window's side
    stride: int  # pixels from one window to the next


class Hadamax(NamedTuple):
    """The blocks of a Hadamax encoder."""

    blocks: tuple[Block, ...]
    # Windows at the borders: SAME pads them, VALID leaves out those that are cut.
    edges: Literal["SAME", "VALID"]


HADAMAX = {
    # Kooi 2025, appendix B: the kernels and strides of Nature's; the stride is that of the pooling.
    "hadamax": Hadamax((Block(32, 8, 4, 4), Block(64, 4, 2, 2), Block(64, 3, 3, 1)), "SAME"),
    # The same of Gamma's, which leaves its 7 x 7 x 64 numbers of 84 x 84 pixels, as
    # tahashieenavaz/aftab has it. There convolutions have no biases, GELU is exact where ours is
    # that of tanh, and the layer above them is rectified.
    "gamma_hadamax": Hadamax(
        (
            *(Block(32, 3, 2, 2), Block(48, 3, 2, 2), Block(64, 3, 3, 1)),
            *(Block(64, 3, 2, 2), Block(64, 3, 3, 1)),
        ),
        "VALID",
    ),
}
HADAMAX_UNITS = 512
# The deep network of Espeholt 2018, figure 3: filters of its sections, of which each halves the
# image, and the units above them.
IMPALA_FILTERS, IMPALA_UNITS = (16, 32, 32), 256


def convolutions(network: NetworkConfig) -> tuple[Convolution, ...]:
    """Returns the layers of a torso that is a chain of convolutions."""
    first, *others = CONVOLUTIONS[network.torso][0]
    if network.torso in HAS_FIRST_STRIDE:
        first = first._replace(stride=network.first_stride)
    extra = (Convolution(others[-1].filters, 3),) * network.extra_layers
    return (first, *others, *extra)


def pixels_left(network: NetworkConfig, length: int) -> int:
    """Returns the pixels that a torso leaves of a side's; below 1 nothing is left.

    The torso is a chain of convolutions or of Hadamax's blocks.
    """
    if network.torso in HADAMAX:
        blocks, edges = HADAMAX[network.torso]
        for _, _, window, stride in blocks:
            whole = -(-length // stride) if edges == "SAME" else (length - window) // stride + 1
            length = max(whole, 0)
        return length
    for _, size, stride, padding in convolutions(network):
        length = (length + 2 * padding - size) // stride + 1
    return length


def units_above(network: NetworkConfig) -> int:
    """Returns the units of the layer above the convolutions."""
    if network.units:
        return network.units
    if network.torso == "impala":
        return IMPALA_UNITS
    if network.torso in HADAMAX:
        return HADAMAX_UNITS
    if network.torso in CONVOLUTIONS:
        return CONVOLUTIONS[network.torso][1]
    units: int = extensions.torso(network.torso).UNITS
    return units
