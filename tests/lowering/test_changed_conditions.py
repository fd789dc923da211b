"""What a branch changes may make its condition false inside of it: a test there must stay."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft.expr.nodes import Const, Expr, Load, Var, logical_not
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Allocate, Buffer, For, If, Program, Seq, Store, seq
from weft.tir.text import to_text

ZERO = Const(0)


def appended(most: int, negated: bool) -> Program:
    """Appends while there is room, in a branch that holds if there is room at the beginning."""
    out, limit = Buffer("out", (Const(8),), "int64"), Buffer("limit", (Const(1),), "int64")
    kept = Buffer("kept", (Const(1),), "int64", "register")
    count = Load(kept, (ZERO,))
    room: Expr = logical_not(count >= most) if negated else count < most
    step = seq(Store(out, (count,), Const(7)), Store(kept, (ZERO,), count + 1))
    inner = For(Var("i"), ZERO, Load(limit, (ZERO,)), If(room, step))
    branch = If(count >= most, Seq(()), inner) if negated else If(room, inner)
    j = Var("j")
    fill = For(j, ZERO, Const(8), Store(out, (j,), ZERO))
    body = Allocate(kept, seq(fill, Store(kept, (ZERO,), ZERO), branch))
    return Program("appended", (limit, out), body)


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 3, 6, 20])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_test_of_what_the_branch_changes_stays(negated: bool, limit: int, target: str) -> None:
    program = appended(3, negated)
    given = [np.array([limit])]
    (wanted,) = run(program, given)
    assert wanted.tolist() == [7 if i < min(3, limit) else 0 for i in range(8)]
    (found,) = run_program(program, given, target=Target(target))
    np.testing.assert_array_equal(found, wanted)


def test_a_test_of_what_the_branch_leaves_alone_goes() -> None:
    """The second test is known to hold."""
    limit, out = Buffer("limit", (Const(1),), "int64"), Buffer("out", (Const(8),), "int64")
    few = Load(limit, (ZERO,)) < 3
    i = Var("i")
    body = If(few, For(i, ZERO, Const(8), If(few, Store(out, (i,), Const(1)))))
    text = to_text(tir_to_kernel(Program("same", (limit, out), body), Target("cpu")))
    assert text.count("limit[0] < 3") == 1
