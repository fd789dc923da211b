"""Effects of lowering, checked in kernels and in assembly: tails, narrow floats, prefetching, unrolling."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

import weft
from weft import te
from weft.backends.llvm import emit_ir
from weft.backends.llvm.backend import assembly
from weft.expr.nodes import Load
from weft.lowering.kernel.common.unroll import MAX_UNROLLED_STORES
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import For, Program, Store, seq
from weft.tir.text import to_text
from weft.tir.visit import postorder, walk

WIDE = Target("llvm -mcpu=x86-64-v4")
NARROW = Target("llvm -mcpu=x86-64-v3")
BF16 = Target("llvm -mcpu=znver4")


def sums(n: Any, dtype: str = "float32", vector: int = 16) -> Schedule:
    a, b = te.placeholder((n,), dtype, "A"), te.placeholder((n,), dtype, "B")
    s = Schedule(te_to_tir("sums", [a, b], [te.compute((n,), lambda i: a[i] + b[i], name="C")]))
    _, inner = s.split(s.get_loops("C")[0], factor=vector)
    s.vectorize(inner)
    return s


def machine_code(program: Program, target: Target) -> str:
    return assembly(emit_ir(tir_to_kernel(program, target), target), target)


def loops_of(program: Program) -> list[For]:
    return [x for x in walk(program.body) if isinstance(x, For)]


def labels_in_loops(text: str) -> list[str]:
    """The bodies of the innermost loops of an assembly text: from a label to the jump back to it."""
    lines = text.splitlines()
    places = {line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    found = []
    for n, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.L\w+)", line)
        if jump and places.get(jump[1], n) < n:
            found.append("\n".join(lines[places[jump[1]] : n + 1]))
    return [x for x in found if not any(y != x and y in x for y in found)]


@pytest.mark.parametrize("n", [100, 4099, te.var("n")], ids=str)
def test_tails_are_outside_of_the_hot_loop(n: Any) -> None:
    kernel = tir_to_kernel(sums(n).program, WIDE)
    hot = loops_of(kernel)[0]
    text = to_text(Program("hot", kernel.params, hot, sizes=kernel.sizes))
    assert "mask" not in text and "if " not in text and "select" not in text
    code = assembly(emit_ir(kernel, WIDE), WIDE)
    vectors = [x for x in labels_in_loops(code) if "zmm" in x]
    assert vectors and "{%k" not in vectors[0], "the first loop is the hot one; a tail of unknown length has its own"
    assert len(vectors) == 1 or not isinstance(n, int)


def test_a_guard_that_is_not_for_the_tail_leaves_the_loop_too() -> None:
    """The border of a window is computed in loops of its own."""
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: te.if_then_else(te.all(i >= 1, i < 63), a[i - 1] + a[i + 1], 0.0), name="B")
    kernel = tir_to_kernel(te_to_tir("border", [a], [b]), WIDE)
    longest = max(loops_of(kernel), key=lambda x: int(x.extent.value))  # type: ignore[attr-defined]
    assert int(longest.extent.value) >= 60  # type: ignore[attr-defined]
    assert "select" not in to_text(Program("hot", kernel.params, longest))


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("n", [100, 104, 109, te.var("n")], ids=str)
def test_tails_are_vectors(target: Target, n: Any) -> None:
    """Masked, or of fewer lanes; never lane by lane."""
    kernel = tir_to_kernel(sums(n).program, target)
    stores = [x for x in walk(kernel.body) if isinstance(x, Store)]
    assert stores and all(x.value.lanes > 1 for x in stores)
    code = assembly(emit_ir(kernel, target), target)
    assert re.search(r"\{%k\d\}|vmaskmov|addps.*%[xy]mm", code)
    assert "addss" not in code and "movss" not in code


@pytest.mark.parametrize("n", [64, 100])
@pytest.mark.parametrize(
    "dtype, target, conversion",
    [("float16", WIDE, "vcvtps2ph"), ("float16", NARROW, "vcvtps2ph"), ("bfloat16", BF16, "vcvtneps2bf16")],
    ids=["f16 wide", "f16 narrow", "bf16"],
)
def test_narrow_floats_are_stored_as_vectors(dtype: str, target: Target, conversion: str, n: int) -> None:
    kernel = tir_to_kernel(sums(n, dtype).program, target)
    assert all(x.value.lanes > 1 for x in walk(kernel.body) if isinstance(x, Store))
    code = assembly(emit_ir(kernel, target), target)
    assert conversion in code
    assert not re.search(r"v?pextrw.*\(%|movw\s+%\w+, .*\(%", code), "stored one by one"


def test_prefetching_is_an_instruction() -> None:
    s = sums(4096)
    s.prefetch(s.get_loops("C")[0], "A", 8)
    code = machine_code(s.program, WIDE)
    assert any("prefetcht0" in x and "zmm" in x for x in labels_in_loops(code))
    assert "prefetch" not in machine_code(sums(4096).program, WIDE)


@pytest.mark.parametrize("extent, copies", [(MAX_UNROLLED_STORES, MAX_UNROLLED_STORES), (MAX_UNROLLED_STORES + 1, 1)])
def test_unrolling_has_a_limit(extent: int, copies: int) -> None:
    a = te.placeholder((extent,), name="A")
    s = Schedule(te_to_tir("long", [a], [te.compute((extent,), lambda i: a[i] * 2.0, name="B")]))
    s.unroll(s.get_loops("B")[0])
    kernel = tir_to_kernel(s.program, WIDE)
    assert len([x for x in walk(kernel.body) if isinstance(x, Store)]) == copies
    assert len(loops_of(kernel)) == (copies == 1)
    x = np.arange(extent, dtype=np.float32)
    np.testing.assert_array_equal(run_program(s.program, [x], [])[0], x * 2)


def test_a_reduction_starts_just_before_its_loops() -> None:
    """If the reduction is the innermost loop, its sum is initialized in the loop around it. If other loops are inside,
    the sums are initialized in separate loops before it."""
    a, b = te.placeholder((32, 48), name="A"), te.placeholder((48, 64), name="B")
    k = te.reduce_axis((0, 48), "k")
    c = te.compute((32, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    inner, outer = te.create_schedule(c.op), te.create_schedule(c.op)
    outer[c].reorder(c.op.axis[0], c.op.reduce_axis[0], c.op.axis[1])
    outer[c].vectorize(outer[c].split(c.op.axis[1], factor=16)[1])
    x, y = np.random.default_rng(0).normal(size=(32, 48)), np.random.default_rng(1).normal(size=(48, 64))
    for s, nest in ((inner, ["i", "j"]), (outer, ["i", "j"])):
        kernel = tir_to_kernel(weft.lower(s, [a, b, c]).program, WIDE)
        zeros = [x for x in walk(kernel.body) if isinstance(x, Store) and not _loads(x)]
        assert len(zeros) == 1
        depth = [loop for loop in loops_of(kernel) if zeros[0] in list(walk(loop))]
        assert [loop.var.name.split("_")[0] for loop in depth] == nest, "not in the loop over k"
        assert not any("select" in to_text(Program("hot", kernel.params, loop)) for loop in depth)
        found = weft.build(s, [a, b, c])(x.astype("f"), y.astype("f"))
        np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-4)


def _loads(s: Store) -> list[Any]:
    return [e for e in postorder(s.value) if isinstance(e, Load)]


def double(ins: Any, outs: Any) -> Any:
    """A stage written as statements: the values of the first half of the input, each twice."""
    i, half = te.var("i"), ins[0].shape[0] // 2
    pair = [Store(outs[0], (i * 2 + d,), Load(ins[0], (i,)) * 2.0) for d in range(2)]
    return For(i, te.const(0), half, seq(*pair))


@pytest.mark.parametrize("n", [8, 10, te.var("n")], ids=str)
def test_extern_code_runs_between_stages(n: Any) -> None:
    a = te.placeholder((n,), name="A")
    before = te.compute((n,), lambda i: a[i] + 1.0, name="before")
    middle = te.extern((n,), [before], double, name="middle", dtype="float32")
    after = te.compute((n,), lambda i: middle[i] - 1.0, name="after")
    s = te.create_schedule(after.op)
    s[before].parallel(before.op.axis[0])
    s[after].vectorize(s[after].split(after.op.axis[0], factor=4)[1])
    x = np.arange(10 if not isinstance(n, int) else n, dtype=np.float32)
    want = np.repeat(x[: len(x) // 2] + 1, 2) * 2 - 1
    program = weft.lower(s, [a, after]).program
    np.testing.assert_array_equal(run(program, [x], {"n": len(x)} if program.sizes else None)[0], want)
    np.testing.assert_array_equal(weft.build(s, [a, after])(x), want)
