"""Damaged model files: every one is imported, or refused with a WeftError; none crashes, hangs or takes much memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_samples import SAMPLES
from seeds import seeds

from weft.frontends import onnx as frontend
from weft.graph.nodes import Module
from weft.support.errors import InternalError, WeftError

SECONDS = 10
FILES = {name: build().SerializeToString() for name, build in SAMPLES.items()}
HUGE = (0, -1, 1, 2, 7, 63, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))


@contextmanager
def limited(what: str) -> Iterator[None]:
    """Fail instead of hanging."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"{what}: no answer after {SECONDS} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def check(data: bytes, what: str) -> bool:
    """Whether the file was imported. Fails on anything but a module or a user's error."""
    with limited(what):
        try:
            module = frontend.load(data)
        except InternalError as why:
            raise AssertionError(f"{what}: {why}") from why
        except WeftError as why:
            assert str(why).startswith("error["), what
            return False
    assert isinstance(module, Module), what
    return True


@pytest.mark.parametrize("name", FILES)
def test_truncated(name: str) -> None:
    data = FILES[name]
    for length in range(0, len(data), max(1, len(data) // 60)):
        check(data[:length], f"{name} cut to {length} bytes")


@pytest.mark.parametrize("seed", seeds(1, 1))
@pytest.mark.parametrize("name", FILES)
def test_mutated_bytes(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = FILES[name]
    for trial in range(200):
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 6))):
            place = int(rng.integers(len(damaged)))
            kind = int(rng.integers(4))
            if kind == 0:
                damaged[place] = int(rng.integers(256))
            elif kind == 1:
                damaged[place] ^= 1 << int(rng.integers(8))
            elif kind == 2:
                del damaged[place : place + int(rng.integers(1, 9))]
            else:
                damaged[place:place] = rng.bytes(int(rng.integers(1, 9)))
        check(bytes(damaged), f"{name}, byte mutation {trial}")


def messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all messages inside it."""
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
                yield from messages(part)


def mutate_field(rng: np.random.Generator, message: Any, names: list[str]) -> None:
    """Change one field of a message: a number to an extreme one, a name to another, a list to another length."""
    fields = message.ListFields()
    if not fields:
        return
    descriptor, value = fields[int(rng.integers(len(fields)))]
    repeated = hasattr(value, "extend")
    action = int(rng.integers(3))
    if repeated and len(value) and action == 0:
        del value[int(rng.integers(len(value)))]
    elif repeated and len(value) and action == 1:
        value.append(value[int(rng.integers(len(value)))])
    elif action == 2 and not repeated:
        message.ClearField(descriptor.name)
    elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        return
    else:
        set_value(rng, message, descriptor, value, names, repeated)


def set_value(rng: Any, message: Any, descriptor: Any, value: Any, names: list[str], repeated: bool) -> None:
    if descriptor.type == FieldDescriptor.TYPE_STRING:
        made: Any = names[int(rng.integers(len(names)))]
    elif descriptor.type == FieldDescriptor.TYPE_BYTES:
        made = rng.bytes(int(rng.integers(12)))
    elif descriptor.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        made = float(rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")]))
    else:
        made = HUGE[int(rng.integers(len(HUGE)))]
        if descriptor.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM):
            made = int(np.int32(made & 0x7FFFFFFF)) % (40 if descriptor.type == FieldDescriptor.TYPE_INT32 else 3)
        if descriptor.type == FieldDescriptor.TYPE_UINT64:
            made = abs(made)
    if repeated:
        if len(value):
            value[int(rng.integers(len(value)))] = made
    else:
        setattr(message, descriptor.name, made)


OPERATORS = ["Resize", "Loop", "Scan", "ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "LSTM", "TopK",
             "Attention", "Split", "Einsum", "GatherND", "Upsample", "Nonsense", "Concat", "Shape"]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(1, 2))
@pytest.mark.parametrize("name", FILES)
def test_mutated_fields(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = []
    for trial in range(240):
        proto = SAMPLES[name]()
        parts = list(messages(proto))
        names = [n for node in proto.graph.node for n in (*node.input, *node.output, node.op_type)] + OPERATORS + [""]
        for _ in range(int(rng.integers(1, 5))):
            mutate_field(rng, parts[int(rng.integers(len(parts)))], names)
        outcomes.append(check(proto.SerializeToString(), f"{name}, field mutation {trial}"))
    assert any(outcomes) and not all(outcomes)


@settings(max_examples=150)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_spliced(name: str, data: st.DataObject) -> None:
    one, other = FILES[name], FILES[data.draw(st.sampled_from(sorted(FILES)))]
    cut = data.draw(st.integers(0, len(one)))
    start = data.draw(st.integers(0, len(other)))
    check(one[:cut] + data.draw(st.binary(max_size=16)) + other[start:], f"{name} spliced")


@pytest.mark.parametrize("data", [b"", b"\x00", b"PK\x03\x04 a zip file", b"{}", b"\xff" * 100, b"import torch\n" * 50])
def test_foreign(data: bytes) -> None:
    assert not check(data, "foreign file")
