"""Settings of the network; `schema` has the other sections.

In the text of a field {can_remember} stands for the algorithms that can (`descriptions`).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from jaxrl.config import extensions
from jaxrl.config.bounds import Count, CountOrZero, Names, Positive

TORSOS = Names(("nips", "nature", "gamma", "hadamax", "gamma_hadamax", "impala"), extensions.TORSOS)


@dataclass(frozen=True)
class NetworkConfig:
    """The network between the stacked frames and the heads."""

    torso: Annotated[str, TORSOS] = "nature"
    """nips: 2 convolutions, 256 units (Mnih 2013); nature: 3 convolutions, 512 units (Mnih 2015);
    gamma: 5 convolutions with kernels of 3 x 3, 512 units (Shieenavaz 2026); hadamax: products of
    two convolutions each, then max pooling, in the shapes of nature, 512 units (Kooi 2025);
    gamma_hadamax: the same in the shapes of gamma; impala: residual network of 15 convolutions, 256
    units (Espeholt 2018); or the name of another package's"""
    first_stride: Annotated[int, Ge(1), Le(8)] = 4  # the kernel has 8 pixels
    """nips, nature: stride of the first convolution; GA3C's larger networks have 3, 2 or 1"""
    extra_layers: Annotated[int, Ge(0), Le(16)] = 0
    """nips, nature, gamma: further convolutions like the last, with a 3 x 3 kernel and stride 1"""
    width: Annotated[int, Ge(1), Le(16)] = 1
    """impala: factor on the channels of all convolutions (Beyond the Rainbow has 2)"""
    spectral_norm: bool = False
    """impala: divide the kernels of the residual blocks by their largest singular value (Miyato
    2018; Beyond the Rainbow)"""
    max_pool: Annotated[int, Ge(0), Le(64)] = 0
    """impala: rows and columns that adaptive max pooling leaves of the last image, each the largest
    of its part; 0 leaves the image (Beyond the Rainbow has 6)"""
    units: CountOrZero = 0
    """units of the layer above the convolutions, without a core of each stream; 0 takes the
    torso's"""
    simplicial_groups: CountOrZero = 0
    """equal groups of that layer's units; a group's activation is a softmax, a point of a simplex
    (Lavoie 2023, Obando-Ceron 2025); 0: none"""
    simplicial_temperature: Positive = 1.0
    """temperature of that softmax: a smaller one brings the points nearer to corners"""
    init: Literal["orthogonal", "uniform"] = "orthogonal"
    """orthogonal: gain sqrt(2), policy 0.01, value 1; uniform: +-1/sqrt(fan in), as Torch 7"""
    dueling: bool = False
    """value-based agents: separate streams of state value and advantage (Wang 2016)"""
    noisy: bool = False
    """{can_be_noisy}: learned noise in the layers above the convolutions explores (Fortunato 2018),
    which begin as that paper's, not by `init`; set epsilon to 0 with it, unless both shall explore
    (Beyond the Rainbow)"""
    layer_norm: bool = False
    """normalize over the channels after every layer below the heads (PQN, Gallici 2025); impala:
    after the first convolution of each section and the layer above the convolutions (Beyond the
    Rainbow there normalizes over pixels too); not the embedding of iqn"""
    hidden_norm: bool = False
    """normalize the layer above the convolutions, before it is activated; otherwise more than half
    of its units can die, that is, be 0 for every image; layer_norm includes it"""
    normalize_observations: bool = False
    """normalize each pixel by its running mean and standard deviation (CuLE)"""
    skip_blank_frames: bool = False
    """with normalize_observations, for env.flicker: a frame that is all 0 is missing; it enters no
    statistics, and the network sees the mean frame in its place"""
    core: Literal["none", "lstm", "gru"] = "none"
    """{can_remember}: recurrent layer between the torso and the heads, which remembers earlier
    steps of the game"""
    core_units: Count = 256
    """units of the recurrent layer"""
    core_inputs: bool = True
    """the recurrent layer also sees the last action and the last reward, clipped to +-1 (IMPALA)"""
    core_resets: Literal["game", "life"] = "game"
    """the recurrent layer's state is zeroed where a game begins; life: with env.episodic_life where
    a life is lost, too"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """type of the layers below the heads; products of bfloat16 are summed in float32; parameters,
    heads and losses are float32 always. On a CPU what our kernels multiply is rounded, all else is
    float32, and float32 takes its place where the processor has no AVX512_BF16"""

    @property
    def remembers(self) -> bool:
        """Returns whether there is a recurrent core, with which agents learn from sequences."""
        return self.core != "none"

    @property
    def core_size(self) -> int:
        """Numbers of the recurrent core's state; 0 without one."""
        return {"none": 0, "gru": 1, "lstm": 2}[self.core] * self.core_units
