"""Casts between all types: every code of types up to 16 bits, extremes, halves between neighbours and random numbers
of wider ones, compiled, against the specification's evaluator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from schema_cases import DTYPES, SIGNED, UNSIGNED, Array, code_of

import weft

KINDS = {d.name: d for d in DTYPES.values()}
OFTEN = ("uint8", "bfloat16")
"""Sources that always run."""
EIGHT_BITS = tuple(n for n in KINDS if n.startswith("float8") and n != "float8_e8m0fnu")


def bits_of(name: str) -> int:
    return next(b for b in (64, 32, 16, 8, 6, 4, 2) if name.startswith(("bool", "bfloat")) or str(b) in name)


def limits(name: str) -> tuple[float, float]:
    """The range of a type of whole numbers."""
    bits = bits_of(name)
    return (0, 2**bits - 1) if name in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def every(name: str) -> Array:
    """All values of a type of at most 16 bits; of a wider one those that matter, and random ones."""
    kind, rng = KINDS[name], np.random.default_rng(3)
    if name == "bool":
        return np.array([False, True])
    if name in SIGNED or name in UNSIGNED:
        low, high = (int(v) for v in limits(name))
        if high < 2**16:
            return np.arange(low, high + 1).astype(kind)
        edges = [
            s * (v + d) for v in (0, 16, 240, 448, 464, 61440, 2**24, 2**31, 2**53) for d in (-1, 0, 1) for s in (-1, 1)
        ]
        values = [
            low,
            high,
            *(v for v in edges if low <= v <= high),
            *rng.integers(max(low, -3000), 3000, 2000).tolist(),
        ]
        return np.array(values, dtype=object).astype(kind)
    if kind.itemsize == 1:
        return np.arange(2 ** min(8, bits_of(name)), dtype=np.uint8).view(kind)
    if kind.itemsize == 2:
        return np.arange(2**16, dtype=np.uint16).view(kind)
    return between(kind, rng)


def between(kind: np.dtype[Any], rng: np.random.Generator) -> Array:
    """All 16-bit floats, the middles between neighbours of narrow types and what lies beside them, random bits."""
    parts = [np.arange(2**16, dtype=np.uint16).view(KINDS[n]).astype(kind) for n in ("float16", "bfloat16")]
    for name in ("float16", *EIGHT_BITS):
        codes = np.arange(2 ** bits_of(name), dtype=f"u{KINDS[name].itemsize}").view(KINDS[name]).astype(np.float64)
        values = np.unique(codes[np.isfinite(codes)])
        middles = ((values[1:] + values[:-1]) / 2).astype(kind)
        parts += [middles, *(np.nextafter(middles, kind.type(end)) for end in (-np.inf, np.inf))]
    parts.append(rng.integers(0, 2 ** (8 * kind.itemsize) - 1, 20000, dtype=f"u{kind.itemsize}").view(kind))
    return np.concatenate(parts)


def wrong(x: Array, made: Array, expected: Array, to: str) -> Array:
    """Where a cast differs from what the specification defines."""
    whole = to in SIGNED or to in UNSIGNED
    numbers = x.astype(np.float64)
    if not whole:
        a, b = made.astype(np.float64), expected.astype(np.float64)
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b))) | ((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
        differs &= ~(np.isnan(numbers) & ~np.isnan(b))  # types without NaN have no number for it
        return differs
    differs = made.astype(object) != expected.astype(object)
    if x.dtype.name in SIGNED or x.dtype.name in UNSIGNED or x.dtype == np.bool_:
        return np.asarray(differs, bool)
    low, high = limits(to)  # beyond these the result of a float is not defined
    return np.asarray(differs, bool) & (np.trunc(numbers) >= low) & (np.trunc(numbers) < high)


@pytest.mark.parametrize("source", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in KINDS])
@pytest.mark.parametrize("saturate", [1, 0])
def test_every_value(source: str, saturate: int) -> None:
    x = every(source)
    targets = [t for t in KINDS if t != source and (saturate or t in EIGHT_BITS)]
    entry = [helper.make_tensor_value_info("x", code_of(x.dtype), x.shape)]

    def model(names: list[str]) -> Any:
        nodes = [
            helper.make_node(
                "Cast", ["x"], [n], to=code_of(KINDS[n]), **({"saturate": saturate} if n in EIGHT_BITS else {})
            )
            for n in names
        ]
        results = [helper.make_tensor_value_info(n, code_of(KINDS[n]), x.shape) for n in names]
        graph = helper.make_graph(nodes, "casts", entry, results)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=10)

    made = weft.compile(model(targets))(x)
    for to, found in zip(targets, made, strict=True):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model([to]))
            try:
                (expected,) = evaluator.run(None, {"x": x})
            except TypeError:  # it does not cast between every two narrow types, whose numbers float32 has
                (expected,) = evaluator.run(None, {"x": x.astype(np.float32)})
            found = np.asarray(found)
            bad = np.flatnonzero(wrong(x, found, np.asarray(expected), to))
        assert found.dtype == np.asarray(expected).dtype
        assert not bad.size, f"to {to}: {[(x[i], found[i], np.asarray(expected)[i]) for i in bad[:5]]}"


def test_all_types_are_here() -> None:
    names = set(TensorProto.DataType.keys()) - {"UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128"}
    assert len(KINDS) == len(names)
