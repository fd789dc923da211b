"""Kernel form → LLVM IR and machine code: what the text contains and what the inner loops are made of."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.backends import llvm
from weft.expr.intrinsics import call, prefetch
from weft.expr.nodes import (
    Binary,
    Broadcast,
    Cast,
    Expr,
    Load,
    Ramp,
    Select,
    Shuffle,
    Var,
    cast,
    const,
    make,
    maximum,
)
from weft.ir.frozen import FrozenMap
from weft.support.errors import InternalError, TargetError
from weft.target import Target
from weft.tir.nodes import Allocate, Buffer, Evaluate, For, If, Let, Program, Seq, Stmt, Store
from weft.tir.workspace import workspace_layout

CPU = Target("cpu")
AVX512 = Target("zen4") if "avx512f" in Target("zen4").cpu.features else CPU
rng = np.random.default_rng(3)


def buffer(name: str, size: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, (const(size),), dtype, scope)


def lanes(base: Expr | int, n: int = 16) -> Expr:
    return Ramp(const(base) if isinstance(base, int) else base, const(1), n)


def matmul_kernel(rows: int, vectors: int, k_extent: int = 64, blocks: int = 4) -> Program:
    """C[blocks*rows, 16*vectors] += A B with a register tile of ``rows`` x ``vectors`` accumulators."""
    width = 16 * vectors
    a, b = buffer("A", blocks * rows * k_extent), buffer("B", k_extent * width)
    c, r = buffer("C", blocks * rows * width), buffer("R", rows * width, scope="register")
    i, k = Var("i"), Var("k")
    tile = [(y, x, lanes(y * width + x * 16)) for y in range(rows) for x in range(vectors)]
    zero = [Store(r, (at,), Broadcast(const(0.0), 16)) for _, _, at in tile]
    update = [
        Store(
            r,
            (at,),
            Load(r, (at,))
            + Broadcast(Load(a, (i * (rows * k_extent) + k + y * k_extent,)), 16)
            * Load(b, (lanes(k * width + x * 16),)),
        )
        for y, x, at in tile
    ]
    write = [Store(c, (lanes(i * (rows * width) + (y * width + x * 16)),), Load(r, (at,))) for y, x, at in tile]
    loop = For(k, const(0), const(k_extent), Seq(tuple(update)))
    body = Allocate(r, Seq((*zero, loop, *write)))
    return Program("matmul", (a, b, c), For(i, const(0), const(blocks), body, "parallel"))


def loops_with(assembly: str, what: str) -> list[str]:
    """The basic blocks that contain an instruction and jump back to themselves."""
    out = []
    for block in re.split(r"\n(?=\.LBB)", assembly):
        label = block.split(":")[0]
        if what in block and re.search(rf"\bj\w+\s+{re.escape(label)}\b", block):
            out.append(block.split("\n\tj")[0])
    return out


@pytest.mark.parametrize(("rows", "vectors"), [(6, 4), (14, 2), (28, 1)])
def test_the_micro_kernel_stays_in_registers(rows: int, vectors: int) -> None:
    text = llvm.assembly(llvm.emit_ir(matmul_kernel(rows, vectors), AVX512), AVX512)
    (inner,) = loops_with(text, "vfmadd231ps")
    assert inner.count("vfmadd231ps") == rows * vectors
    assert "(%rsp)" not in inner and "(%rbp)" not in inner
    loads = len(re.findall(r"\t(?:vmovups|vmovaps)\t[^,]*\(", inner))
    broadcasts = inner.count("vbroadcastss") + inner.count("{1to16}")
    assert loads <= vectors and rows <= broadcasts <= rows * vectors and "vbroadcastss\t%xmm" not in inner
    assert "xmm" not in inner and "ymm" not in inner
    assert len(re.findall(r"vmov[ua]ps\t%zmm\d+, [^%]*\(", inner)) == 0  # nothing is stored


def test_the_micro_kernel_is_right() -> None:
    a, b = rng.standard_normal((24, 64)).astype("f"), rng.standard_normal((64, 64)).astype("f")
    c = np.zeros((24, 64), np.float32)
    run_kernel(matmul_kernel(6, 4), [a, b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert re.search(r"@weft_parallel_for\(ptr @[\w.]+, i64 4,", llvm.emit_ir(matmul_kernel(6, 4), CPU))


def one_store(value: Expr, out: Buffer, *inputs: Buffer, n: int = 16) -> Program:
    return Program("one", (*inputs, out), Store(out, (lanes(0, n),), value))


def test_relu_is_one_instruction() -> None:
    x, y = buffer("X", 16), buffer("Y", 16)
    text = llvm.assembly(llvm.emit_ir(one_store(maximum(Load(x, (lanes(0),)), 0.0), y, x), AVX512), AVX512)
    assert text.count("vmaxps") == 1 and "vcmp" not in text and "vblend" not in text


def test_max_of_two_vectors_is_three_instructions() -> None:
    x, y, z = buffer("X", 16), buffer("Y", 16), buffer("Z", 16)
    program = one_store(make("max", Load(x, (lanes(0),)), Load(y, (lanes(0),))), z, x, y)
    text = llvm.assembly(llvm.emit_ir(program, AVX512), AVX512)
    used = re.findall(r"\tv(?:max|cmp|blend|mov)\w*ps\t.*zmm", text)
    assert len(used) <= 3 + 3 and text.count("vmaxps") == 1  # three besides two loads and a store


@pytest.mark.parametrize("op", ["min", "max"])
def test_extrema_with_nan_and_constants(op: str) -> None:
    x, y, z, w = (buffer(n, 16) for n in "XYZW")
    both = Store(z, (lanes(0),), make(op, Load(x, (lanes(0),)), Load(y, (lanes(0),))))
    left = Store(w, (lanes(0),), make(op, Broadcast(const(0.5), 16), Load(x, (lanes(0),))))
    a, b = rng.standard_normal(16).astype("f"), rng.standard_normal(16).astype("f")
    a[1] = b[2] = a[3] = b[3] = np.nan
    c, d = np.zeros(16, "f"), np.zeros(16, "f")
    run_kernel(Program("extrema", (x, y, z, w), Seq((both, left)), outputs=2), [a, b, c, d])
    want = np.minimum if op == "min" else np.maximum
    np.testing.assert_array_equal(c, want(a, b))
    np.testing.assert_array_equal(d, want(np.float32(0.5), a))


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
@pytest.mark.parametrize("by", [8, 7, -3, None])
def test_integer_division(op: str, by: int | None) -> None:
    x, y, z = (buffer(n, 40, "int32") for n in "XYZ")
    i = Var("i")
    divisor: Expr = Load(y, (i,)) if by is None else const(by, "int32")
    program = Program(
        "division", (x, y, z), For(i, const(0), const(40), Store(z, (i,), Binary(op, Load(x, (i,)), divisor)))
    )
    a, b = np.arange(-20, 20, dtype=np.int32), rng.choice(np.array([-7, -2, 3, 5], np.int32), 40)
    c = np.zeros(40, np.int32)
    run_kernel(program, [a, b, c])
    d = b if by is None else by
    quotient = np.floor_divide(a, d) if op.startswith("floor") else np.trunc(a / d).astype(int)
    np.testing.assert_array_equal(c, quotient if op.endswith("div") else a - quotient * d)


def test_floor_division_by_a_power_of_two_is_a_shift() -> None:
    x, y = buffer("X", 16, "int32"), buffer("Y", 16, "int32")
    ir = llvm.emit_ir(one_store(Load(x, (lanes(0),)) // 8 + Load(x, (lanes(0),)) % 8, y, x), CPU)
    assert "ashr" in ir and " and " in ir and "div" not in ir and "rem" not in ir


CASTS = [
    ("float32", "int32"),
    ("float32", "int8"),
    ("float32", "float16"),
    ("float16", "float32"),
    ("float32", "bfloat16"),
    ("bfloat16", "float64"),
    ("int8", "float32"),
    ("uint8", "int32"),
    ("int64", "int8"),
    ("float64", "float32"),
    ("bool", "float32"),
    ("float32", "bool"),
    ("int32", "bool"),
    ("uint32", "float32"),
]


@pytest.mark.parametrize(("source", "to"), CASTS)
@pytest.mark.parametrize("target", [CPU, Target("llvm -mcpu=x86-64-v2")], ids=["host", "v2"])
@pytest.mark.parametrize("n", [1, 16])
def test_casts(source: str, to: str, target: Target, n: int) -> None:
    x, y = buffer("X", 16, source), buffer("Y", 16, to)
    i = Var("i")
    body: Stmt = Store(y, (lanes(i, n) if n > 1 else i,), Cast(Load(x, (lanes(i, n) if n > 1 else i,)), y.dtype))
    a = (rng.standard_normal(16) * 50).astype(x.dtype.numpy)
    a[:3] = np.array([0, 1, 3]).astype(a.dtype)
    b = np.zeros(16, y.dtype.numpy)
    run_kernel(Program("casts", (x, y), For(i, const(0), const(16 // n), body)), [a, b], target=target)
    np.testing.assert_array_equal(b, a.astype(b.dtype))


def test_masked_vectors_touch_only_their_lanes() -> None:
    x, y = buffer("X", 10), buffer("Y", 10)
    mask = make("lt", lanes(0), Broadcast(const(10), 16))
    program = Program("masked", (x, y), Store(y, (lanes(0),), Load(x, (lanes(0),), mask) * 2.0, mask))
    a, b = rng.standard_normal(10).astype("f"), np.zeros(10, "f")
    run_kernel(program, [a, b])
    np.testing.assert_array_equal(b, a * 2)


def test_strides_shuffles_and_scatter() -> None:
    x, y = buffer("X", 64), buffer("Y", 64)
    even, third = Ramp(const(1), const(2), 16), Ramp(const(2), const(3), 16)
    swapped = Shuffle((Load(x, (lanes(0, 8),)), Load(x, (lanes(8, 4),))), (*range(11, 3, -1), 0, 1, 2, 3, 8, 9, 10, 11))
    body = Seq(
        (
            Store(y, (lanes(0),), Load(x, (even,)) + Load(x, (third,))),
            Store(y, (lanes(16),), swapped),
            Store(y, (Ramp(const(32), const(2), 16),), Load(x, (Ramp(const(15), const(-1), 16),))),
        )
    )
    a, b = rng.standard_normal(64).astype("f"), np.zeros(64, "f")
    run_kernel(Program("lanes", (x, y), body), [a, b])
    i = np.arange(16)
    np.testing.assert_array_equal(b[:16], a[1 + 2 * i] + a[2 + 3 * i])
    np.testing.assert_array_equal(b[16:32], a[[*range(11, 3, -1), 0, 1, 2, 3, 8, 9, 10, 11]])
    np.testing.assert_array_equal(b[32::2], a[15 - i])


def test_a_select_guards_a_load() -> None:
    x, y = buffer("X", 4), buffer("Y", 8)
    i = Var("i")
    value = Select(make("lt", i, const(4)), Load(x, (i,)), const(-1.0))
    a, b = rng.standard_normal(4).astype("f"), np.zeros(8, "f")
    program = Program("guard", (x, y), For(i, const(0), const(8), Store(y, (i,), value)))
    run_kernel(program, [a, b])
    np.testing.assert_array_equal(b, np.concatenate([a, np.full(4, -1, "f")]))
    assert "br i1" in llvm.emit_ir(program, CPU)


def test_values_do_not_outlive_stores() -> None:
    """x[0] is read, overwritten, and read again."""
    x, y = buffer("X", 2), buffer("Y", 2)
    first = Load(x, (const(0),))
    body = Seq((Store(y, (const(0),), first), Store(x, (const(0),), first + 1.0), Store(y, (const(1),), first)))
    a, b = np.array([5, 0], "f"), np.zeros(2, "f")
    run_kernel(Program("order", (x, y), body, outputs=2), [a, b])
    assert b.tolist() == [5, 6]


def test_values_do_not_leave_their_branch() -> None:
    x, y = buffer("X", 4), buffer("Y", 4)
    i = Var("i")
    e = (i * 3 + 1) % 4
    body = For(
        i,
        const(0),
        const(4),
        Seq((If(make("gt", i, const(1)), Store(y, (i,), Load(x, (e,)))), Store(y, (e,), Load(x, (e,)) * 2.0))),
    )
    a, b = np.arange(4, dtype="f"), np.zeros(4, "f")
    run_kernel(Program("branch", (x, y), body), [a, b])
    want = np.zeros(4, "f")
    for n in range(4):
        k = (n * 3 + 1) % 4
        if n > 1:
            want[n] = a[k]
        want[k] = a[k] * 2
    np.testing.assert_array_equal(b, want)


def test_shared_expressions_are_emitted_once() -> None:
    x, y = buffer("X", 64), buffer("Y", 64)
    i = Var("i")
    shared = call("sqrt", Load(x, (i,)))
    stores = Seq(tuple(Store(y, (i,), shared + float(n)) for n in range(4)))
    ir = llvm.emit_ir(Program("shared", (x, y), For(i, const(0), const(64), stores)), CPU)
    assert ir.count("call float @llvm.sqrt") == 1 and ir.count("load float") == 1


def test_workspace_and_symbolic_sizes() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    x, y = Buffer("X", (n,), "float32"), Buffer("Y", (n,), "float32")
    t, u = Buffer("T", (n * 8,), "float32"), Buffer("U", (n,), "float64")
    fill = For(i, const(0), n, Seq((Store(t, (i * 8,), Load(x, (i,)) * 2.0), Store(u, (i,), const(1.0, "float64")))))
    read = For(j, const(0), n, Store(y, (j,), Load(t, (j * 8,)) + Cast(Load(u, (j,)), x.dtype)), "parallel")
    program = Program("space", (x, y), Allocate(t, Allocate(u, Seq((fill, read)))), sizes=(n,))
    offsets, total = workspace_layout(program)
    assert list(offsets) == [t, u]
    program = dataclasses.replace(program, attrs=FrozenMap(workspace=total))
    for size in (1, 13):
        a, b = rng.standard_normal(size).astype("f"), np.zeros(size, "f")
        run_kernel(program, [a, b], [size])
        np.testing.assert_array_equal(b, a * 2 + 1)


def test_a_parallel_loop_captures_the_values_that_it_uses() -> None:
    n, i, j, k, v = Var("n"), Var("i"), Var("j"), Var("k"), Var("v", "float32")
    x, y, s = (
        Buffer("X", (n,), "float32"),
        Buffer("Y", (n * 3,), "float32"),
        Buffer("S", (n * 5000,), "float32", "local"),
    )
    inner = Seq(
        (
            Store(s, (j * 5000,), Load(x, (j,)) * v),
            Store(y, (k * n + j,), Load(s, (j * 5000,)) + cast(k, "float32")),
        )
    )
    loop = For(j, const(0), n, Allocate(s, inner), "parallel")
    body = For(k, const(0), const(3), Let(v, cast(k, "float32") + 0.5, loop))
    program = Program("capture", (x, y), body, sizes=(n,))
    a, b = rng.standard_normal(7).astype("f"), np.zeros((3, 7), "f")
    run_kernel(program, [a, b], [7])
    np.testing.assert_allclose(b, np.stack([a * (m + 0.5) + m for m in range(3)]), rtol=1e-6)
    assert i is not j


def test_prefetch_and_unroll_annotations() -> None:
    x, y = buffer("X", 64), buffer("Y", 64)
    i = Var("i")
    body = Seq((Evaluate(prefetch(Load(x, (i,)))), Store(y, (i,), Load(x, (i,)))))
    program = Program("hints", (x, y), For(i, const(0), const(64), body, annotations=FrozenMap(unroll=4)))
    ir = llvm.emit_ir(program, CPU)
    assert "llvm.prefetch" in ir and "llvm.loop.unroll.count" in ir
    a, b = rng.standard_normal(64).astype("f"), np.zeros(64, "f")
    run_kernel(program, [a, b])
    np.testing.assert_array_equal(a, b)


def test_dtypes_without_arithmetic_are_refused() -> None:
    x, y = buffer("X", 4, "float8_e5m2"), buffer("Y", 4, "float8_e5m2")
    with pytest.raises(TargetError, match="float8_e5m2"):
        llvm.emit_ir(Program("fp8", (x, y), Store(y, (const(0),), Load(x, (const(0),)))), CPU)


def test_malformed_kernels_are_internal_errors() -> None:
    x, y = buffer("X", 4), buffer("Y", 4)
    with pytest.raises(InternalError, match="undefined variable"):
        llvm.emit_ir(Program("free", (x, y), Store(y, (Var("i"),), const(0.0))), CPU)
    with pytest.raises(InternalError, match="unallocated"):
        llvm.emit_ir(Program("free", (y,), Store(y, (const(0),), Load(x, (const(0),)))), CPU)
    with pytest.raises(InternalError, match="refuses"):
        llvm.compile_object("define i32 @f( {", CPU)


def test_importing_does_not_start_llvm() -> None:
    code = "import sys, weft.backends.llvm; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_objects_are_small_relocatable_elf() -> None:
    code = llvm.compile_object(llvm.emit_ir(matmul_kernel(6, 4), CPU), CPU)
    assert code[:4] == b"\x7fELF" and code[16] == 1 and len(code) < 20000
