"""The executor: static and symbolic programs, branches, sizes known only at run time, concurrency and errors."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.runtime import _native
from weft.runtime.arguments import Arguments
from weft.runtime.artifact import Artifact
from weft.runtime.encode import encode
from weft.runtime.executable import Executable
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    Check,
    Copy,
    ExecutableProgram,
    Free,
    Jump,
    KernelRef,
    Reserve,
    SetSize,
    TensorSpec,
)
from weft.support.errors import ArtifactError, InputError, InternalError


def random_vector(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def test_static_program(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    x = random_vector(8)
    y = exe(x)
    np.testing.assert_array_equal(y, 2 * x + 1)
    assert y.ctypes.data % 64 == 0 and y.flags.writeable
    assert exe.run({"x": x})["y"].tolist() == y.tolist() == exe.run(x=x)["y"].tolist()


def chain(size: int | str) -> ExecutableProgram:
    """``y = 2 (exp(x) + c) + 1`` through two arena buffers."""
    n = (size,)
    nbytes = (*n, 4, "mul")
    rounded = (*nbytes, 63, "add", 64, "floordiv", 64, "mul")
    return ExecutableProgram(
        symbols=(size,) if isinstance(size, str) else (),
        inputs=(TensorSpec("x", "float32", (n,)),),
        outputs=(TensorSpec("y", "float32", (n,)),),
        buffers=(
            BufferSpec("input", 0),
            BufferSpec("output", 0),
            BufferSpec("arena", offset=(0,), nbytes=nbytes),
            BufferSpec("arena", offset=rounded, nbytes=nbytes),
            BufferSpec("constant", 0, nbytes=(3, 4, "mul")),
        ),
        kernels=(KernelRef("parallel_exp", 0), KernelRef("add_constant", 0), KernelRef("double_plus_one", 0)),
        instructions=(
            CallKernel(0, (0, 2), (n, (4,))),
            CallKernel(1, (2, 4, 3), (n, (3,))),
            CallKernel(2, (3, 1), (n,)),
        ),
        arena_bytes=(*rounded, *rounded, "add"),
    )


CONSTANT = np.array([0.5, -1, 2], np.float32)


def chain_result(x: np.ndarray) -> np.ndarray:
    return 2 * (np.exp(x) + np.resize(CONSTANT, len(x))) + 1


def test_symbolic_sizes_change_between_runs(kernels):
    exe = Executable(artifact(chain("n"), kernels, (CONSTANT,)), threads=2)
    assert exe.arena_bytes == 0
    for size in (5, 100, 3, 100, 1, 4097, 0):
        x = random_vector(size)
        np.testing.assert_allclose(exe(x), chain_result(x), rtol=1e-5, atol=1e-5)
    assert exe.arena_bytes == 2 * (-(-4097 * 4 // 64) * 64)


def test_threads_do_not_change_the_result(kernels):
    exe = Executable(artifact(chain(1000), kernels, (CONSTANT,)), threads=1)
    x = random_vector(1000)
    first = exe(x)
    for threads in (2, 3, 8):
        exe.threads = threads
        assert exe.threads == threads
        np.testing.assert_array_equal(exe(x), first)


def test_concurrent_runs_have_their_own_memory(kernels):
    exe = Executable(artifact(chain("n"), kernels, (CONSTANT,)), threads=2)
    failures: list[int] = []

    def work(seed: int) -> None:
        for i in range(100):
            x = random_vector(50 + (seed * 37 + i) % 500, seed)
            if not np.allclose(exe(x), chain_result(x), rtol=1e-5, atol=1e-5):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def select_program() -> ExecutableProgram:
    """The positive elements of x: the size of the result is known only while running."""
    return ExecutableProgram(
        symbols=("n",),
        inputs=(TensorSpec("x", "float32", (("n",),)),),
        outputs=(TensorSpec("y", "float32", (("k",),)), TensorSpec("k", "int64", ())),
        buffers=(
            BufferSpec("input", 0),
            BufferSpec("output", 0),
            BufferSpec("dynamic"),
            BufferSpec("arena", nbytes=(8,), dtype="int64"),
            BufferSpec("output", 1),
        ),
        kernels=(KernelRef("count_positive", 0), KernelRef("keep_positive", 0), KernelRef("double_plus_one", 0)),
        instructions=(
            CallKernel(0, (0, 3), (("n",),)),
            SetSize("k", buffer=3, element=0),
            Copy(3, 4, (8,)),
            Allocate(2, ("k", 4, "mul")),
            CallKernel(1, (0, 2), (("n",),)),
            CallKernel(2, (2, 1), (("k",),)),
            Free(2),
        ),
        arena_bytes=(64,),
    )


@pytest.mark.parametrize("size", [0, 1, 10, 1000])
def test_sizes_known_only_at_run_time(kernels, size):
    exe = Executable(artifact(select_program(), kernels))
    for seed in range(3):
        x = random_vector(size, seed)
        y, k = exe(x)
        np.testing.assert_allclose(y, 2 * x[x > 0] + 1)
        assert k.shape == () and k == (x > 0).sum()


def loop_program() -> ExecutableProgram:
    """``y = x; repeat times: y = 2 y + 1`` with a branch back, where times is an input."""
    return ExecutableProgram(
        symbols=("n",),
        inputs=(TensorSpec("x", "float32", (("n",),)), TensorSpec("times", "int32", ())),
        outputs=(TensorSpec("y", "float32", (("n",),)),),
        buffers=(BufferSpec("input", 0), BufferSpec("input", 1, dtype="int32"), BufferSpec("output", 0)),
        kernels=(KernelRef("double_plus_one", 0),),
        instructions=(
            Copy(0, 2, ("n", 4, "mul")),
            SetSize("left", buffer=1),
            Check(("left", 0, "ge"), "times must not be negative"),
            Jump(7, condition=("left", 0, "gt")),
            CallKernel(0, (2, 2), (("n",),)),
            SetSize("left", ("left", 1, "sub")),
            Jump(3),
        ),
    )


def test_branches_and_checks(kernels):
    exe = Executable(artifact(loop_program(), kernels))
    x = random_vector(10)
    for times in range(5):
        expected = x
        for _ in range(times):
            expected = 2 * expected + 1
        np.testing.assert_allclose(exe(x, np.int32(times)), expected, rtol=1e-6)
    with pytest.raises(InputError, match="times must not be negative"):
        exe(x, np.array(-1, np.int32))


def test_shapes_are_checked_against_symbols_and_each_other(kernels):
    program = replace(
        vector_program("double_plus_one", size="n"),
        inputs=(
            TensorSpec("x", "float32", (("n",),)),
            TensorSpec("pair", "float32", (("n", 2, "mul"), (3,))),
        ),
    )
    exe = Executable(artifact(program, kernels))
    good = np.zeros((8, 3), np.float32)
    assert exe(np.zeros(4, np.float32), good).shape == (4,)
    for x, pair, message in [
        (4, (9, 3), r"dimension 0 is 9, not 8 \(n\*2\)"),
        (4, (8, 2), "dimension 1 is 2, not 3"),
        (5, (8, 3), "dimension 0 is 8, not 10"),
        (4, (24,), "it has 1 dimensions, not 2"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            exe(np.zeros(x, np.float32), np.zeros(pair, np.float32))
        assert "'pair' must be float32[n*2, 3]" in str(caught.value).replace("(n*2)", "n*2")
    assert exe(np.zeros(4, np.float32), good).shape == (4,)


def test_wrong_arguments(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    x = np.zeros(8, np.float32)
    for call, message in [
        (lambda: exe(), "1 input is needed, 0 given"),
        (lambda: exe(x, x), "1 input is needed, 2 given"),
        (lambda: exe(x.astype(np.float64)), r"must be float32\[8\], not float64\[8\]"),
        (lambda: exe(x.astype(np.int32)), r"must be float32\[8\], not int32\[8\]"),
        (lambda: exe("text"), "not a str"),
        (lambda: exe(None), "not a NoneType"),
        (lambda: exe(object()), "not a object"),
        (lambda: exe.run({"z": x}), "'x' is missing, 'z' is unknown"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def test_layouts_and_lists_are_converted(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    base = random_vector(17)
    raw = bytearray(33)
    unaligned = np.frombuffer(raw, np.uint8)[1:33].view(np.float32)
    readonly = base[:8].copy()
    readonly.flags.writeable = False
    for x in (base[:16:2], base[7::-1], unaligned, readonly, base[:8].astype(">f4").astype(np.float32)):
        np.testing.assert_array_equal(exe(x), 2 * x + 1)
    np.testing.assert_array_equal(exe(base[:8].astype(">f4")), 2 * base[:8] + 1)
    assert exe(list(range(8))).tolist() == [1, 3, 5, 7, 9, 11, 13, 15]


def test_outputs_given_by_the_caller(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    x, out = random_vector(8), np.zeros(8, np.float32)
    assert exe(x, out=out) is out
    np.testing.assert_array_equal(out, 2 * x + 1)
    readonly = np.zeros(8, np.float32)
    readonly.flags.writeable = False
    shared = np.zeros(12, np.float32)
    for wrong, message in [
        (np.zeros(7, np.float32), "right shape"),
        (np.zeros(9, np.float32), "right shape"),
        (np.zeros((2, 4), np.float32), "right shape"),
        (np.zeros(8, np.float64), "not float64"),
        (np.zeros(16, np.float32)[::2], "compact"),
        (readonly, "writable"),
        ([0] * 8, "for 1 output is needed, for 8 given"),
        ([[0] * 8], "not a list"),
    ]:
        with pytest.raises(InputError, match=message):
            exe(x, out=wrong)
    with pytest.raises(InputError, match="overlaps"):
        exe(shared[:8], out=shared[4:])


def test_kernel_errors_name_the_node(kernels):
    program = replace(vector_program("fails"), instructions=(CallKernel(0, (0, 1), ((13,),), label="Conv_7"),))
    with pytest.raises(InternalError, match=r"error 13.*'fails'.*Conv_7"):
        Executable(artifact(program, kernels))(np.zeros(8, np.float32))


def test_run_time_bounds(kernels):
    x = np.zeros(8, np.float32)
    base = vector_program("double_plus_one", size="n")
    dynamic = (*base.buffers, BufferSpec("dynamic", dtype="int64"))
    for instructions, message in [
        ((Copy(0, 1, (1000,)),), "larger than its buffers"),
        ((Copy(0, 1, (0, 1, "sub")),), "larger than its buffers"),
        ((Copy(0, 1, (4,), source_offset=(1000,)),), "outside its buffers"),
        ((Copy(0, 1, (4,), target_offset=(0, 4, "sub")),), "outside its buffers"),
        ((Copy(0, 1, ("n", 4, "mul"), target_offset=(4,)),), "outside its buffers"),
        ((Reserve(2, (0, "n", "sub")),), "negative size"),
        ((SetSize("k", (1, "n", "n", "sub", "floordiv")),), "divides by zero"),
        ((SetSize("k", ("n", 1 << 62, "mul")),), "overflows"),
        ((CallKernel(0, (0, 2), ((1,),)),), "without memory"),
        ((Allocate(2, (0, "n", "sub")),), "negative size"),
        ((Allocate(2, (8,)), SetSize("k", buffer=2, element=1)), "read outside"),
    ]:
        program = replace(base, buffers=dynamic, instructions=instructions)
        exe = Executable(artifact(program, kernels))
        with pytest.raises((InternalError, InputError), match=message):
            exe(x)
    program = replace(
        base, buffers=(*base.buffers, BufferSpec("arena", offset=(64,), nbytes=("n",))), arena_bytes=(64,)
    )
    with pytest.raises(InternalError, match="outside the arena"):
        Executable(artifact(program, kernels))(x)


def test_sizes_on_the_branch_not_taken_may_be_undefined(kernels):
    program = replace(
        vector_program("double_plus_one", size="n"),
        instructions=(
            Jump(2, condition=("n", 8, "ne")),
            CallKernel(0, (0, 1), ((8, "n", 8, "sub", "floordiv"),)),
            CallKernel(0, (0, 1), (("n",),)),
        ),
    )
    exe = Executable(artifact(program, kernels))
    assert exe(np.zeros(8, np.float32)).tolist() == [1.0] * 8
    assert exe(np.zeros(9, np.float32)).tolist() == [1.0] * 9


FLOATS = (BufferSpec("input", 0, dtype="float32"), BufferSpec("output", 0, dtype="float32"))


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": (CallKernel(0, (0, 5), ()),)},
        {"instructions": (CallKernel(3, (0, 1), ()),)},
        {"instructions": (Jump(2),)},
        {"instructions": (Jump(-1),)},
        {"instructions": (Allocate(0, (4,)),)},
        {"instructions": (Copy(0, -1, (4,)),)},
        {"instructions": (SetSize("k", buffer=0),), "buffers": FLOATS},
        {"instructions": (SetSize("n", (4,)),)},
        {"instructions": (Check(("add",), ""),)},
        {"instructions": (Check((), ""),)},
        {"instructions": (Check((1, 2), ""),)},
        {"instructions": (Check(("unknown",), ""),)},
        {"arena_bytes": ()},
        {"symbols": ()},
        {"symbols": ("n", "other")},
        {"buffers": (BufferSpec("input", 1), BufferSpec("output", 0))},
        {"buffers": (BufferSpec("input", 0), BufferSpec("constant", 0))},
        {"kernels": (KernelRef("no_such_kernel", 0),)},
        {"kernels": (KernelRef("double_plus_one", 1),)},
    ],
)
def test_malformed_programs_are_refused(kernels, change):
    with pytest.raises(ArtifactError):
        Executable(artifact(replace(vector_program("double_plus_one", size="n"), **change), kernels))


def test_damaged_words_never_crash(kernels):
    """Every word of an encoded program set to bad values: refused, or runs into a plain error when loaded."""
    words = encode(select_program())
    code = _native.Code(kernels)
    names = ("count_positive", "keep_positive", "double_plus_one")
    refused = 0
    for at in range(len(words)):
        for value in (-1, 10**6, 2**62, -(2**63)):
            damaged = words.copy()
            damaged[at] = value
            try:
                _native.Executable(
                    damaged, (code,), tuple((0, n) for n in names), (), ("float32",), ("float32", "int64"),
                    (np.dtype("f4"), np.dtype("f4"), np.dtype("i8")), 1, np.ndarray, print, print, print, print, (),
                )  # fmt: skip
            except ValueError:
                refused += 1
    assert refused > 3 * len(words)
    for length in range(len(words)):
        with pytest.raises(ValueError):
            _native.Executable(
                words[:length], (code,), tuple((0, n) for n in names), (), ("float32",), ("float32", "int64"),
                (np.dtype("f4"), np.dtype("f4"), np.dtype("i8")), 1, np.ndarray, print, print, print, print, (),
            )  # fmt: skip


def test_no_inputs_and_no_outputs():
    exe = Executable(Artifact(ExecutableProgram((), (), (), (), (), ()), ()))
    assert exe() == ()


def test_half_and_other_dtypes_pass_through():
    import ml_dtypes

    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float16", "bool", "uint16", "int64"):
        program = ExecutableProgram(
            (),
            (TensorSpec("x", name, ((2,), (3,))),),
            (TensorSpec("y", name, ((2,), (3,))),),
            (BufferSpec("input", 0), BufferSpec("output", 0)),
            (),
            (Copy(0, 1, (6 * np.dtype(getattr(ml_dtypes, name, name)).itemsize,)),),
        )
        exe = Executable(Artifact(program, ()))
        x = np.array([[0, 1, 0], [1, 1, 0]]).astype(getattr(ml_dtypes, name, name))
        y = exe(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y.astype(np.float64), x.astype(np.float64))
        out = np.zeros_like(x)
        assert exe(x, out=out) is out or np.shares_memory(exe(x, out=out), out)
        np.testing.assert_array_equal(out.astype(np.float64), x.astype(np.float64))
    with pytest.raises(InputError):
        Executable(Artifact(replace(program, inputs=(TensorSpec("x", "bfloat16", ((2,), (3,))),)), ()))(
            np.zeros((2, 3), np.uint16)
        )


def test_arrays_that_no_buffer_describes_are_used_where_they_are(monkeypatch):
    """bfloat16 arrays: compact ones stay in C, all others are converted or refused as any array."""
    import ml_dtypes

    bf16 = np.dtype(ml_dtypes.bfloat16)
    spec = TensorSpec("x", "bfloat16", ((4,), (3,)))
    program = ExecutableProgram(
        (),
        (spec,),
        (replace(spec, name="y"),),
        (BufferSpec("input", 0), BufferSpec("output", 0)),
        (),
        (Copy(0, 1, (24,)),),
    )
    with monkeypatch.context() as without:
        without.setattr(Arguments, "convert", None)
        without.setattr(Arguments, "convert_output", None)
        exe = Executable(Artifact(program, ()))
    x = np.arange(12).reshape(4, 3).astype(bf16)
    out = np.zeros_like(x)
    assert exe(x, out=out) is out
    np.testing.assert_array_equal(out.astype(np.float32), x.astype(np.float32))
    exe = Executable(Artifact(program, ()))
    wide = np.arange(24).reshape(4, 6).astype(bf16)[:, ::2]
    np.testing.assert_array_equal(exe(wide).astype(np.float32), wide.astype(np.float32))
    for wrong in (x.T, x.reshape(12), x.view(np.float16), x.view(np.uint16), x.astype(np.float32)):
        with pytest.raises(InputError):
            exe(wrong)
    frozen = out.copy()
    frozen.flags.writeable = False
    for wrong in (frozen, np.zeros((4, 6), bf16)[:, ::2], np.zeros((4, 3), np.float16), np.zeros((4, 2), bf16), x):
        with pytest.raises(InputError):
            exe(x, out=wrong)


def test_a_reserved_buffer_grows_and_keeps_its_content(kernels):
    """Appends the input to a growing buffer n times, then copies the last append to the output."""
    base = vector_program("double_plus_one", size="n")
    nbytes = ("n", 4, "mul")
    program = replace(
        base,
        buffers=(*base.buffers, BufferSpec("dynamic")),
        instructions=(
            SetSize("i", (0,)),
            Jump(6, condition=("i", "n", "lt")),
            Reserve(2, ("i", 1, "add", *nbytes, "mul")),
            Copy(0, 2, nbytes, target_offset=("i", *nbytes, "mul")),
            SetSize("i", ("i", 1, "add")),
            Jump(1),
            Copy(2, 1, nbytes, source_offset=("n", 1, "sub", *nbytes, "mul")),
            Free(2),
        ),
    )
    exe = Executable(artifact(program, kernels))
    for size in (1, 3, 64):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(exe(x), x)
