"""Values of data as tables of nodes: what is put in comes out, shared parts stay shared, damaged tables are errors."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import numpy as np
import pytest
from seeds import seeds

from weft.runtime import _native

TENSOR, DATA, FOREIGN = range(3)
Part = Any
Table = tuple[list[int], list[Part]]


def made(words: list[int], parts: list[Part]) -> _native.Value:
    return _native.Value(np.array(words, np.int64), tuple(parts))


def nodes_of(words: list[int], parts: list[Part]) -> list[tuple[Any, ...]]:
    """The nodes of a table, each with its own words and bytes."""
    found: list[tuple[Any, ...]] = []
    rest, left = list(words), list(parts)
    while rest:
        kind, count = rest[0], rest[2] if rest[0] == DATA else rest[1]
        size = count + (3 if kind == DATA else 2)
        node, rest = rest[:size], rest[size:]
        part = None if kind == DATA else left.pop(0)
        found.append((tuple(node), part))
    assert not left
    return found


def shape_of(words: list[int], parts: list[Part]) -> list[tuple[Any, ...]]:
    """The nodes that the last one needs, numbered in the order in which it reaches them: two tables of one value have
    the same."""
    nodes = nodes_of(words, parts)
    numbers: dict[int, int] = {}
    order = [len(nodes) - 1]
    for node in order:
        (kind, *rest), _ = nodes[node]
        if kind == DATA:
            order += [n for n in dict.fromkeys(rest[2:]) if n not in order]
    numbers = {node: i for i, node in enumerate(order)}
    out: list[tuple[Any, ...]] = []
    for node in order:
        words_, part = nodes[node]
        kind, *rest = words_
        out.append((kind, *rest[:2], *(numbers[n] for n in rest[2:])) if kind == DATA else (*words_, part))
    return out


def table(rng: random.Random, count: int) -> Table:
    """Random nodes, the last of which needs many of the others."""
    words: list[int] = []
    parts: list[Part] = []
    for number in range(count):
        if number == 0 or (rng.random() < 0.3 and number < count - 1):
            shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]
            foreign = rng.random() < 0.3
            words += [FOREIGN if foreign else TENSOR, len(shape), *shape]
            parts.append(
                [f"object {number}"] if foreign else bytes(rng.randrange(256) for _ in range(rng.randint(0, 9)))
            )
        else:
            fields = [rng.randrange(number) for _ in range(rng.choice([0, 1, 2, 3, 15, 16, 17, 40]))]
            if number == count - 1:
                fields = [*range(number), *fields]
            words += [DATA, rng.randint(-5, 1 << 40), len(fields), *fields]
    return words, parts


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 31, 32, 33, 63, 64, 65, 66, 200, 1000])
@pytest.mark.parametrize("seed", seeds(3))
def test_what_is_put_in_comes_out(seed: int, count: int) -> None:
    """With few and with more nodes than the first table of those that were seen has room for."""
    words, parts = table(random.Random(seed * 1000 + count), count)
    data, found = made(words, parts).nodes()
    out = np.frombuffer(data, np.int64).tolist()
    assert len(nodes_of(out, found)) == count, "each node stands once"
    assert shape_of(out, found) == shape_of(words, parts)
    for part in found:
        assert isinstance(part, bytes) or any(part is p for p in parts), "objects are those that were given"


def test_long_chains_need_no_stack() -> None:
    count = 200_000
    words = [TENSOR, 0]
    for number in range(count):
        words += [DATA, number, 1, number]
    data, parts = made(words, [b"\1"]).nodes()
    assert np.frombuffer(data, np.int64).tolist() == words and parts == [b"\1"]


GOOD = [TENSOR, 1, 4]
DAMAGED: dict[str, list[int]] = {
    "nothing": [],
    "an unknown kind": [3, 0],
    "a kind below all": [-1, 0],
    "a tensor without its rank": [TENSOR],
    "a negative rank": [TENSOR, -1],
    "a rank beyond the table": [TENSOR, 2, 4],
    "a rank beyond all": [TENSOR, 1 << 20, *[1] * 40],
    "a negative extent": [TENSOR, 2, 3, -4],
    "a negative extent of an object": [FOREIGN, 1, -1],
    "more tensors than parts": [*GOOD, TENSOR, 0],
    "data without a tag": [*GOOD, DATA],
    "data without a count": [*GOOD, DATA, 7],
    "a negative count": [*GOOD, DATA, 7, -1],
    "more fields than words": [*GOOD, DATA, 7, 2, 0],
    "a count beyond all": [*GOOD, DATA, 7, 1 << 62],
    "a field before all nodes": [*GOOD, DATA, 7, 1, -1],
    "a field that is the node itself": [*GOOD, DATA, 7, 1, 1],
    "a field behind the node": [*GOOD, DATA, 7, 2, 0, 2, DATA, 7, 0],
    "the second field": [*GOOD, DATA, 7, 2, 0, 1],
    "one of many fields": [*GOOD, DATA, 7, 20, *[0] * 19, 1],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_tables_are_refused(name: str) -> None:
    blocks = _native.allocated_blocks()
    with pytest.raises(ValueError, match="malformed table of nodes"):
        made(DAMAGED[name], [b"1234"])
    assert _native.allocated_blocks() == blocks, "what was made before is freed"


def test_random_damage_never_crashes() -> None:
    rng = random.Random(7)
    words, parts = table(rng, 30)
    loaded = 0
    for _ in range(2000):
        damaged = list(words)
        for _ in range(rng.choice([1, 1, 3])):
            damaged[rng.randrange(len(damaged))] = rng.choice([-1, 0, 1, 2, 3, 29, 30, 1 << 31, 1 << 62, -(1 << 63)])
        with contextlib.suppress(ValueError, TypeError, MemoryError):  # an object where bytes are wanted, a huge one
            made(damaged, parts).nodes()
            loaded += 1
    assert loaded


def test_buffers_are_given_back() -> None:
    words, part = bytearray(np.array([TENSOR, 1, 4], np.int64).tobytes()), bytearray(b"1234")
    value = _native.Value(words, (part,))
    words.clear()
    part.clear()  # BufferError while somebody holds the buffer
    assert value.nodes()[1] == [b"1234"]
    with pytest.raises(ValueError):
        _native.Value(words, (part,))
    words.clear()
    with pytest.raises(TypeError):
        _native.Value(np.array(GOOD, np.int64), ("a text",))


def test_values_hold_objects_and_memory_as_long_as_they_live() -> None:
    thing, blocks = object(), _native.allocated_blocks()
    before = sys.getrefcount(thing)
    value = made([FOREIGN, 0, DATA, 1, 2, 0, 0], [thing])
    assert sys.getrefcount(thing) == before + 1
    assert value.nodes()[1][0] is thing
    assert sys.getrefcount(thing) == before + 1
    del value
    assert sys.getrefcount(thing) == before and _native.allocated_blocks() == blocks
