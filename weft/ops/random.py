"""Random numbers from a counter-based generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011).

A number is a function of a key and of its counter, which holds its place in the tensor. So numbers depend on no order
of evaluation: any number of threads, every backend and every schedule give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.support.dtypes import FLOAT32, INT64, DType

UINT32, UINT64 = DType("uint32"), DType("uint64")
ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
MAX_STREAMS: Final = 1 << 24
"""Streams of one seed. The number of a stream shares a word of the counter with the highest 8 bits of places."""
_WORD: Final = 0xFFFFFFFF
_UNIT: Final = {"float32": 2.0**-24, "float64": 2.0**-53}
"""The distance of neighbours of uniform numbers."""

Words: TypeAlias = "tuple[Expr, Expr, Expr, Expr]"


def _round_keys(key: tuple[int, int]) -> list[tuple[int, int]]:
    return [tuple((k + r * step) & _WORD for k, step in zip(key, KEY_STEPS, strict=True)) for r in range(ROUNDS)]  # type: ignore[misc]  # two


def philox(counter: Sequence[Expr], key: tuple[int, int]) -> Words:
    """The four random words (uint32) of a counter of four words under a key of two."""

    def halves(word: Expr, multiplier: int) -> tuple[Expr, Expr]:
        product = te.cast(word, UINT64) * te.const(multiplier, UINT64)
        return te.cast(product >> te.const(32, UINT64), UINT32), te.cast(product, UINT32)

    a, b, c, d = counter
    for first, second in _round_keys(key):
        high_a, low_a = halves(a, MULTIPLIERS[0])
        high_c, low_c = halves(c, MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ te.const(first, UINT32), low_c, high_a ^ d ^ te.const(second, UINT32), low_a
    return a, b, c, d


def philox_numpy(counter: Sequence[Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """The same with NumPy, on arrays of uint32."""
    a, b, c, d = (np.asarray(w, np.uint32) for w in counter)
    for first, second in _round_keys(key):
        x, y = a.astype(np.uint64) * np.uint64(MULTIPLIERS[0]), c.astype(np.uint64) * np.uint64(MULTIPLIERS[1])
        high = [(p >> np.uint64(32)).astype(np.uint32) for p in (x, y)]
        low = [p.astype(np.uint32) for p in (x, y)]
        a, b, c, d = high[1] ^ b ^ np.uint32(first), low[1], high[0] ^ d ^ np.uint32(second), low[0]
    return a, b, c, d


def _key(attrs: Attrs) -> tuple[int, int]:
    return attrs.seed & _WORD, attrs.seed >> 32 & _WORD


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (step,) = rel.tensors("random", types, 1)
    if step.dtype != INT64 or step.rank:
        rel.fail("random", f"the step must be one int64, not {step}", "T012")
    if attrs.dtype not in _UNIT or attrs.distribution not in ("uniform", "normal"):
        rel.fail("random", f"no {attrs.distribution} numbers of {attrs.dtype}; cast those of float32", "T015")
    if not 0 <= attrs.stream < MAX_STREAMS:
        rel.fail("random", f"the stream must be from 0 to {MAX_STREAMS - 1}, not {attrs.stream}", "T015")
    return TensorType(tuple(rel.simplified(s) for s in attrs.shape), DType(attrs.dtype))


def _compute(attrs: Attrs, out: TensorType, step: te.Tensor) -> Any:
    shape = [index(d) for d in out.shape]

    def element(*at: Expr) -> Expr:
        place: Expr = te.const(0, UINT64)
        for i, extent in zip(at, shape, strict=True):
            place = place * te.cast(extent, UINT64) + te.cast(i, UINT64)
        steps = te.cast(step[()], UINT64)
        thirty_two = te.const(32, UINT64)
        counter = (
            te.cast(place, UINT32),
            te.cast(place >> thirty_two, UINT32) + te.const(attrs.stream << 8, UINT32),
            te.cast(steps, UINT32),
            te.cast(steps >> thirty_two, UINT32),
        )
        words = philox(counter, _key(attrs))
        return _normal(words, out.dtype) if attrs.distribution == "normal" else _uniform(words[0], words[1], out.dtype)

    return te.compute(out.shape, element, name="random")


def _uniform(first: Expr, second: Expr, dtype: DType) -> Expr:
    """A number in [0, 1) from the highest bits of the words: every multiple of ``_UNIT`` is equally likely."""
    if dtype == FLOAT32:
        bits = te.cast(first >> te.const(8, UINT32), "int32")
    else:
        both = te.cast(first, UINT64) * te.const(1 << 32, UINT64) + te.cast(second, UINT64)
        bits = te.cast(both >> te.const(11, UINT64), INT64)
    return te.cast(bits, dtype) * te.const(_UNIT[str(dtype)], dtype)


def _normal(words: Words, dtype: DType) -> Expr:
    """Box and Muller's transform of two uniform numbers, of which the first is not 0."""
    if dtype == FLOAT32:
        angle = _uniform(words[1], words[1], dtype)
        radius = te.cast(words[0], dtype) * te.const(2.0**-32, dtype) + te.const(2.0**-33, dtype)
    else:
        angle = _uniform(words[2], words[3], dtype)
        radius = _uniform(words[0], words[1], dtype) + te.const(2.0**-54, dtype)
    length = te.sqrt(te.log(radius) * te.const(-2.0, dtype))
    return length * te.cos(angle * te.const(2 * np.pi, dtype))


