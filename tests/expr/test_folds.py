"""Operations on any number of operands, and back."""

from __future__ import annotations

from weft.expr.folds import all_of, any_of, conjuncts, members
from weft.expr.nodes import Binary, Const, Expr, Var, make
from weft.support.dtypes import BOOL

A, B, C = (make("lt", Var(name), 3) for name in "abc")
TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)


def same(found: list[Expr], *wanted: Expr) -> bool:
    """Whether these are the same objects: ``==`` would build expressions."""
    return [id(e) for e in found] == [id(e) for e in wanted]


def test_conjunctions_come_apart_in_order() -> None:
    for nest in (all_of(A, B, C), all_of(A, all_of(B, C)), Binary("and", TRUE, all_of(A, Binary("and", B, C)))):
        assert same(conjuncts(nest), A, B, C)
    assert same(conjuncts(all_of())) and same(conjuncts(TRUE))
    assert same(conjuncts(FALSE), FALSE)
    assert same(conjuncts(any_of(A, B)), any_of(A, B))


def test_members_of_one_operation_only() -> None:
    assert same(members(any_of(A, all_of(B, C)), "or"), A, all_of(B, C))
    assert same(members(A, "or"), A)
    assert same(members(Binary("and", TRUE, A), "and"), TRUE, A)
