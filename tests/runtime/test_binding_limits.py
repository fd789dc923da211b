"""The extension module at its limits: exact bounds, each reason to refuse alone, what is used without a copy."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import memory_of_the_binding
import ml_dtypes
import numpy as np
import pytest
from small_artifacts import artifact, vector_program
from test_native_arguments import Quiet, parts_of_an_executable, told
from test_tensor import layout_of

from weft.runtime import _native
from weft.runtime.encode import encode
from weft.runtime.executable import Executable
from weft.runtime.program import (
    BufferSpec,
    CallHost,
    CallKernel,
    Check,
    Copy,
    DeviceSpec,
    ExecutableProgram,
    Give,
    HostOperator,
    KernelRef,
    Take,
    TensorSpec,
)
from weft.support.errors import InputError, UserError

X = np.arange(8, dtype=np.float32)
MOST_DIMENSIONS = 64
BF16 = np.dtype(ml_dtypes.bfloat16)
GIVEN = np.arange(48, dtype=np.float32)


def refuse(index: int, value: object) -> object:
    raise LookupError(index)


def native(program: ExecutableProgram, **changed: Any) -> _native.Executable:
    """An executable without kernels. ``changed``: ``convert``, ``convert_output`` and ``fail``."""
    names = [t.dtype for t in (*program.inputs, *program.outputs)]
    dtypes = tuple(BF16 if name == "bfloat16" else np.dtype(name) for name in names)
    taken = len(program.inputs)
    calls = (changed.get("convert", refuse), changed.get("convert_output", refuse), changed.get("fail", told), told)
    return _native.Executable(
        encode(program), (), (), (), tuple(names[:taken]), tuple(names[taken:]), dtypes, 1, np.ndarray, *calls, ()
    )


def copies(shapes: list[tuple[int, ...]], dtype: str = "float32") -> ExecutableProgram:
    """An input of each shape, copied to an output."""
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    count = len(shapes)
    extents = [tuple((d,) for d in shape) for shape in shapes]
    return ExecutableProgram(
        symbols=(),
        inputs=tuple(TensorSpec(f"x{i}", dtype, e) for i, e in enumerate(extents)),
        outputs=tuple(TensorSpec(f"y{i}", dtype, e) for i, e in enumerate(extents)),
        buffers=(
            *(BufferSpec("input", i) for i in range(count)),
            *(BufferSpec("output", i) for i in range(count)),
        ),
        kernels=(),
        instructions=tuple(Copy(i, count + i, (size * math.prod(s),)) for i, s in enumerate(shapes)),
    )


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (3, 1, 4), (2, 0, 4), (0, 7), (1,) * MOST_DIMENSIONS])
def test_compact_memory_has_the_strides_of_its_shape(dtype: str, shape: tuple[int, ...]) -> None:
    size = np.dtype(dtype).itemsize
    t = _native.Tensor(shape, dtype)
    assert t.shape == shape and t.nbytes == size * math.prod(shape) and t.contiguous
    assert t.strides == tuple(size * math.prod(shape[d + 1 :]) for d in range(len(shape)))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_largest_shapes(size: int) -> None:
    """Bytes are counted with 63 bits. No memory is needed where one dimension, the last to be looked at, is 0."""
    dtype, most = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}[size], (2**63 - 1) // size
    for fits in ((0, most), (0, most // 2, 2), (0, 2, most // 2), (most, 0), (0, 1, most), (0, most, 1)):
        assert _native.Tensor(fits, dtype).nbytes == 0
    for beyond in ((0, most + 1), (0, most // 2 + 1, 2), (0, 2, most // 2 + 1), (0, 2, most), (0, -1), (-1, 0), (-1,)):
        if max(beyond) < 2**63:
            with pytest.raises(ValueError, match="out of range"):
                _native.Tensor(beyond, dtype)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("item", ["1", 1.0, None, 1 << 63, -(1 << 63) - 1])
def test_extents_are_integers(at: int, item: Any) -> None:
    shape: list[Any] = [1, 1, 1]
    shape[at] = item
    for make in (_native.Tensor, lambda s, d: _native.Tensor.wrap(bytes(1), s, d)):
        with pytest.raises((TypeError, OverflowError)):
            make(shape, "int8")


@pytest.mark.parametrize("dtype", ["", "float", "float32 ", "FLOAT32", "float33", "complex64"])
def test_unknown_types_are_named(dtype: str) -> None:
    device = _native.Device("quiet", 0, Quiet)
    for make in (
        lambda: _native.Tensor((), dtype),
        lambda: _native.Tensor.wrap(b"", (), dtype),
        lambda: _native.Tensor.on(device, (), dtype),
    ):
        with pytest.raises(TypeError, match=f"unknown dtype '{dtype}'"):
            make()


def test_as_many_dimensions_as_there_may_be() -> None:
    shape = (1,) * MOST_DIMENSIONS
    assert _native.Tensor.wrap(bytes(1), shape, "int8").shape == shape
    for make in (_native.Tensor, lambda s, d: _native.Tensor.wrap(bytes(1), s, d)):
        with pytest.raises(ValueError, match="too many dimensions"):
            make((*shape, 1), "int8")
    words = [0, MOST_DIMENSIONS, *[1] * MOST_DIMENSIONS]
    for kind, part in ((0, b"1"), (2, object())):
        value = _native.Value(np.array([kind, *words[1:]], np.int64), (part,))
        assert value.nodes() == (np.array([kind, *words[1:]], np.int64).tobytes(), [part])
        with pytest.raises(ValueError, match="malformed"):
            _native.Value(np.array([kind, MOST_DIMENSIONS + 1, *[1] * (MOST_DIMENSIONS + 1)], np.int64), (part,))


@pytest.mark.parametrize("kept", range(25))
def test_tables_of_nodes_may_end_anywhere(kept: int) -> None:
    """Bytes behind the last whole word are not read."""
    table = np.array([0, 0, 1], np.int64).tobytes()
    if kept // 8 == 2:
        assert _native.Value(table[:kept], (b"",)).nodes() == (table[:16], [b""])
    else:
        with pytest.raises(ValueError, match="malformed"):
            _native.Value(table[:kept], (b"",))


# ---- the buffer protocol --------------------------------------------------------------------------------------------


class Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


WRITABLE, FORMAT, ND, STRIDES = 0x01, 0x04, 0x08, 0x18
CONTIGUOUS = {"": 0, "C": 0x20 | STRIDES, "F": 0x40 | STRIDES, "any": 0x80 | STRIDES}
LAYOUTS = {
    "matrix": GIVEN.reshape(6, 8), "columns": GIVEN.reshape(6, 8).T, "every other": GIVEN.reshape(6, 8)[:, ::2],
    "row": GIVEN, "one": GIVEN[:1].reshape(()), "strided row": GIVEN[::2],
    "one of a column": GIVEN.reshape(6, 8)[:1, 0],
}  # fmt: skip


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_buffer_has_what_was_asked_for_and_no_more(layout: str, writable: bool) -> None:
    """As Python's manual of the C API says it: fields that are not asked for are NULL."""
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], ctypes.c_int
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes, release.restype = [ctypes.c_void_p], None
    array = LAYOUTS[layout].view()
    array.flags.writeable = writable
    t = _native.Tensor.from_capsule(array.__dlpack__(max_version=(1, 0)))
    before = sys.getrefcount(t)
    for write, form, dims, order in itertools.product((0, WRITABLE), (0, FORMAT), (0, ND, STRIDES), CONTIGUOUS):
        flags, view = write | form | dims | CONTIGUOUS[order], Buffer()
        strided = flags & STRIDES == STRIDES
        allowed = writable or not write
        allowed &= array.flags.c_contiguous or (strided and order in ("", "F") and array.flags.f_contiguous)
        allowed |= strided and order == "" and (writable or not write)
        try:
            get(t, ctypes.byref(view), flags)
        except BufferError:
            assert not allowed or order in ("F", "any"), (flags, "more may be refused")
            assert not view.obj
            continue
        assert writable or not write
        assert sys.getrefcount(t) == before + 1
        assert (view.buf, view.len, view.itemsize) == (t.address, array.nbytes, 4)
        assert view.readonly == (not writable) and not view.suboffsets
        assert view.ndim == (array.ndim if flags & ND else 1)
        assert view.format == (b"f" if form else None)
        assert bool(view.shape) == bool(flags & ND) and bool(view.strides) == strided
        if flags & ND:
            assert tuple(view.shape[d] for d in range(array.ndim)) == array.shape
        if strided:
            assert tuple(view.strides[d] for d in range(array.ndim)) == array.strides
        release(ctypes.byref(view))
        assert sys.getrefcount(t) == before


