"""The convolutions of the torsos, and the units above them."""

from typing import NamedTuple

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
    # As Nature's, 7 x 7 x 64 numbers of 84 x 84 pixels are left, and its smaller kernels take 2.6
    # times as many products.
    "gamma": (
        (
            *(Convolution(32, 3, 2, 1), Convolution(48, 3, 2, 1), Convolution(64, 3)),
            *(Convolution(64, 3, 2), Convolution(64, 3)),
        ),
        512,
    ),
}
HAS_FIRST_STRIDE = ("nips", "nature")
# The deep network of Espeholt 2018, figure 3: filters of its sections, of which each halves the
# image, and the units above them.
IMPALA_FILTERS, IMPALA_UNITS = (16, 32, 32), 256


def convolutions(network: NetworkConfig) -> tuple[tuple[Convolution, ...], int]:
    """Returns the layers of a torso that is a chain of convolutions, and the units above them."""
    (first, *others), units = CONVOLUTIONS[network.torso]
    if network.torso in HAS_FIRST_STRIDE:
        first = first._replace(stride=network.first_stride)
    extra = (Convolution(others[-1].filters, 3),) * network.extra_layers
    return (first, *others, *extra), units
