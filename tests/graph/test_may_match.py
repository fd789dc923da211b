"""The quick check before matching: never False where there is a match."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft.graph.nodes import Call, Constant, GraphExpr, Var, call
from weft.graph.pattern import ACall, AConstant, Anything, Either, GraphPattern, head, matches, may_begin, may_match
from weft.graph.types import TensorType
from weft.ops.catalogue import op
from weft.support.dtypes import DType

T = TensorType((2,), DType("float32"))
LEAVES: tuple[GraphExpr, ...] = (Var("x", T), Var("y", T), Constant(np.zeros(2, np.float32)))
UNARY, BINARY = ("exp", "neg"), ("add", "sub", "mul")

expressions = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda n, a: call(op(n), (a,)), st.sampled_from(UNARY), inner),
        st.builds(lambda n, a, b: call(op(n), (a, b)), st.sampled_from(BINARY), inner, inner),
    ),
    max_leaves=6,
)
shared = Anything()
patterns: st.SearchStrategy[GraphPattern] = st.recursive(
    st.one_of(st.builds(Anything), st.builds(AConstant), st.just(shared)),
    lambda inner: st.one_of(
        st.builds(lambda n, a: ACall(op(n), (a,)), st.sampled_from(UNARY), inner),
        st.builds(lambda n, a, b: ACall(op(n), (a, b)), st.sampled_from(BINARY), inner, inner),
        st.builds(lambda a: ACall((op("add"), op("mul")), (a,), rest=True), inner),
        st.builds(lambda a, b: Either((a, b)), inner, inner),
    ),
    max_leaves=4,
)


@given(patterns, expressions)
def test_may_match_is_true_for_every_match(pattern: GraphPattern, expr: GraphExpr) -> None:
    found = next(iter(matches(pattern, expr, {}, lambda _: 1, True)), None)
    assert found is None or may_match(pattern, expr)
    operands = tuple(map(head, expr.args)) if isinstance(expr, Call) else None
    assert found is None or (may_begin(pattern, head(expr), operands) and may_begin(pattern, head(expr)))


@given(patterns, expressions)
def test_heads_rule_out_nothing_more(pattern: GraphPattern, expr: GraphExpr) -> None:
    operands = tuple(map(head, expr.args)) if isinstance(expr, Call) else None
    assert may_begin(pattern, head(expr), operands) or not may_match(pattern, expr)


def test_heads_of_operands_rule_out() -> None:
    x, _, zero = LEAVES
    pattern = ACall(op("sub"), (Anything(), AConstant()))
    for args, fits in (((x, zero), True), ((zero, x), False)):
        expr = call(op("sub"), args)
        assert may_begin(pattern, head(expr), tuple(map(head, args))) is fits
        assert may_begin(pattern, head(expr))


def test_may_match_allows_both_orders_of_commutative_operands() -> None:
    x, _, zero = LEAVES
    pattern = ACall(op("add"), (ACall(op("exp"), (Anything(),)), AConstant()))
    for args in itertools.permutations((call(op("exp"), (x,)), zero)):
        assert may_match(pattern, call(op("add"), args))
    assert not may_match(pattern, call(op("add"), (x, zero)))
    assert not may_match(ACall(op("sub"), pattern.args), call(op("sub"), (zero, call(op("exp"), (x,)))))
