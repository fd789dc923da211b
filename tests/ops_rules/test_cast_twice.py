"""Casts of casts: for all triples of dtypes, what the rule assumes holds for every value, or for those at edges."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from rule_kit import o, x

import weft
from weft.expr.evaluate import convert
from weft.graph import build
from weft.graph.nodes import Module
from weft.ops.rules.cleanup import _lossless
from weft.runtime.elements import EXTENDED, STANDARD
from weft.support.dtypes import DType
from weft.support.errors import UserError


def _known() -> list[DType]:
    found = []
    for name in sorted(STANDARD | EXTENDED):
        try:
            found.append(DType(name))
        except UserError:  # a format that only arrays have
            continue
    return found


DTYPES = _known()


@cache
def values(dtype: DType) -> Any:
    """All values of at most 16 bits; of wider ones those at edges, and many between."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        low, high = limits(dtype)
        if dtype.bits <= 16:
            return np.arange(low, high + 1).astype(dtype.numpy)
        near = {s * (1 << k) + d for k in range(dtype.bits + 1) for d in (-2, -1, 0, 1, 2) for s in (-1, 1)}
        near |= {v * (1 << k) + (1 << k - 1) + d for k in range(1, 60) for v in (1, 3, 5, 2049) for d in (-1, 0, 1)}
        return np.array(sorted(v for v in near | {low, high} if low <= v <= high), dtype.numpy)
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits).astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    half = values(DType("float16")).astype(dtype.numpy)
    info = np.finfo(dtype.numpy)
    powers = np.ldexp(np.ones(1, dtype.numpy), np.arange(info.minexp - info.nmant, info.maxexp))
    edges = np.concatenate([half, powers, 1.5 * powers, info.max * np.ones(1, dtype.numpy)])
    with np.errstate(all="ignore"):
        near = [edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)]
    return np.concatenate([*near, *(-n for n in near)]).astype(dtype.numpy)


def limits(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1


def equal(a: Any, b: Any) -> bool:
    """Equal numbers, with the signs of zeros; NaN equals NaN."""
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return bool(np.array_equal(a.astype(object), b.astype(object)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p, q = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(p)
    return bool(np.array_equal(p, q, equal_nan=True) and np.array_equal(np.signbit(p[~nan]), np.signbit(q[~nan])))


@pytest.mark.parametrize("source", DTYPES)
def test_every_value_survives(source: DType) -> None:
    given = values(source)
    for target in DTYPES:
        if _lossless(source, target):
            there = convert(given, target)
            if source.is_integer and target.is_float:
                assert [int(v) for v in given] == [int(v) for v in there.astype(np.float64)], (source, target)
            else:
                assert equal(given, there), (source, target)


@pytest.mark.parametrize("source", DTYPES)
def test_all_triples(source: DType) -> None:
    """Where the rule fires, one cast gives what two give."""
    pairs = 0
    for middle in DTYPES:
        if not _lossless(source, middle):
            continue
        for target in DTYPES:
            given = values(source)[places(source, middle, target)]
            assert equal(convert(given, target), convert(convert(given, middle), target)), (source, middle, target)
            pairs += 1
    assert pairs >= len(DTYPES), "at least through its own dtype"


def test_what_is_not_lossless() -> None:
    lossy = [
        *(("bool", "float8_e8m0fnu"), ("bool", "int1"), ("uint8", "int8"), ("int8", "uint8"), ("int64", "float64")),
        *(("float16", "bfloat16"), ("bfloat16", "float16"), ("float64", "float32"), ("int16", "float16")),
        *(("float32", "int64"), ("uint1", "int1"), ("float8_e5m2", "float8_e4m3fn"), ("float16", "bool")),
    ]
    for source, target in lossy:
        if {source, target} <= set(DTYPES):
            assert not _lossless(DType(source), DType(target)), (source, target)


COMPILED = [d for d in DTYPES if d.bits >= 8]


@pytest.mark.parametrize(
    "source", [pytest.param(d, marks=() if d in ("bool", "uint8") else pytest.mark.slow) for d in COMPILED]
)
def test_compiled_triples(source: DType) -> None:
    """One module of all casts of casts; each result is that of two casts by NumPy."""
    given = x(len(values(source)), dtype=str(source))
    ways = [(m, t) for m in COMPILED if m != source and _lossless(source, m) for t in COMPILED if t != m]
    outputs = [o("cast", o("cast", given, to=str(m)), to=str(t)) for m, t in ways]
    if not outputs:
        return
    exe = weft.compile(Module.of(build.function([given], outputs)))
    for (middle, target), made in zip(ways, exe(values(source)), strict=True):
        fits = np.isin(np.arange(len(values(source))), places(source, middle, target))
        want = convert(convert(values(source), middle), target)
        assert equal(np.asarray(made)[fits], np.asarray(want)[fits]), (source, middle, target)


def places(source: DType, middle: DType, target: DType) -> Any:
    """Where the values are that the target's integers reach: how others are cast is not defined."""
    given = values(source)
    if not ((source.is_float or middle.is_float) and target.is_integer):
        return np.arange(len(given))
    low, high = limits(target)
    with np.errstate(all="ignore"):
        wide = given.astype(np.float64)
    return np.flatnonzero(np.isfinite(wide) & (wide > low - 1.0) & (wide < high + 1.0 - (high > 1 << 52)))