# ---- DLPack ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "dltensor"),
        ({"max_version": None, "copy": False, "stream": None, "dl_device": None}, "dltensor"),
        ({"max_version": (0, 8)}, "dltensor"),
        ({"max_version": (1, 0)}, "dltensor_versioned"),
        ({"max_version": (1, 5)}, "dltensor_versioned"),
        ({"max_version": (2, 0)}, "dltensor_versioned"),
        ({"dl_device": (1, 0)}, "dltensor"),
        ({"dl_device": (2, 0)}, None),
        ({"dl_device": (0, 1)}, None),
        ({"copy": True}, None),
    ],
)
def test_options_of_an_export(options: dict[str, Any], name: str | None) -> None:
    t = _native.Tensor((2, 3), "float32")
    if name is None:
        with pytest.raises(BufferError):
            t.__dlpack__(**options)
    else:
        assert f'"{name}"' in repr(t.__dlpack__(**options))
    assert t.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("options", [{"max_version": 1}, {"max_version": (1,)}, {"dl_device": "cpu"}, {"other": 1}])
def test_options_of_an_export_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, SystemError)):
        _native.Tensor((2, 3), "float32").__dlpack__(**options)
    with pytest.raises(TypeError):
        _native.Tensor((2, 3), "float32").__dlpack__(None)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16"])
