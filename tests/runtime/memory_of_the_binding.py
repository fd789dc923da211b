"""Each operation of the binding, with each of its allocations refused in turn, and repeated: what goes wrong?

``python memory_of_the_binding.py LIBRARY OBJECT`` is a program of its own, since a mistake may end it. LIBRARY is
``native/allocations.c``, OBJECT the common kernels. It prints one JSON object a line: the name of the operation that
begins, then how many allocations it has and what is wrong.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from small_artifacts import vector_program

import weft.runtime.devices  # what the binding imports where a device fails
from weft.runtime import _native
from weft.runtime.encode import encode
from weft.runtime.program import (
    BufferSpec,
    CallHost,
    CallKernel,
    Copy,
    DeviceSpec,
    ExecutableProgram,
    Give,
    HostOperator,
    KernelRef,
    Take,
    TensorSpec,
)
from weft.support.errors import UserError

REPEATS = 20
"""More than the objects that the measurement itself holds."""
MOST = 3000
"""Allocations of one operation."""
X = np.arange(8, dtype=np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Operation:
    """``run`` gives a result that is ``right``, and keeps no reference to what it uses (``watched``)."""

    run: Callable[[], Any]
    right: Callable[[Any], bool]
    watched: tuple[Any, ...] = ()


class Told(Exception):
    """What the callback for failed runs makes."""


class Still:
    """A device that holds nothing, so that it loses nothing where a call of it fails."""

    def __init__(self, index: int) -> None:
        pass

    def info(self) -> tuple[str, tuple[str, ...], int]:
        return "still", ("text", "more"), 12

    def allocate(self, nbytes: int) -> int:
        return 1 << 60

    def copy_out(self, source: int, to: memoryview) -> None:
        to[:] = bytes(len(to))

    def load(self, format: str, code: bytes, entry: str) -> object:
        return "a kernel"

    def nothing(self, *arguments: object) -> None:
        pass

    free = copy_in = copy_across = unload = launch = synchronize = close = nothing


broken = divmod
"""Raises a TypeError for whatever it is given. It is no function in Python: where memory ends while one of those raises
an exception, the interpreter itself loses it."""


class Breaking(Still):
    launch = divmod


def raises(kind: type[BaseException], function: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> bool:
        try:
            function()
        except kind:
            return True
        return False

    return run


def native(
    program: ExecutableProgram,
    codes: tuple[Any, ...] = (),
    constants: tuple[Any, ...] = (),
    fail: Callable[..., Any] = lambda *about: Told(about),
    host: Callable[..., Any] = broken,
    devices: tuple[Any, ...] = (),
) -> Callable[[], _native.Executable]:
    """Makes the executable. Arrays that cannot be used in C, as where memory ends, are converted to what they are."""
    ports = (*program.inputs, *program.outputs)
    names = [None if t.is_value else t.dtype for t in ports]
    dtypes = tuple(None if n is None else BF16 if n == "bfloat16" else np.dtype(n) for n in names)
    inputs = len(program.inputs)

    def convert(index: int, value: Any) -> Any:
        return np.array(value, dtypes[index])

    def convert_output(index: int, value: Any) -> Any:
        return value

    kernels = tuple((k.code, k.name) for k in program.kernels)
    return partial(
        _native.Executable, encode(program), codes, kernels, constants, tuple(names[:inputs]), tuple(names[inputs:]),
        dtypes, 1, np.ndarray, convert, convert_output, fail, host, devices,
    )  # fmt: skip


def copies(count: int, dtype: str, extent: int) -> ExecutableProgram:
    """So many inputs, each copied to an output."""
    nbytes = (BF16 if dtype == "bfloat16" else np.dtype(dtype)).itemsize * extent
    numbers = range(count)
    return ExecutableProgram(
        symbols=(),
        inputs=tuple(TensorSpec(f"x{i}", dtype, ((extent,),)) for i in numbers),
        outputs=tuple(TensorSpec(f"y{i}", dtype, ((extent,),)) for i in numbers),
        buffers=(*(BufferSpec("input", i) for i in numbers), *(BufferSpec("output", i) for i in numbers)),
        kernels=(),
        instructions=tuple(Copy(i, count + i, (nbytes,)) for i in numbers),
    )


ADDS = ExecutableProgram(
    symbols=(),
    inputs=(TensorSpec("x", "float32", ((8,),)),),
    outputs=(TensorSpec("y", "float32", ((8,),)),),
    buffers=(BufferSpec("input", 0), BufferSpec("constant", 0, nbytes=(12,)), BufferSpec("output", 0)),
    kernels=(KernelRef("add_constant", 0),),
    instructions=(CallKernel(0, (0, 1, 2), ((8,), (3,))),),
)
VALUES = ExecutableProgram(
    symbols=(),
    inputs=(TensorSpec("v", "data", (), "any"),),
    outputs=(TensorSpec("w", "data", (), "any"), TensorSpec("y", "float32", ((3,),))),
    buffers=(
        BufferSpec("object"),
        BufferSpec("object"),
        BufferSpec("constant", 0, nbytes=(12,)),
        BufferSpec("output", 1),
    ),
    kernels=(),
    instructions=(Take(0, 0), CallHost(0, (0,), (1,)), Give(1, 0), Copy(2, 3, (12,))),
    hosts=(HostOperator("any", {}, ("string",), ("string",)),),
)
THERE = ExecutableProgram(
    symbols=(),
    inputs=(TensorSpec("x", "float32", ((8,),)),),
    outputs=(TensorSpec("y", "float32", ((8,),)),),
    buffers=(BufferSpec("input", 0), BufferSpec("arena", nbytes=(32,), space=1), BufferSpec("output", 0)),
    kernels=(KernelRef("any", 0, 1),),
    instructions=(Copy(0, 1, (32,)), CallKernel(0, (1,), ((8,),)), Copy(1, 2, (32,))),
    devices=(DeviceSpec("still", 0, (64,)),),
)


def same(found: Any, *wanted: Any) -> bool:
    return len(found) == len(wanted) and all(
        f.dtype == w.dtype and np.array_equal(f.view(np.uint8), w.view(np.uint8))
        for f, w in zip(found, wanted, strict=True)
    )


def tables() -> dict[str, Operation]:
    """Values as tables of nodes, with more nodes, words and fields than there is room for at first."""
    thing = object()
    words = [0, 1, 4, 2, 0]  # a tensor, an object
    for node in range(2, 70):
        words += [1, node, 1, node - 1]
    words += [1, 7, 72, *range(70), 0, 1]
    table, parts = np.array(words, np.int64), (b"1234", thing)
    value = _native.Value(table, parts)
    wanted = value.nodes()
    return {
        "making a value": Operation(
            partial(_native.Value, table, parts), lambda made: made.nodes() == wanted, (thing, table, parts)
        ),
        "the nodes of a value": Operation(value.nodes, lambda found: found == wanted, (thing, value)),
    }


def tensors() -> dict[str, Operation]:
    raw = X.tobytes()
    tensor = _native.Tensor.wrap(raw, (2, 4), "float32")

    def described() -> Any:
        t = _native.Tensor((2, 300), "float32")
        return t.shape, t.strides, t.dtype, t.nbytes, t.readonly, t.contiguous, t.home, t.address % 64

    def exchanged() -> Any:
        own = _native.Tensor((2, 4), "float32")
        own.fill(tensor)
        first = _native.Tensor.from_capsule(own.__dlpack__())
        second = _native.Tensor.from_capsule(tensor.__dlpack__(max_version=(1, 0)))
        own.__dlpack__()  # and dropped
        return bytes(first), bytes(second), first.shape

    return {
        "a tensor": Operation(
            described, lambda found: found == ((2, 300), (1200, 4), "float32", 2400, False, True, None, 0)
        ),
        "a view of memory": Operation(
            lambda: bytes(_native.Tensor.wrap(raw, [2, 4], "float32")), lambda found: found == raw, (raw,)
        ),
        "DLPack": Operation(exchanged, lambda found: found == (raw, raw, (2, 4)), (tensor,)),
    }


def kernels(data: bytes) -> dict[str, Operation]:
    code = _native.Code(data)
    y = np.zeros_like(X)

    def called(found: Any) -> bool:
        right = found[0] == 0 and len(found[1]) == 3 and np.array_equal(y, 2 * X + 1)
        y[:] = 0
        return right

    return {
        "loading code": Operation(partial(_native.Code, data), lambda made: made.has("fails"), (data,)),
        "what code holds": Operation(
            lambda: (code.symbol("fails") > 0, code.has("none"), code.nbytes > 0), lambda f: f == (True, False, True)
        ),
        "a direct call": Operation(partial(code.call, "double_plus_one", [X, y], [8], 1, 3), called, (X, y, code)),
        "the module": Operation(
            lambda: (_native.cpu_features() != "", _native.worker_count(), _native.has_export("memcpy")),
            lambda found: found == (True, 0, True),
        ),
    }


def runs(data: bytes) -> dict[str, Operation]:
    code = _native.Code(data)
    constant = _native.Tensor((3,), "float32")
    constant.fill(_native.Tensor.wrap(np.array([1, 2, 3], np.float32), (3,), "float32"))
    make = native(ADDS, (code,), (constant,))
    exe, y = make(), X + np.resize(np.array([1, 2, 3], np.float32), 8)
    out, profile = np.zeros_like(X), np.zeros(2, np.int64)
    many, pairs = native(copies(12, "int64", 1))(), tuple(np.array([i]) for i in range(12))
    half, b = native(copies(2, "bfloat16", 8))(), X.astype(BF16)
    failing = native(vector_program("fails", 9), (code,))()
    words = np.array([0, 1, 4, 1, 9, 1, 0], np.int64)
    value = _native.Value(words, (b"1234",))
    through = native(VALUES, constants=(constant,), host=lambda number, given: given)()
    stopped = native(VALUES, constants=(constant,))()
    three = np.array([1, 2, 3], np.float32)
    f32 = X.dtype

    def written(found: Any) -> bool:
        right = found[0] is out and np.array_equal(out, y)
        out[:] = 0
        return right

    def numbers() -> Any:
        exe.threads, exe.memory_limit = 1000, 1 << 40
        return exe.threads, exe.memory_limit, exe.held_bytes, exe.trim()

    return {
        "making an executable": Operation(
            make, lambda made: same(made.run((X,)), y), (code, constant, np.ndarray, f32, make)
        ),
        "a run": Operation(partial(exe.run, (X,)), lambda found: same(found, y), (X, np.ndarray, f32, exe)),
        "a converted input": Operation(partial(exe.run, (list(range(8)),)), lambda found: same(found, y), (f32, exe)),
        "outputs given": Operation(partial(exe.run, (X,), (out,)), written, (X, out, f32, exe)),
        "a profile and a time limit": Operation(
            partial(exe.run, (X,), None, profile, 10**13), lambda found: same(found, y), (X, profile, exe)
        ),
        "many inputs and outputs": Operation(
            partial(many.run, pairs), lambda found: same(found, *pairs), (*pairs, pairs, many)
        ),
        "arrays that no buffer describes": Operation(
            partial(half.run, (b, b)), lambda found: same(found, b, b), (b, BF16, half)
        ),
        "a kernel that fails": Operation(raises(Told, partial(failing.run, (X,))), bool, (X, Told)),
        "a wrong number of inputs": Operation(raises(Told, partial(exe.run, ())), bool, (Told, exe)),
        "values": Operation(
            partial(through.run, (value,)),
            lambda found: found[0].nodes() == value.nodes() and same(found[1:], three),
            (value, through),
        ),
        "a host operator that fails": Operation(
            raises(TypeError, partial(stopped.run, (value,))), bool, (value, stopped)
        ),
        "the numbers of an executable": Operation(numbers, lambda found: found == (1000, 1 << 40, 0, 0), (exe,)),
    }


def elsewhere() -> dict[str, Operation]:
    """Devices in Python."""
    device, breaking = _native.Device("still", 0, Still), _native.Device("still", 0, Breaking)
    tensor = _native.Tensor.wrap(X, (8,), "float32")
    codes = (("text", b"a text"),)
    make = native(THERE, codes, devices=(device,))
    exe = make()
    failing = native(THERE, codes, devices=(breaking,))()
    speechless = native(THERE, codes, devices=(breaking,), fail=broken)()

    def opened() -> Any:
        made = _native.Device("still", 0, Still)
        made.synchronize()
        return made.info(), made.kind, made.index, made.allocations, made.kernels

    def filled() -> Any:
        there, back = _native.Tensor.on(device, (8,), "float32"), _native.Tensor((8,), "float32")
        there.fill(tensor)
        back.fill(there)
        return bytes(back), there.home is device

    zeros = np.zeros_like(X)
    return {
        "opening a device": Operation(
            opened, lambda found: found == (("still", "text,more", 12), "still", 0, 0, 0), (Still,)
        ),
        "a tensor on a device": Operation(filled, lambda found: found == (bytes(32), True), (device, tensor)),
        "making an executable of a device": Operation(make, lambda made: same(made.run((X,)), zeros), (device, codes)),
        "a run on a device": Operation(partial(exe.run, (X,)), lambda found: same(found, zeros), (X, exe, device)),
        "a device that fails": Operation(raises(Told, partial(failing.run, (X,))), bool, (X, Told)),
        "a device and then an error that fail": Operation(
            raises(TypeError, partial(speechless.run, (X,))), bool, (X, speechless)
        ),
    }


NAMES = (
    "making a value", "the nodes of a value", "a tensor", "a view of memory", "DLPack", "loading code",
    "what code holds", "a direct call", "the module", "making an executable", "a run", "a converted input",
    "outputs given", "a profile and a time limit", "many inputs and outputs", "arrays that no buffer describes",
    "a kernel that fails", "a wrong number of inputs", "values", "a host operator that fails",
    "the numbers of an executable", "opening a device", "a tensor on a device", "making an executable of a device",
    "a run on a device", "a device that fails", "a device and then an error that fail",
)  # fmt: skip


class Judge:
    """``library`` refuses the allocations and counts what is in use."""

    def __init__(self, library: ctypes.PyDLL, operation: Operation) -> None:
        self.library, self.operation = library, operation
        self.wrong: list[str] = []

    def attempt(self, which: int) -> None:
        """The operation with an allocation refused: the right result, or the error that says so."""
        try:
            made = self.library.attempt(self.operation.run, which)
            if not self.operation.right(made):
                self.wrong.append(f"allocation {which} refused: the result is {made!r:.200}")
        except BaseException as error:
            device = isinstance(error, (UserError, Told))  # whose cause is that of the device
            out_of_memory = isinstance(error.__cause__ if device else error, MemoryError)
            if which < 0 or not out_of_memory:
                self.wrong.append(f"allocation {which} refused: {error!r:.200}")

    def in_use(self) -> list[int]:
        gc.collect()
        watched = [sys.getrefcount(w) for w in self.operation.watched]
        return [_native.allocated_blocks(), self.library.blocks_in_use(), *watched]

    def kept(self, which: int) -> list[int]:
        """What repeated attempts keep: blocks of the runtime, blocks of Python, references to each of ``watched``."""
        before = self.in_use()
        for _ in range(REPEATS):
            self.attempt(which)
        return [after - b for after, b in zip(self.in_use(), before, strict=True)]

    def always_kept(self, which: int) -> list[int]:
        """The same, if it is too much in each of several measurements: the interpreter makes room, too, but once."""
        for _ in range(10):
            kept = self.kept(which)
            if all(abs(n) < REPEATS for n in kept):
                return []
        return kept

    def every_allocation(self) -> int:
        """Judge the operation; the number of its allocations."""
        for _ in range(200):
            self.attempt(-1)
        for which in range(-1, MOST):
            reached = False
            for _ in range(3):
                self.attempt(which)
                reached |= which < self.library.allocations_of_the_attempt()
            if not reached or len(self.wrong) > 2:
                return which
            if kept := self.always_kept(which):
                self.wrong.append(f"allocation {which} refused: {REPEATS} attempts keep {kept}")
        self.wrong.append("there is no end of its allocations")
        return MOST


def main() -> None:
    path, data = sys.argv[1], Path(sys.argv[2]).read_bytes()
    library = ctypes.PyDLL(path)
    library.hook.restype = None
    library.attempt.argtypes, library.attempt.restype = [ctypes.py_object, ctypes.c_long], ctypes.py_object
    library.allocations_of_the_attempt.restype = library.blocks_in_use.restype = ctypes.c_long
    operations = {**tables(), **tensors(), **kernels(data), **runs(data), **elsewhere()}
    assert tuple(operations) == NAMES and weft.runtime.devices.failure
    sys.unraisablehook = lambda about: None  # methods of devices that nobody can be told of
    gc.collect()
    gc.freeze()
    gc.disable()
    library.hook()
    for name, operation in operations.items():
        print(json.dumps({"begins": name}), flush=True)
        judge = Judge(library, operation)
        count = judge.every_allocation()
        print(json.dumps({"name": name, "allocations": count, "wrong": judge.wrong}), flush=True)


if __name__ == "__main__":
    main()
