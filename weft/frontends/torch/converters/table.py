"""The table of converters: ATen operator (without its overload) → function from a call to its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from weft.frontends.torch.converters.contraction import CONTRACTION
from weft.frontends.torch.converters.creation import CREATION
from weft.frontends.torch.converters.elementwise import ELEMENTWISE
from weft.frontends.torch.converters.indexing import INDEXING
from weft.frontends.torch.converters.movement import MOVEMENT
from weft.frontends.torch.converters.normalization import NORMALIZATION
from weft.frontends.torch.converters.reduction import REDUCTION
from weft.frontends.torch.converters.windows import WINDOWS
from weft.frontends.torch.node import AtenNode, Result

CONVERTERS: Final[Mapping[str, Callable[[AtenNode], Result]]] = MappingProxyType(
    {
        name: convert
        for family in (
            ELEMENTWISE,
            REDUCTION,
            MOVEMENT,
            INDEXING,
            CREATION,
            CONTRACTION,
            NORMALIZATION,
            WINDOWS,
        )
        for name, convert in family.items()
    }
)

KEPT: Final = frozenset(
    (
        *("linear", "matmul", "einsum", "scaled_dot_product_attention", "bilinear"),
        *("layer_norm", "group_norm", "instance_norm", "batch_norm", "rms_norm", "softmax", "log_softmax"),
        *("gelu", "silu", "mish", "hardswish", "hardsigmoid", "softplus", "selu", "celu", "relu6", "prelu"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "one_hot", "movedim", "repeat_interleave"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
        *("upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d"),
        *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "var_mean", "std", "addmm", "baddbmm"),
        *("masked_fill", "stack", "unbind", "split", "chunk", "tile", "roll", "tril", "triu", "clamp_min"),
        *("clamp_max", "hardtanh", "leaky_relu", "elu", "rsub", "square", "nan_to_num", "unfold", "diagonal"),
    )
)
"""Operators that are imported as they are, though PyTorch can take them apart: the whole says more than its parts."""