def test_every_word_of_an_export(dtype: str, versioned: bool, readonly: bool) -> None:
    raw = bytes(24) if readonly else bytearray(24)
    size = {"float32": 4, "bfloat16": 2}.get(dtype, 1)
    t = _native.Tensor.wrap(raw, (2, 1, 12 // size), dtype)
    if readonly and not versioned:
        with pytest.raises(BufferError, match="read-only"):
            t.__dlpack__()
        return
    capsule = t.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
    dl = layout_of(capsule, versioned)
    code = {"float32": 2, "int8": 0, "bool": 6, "bfloat16": 4}[dtype]
    assert (dl.data, tuple(dl.device), dl.ndim, dl.byte_offset) == (t.address, (1, 0), 3, 0)
    assert dl.dtype == code | 8 * size << 8 | 1 << 16
    numbers = ctypes.POINTER(ctypes.c_int64)
    assert ctypes.cast(dl.shape, numbers)[:3] == [2, 1, 12 // size]
    assert ctypes.cast(dl.strides, numbers)[:3] == [12 // size, 12 // size, 1]
    if versioned:
        head = (ctypes.c_uint64 * 4).from_address(ctypes.addressof(dl) - 32)
        assert head[0] == 1 and head[3] == readonly  # version 1.0; the flags


@pytest.mark.parametrize("dtype", ["int4", "uint2", "float4_e2m1fn", "int1"])
def test_types_that_dlpack_has_not(dtype: str) -> None:
    with pytest.raises(BufferError, match=dtype):
        _native.Tensor((2,), dtype).__dlpack__(max_version=(1, 0))


def _version(number: int) -> Callable[[Any], None]:
    def change(dl: Any) -> None:
        ctypes.c_uint32.from_address(ctypes.addressof(dl) - 32).value = number

    return change


def _field(name: str, value: int) -> Callable[[Any], None]:
    return lambda dl: setattr(dl, name, value)


CHANGED = {
    "vectors": _field("dtype", 2 | 32 << 8 | 2 << 16),
    "no lanes": _field("dtype", 2 | 32 << 8),
    "no bits": _field("dtype", 2 | 1 << 16),
    "an unknown type": _field("dtype", 2 | 24 << 8 | 1 << 16),
    "integers of floats": _field("dtype", 99 | 32 << 8 | 1 << 16),
    "less than no dimension": _field("ndim", -1),
    "too many dimensions": _field("ndim", MOST_DIMENSIONS + 1),
    "version 0": _version(0),
    "version 2": _version(2),
}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_exports_of_others_that_are_refused_are_given_back(name: str, versioned: bool) -> None:
    if name.startswith("version") and not versioned:
        return
    source = np.ones((1,) * (MOST_DIMENSIONS), np.float32)
    capsule = source.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
    dl = layout_of(capsule, versioned)
    CHANGED[name](dl)
    before = sys.getrefcount(source)
    with pytest.raises(BufferError):
        _native.Tensor.from_capsule(capsule)
    assert sys.getrefcount(source) == before
    del capsule
    gc.collect()
    assert sys.getrefcount(source) == before - 1


def test_exports_of_others_at_the_limit() -> None:
    source = np.full((1,) * MOST_DIMENSIONS, 3, np.float32)
    for options in ({}, {"max_version": (1, 0)}):
        t = _native.Tensor.from_capsule(source.__dlpack__(**options))  # type: ignore[call-overload]
        assert t.shape == source.shape and memoryview(t).tobytes() == source.tobytes()


# ---- filling --------------------------------------------------------------------------------------------------------


def test_each_reason_not_to_fill_a_tensor() -> None:
    def strided(count: int) -> _native.Tensor:
        return _native.Tensor.from_capsule(np.zeros(2 * count, np.float32)[::2].__dlpack__())  # type: ignore[no-any-return]

    def wrapped(data: bytes | bytearray, count: int) -> _native.Tensor:
        return _native.Tensor.wrap(data, (count,), "float32")  # type: ignore[no-any-return]

    source, target = wrapped(X.tobytes(), 8), bytearray(32)
    for to, of in (
        (wrapped(bytes(32), 8), source),
        (strided(8), source),
        (wrapped(target, 8), strided(8)),
        (wrapped(target, 8), wrapped(bytes(28), 7)),
        (wrapped(target, 8), wrapped(bytes(36), 9)),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            to.fill(of)
    assert target == bytes(32)
    wrapped(target, 8).fill(source)
    assert target == X.tobytes()
    wrapped(bytearray(), 0).fill(wrapped(b"", 0))


@pytest.mark.parametrize("length", [23, 25, 0])
def test_a_view_has_as_many_bytes_as_its_shape(length: int) -> None:
    data = bytearray(length)
    with pytest.raises(ValueError, match=f"the buffer holds {length} bytes, the shape needs 24"):
        _native.Tensor.wrap(data, (2, 3), "float32")
    data.append(0)  # nobody holds it
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        _native.Tensor.wrap(np.zeros((4, 3), np.float32)[::2], (2, 3), "float32")


# ---- what is used where it is, and what is converted ----------------------------------------------------------------


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    made = np.frombuffer(memoryview(_native.Tensor((array.nbytes,), "int8")), np.int8).view(array.dtype)
    made = made.reshape(array.shape)
    made[...] = array
    return made  # type: ignore[no-any-return]


def moved(array: np.ndarray, by: int) -> np.ndarray:
    """A copy that begins so many bytes behind a multiple of 64."""
    room = np.frombuffer(memoryview(_native.Tensor((array.nbytes + by,), "int8")), np.int8)
    made = room[by:].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made  # type: ignore[no-any-return]


def frozen(array: np.ndarray) -> np.ndarray:
    made = aligned(array)
    made.flags.writeable = False
    return made


def tensor_of(array: np.ndarray) -> _native.Tensor:
    return _native.Tensor.from_capsule(array.__dlpack__(max_version=(1, 0)))  # type: ignore[no-any-return]


def of_ctypes(array: np.ndarray) -> Any:
    return (ctypes.c_float * array.size)(*array.ravel())


FORMS: dict[str, tuple[Callable[[np.ndarray], Any], bool, bool]] = {
    "array": (aligned, True, True),
    "4 bytes later": (lambda x: moved(x, 4), True, True),
    "frozen": (frozen, True, False),
    "1 byte later": (lambda x: moved(x, 1), False, False),
    "2 bytes later": (lambda x: moved(x, 2), False, False),
    "3 bytes later": (lambda x: moved(x, 3), False, False),
    "strided": (lambda x: np.repeat(x, 2)[::2], False, False),
    "other bytes": (lambda x: x.astype(">f4"), False, False),
    "as many bits": (lambda x: x.view(np.int32), False, False),
    "doubles": (lambda x: x.astype(np.float64), False, False),
    "ctypes": (of_ctypes, True, True),  # format "<f"
    "memoryview": (lambda x: memoryview(aligned(x)), True, True),
    "bytes": (lambda x: x.tobytes(), False, False),
    "list": (lambda x: x.tolist(), False, False),
    "tensor": (lambda x: tensor_of(aligned(x)), True, True),
    "frozen tensor": (lambda x: tensor_of(frozen(x)), True, False),
    "tensor 4 bytes later": (lambda x: _native.Tensor.wrap(moved(x, 4), x.shape, "float32"), True, True),
    "tensor 2 bytes later": (
        lambda x: _native.Tensor.wrap(moved(x, 2).view(np.int8), x.shape, "float32"),
        False,
        False,
    ),
    "strided tensor": (lambda x: tensor_of(np.repeat(x, 2)[::2]), False, False),
    "tensor of another type": (lambda x: tensor_of(x.view(np.int32)), False, False),
}
"""How to make it of an array; whether it is used where it is as an input, and as an output."""


@pytest.mark.parametrize("name", FORMS)
def test_what_is_used_where_it_is(name: str) -> None:
    make, direct, direct_output = FORMS[name]
    asked: list[tuple[str, int]] = []

    def convert(index: int, value: object) -> object:
        asked.append(("input", index))
        return aligned(X)

    def convert_output(index: int, value: object) -> object:
        asked.append(("output", index))
        return np.zeros_like(X)

    exe = native(copies([(8,)] * 3), convert=convert, convert_output=convert_output)
    for at in range(3):
        inputs: list[Any] = [aligned(X), aligned(X), aligned(X)]
        inputs[at] = make(X)
        asked.clear()
        made = exe.run(tuple(inputs))
        assert [m.tolist() for m in made] == [X.tolist()] * 3
        assert asked == ([] if direct else [("input", at)])
        outputs: list[Any] = [np.zeros_like(X) for _ in range(3)]
        outputs[at] = make(np.zeros_like(X))
        asked.clear()
        exe.run((aligned(X),) * 3, tuple(outputs))
        assert asked == ([] if direct_output else [("output", at)])
        if direct_output:
            assert np.frombuffer(memoryview(outputs[at]), np.float32).tolist() == X.tolist()


BFLOATS: dict[str, tuple[Callable[[np.ndarray], Any], bool, bool]] = {
    "array": (aligned, True, True),
    "2 bytes later": (lambda x: moved(x, 2), True, True),
    "1 byte later": (lambda x: moved(x, 1), False, False),
    "frozen": (frozen, True, False),
    "strided": (lambda x: np.repeat(x, 2, axis=1)[:, ::2], False, False),
    "columns": (lambda x: x.T.copy().T, False, False),
    "as many bits": (lambda x: x.view(np.uint16), False, False),
    "a subclass": (lambda x: x.view(np.recarray), False, False),
}


@pytest.mark.parametrize("name", BFLOATS)
def test_what_is_used_where_it_is_without_a_format(name: str) -> None:
    """The buffer protocol has no letter for bfloat16."""
    make, direct, direct_output = BFLOATS[name]
    x, asked = np.arange(6).reshape(2, 3).astype(BF16), []

    def convert(index: int, value: object) -> object:
        asked.append(index)
        return aligned(x)

    exe = native(copies([(2, 3)], "bfloat16"), convert=convert, convert_output=convert)
    (y,) = exe.run((make(x),))
    assert y.tobytes() == x.tobytes() and asked == [] if direct else [0]
    asked.clear()
    out = make(np.zeros_like(x))
    exe.run((aligned(x),), (out,))
    assert asked == ([] if direct_output else [0])
    if direct_output:
        assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "wrong", [5, "text", X.astype(np.float64), np.repeat(X, 2)[::2], tensor_of(np.repeat(X, 2)[::2]), moved(X, 1)]
)
def test_conversions_that_give_what_does_not_fit(wrong: Any) -> None:
    exe = native(copies([(8,), (8,)]), convert=lambda index, value: wrong, convert_output=lambda index, value: wrong)
    with pytest.raises(SystemError, match="argument 1"):
        exe.run((X, [1]))
    with pytest.raises(SystemError, match="argument 1"):
        exe.run((X, X), (np.zeros_like(X), [1]))
    with pytest.raises(SystemError, match="argument 0"):
        exe.run((X, X), (frozen(X), np.zeros_like(X)))
    with pytest.raises(LookupError):
        native(copies([(8,)])).run(([1],))


# ---- outputs given --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(-9, 10))
def test_outputs_may_touch_but_not_overlap_what_is_used(first: int) -> None:
    """Against each input and each output before; elements are shared exactly if the distance is below 8."""
    memory = np.zeros(40, np.float32)
    a, b, c, d = memory[10:18], memory[10 + first : 18 + first], X.copy(), np.zeros_like(X)
    exe = native(copies([(8,), (8,)]), fail=lambda *about: KeyError(*about))
    for inputs, outputs, at in (((a, c), (b, d), 0), ((c, a), (b, d), 0), ((a, c), (d, b), 1), ((c, X), (a, b), 1)):
        if abs(first) < 8:
            with pytest.raises(KeyError) as told_:
                exe.run(inputs, outputs)
            assert told_.value.args[:6] == (102, -1, -1, -1, 0, at)
        else:
            assert exe.run(inputs, outputs) is outputs


def test_nothing_overlaps_nothing() -> None:
    memory = np.zeros(8, np.float32)
    exe = native(copies([(8,), (0,)]))
    exe.run((X, memory[4:4]), (memory, np.zeros(0, np.float32)))
    exe.run((X, np.zeros(0, np.float32)), (memory, memory[4:4]))
    exe.run((memory, np.zeros(0, np.float32)), (X.copy(), memory[4:4]))


@pytest.mark.parametrize("shape", [(2, 3), (6,), (3, 2), (2, 3, 1), (1, 2, 3), (2, 4), (3, 3), (1, 6)])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_outputs_have_their_shapes(shape: tuple[int, ...], at: int, as_tensor: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    exe = native(copies([(2, 3), (2, 3)]), fail=lambda *about: KeyError(*about))
    outs: list[Any] = [np.zeros_like(x), np.zeros_like(x)]
    given = np.zeros(shape, np.float32)
    outs[at] = tensor_of(given) if as_tensor else given
    if shape == (2, 3):
        exe.run((x, x.copy()), tuple(outs))
        assert given.tolist() == x.tolist()
    else:
        with pytest.raises(KeyError) as told_:
            exe.run((x, x.copy()), tuple(outs))
        status, index, axis, instruction, *rest = told_.value.args
        assert (axis, instruction) == (-1, -1) or status < 100  # too small: the runtime found it
        assert status < 100 or (status, index, *rest[:2]) == (103, -1, 0, at)


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_wrong_numbers_of_inputs_and_outputs(count: int) -> None:
    exe = native(copies([(8,), (8,)]), fail=lambda *about: KeyError(*about))
    with pytest.raises(KeyError) as told_:
        exe.run((X,) * count)
    assert told_.value.args == (100, -1, -1, -1, 2, count, "")
    with pytest.raises(KeyError) as told_:
        exe.run((X, X), tuple(np.zeros_like(X) for _ in range(count)))
    assert told_.value.args == (101, -1, -1, -1, 2, count, "")


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 12])
@pytest.mark.parametrize("rank", [0, 1, 8, 12, 13, 16])
def test_runs_of_few_and_many_dimensions(count: int, rank: int) -> None:
    """With room on the stack for the ports, the dimensions, both or neither."""
    shapes = [tuple(1 + (d + i) % 2 * (d < 4) for d in range(rank)) for i in range(count)]
    exe = native(copies(shapes, "int64"))
    inputs = tuple(aligned(np.arange(math.prod(s)).reshape(s) + i) for i, s in enumerate(shapes))
    for _ in range(2):
        made = exe.run(inputs)
        assert [m.shape for m in made] == shapes and all(map(np.array_equal, made, inputs))
        outs = tuple(np.zeros_like(x) for x in inputs)
        assert exe.run(inputs, outs) is outs and all(map(np.array_equal, outs, inputs))


# ---- making executables ---------------------------------------------------------------------------------------------

PLACES = {"words": 0, "codes": 1, "kernels": 2, "constants": 3, "inputs": 4, "outputs": 5, "dtypes": 6, "devices": 13}
F32 = np.dtype("f4")


@pytest.mark.parametrize(
    "changed",
    [
        {"kernels": ((-1, "double_plus_one"),)},
        {"kernels": ((1, "double_plus_one"),)},
        {"kernels": ((0, "none"),)},
        {"kernels": ((0,),)},
        {"kernels": ((0, "double_plus_one"),) * 2},
        {"kernels": ()},
        {"codes": (5,)},
        {"codes": (None,)},
        {"codes": ()},
        {"codes": (("python",),)},
        {"inputs": ("float64",)},
        {"outputs": ("float64",)},
        {"inputs": ("none",)},
        {"outputs": ("none",)},
        {"inputs": (None,)},
        {"outputs": (None,)},
        {"inputs": (5,)},
        {"inputs": ("float32",) * 2, "dtypes": (F32,) * 3},
        {"outputs": ("float32",) * 2, "dtypes": (F32,) * 3},
        {"inputs": (), "outputs": ("float32",) * 2},
        {"inputs": ("float32",) * 2, "outputs": ()},
        {"inputs": (), "dtypes": (F32,)},
        {"outputs": (), "dtypes": (F32,)},
        {"dtypes": (F32,)},
        {"dtypes": (F32,) * 3},
        {"devices": (5,)},
        {"words": b""},
    ],
)
def test_parts_that_do_not_fit(kernels: bytes, changed: dict[str, Any]) -> None:
    parts = list(parts_of_an_executable(_native.Code(kernels)))
    blocks = _native.allocated_blocks()
    for name, part in changed.items():
        parts[PLACES[name]] = part
    for _ in range(3):
        with pytest.raises((ValueError, TypeError)):
            _native.Executable(*parts)
    gc.collect()
    assert _native.allocated_blocks() == blocks


@pytest.mark.parametrize("count", [1, 2, 3])
def test_constants_begin_at_multiples_of_64_and_are_given_back(count: int) -> None:
    n = (4,)
    program = ExecutableProgram(
        symbols=(),
        inputs=(),
        outputs=tuple(TensorSpec(f"y{i}", "int8", (n,)) for i in range(count)),
        buffers=(
            *(BufferSpec("constant", i, nbytes=n) for i in range(count)),
            *(BufferSpec("output", i) for i in range(count)),
        ),
        kernels=(),
        instructions=tuple(Copy(i, count + i, n) for i in range(count)),
    )
    i8 = np.dtype("i1")

    def made(constants: tuple[Any, ...]) -> _native.Executable:
        names = ("int8",) * count
        calls = (told, told, told, told)
        return _native.Executable(
            encode(program), (), (), constants, (), names, (i8,) * count, 1, np.ndarray, *calls, ()
        )

    data = [aligned(np.arange(4, dtype=np.int8) + 10 * i) for i in range(count)]
    before = [sys.getrefcount(d) for d in data]
    exe = made(tuple(data))
    assert all(sys.getrefcount(d) > b for d, b in zip(data, before, strict=True))
    assert [y.tolist() for y in exe.run(())] == [d.tolist() for d in data]
    del exe
    for at in range(count):
        for by in (1, 2, 4, 8, 16, 32, 63):
            wrong = [*data[:at], moved(data[at], by), *data[at + 1 :]]
            with pytest.raises(ValueError, match=f"constant {at} is not aligned"):
                made(tuple(wrong))
        wrong = [*data[:at], np.zeros(8, np.int8)[::2], *data[at + 1 :]]
        with pytest.raises((BufferError, ValueError), match="contiguous"):
            made(tuple(wrong))
        for size in (3, 0):
            with pytest.raises(ValueError):
                made((*data[:at], aligned(data[at])[:size], *data[at + 1 :]))
    del wrong
    assert [sys.getrefcount(d) for d in data] == before


# ---- values through the host ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("wrong", ["nothing", "a list", "one less", "one more", "another type", "an exception"])
def test_results_of_host_operators(count: int, wrong: str) -> None:
    program = ExecutableProgram(
        symbols=(),
        inputs=tuple(TensorSpec(f"v{i}", "data", (), "any") for i in range(count)),
        outputs=tuple(TensorSpec(f"w{i}", "data", (), "any") for i in range(count)),
        buffers=(BufferSpec("object"),) * (2 * count),
        kernels=(),
        instructions=(
            *(Take(i, i) for i in range(count)),
            CallHost(0, tuple(range(count)), tuple(range(count, 2 * count))),
            *(Give(count + i, i) for i in range(count)),
        ),
        hosts=(HostOperator("any", {}, ("string",) * count, ("string",) * count),),
    )
    values = tuple(_native.Value(np.array([0, 0], np.int64), (bytes([i]),)) for i in range(count))
    numbers: list[int] = []
    answers: dict[str, Callable[[Any], Any]] = {
        "nothing": lambda given: None,
        "a list": list,
        "one less": lambda given: given[:-1],
        "one more": lambda given: (*given, given[0]),
        "another type": lambda given: (*given[:-1], 5),
        "an exception": lambda given: 1 // 0,
    }
    answer: Callable[[Any], Any] = tuple

    def host(number: int, given: tuple[Any, ...]) -> Any:
        numbers.append(number)
        assert [g.nodes() for g in given] == [v.nodes() for v in values]
        return answer(given)

    none = (None,) * count
    exe = _native.Executable(
        encode(program), (), (), (), none, none, none * 2, 1, np.ndarray, told, told, told, host, ()
    )
    for _ in range(2):
        answer = tuple
        assert [v.nodes() for v in exe.run(values)] == [v.nodes() for v in values] and numbers[-1] == 0
        answer = answers[wrong]
        gc.collect()
        blocks = _native.allocated_blocks()
        with pytest.raises(ZeroDivisionError if wrong == "an exception" else SystemError):
            exe.run(values)
        gc.collect()
        assert _native.allocated_blocks() == blocks


# ---- direct calls ---------------------------------------------------------------------------------------------------

COUNTS = """
#include <stdint.h>
int32_t counts(void *const *buffers, const int64_t *sizes) {
    int64_t *calls = buffers[0];
    calls[0] += sizes[1];
    return calls[0] == sizes[0] ? 9 : 0;
}
"""


@pytest.mark.parametrize("repeat", [1, 2, 5])
@pytest.mark.parametrize("fails_at", [1, 2, 3, 6])
def test_calls_are_repeated_until_one_fails(compile_c: Callable[..., bytes], repeat: int, fails_at: int) -> None:
    code, calls = _native.Code(compile_c(COUNTS)), np.zeros(1, np.int64)
    begin = time.perf_counter_ns()
    status, times = code.call("counts", [calls], [fails_at, 1], 1, repeat)
    whole = time.perf_counter_ns() - begin
    made = min(repeat, fails_at)
    assert (status, calls[0]) == (9 if fails_at <= repeat else 0, made)
    assert len(times) == repeat and times[made:] == [0] * (repeat - made)
    assert all(t >= 0 for t in times) and sum(times) <= whole
    calls[0] = 0
    assert len(code.call("counts", [calls], [fails_at, 1])[1]) == calls[0] == 1


# ---- devices --------------------------------------------------------------------------------------------------------


CUT = [0, 1, 59, 60, 61, 118, 119, 120, 126, 127, 128, 190, 191, 192, 1000]
"""Lengths around those of the texts in C: 120 of an exception's, 127 of a name, 191 of a message."""


def begins(shown: str, whole: str, nbytes: int) -> bool:
    """Whether a text is what there is room for: a letter that does not fit may be missing or be a sign for it."""
    kept = whole.encode()[:nbytes].decode(errors="ignore")
    return shown.rstrip("\ufffd") == kept and (shown == kept or len(whole.encode()) > nbytes)


@pytest.mark.parametrize("before", ["", "a"])
@pytest.mark.parametrize("letter", ["m", "ü", "語", "\U0001f9f5"])
@pytest.mark.parametrize("length", CUT)
def test_long_texts_of_a_device_are_cut(length: int, letter: str, before: str) -> None:
    """Wherever the room ends in a letter, the device is described, and its error is the one that is raised."""
    text = before + letter * length

    class Talking(Quiet):
        def info(self) -> tuple[str, tuple[str, ...], int]:
            return text, (text,), 7

        def synchronize(self, *arguments: object) -> None:
            raise RuntimeError(text)

    made = _native.Device("quiet", 0, Talking)
    for _ in range(2):
        name, formats, nbytes = made.info()
        assert begins(name, text, 127) and begins(formats, text, 127) and nbytes == 7
        with pytest.raises(UserError) as failed:
            made.synchronize()
        assert isinstance(failed.value.__cause__, RuntimeError) and str(failed.value.__cause__) == text
        head = "device quiet(0) cannot finish its work: "
        shown = str(failed.value).splitlines()[0].removeprefix("error[G011] ")
        assert shown.startswith(head) and begins(shown.removeprefix(head), f"RuntimeError: {text}", 120)


@pytest.mark.parametrize("before", ["", "a"])
@pytest.mark.parametrize("letter", ["m", "ü", "語", "\U0001f9f5"])
def test_long_texts_of_checks_and_devices_are_cut(kernels: bytes, letter: str, before: str) -> None:
    """The errors of runs and of loading are told by texts in C, too."""
    for length in CUT:
        text = before + letter * length

        class Talking(Quiet):
            def load(self, *arguments: object, text: str = text) -> None:
                raise RuntimeError(text)

        base = vector_program("double_plus_one")
        checked = replace(base, instructions=(Check((8, 9, "ge"), text), *base.instructions))
        exe = Executable(artifact(checked, kernels))
        with pytest.raises(InputError) as failed:
            exe(X)
        assert text[:20] in str(failed.value)
        there = replace(
            base,
            buffers=(*base.buffers, BufferSpec("arena", nbytes=(32,), space=1)),
            kernels=(KernelRef("any", 0, 1),),
            instructions=(CallKernel(0, (2,), ()),),
            devices=(DeviceSpec("quiet", 0, (64,)),),
        )
        parts = list(parts_of_an_executable(_native.Code(kernels)))
        parts[:3] = encode(there), (("text", b"a text"),), ((0, "any"),)
        with pytest.raises(UserError, match="cannot load a kernel") as refused:
            _native.Executable(*parts[:-1], (_native.Device("quiet", 0, Talking),))
        assert str(refused.value.__cause__) == text


def test_what_methods_of_devices_return_is_not_kept() -> None:
    """Each object that is passed between the binding and a device, in both directions, is given back."""
    answers = {
        name: [name]
        for name in ("free", "copy_in", "copy_out", "copy_across", "load", "unload", "launch", "synchronize", "close")
    }
    address, told_, made = int("1" + "0" * 18), ("a name", ("text", "more"), int("9" * 12)), 0

    class Same:
        def __init__(self, index: int) -> None:
            nonlocal made
            made += 1

        def info(self) -> tuple[str, tuple[str, ...], int]:
            return told_

        def allocate(self, nbytes: int) -> int:
            return address

        def __getattr__(self, name: str) -> Callable[..., object]:
            return lambda *arguments: answers[name]

        def __del__(self) -> None:
            nonlocal made
            made -= 1

    watched = [*answers.values(), address, told_, told_[0], told_[1], told_[2], Same]
    kept: list[int] = []
    for _ in range(3):
        before = [sys.getrefcount(w) for w in watched]
        for _ in range(20):
            device = _native.Device("same", 0, Same)
            assert device.info() == ("a name", "text,more", told_[2])
            there, back = _native.Tensor.on(device, (8,), "float32"), _native.Tensor((8,), "float32")
            there.fill(back)
            back.fill(there)
            there.fill(there)
            device.synchronize()
            exe = memory_of_the_binding.native(memory_of_the_binding.THERE, (("text", b"a text"),), devices=(device,))()
            assert len(exe.run((X,))) == 1
            del device, there, back, exe
            gc.collect()
            assert made == 0
        kept = [sys.getrefcount(w) - b for w, b in zip(watched, before, strict=True)]
        if all(abs(k) < 20 for k in kept):
            return
    raise AssertionError(kept)
