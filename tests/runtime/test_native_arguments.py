"""Each function of the extension module takes what it is made for, and refuses all else with an error."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_artifacts import vector_program

from weft.runtime import _native
from weft.runtime.encode import encode
from weft.support.errors import UserError

X = np.arange(8, dtype=np.float32)
REFUSED = (TypeError, ValueError, BufferError, KeyError, OverflowError, UserError)


class Quiet:
    """A device that does nothing."""

    def __init__(self, index: int) -> None:
        pass

    def allocate(self, nbytes: int) -> int:
        return 64

    def nothing(self, *arguments: object) -> None:
        pass

    free = copy_in = synchronize = close = nothing


def told(*about: object) -> ValueError:
    return ValueError(*about)


def parts_of_an_executable(code: _native.Code) -> tuple[Any, ...]:
    f32 = np.dtype("f4")
    program = encode(vector_program("double_plus_one"))
    kernels = ((0, "double_plus_one"),)
    calls = (told, told, told, told)
    return (program, (code,), kernels, (), ("float32",), ("float32",), (f32, f32), 1, np.ndarray, *calls, ())


Function = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], int, tuple[int, ...]]
FUNCTIONS = (
    "Executable", "run", "trim", "Code", "symbol", "has", "call", "Tensor", "wrap", "on", "from_capsule", "fill",
    "Value", "nodes", "Device", "synchronize", "has_export", "cpu_features",
)  # fmt: skip


@pytest.fixture(scope="module")
def functions(kernels: bytes) -> dict[str, Function]:
    """By name: the function, right arguments, how many of them it needs, and those that may be anything."""
    code = _native.Code(kernels)
    parts = parts_of_an_executable(code)
    exe, tensor, device = _native.Executable(*parts), _native.Tensor((8,), "float32"), _native.Device("quiet", 0, Quiet)
    tensor.fill(_native.Tensor.wrap(X, (8,), "float32"))
    value = _native.Value(np.array([0, 1, 4], np.int64), (b"1234",))
    return {
        "Executable": (_native.Executable, lambda: parts, len(parts), (8, 9, 10, 11, 12)),
        "run": (exe.run, lambda: ((X,), (np.zeros_like(X),), np.zeros(2, np.int64), 10**12), 1, ()),
        "trim": (exe.trim, tuple, 0, ()),
        "Code": (_native.Code, lambda: (kernels, False), 1, (1,)),
        "symbol": (code.symbol, lambda: ("fails",), 1, ()),
        "has": (code.has, lambda: ("fails",), 1, ()),
        "call": (code.call, lambda: ("double_plus_one", [X, np.zeros_like(X)], [8], 1, 2, 0), 2, ()),
        "Tensor": (_native.Tensor, lambda: ((2, 3), "float32"), 2, ()),
        "wrap": (_native.Tensor.wrap, lambda: (bytes(24), (2, 3), "float32"), 3, ()),
        "on": (_native.Tensor.on, lambda: (device, (2, 3), "float32"), 3, ()),
        "from_capsule": (_native.Tensor.from_capsule, lambda: (tensor.__dlpack__(),), 1, ()),
        "fill": (tensor.fill, lambda: (_native.Tensor.wrap(X, (2, 4), "float32"),), 1, ()),
        "Value": (_native.Value, lambda: (np.array([0, 1, 4], np.int64), (b"1234",)), 2, ()),
        "nodes": (value.nodes, tuple, 0, ()),
        "Device": (_native.Device, lambda: ("quiet", 0, Quiet, 0, 0), 3, ()),
        "synchronize": (device.synchronize, tuple, 0, ()),
        "has_export": (_native.has_export, lambda: ("memcpy",), 1, ()),
        "cpu_features": (_native.cpu_features, tuple, 0, ()),
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_and_kinds_of_arguments(functions: dict[str, Function], name: str) -> None:
    function, right, least, anything = functions[name]
    most = len(right())
    for count in range(most + 1):
        if count >= least:
            function(*right()[:count])
        else:
            with pytest.raises(REFUSED):
                function(*right()[:count])
    with pytest.raises(TypeError):
        function(*right(), 0)
    for at in set(range(most)) - set(anything):
        given = list(right())
        given[at] = object()
        with pytest.raises(REFUSED):
            function(*given)


def test_the_table_has_each_function_that_the_module_has(functions: dict[str, Function]) -> None:
    assert tuple(functions) == FUNCTIONS
    types = [t for t in vars(_native).values() if isinstance(t, type)]
    public = {n for t in types for n, f in vars(t).items() if callable(f) and not n.startswith("_")}
    public |= {n for n, f in vars(_native).items() if callable(f) and not n.startswith("_")}
    without = {"info", "scratch_bytes", "allocated_blocks", "worker_count"}  # which take no arguments, as others do
    assert public - without == set(FUNCTIONS)


@pytest.mark.parametrize("outs", [None, "given"])
@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("timeout", [(), (-1,), (10**12,)])
def test_every_form_of_a_run(kernels: bytes, outs: str | None, profiled: bool, timeout: tuple[int, ...]) -> None:
    exe = _native.Executable(*parts_of_an_executable(_native.Code(kernels)))
    out, times = (np.zeros_like(X),), np.zeros(2, np.int64)
    made = exe.run((X,), out if outs else None, times if profiled else None, *timeout)
    np.testing.assert_array_equal(made[0], 2 * X + 1)
    assert (made is out) == bool(outs) and times[1] == profiled


@pytest.mark.parametrize(
    "wrong",
    [[(X,), None, np.zeros(3, np.int64)], [[X]], [(X,), [X]], [(X,), None, None, 1 << 64], [(X, X)], [(X,), ()]],
)
def test_wrong_forms_of_a_run(kernels: bytes, wrong: list[Any]) -> None:
    exe = _native.Executable(*parts_of_an_executable(_native.Code(kernels)))
    with pytest.raises((TypeError, ValueError, OverflowError)):
        exe.run(*wrong)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("threads", [1, 1024], [0, -1, 1025, 1 << 70, "1", None, 1.5]),
        ("memory_limit", [0, (1 << 63) - 1], [-1, -2, 1 << 63, "1", None, 1.5]),
    ],
)
def test_numbers_of_an_executable(kernels: bytes, name: str, right: list[int], wrong: list[Any]) -> None:
    exe = _native.Executable(*parts_of_an_executable(_native.Code(kernels)))
    for number in right:
        setattr(exe, name, number)
        assert getattr(exe, name) == number
    for number in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            setattr(exe, name, number)
        assert getattr(exe, name) == right[-1]
    with pytest.raises(AttributeError):
        exe.held_bytes = 1  # type: ignore[misc]


def test_numbers_that_are_deleted(kernels: bytes) -> None:
    exe = _native.Executable(*parts_of_an_executable(_native.Code(kernels)))
    with pytest.raises(ValueError):
        del exe.threads
    exe.memory_limit = 5
    del exe.memory_limit
    assert exe.threads == 1 and exe.memory_limit == 0


@pytest.mark.parametrize("repeat", [0, -1])
def test_a_call_is_repeated_at_least_once(kernels: bytes, repeat: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        _native.Code(kernels).call("double_plus_one", [X, np.zeros_like(X)], [8], 1, repeat)
    with pytest.raises(KeyError, match="no function 'none'"):
        _native.Code(kernels).call("none", [])


@pytest.mark.parametrize("at", [8, 9, 10, 11, 12])
def test_an_executable_that_its_own_functions_hold_is_collected(kernels: bytes, at: int) -> None:
    class Holder:
        exe: _native.Executable

        def function(self, *about: object) -> None:
            pass

    holder = Holder()
    parts = list(parts_of_an_executable(_native.Code(kernels)))
    parts[at] = holder.function
    holder.exe = _native.Executable(*parts)
    alive = weakref.ref(holder)
    del holder, parts
    assert alive() is not None
    gc.collect()
    assert alive() is None
