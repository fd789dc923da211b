"""Index arithmetic in kernels: hot loops contain no division and no check."""

from __future__ import annotations

import pytest

from weft import te
from weft.expr.nodes import Binary, Load, Ramp, Select
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tensor_expr import Tensor
from weft.tir.nodes import For, If, Program, Stmt, Store
from weft.tir.visit import expressions, postorder, walk

TARGET = Target("cpu")
DIVISIONS = {"floordiv", "floormod", "truncdiv", "truncmod"}


def lowered(inputs: list[Tensor], *outputs: Tensor) -> Program:
    return tir_to_kernel(default_schedule(te_to_tir("kernel", inputs, list(outputs)), TARGET).program, TARGET)


def innermost(root: Stmt) -> list[For]:
    """Loops with no loop inside."""
    return [s for s in walk(root) if isinstance(s, For) and not any(isinstance(x, For) for x in walk(s.body))]


def is_plain(loop: For) -> bool:
    """Whether the body neither divides by the loop's variable nor checks it."""
    for s in walk(loop.body):
        nodes = postorder(*expressions(s))
        divides = [e for e in nodes if isinstance(e, Binary) and e.op in DIVISIONS and loop.var in postorder(e)]
        checks = [e.condition for e in nodes if isinstance(e, Select)] + ([s.condition] if isinstance(s, If) else [])
        if divides or any(loop.var in postorder(c) for c in checks):
            return False
    return True


def element_wise() -> Program:
    a, b = te.placeholder((1, 8, 14, 14, 16), name="a"), te.placeholder((1, 8, 14, 14, 16), name="b")
    return lowered([a, b], te.compute(a.shape, lambda *i: te.max(a(*i) + b(*i), 0.0), name="out"))


def padding() -> Program:
    a = te.placeholder((40, 30, 30, 16), name="a")
    out = te.compute(
        (40, 32, 32, 16),
        lambda c, h, w, n: te.if_then_else(te.all(h >= 1, h < 31, w >= 1, w < 31), a[c, h - 1, w - 1, n], 0.0),
        name="out",
    )
    return lowered([a], out)


def pooling() -> Program:
    a = te.placeholder((2, 28, 28, 16), name="a")
    kh, kw = te.reduce_axis((0, 2), "kh"), te.reduce_axis((0, 2), "kw")
    window = lambda c, h, w, n: te.max(a[c, h * 2 + kh, w * 2 + kw, n], axis=[kh, kw])  # noqa: E731
    return lowered([a], te.compute((2, 14, 14, 16), window, name="out"))


def resize() -> Program:
    a = te.placeholder((40, 8, 16, 16), name="a")
    return lowered([a], te.compute((40, 24, 16, 16), lambda c, h, w, n: a[c, h // 3, w, n], name="out"))


def transpose() -> Program:
    a = te.placeholder((256, 12, 64), name="a")
    return lowered([a], te.compute((12, 64, 256), lambda h, d, s: a[s, h, d], name="out"))


@pytest.mark.parametrize("build", [element_wise, padding, pooling, resize, transpose])
def test_hot_loops_hold_no_division_and_no_check(build: object) -> None:
    kernel = build()  # type: ignore[operator]
    loops = [s for s in innermost(kernel.body) if s.kind != "parallel"]
    assert any(isinstance(s, For) for s in walk(kernel.body))
    assert all(is_plain(s) for s in loops), [s.var.name for s in loops if not is_plain(s)]


def test_fused_and_split_loops_address_by_their_sum() -> None:
    a = te.placeholder((4, 6, 8, 16), name="a")
    s = Schedule(te_to_tir("kernel", [a], [te.compute(a.shape, lambda *i: a(*i) + 1.0, name="out")]))
    (block,) = s.get_blocks()
    fused = s.fuse(*s.get_loops(block))
    outer, inner = s.split(fused, factors=(None, 16))
    s.parallel(outer)
    s.vectorize(inner)
    kernel = tir_to_kernel(s.program, Target("x86-64-v4"))  # the loop is one vector there
    (store,) = [x for x in walk(kernel.body) if isinstance(x, Store)]
    at = store.indices[0]
    assert isinstance(at, Ramp) and not any(isinstance(e, Binary) and e.op in DIVISIONS for e in postorder(at))
    assert all(e.indices[0] is at for e in postorder(store.value) if isinstance(e, Load))


def test_tiles_with_tails_check_outside_of_the_tile() -> None:
    a, b = te.placeholder((37, 19), name="a"), te.placeholder((19, 53), name="b")
    k = te.reduce_axis((0, 19), "k")
    kernel = lowered([a, b], te.compute((37, 53), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="out"))
    assert all(is_plain(s) for s in innermost(kernel.body) if s.kind != "parallel")
