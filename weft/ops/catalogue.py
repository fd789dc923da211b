"""The catalogue: all operators, by name."""

from __future__ import annotations

from weft.ops.attention import ATTENTIONS
from weft.ops.binary import BINARY
from weft.ops.bits import BITS
from weft.ops.contraction import CONTRACTIONS
from weft.ops.convolution import CONVOLUTIONS
from weft.ops.creation import CREATION
from weft.ops.definition import OpDef
from weft.ops.dynamic import DYNAMIC
from weft.ops.indexing import INDEXING
from weft.ops.normalization import NORMALIZATIONS
from weft.ops.packed_weights import PACKED_MATMUL
from weft.ops.packing import PACKING
from weft.ops.pictures import PICTURES
from weft.ops.pooling import POOLS
from weft.ops.random import RANDOM
from weft.ops.reduce import REDUCTIONS
from weft.ops.resize import RESIZE
from weft.ops.search import SEARCH
from weft.ops.shape import SHAPES
from weft.ops.softmax import SOFTMAX
from weft.ops.suppression import SUPPRESS
from weft.ops.text import TEXTS
from weft.ops.unary import UNARY
from weft.ops.windows import WINDOWS
from weft.ops.winograd import WINOGRAD_CONV
from weft.support.errors import UserError
from weft.support.words import did_you_mean

OPERATORS: dict[str, OpDef] = {
    entry.name: entry
    for entry in (
        *UNARY,
        *BINARY,
        *BITS,
        *REDUCTIONS,
        *CONTRACTIONS,
        *CONVOLUTIONS,
        *POOLS,
        *NORMALIZATIONS,
        *SOFTMAX,
        *SHAPES,
        *INDEXING,
        *CREATION,
        RANDOM,
        *SEARCH,
        SUPPRESS,
        *ATTENTIONS,
        RESIZE,
        *WINDOWS,
        *DYNAMIC,
        *PACKING,
        WINOGRAD_CONV,
        PACKED_MATMUL,
        *TEXTS,
        *PICTURES,
    )
}


def op(name: str) -> OpDef:
    """The operator called ``name``; UserError T001 if there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise UserError(
            f"there is no operator '{name}'",
            code="T001",
            hint=did_you_mean(name, OPERATORS, "docs/operators.md lists all"),
        ) from None
