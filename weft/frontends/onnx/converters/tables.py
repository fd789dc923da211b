"""Tables from numbers to numbers, which look each element up in a time that does not depend on the number of keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.frontends.common.problems import Unsupported
from weft.frontends.onnx.converters.numbers import Traced, constant
from weft.frontends.onnx.tensors import Array

_PLACES_PER_KEY = 8
"""A direct table has at most so many places for each key, or :data:`_MIN_PLACES` in all."""
_MIN_PLACES = 1024
_MAX_KEY = 1 << 62
"""Bound of keys whose differences fit into 64 bits."""
_ODD = 0x9E3779B97F4A7C15
"""2 to the 64 by the golden ratio: its products spread neighbouring keys."""
_ATTEMPTS = 64
"""So many keys of one bucket and one place are unlikely: about a fifth of the attempts fail."""
_HALF = 32
_WORD = 64


def from_table(x: Traced, keys: Array, values: Array, default: Array) -> Traced:
    """``values[i]`` for elements equal to ``keys[i]``, the first such key if there are several; ``default`` elsewhere.
    NaN is a key like others. Elements, keys and values are numbers; the result has the dtype of the values."""
    keys = keys.astype(x.dtype.numpy)
    other = constant(x.node, default.reshape(()), str(values.dtype))
    if keys.dtype.kind in "iub" and keys.size:
        first, last = int(keys.min()), int(keys.max())
        if (
            abs(first) < _MAX_KEY
            and abs(last) < _MAX_KEY
            and last - first < max(_MIN_PLACES, _PLACES_PER_KEY * keys.size)
        ):
            return _direct(x, keys, values, default, first, last)
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(keys.shape, bool)
    if missing.any():
        other = x.call("isnan").choose(constant(x.node, values[missing][0], str(values.dtype)), other)
    some, order = np.unique(keys[~missing], return_index=True)
    return _scattered(x, some, values[~missing][order], other) if some.size else other.expand(*x.shape)


def _direct(x: Traced, keys: Array, values: Array, default: Array, first: int, last: int) -> Traced:
    """One place for each number from the first to the last key, and one more, with the default, for all others."""
    table = np.full(last - first + 2, default.reshape(()), values.dtype)
    for key, value in zip(keys[::-1].tolist(), values[::-1], strict=True):
        table[key - first] = value
    wide = x.to("int64")
    inside = (x >= first) & (x <= last)
    place = inside.choose(wide - first, last - first + 1)
    return constant(x.node, table, str(values.dtype)).call("gather", place, axis=0)


def _scattered(x: Traced, keys: Array, values: Array, other: Traced) -> Traced:
    """A table in which each key has a place of its own, which its bits tell; another element may have the same one."""
    placed = _placed(_words(keys))
    kind, node = str(values.dtype), x.node
    used = np.zeros(1 << placed.place_bits, np.int64)  # an unused place holds a key whose place is another one
    used[placed.places] = np.arange(keys.size)
    moves, found = constant(node, placed.moves, "int32"), constant(node, values[used], kind)
    word = _bits(x)
    word = word.call("bitwise_xor", word.call("shift_right", _HALF))
    word = word.call("mul", constant(node, np.uint64(placed.factor), "uint64"))
    bucket = word.call("shift_right", _WORD - placed.bucket_bits).to("int64")
    place = word.call("shift_right", _WORD - placed.bucket_bits - placed.place_bits).to("int64")
    place = place.call("bitwise_and", (1 << placed.place_bits) - 1)
    place = place.call("bitwise_xor", moves.call("gather", bucket, axis=0).to("int64"))
    same = constant(node, keys[used], x.dtype).call("gather", place, axis=0).equals(x)
    return same.choose(found.call("gather", place, axis=0), other)


def _bits(x: Traced) -> Traced:
    """One word for each element; equal elements have equal words."""
    if not x.dtype.is_float:
        return x.to("int64").to("uint64")
    wide = x if x.dtype == "float64" else x.to("float32")
    plain = wide.equals(0.0).choose(constant(x.node, 0.0, wide.dtype), wide)  # -0.0 equals 0.0
    return plain.call("bitcast", to="int64" if x.dtype == "float64" else "int32").to("int64").to("uint64")


def _words(keys: Array) -> Array:
    """What :func:`_bits` computes."""
    if keys.dtype.kind in "iub":
        return keys.astype(np.int64).view(np.uint64)
    wide = keys.astype(np.float64 if keys.dtype == np.float64 else np.float32)
    wide[wide == 0] = 0.0
    return wide.view(np.int64 if wide.dtype == np.float64 else np.int32).astype(np.int64).view(np.uint64)


@dataclass(frozen=True)
class _Placed:
    """The product with ``factor`` begins with the number of a bucket, then comes a place; the bucket says which bits of
    the place to flip."""

    factor: int
    bucket_bits: int
    place_bits: int
    moves: Array
    places: Array


def _placed(words: Array) -> _Placed:
    """A place for each of different words. Raises Unsupported if none is found, which no table has shown yet."""
    bucket_bits = max(1, (len(words) - 1).bit_length() - 1)
    place_bits = len(words).bit_length() + 1
    mixed = words ^ (words >> np.uint64(_HALF))
    for attempt in range(_ATTEMPTS):
        factor = _ODD * (2 * attempt + 1) % (1 << _WORD)
        product = mixed * np.uint64(factor)
        buckets = (product >> np.uint64(_WORD - bucket_bits)).astype(np.int64)
        places = (product >> np.uint64(_WORD - bucket_bits - place_bits)).astype(np.int64) & ((1 << place_bits) - 1)
        moves = _moves(buckets, places, 1 << bucket_bits, 1 << place_bits)
        if moves is not None:
            return _Placed(factor, bucket_bits, place_bits, moves, places ^ moves[buckets])
    raise Unsupported(f"no table for its {len(words)} keys was found in {_ATTEMPTS} attempts")


def _moves(buckets: Array, places: Array, bucket_count: int, place_count: int) -> Array | None:
    """For each bucket the bits to flip, so that all places differ; None if two keys of a bucket have one place. The
    fullest buckets choose first, while most places are free."""
    order = np.argsort(buckets, kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=bucket_count))
    members = [places[p] for p in np.split(order, ends[:-1])]
    moves, taken = np.zeros(bucket_count, np.int32), np.zeros(place_count, bool)
    free = 0
    for number in sorted(range(bucket_count), key=lambda n: -len(members[n])):
        mine = members[number]
        if not len(mine):
            break
        if len(mine) == 1:
            while taken[free]:
                free += 1
            move = int(mine[0]) ^ free
        elif len(np.unique(mine)) < len(mine):
            return None
        else:
            move = next((m for m in range(place_count) if not taken[mine ^ m].any()), -1)
            if move < 0:
                return None
        moves[number] = move
        taken[mine ^ move] = True
    return moves