def _reference(attrs: Attrs, step: Array) -> Array:
    kind = np.dtype(attrs.dtype).type
    count = int(np.prod(attrs.shape, dtype=np.int64))
    place, steps = np.arange(count, dtype=np.uint64), int(step) & (1 << 64) - 1
    counter = (
        place.astype(np.uint32),
        (place >> np.uint64(32)).astype(np.uint32) + np.uint32(attrs.stream << 8),
        np.full(count, steps & _WORD, np.uint32),
        np.full(count, steps >> 32, np.uint32),
    )
    words = philox_numpy(counter, _key(attrs))

    def uniform(first: Array, second: Array) -> Array:
        if kind is np.float32:
            return np.asarray((first >> np.uint32(8)).astype(kind) * kind(_UNIT["float32"]))
        both = (first.astype(np.uint64) << np.uint64(32)) + second
        return np.asarray((both >> np.uint64(11)).astype(kind) * kind(_UNIT["float64"]))

    if attrs.distribution == "uniform":
        return np.asarray(uniform(words[0], words[1])).reshape(attrs.shape)
    if kind is np.float32:
        angle, radius = uniform(words[1], words[1]), words[0].astype(kind) * kind(2.0**-32) + kind(2.0**-33)
    else:
        angle, radius = uniform(words[2], words[3]), uniform(words[0], words[1]) + kind(2.0**-54)
    return np.asarray(np.sqrt(np.log(radius) * kind(-2)) * np.cos(angle * kind(2 * np.pi))).reshape(attrs.shape)


def _case(*shape: int, rtol: float = 1e-5, atol: float = 1e-6, step: int = 0, **attrs: Any) -> Case:
    return Case((np.array(step, np.int64),), {"shape": shape, **attrs}, rtol=rtol, atol=atol)


RANDOM = OpDef(
    "random",
    (
        Attribute("shape", REQUIRED, "the shape, symbolic sizes included"),
        Attribute("distribution", "uniform", "uniform in [0, 1), or normal with mean 0 and variance 1"),
        Attribute("dtype", "float32", "the dtype of the result, float32 or float64"),
        Attribute("seed", 0, "the key of the generator, 64 bits"),
        Attribute("stream", 0, "which of the independent sequences of numbers of this seed"),
    ),
    _infer,
    _reference,
    compute=_compute,
    cases=(
        _case(5, 7, rtol=0, atol=0),
        _case(33, seed=1 << 40 | 17, stream=3, step=-5, rtol=0, atol=0),
        _case(3, 4, 5, dtype="float64", seed=9, rtol=0, atol=0),
        _case(4, 9, distribution="normal", seed=2, atol=1e-5),
        _case(11, distribution="normal", dtype="float64", step=1 << 35, rtol=1e-9, atol=1e-9),
        _case(0, 3, distribution="normal"),
        _case(stream=5, rtol=0, atol=0),
    ),
    doc="random numbers of Philox4x32-10. The operand distinguishes the steps of a loop or the runs of a model",
    source="Random123 (Salmon et al. 2011)",
)
