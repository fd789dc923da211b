"""Programs on other devices: data moves, the host never touches its addresses, errors are clean, nothing leaks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from toy_device import Toys, toys

import weft
from weft.runtime import _native, devices
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.encode import encode
from weft.runtime.executable import Executable, load_executable
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    CheckRange,
    Copy,
    DeviceSpec,
    ExecutableProgram,
    KernelRef,
    Launch,
    Reserve,
    SetSize,
    TensorSpec,
)
from weft.support.errors import ArtifactError, InputError, UserError

SOURCE = """
def scaled(buffers, sizes, launch):
    x, c, y = (b.view(np.float32) for b in buffers)
    y[: sizes[0]] = x[: sizes[0]] * c[: sizes[0]]

def breaks(buffers, sizes, launch):
    raise ArithmeticError("the toy broke")
"""
N = 8
X = np.arange(N, dtype=np.float32)
C = np.linspace(1, 2, N, dtype=np.float32)
LAUNCH = Launch((("n", 2, "floordiv"), (1,), (1,)), ((2,), (1,), (1,)), ("n", 4, "mul"))


@pytest.fixture
def toy() -> Iterator[Toys]:
    with toys() as made:
        yield made


def program(entry: str = "scaled", inputs: int = 0, outputs: int = 0, last: int = 1) -> ExecutableProgram:
    """``y = double_plus_one(double_plus_one(x) * c)``: the product on toy 0, with copies there and back. ``inputs`` and
    ``outputs``: the spaces where the program wants ``x`` and ``y``."""
    n, nbytes = ("n",), ("n", 4, "mul")
    if inputs:  # y = x * c on the toy alone
        buffers = (
            BufferSpec("input", 0, space=1),
            BufferSpec("constant", 0, nbytes=(4 * N,), space=1),
            BufferSpec("output", 0, space=outputs),
            BufferSpec("arena", nbytes=nbytes, space=1),
        )
        call = CallKernel(0, (0, 1, 2 if outputs else 3), (n,), launch=LAUNCH)
        instructions = (call,) if outputs else (call, Copy(3, 2, nbytes))
        kernels = (KernelRef(entry, 1, 1),)
    else:
        buffers = (
            BufferSpec("input", 0),
            BufferSpec("arena", nbytes=nbytes),
            BufferSpec("arena", nbytes=nbytes, space=1),
            BufferSpec("constant", 0, nbytes=(4 * N,), space=1),
            BufferSpec("arena", nbytes=nbytes, offset=(256,), space=1),
            BufferSpec("output", 0),
        )
        kernels = (KernelRef("double_plus_one", 0), KernelRef(entry, 1, 1))
        instructions = (
            CallKernel(0, (0, 1), (n,)),
            Copy(1, 2, nbytes),
            CallKernel(1, (2, 3, 4), (n,), launch=LAUNCH),
            Copy(4, 1, nbytes),
            CallKernel(0, (1, 5), (n,)),
        )
    return ExecutableProgram(
        symbols=("n",),
        inputs=(TensorSpec("x", "float32", (n,), space=inputs),),
        outputs=(TensorSpec("y", "float32", (n,), space=outputs),),
        buffers=buffers,
        kernels=kernels,
        instructions=instructions,
        arena_bytes=nbytes,
        devices=(DeviceSpec("pretend", 0, (1024,)),),
    )


def made(kernels: bytes, p: ExecutableProgram) -> Artifact:
    codes = CodeObject((Variant(frozenset(), kernels),)), CodeObject((Variant(frozenset(), SOURCE.encode(), "python"),))
    return Artifact(p, codes, (C,))


def expected(x: np.ndarray) -> np.ndarray:
    return 2 * ((2 * x + 1) * C[: len(x)]) + 1


def nothing_left(toy: Toys) -> None:
    gc.collect()
    assert all(t.closed and not t.memory and not t.kernels for t in toy.made.values())


def test_a_program_on_two_devices(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program()))
    for n in (N, 4, 6, N):
        np.testing.assert_array_equal(exe(X[:n]), expected(X[:n]))
    assert toy[0].launches[1] == ((4,), (2, 1, 1), (2, 1, 1), 16)
    assert toy[0].log.count("load") == 1
    assert toy[0].log.count("copy_in") == 1 + 4 and toy[0].log.count("copy_out") == 4  # the constant once
    assert toy[0].log.count("allocate") == 2  # the constant and the arena, which is kept
    assert exe.arena_bytes == 4 * N + 1024
    del exe
    nothing_left(toy)


def test_a_program_with_devices_is_saved_and_loaded(kernels: bytes, toy: Toys, tmp_path) -> None:
    path = tmp_path / "m.weft"
    made(kernels, program()).save(path)
    assert Artifact.load(path, verify=True) is not None
    np.testing.assert_array_equal(load_executable(path)(X), expected(X))
    nothing_left(toy)


def test_a_launch_without_blocks_runs_nothing(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program()))
    assert exe(X[:0]).shape == (0,)
    assert not toy[0].launches


def test_profiles_wait_for_the_device(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program()))
    exe(X)
    waits = toy[0].log.count("synchronize")
    profile = exe.profile(X, runs=2)
    assert [k.kernel for k in profile.kernels] == ["double_plus_one", "scaled", "double_plus_one"]
    assert toy[0].log.count("synchronize") - waits == 1 + 2 * 2  # one run to warm up, not profiled


# ---- tensors on devices ---------------------------------------------------------------------------------------------


def test_tensors_on_a_device(toy: Toys) -> None:
    there = weft.device("pretend", 1)
    t = weft.nd.array(X, there)
    assert t.device == there == weft.Device("pretend", 1) and str(t.device) == "pretend(1)" and "pretend(1)" in repr(t)
    assert t.shape == (N,) and t.dtype == "float32" and t.address >= 1 << 60
    np.testing.assert_array_equal(t.numpy(), X)
    np.testing.assert_array_equal(np.asarray(t), X)
    assert t.to(there) is t
    back = t.to(weft.device("cpu"))
    assert back.device == weft.device("cpu")
    other = t.to(weft.device("pretend", 0))  # through main memory
    np.testing.assert_array_equal(other.numpy(), X)
    np.testing.assert_array_equal(weft.nd.array(t, weft.device("pretend", 0)).numpy(), X)
    assert weft.nd.empty((2, 3), "int8", there).shape == (2, 3)
    assert weft.nd.array(np.zeros((0, 3)), there).numpy().shape == (0, 3)
    assert there.info() == devices.DeviceInfo("toy number 1", ("python",), 1 << 30)
    there.synchronize()
    for share in (memoryview, lambda x: x.__dlpack__(), weft.runtime.from_dlpack):
        with pytest.raises((BufferError, InputError)):
            share(t)
    del t, other
    nothing_left(toy)


def test_strided_tensors_are_made_compact(toy: Toys) -> None:
    strided = weft.nd.from_dlpack(np.arange(12.0).reshape(3, 4).T)
    np.testing.assert_array_equal(strided.to(weft.device("pretend")).numpy(), np.arange(12.0).reshape(3, 4).T)


@pytest.mark.parametrize("outputs", [0, 1])
def test_inputs_are_used_where_they_are(kernels: bytes, toy: Toys, outputs: int) -> None:
    exe = Executable(made(kernels, program(inputs=1, outputs=outputs)))
    there = weft.nd.array(X, weft.device("pretend"))
    toy[0].log.clear()
    np.testing.assert_array_equal(exe(there), X * C)
    assert "copy_in" not in toy[0].log and toy[0].log.count("copy_out") == 1
    np.testing.assert_array_equal(exe(X), X * C)
    assert toy[0].log.count("copy_in") == 1
    np.testing.assert_array_equal(exe(weft.nd.array(X, weft.device("pretend", 1))), X * C)
    np.testing.assert_array_equal(exe.run({"x": there})["y"], X * C)


@pytest.mark.parametrize("outputs", [0, 1])
def test_results_go_where_they_are_wanted(kernels: bytes, toy: Toys, outputs: int) -> None:
    exe = Executable(made(kernels, program(inputs=1, outputs=outputs)))
    there, out = weft.nd.array(X, weft.device("pretend")), weft.nd.empty((N,), "float32", weft.device("pretend"))
    toy[0].log.clear()
    assert exe(there, out=out) is out
    assert ("copy_out" in toy[0].log) == (outputs == 0)
    np.testing.assert_array_equal(out.numpy(), X * C)
    in_main = np.zeros(N, np.float32)
    exe(there, out=in_main)
    np.testing.assert_array_equal(in_main, X * C)
    other = weft.nd.empty((N,), "float32", weft.device("pretend", 1))
    exe(X, out=other)
    np.testing.assert_array_equal(other.numpy(), X * C)
    with pytest.raises(InputError, match="overlaps"):
        exe(there, out=there)
    with pytest.raises(InputError, match="float64"):
        exe(there, out=weft.nd.empty((N,), "float64", weft.device("pretend")))
    with pytest.raises(InputError, match=r"right shape|too small|does not"):
        exe(there, out=weft.nd.empty((N - 1,), "float32", weft.device("pretend")))


def test_programs_of_the_cpu_take_tensors_from_elsewhere(kernels: bytes, toy: Toys) -> None:
    from small_artifacts import artifact, vector_program

    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    there = weft.nd.array(X, weft.device("pretend"))
    out = weft.nd.empty((N,), "float32", weft.device("pretend"))
    for _ in range(2):
        np.testing.assert_array_equal(exe(there), 2 * X + 1)
        np.testing.assert_array_equal(exe(X), 2 * X + 1)
        exe(there, out=out)
        np.testing.assert_array_equal(out.numpy(), 2 * X + 1)
    with pytest.raises(InputError, match="float64"):
        exe(weft.nd.array(X.astype(np.float64), weft.device("pretend")))


def test_dynamic_buffers_on_a_device(kernels: bytes, toy: Toys) -> None:
    p = program()
    steps = (
        p.instructions[0],
        Allocate(6, (16,)),
        Copy(1, 6, (16,)),
        Reserve(6, ("n", 4, "mul")),  # grows, keeps what it holds
        Copy(1, 6, ("n", 4, "mul", 16, "sub"), (16,), (16,)),
        Copy(6, 2, ("n", 4, "mul")),
        *p.instructions[2:],
    )
    exe = Executable(
        made(kernels, replace(p, buffers=(*p.buffers, BufferSpec("dynamic", space=1)), instructions=steps))
    )
    np.testing.assert_array_equal(exe(X), expected(X))
    assert len(toy[0].memory) == 2  # the constant and the arena: the dynamic buffer is gone
    assert toy[0].log.count("copy_across") == 2
    del exe
    nothing_left(toy)


def test_two_devices_and_shared_constants(kernels: bytes, toy: Toys) -> None:
    """The product on toy 0, and again on toy 1, from which it comes back."""
    p = program()
    nbytes = ("n", 4, "mul")
    more = (
        BufferSpec("arena", nbytes=nbytes, space=2),
        BufferSpec("constant", 0, nbytes=(4 * N,), space=2),
        BufferSpec("constant", 0, nbytes=(4 * N,), space=2),
        BufferSpec("arena", nbytes=nbytes, offset=(64,), space=2),
    )
    steps = (
        *p.instructions[:3],
        Copy(4, 6, nbytes),
        CallKernel(2, (6, 7, 9), (("n",),)),
        CallKernel(2, (9, 8, 6), (("n",),)),
        Copy(6, 1, nbytes),
        p.instructions[4],
    )
    both = replace(
        p,
        buffers=(*p.buffers, *more),
        instructions=steps,
        kernels=(*p.kernels, KernelRef("scaled", 1, 2)),
        devices=(*p.devices, DeviceSpec("pretend", 1, (128,))),
    )
    exe = Executable(made(kernels, both))
    np.testing.assert_array_equal(exe(X), 2 * ((2 * X + 1) * C * C * C) + 1)
    assert toy[1].log.count("copy_in") == 2 and toy[1].log.count("allocate") == 2
    del exe
    nothing_left(toy)


def test_several_threads(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program()))
    wrong: list[str] = []

    def work(seed: int, exe: Executable = exe) -> None:
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        for _ in range(20):
            if not np.array_equal(exe(x), expected(x)):
                wrong.append("differs")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    del exe, threads, work
    nothing_left(toy)


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["copy_in", "copy_out", "launch", "synchronize", "allocate"])
def test_errors_of_a_run(kernels: bytes, toy: Toys, method: str) -> None:
    exe = Executable(made(kernels, program()))
    if method == "allocate":
        toy.failing[method] = RuntimeError("out of order")
    else:
        exe(X)
        toy.failing[method] = RuntimeError("out of order")
    with pytest.raises(UserError, match=r"device pretend\(0\) cannot .*: RuntimeError: out of order") as failed:
        exe(X)
    assert failed.value.code == "G011" and isinstance(failed.value.__cause__, RuntimeError)
    toy.failing.clear()
    np.testing.assert_array_equal(exe(X), expected(X))
    del exe, failed
    nothing_left(toy)


@pytest.mark.parametrize("method", ["load", "allocate", "copy_in", "info", "synchronize"])
def test_errors_while_loading(kernels: bytes, toy: Toys, method: str) -> None:
    toy.failing[method] = RuntimeError("out of order")
    with pytest.raises(UserError, match="RuntimeError: out of order") as failed:
        Executable(made(kernels, program()))
    assert failed.value.code == "G011"
    toy.failing.clear()
    del failed
    nothing_left(toy)


@pytest.mark.parametrize("method", ["free", "unload", "close"])
def test_errors_where_nobody_can_be_told(kernels: bytes, toy: Toys, method: str, monkeypatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: told.append(str(what.exc_value)))
    exe = Executable(made(kernels, program()))
    exe(X)
    toy.failing[method] = RuntimeError("out of order")
    del exe
    gc.collect()
    assert "out of order" in told


def test_a_device_without_enough_memory(kernels: bytes, toy: Toys) -> None:
    toy.limit = 1000
    with pytest.raises(UserError, match="no room for 1024 bytes") as failed:
        Executable(made(kernels, program()))(X)
    assert failed.value.code == "I007" and isinstance(failed.value.__cause__, MemoryError)
    with pytest.raises(UserError, match="no room") as failed:
        weft.nd.empty((1000,), "float32", weft.device("pretend"))
    assert failed.value.code == "I007"
    del failed
    nothing_left(toy)


def test_a_kernel_that_breaks(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program("breaks")))
    with pytest.raises(UserError, match="cannot launch a kernel: ArithmeticError: the toy broke"):
        exe(X)


def test_interruptions_pass(kernels: bytes, toy: Toys) -> None:
    exe = Executable(made(kernels, program()))
    toy.failing["launch"] = KeyboardInterrupt()  # type: ignore[assignment]  # no Exception, on purpose
    with pytest.raises(KeyboardInterrupt):
        exe(X)
    toy.failing.clear()
    np.testing.assert_array_equal(exe(X), expected(X))


def test_unknown_devices(toy: Toys) -> None:
    with pytest.raises(UserError, match=r"no device gpu\(0\)") as failed:
        weft.device("gpu")
    assert failed.value.code == "G010"
    with pytest.raises(UserError, match=r"no device pretend\(7\).*there are two toys"):
        weft.device("pretend", 7)
    with pytest.raises(UserError, match="no device cpu"):
        weft.device("cpu", 1)
    for kind in ("cpu", "pretend", "two words", "x" * 40):
        with pytest.raises(UserError) as failed:
            devices.register(kind, lambda index: toy[0])
        assert failed.value.code == "G012"


def test_code_that_no_device_loads(kernels: bytes, toy: Toys) -> None:
    wrong = replace(made(kernels, program()), codes=(CodeObject((Variant(frozenset(), kernels),)),) * 2)
    with pytest.raises(
        ArtifactError, match="no code that devices of kind 'pretend' load: it has elf, they take python"
    ):
        Executable(wrong)
    wrong = replace(wrong, codes=(CodeObject((Variant(frozenset(), b"", "python"),)),) * 2)
    with pytest.raises(ArtifactError, match="no code for this CPU"):
        Executable(wrong)


MALFORMED = {
    "kernel of another device": {"kernels": (KernelRef("double_plus_one", 0), KernelRef("scaled", 1, 0))},
    "unknown device": {"kernels": (KernelRef("double_plus_one", 0), KernelRef("scaled", 1, 2))},
    "unknown space": {"buffers": (*program().buffers[:5], BufferSpec("arena", nbytes=(4,), space=2))},
    "input elsewhere": {"buffers": (BufferSpec("input", 0, space=1), *program().buffers[1:])},
    "object on a device": {"buffers": (*program().buffers, BufferSpec("object", space=1))},
    "size read on a device": {
        "buffers": (*program().buffers, BufferSpec("arena", nbytes=(8,), dtype="int64", space=1)),
        "instructions": (*program().instructions, SetSize("k", buffer=6)),
        "symbols": ("n", "k"),
    },
    "range checked on a device": {
        "buffers": (*program().buffers, BufferSpec("arena", nbytes=(8,), dtype="int64", space=1)),
        "instructions": (CheckRange(6, (1,), ((0,),), ((1,),), ""), *program().instructions),
    },
    "buffer of the wrong space": {
        "instructions": (CallKernel(1, (1, 3, 4), (("n",),)),),
    },
    "arena of unknown size": {"devices": (DeviceSpec("pretend", 0, ("k",)),)},
    "outside the arena": {"devices": (DeviceSpec("pretend", 0, (64,)),)},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_programs(kernels: bytes, toy: Toys, name: str) -> None:
    wrong = replace(program(), **MALFORMED[name])
    with pytest.raises((ArtifactError, UserError, weft.WeftError)):
        Executable(made(kernels, wrong))(X)
    nothing_left(toy)


def test_damaged_words_never_crash(kernels: bytes, toy: Toys) -> None:
    words = encode(program())
    device = devices.opened(weft.device("pretend"))
    codes = (_native.Code(kernels), ("python", SOURCE.encode()))
    constant = weft.nd.array(C)  # aligned
    arguments = (
        codes, ((0, "double_plus_one"), (1, "scaled")), (constant,), ("float32",), ("float32",),
        (np.dtype("f4"), np.dtype("f4")), 1, np.ndarray, print, print, lambda *a: ValueError(a[-1]), print, (device,),
    )  # fmt: skip

    refused = 0
    for at in range(len(words)):
        for value in (-1, 10**6, 2**62, -(2**63)):
            damaged = words.copy()
            damaged[at] = value
            refused += not loads(damaged, arguments)
    assert refused > 2 * len(words)
    for length in range(len(words)):
        assert not loads(words[:length], arguments)
    assert loads(words, arguments)


def loads(words: np.ndarray, arguments: tuple) -> bool:  # type: ignore[type-arg]
    try:
        _native.Executable(words, *arguments)
    except (ValueError, UserError):
        return False
    return True


def test_the_cpu_behind_the_table(kernels: bytes) -> None:
    """The CPU is a device too: its table is written in C."""
    p = replace(program("add_constant"), devices=(DeviceSpec("cpu", 0, (1024,)),))
    sized = tuple(
        replace(i, sizes=(("n",), ("n",))) if isinstance(i, CallKernel) and i.kernel == 1 else i for i in p.instructions
    )
    code = CodeObject((Variant(frozenset(), kernels),))
    exe = Executable(Artifact(replace(p, instructions=sized), (code, code), (C,)))
    np.testing.assert_array_equal(exe(X), 2 * ((2 * X + 1) + C) + 1)
    assert weft.device("cpu").info().formats == ("elf",)
    device = devices.opened(weft.device("cpu"))
    assert device.allocations == 2 and device.kernels == 1
    del exe
    assert device.allocations == 0 and device.kernels == 0
