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


@given(
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, np.nan]),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, np.nan]),
)
def test_a_repeated_name_matches_constants_of_equal_bits(dtype: str, a: float, b: float) -> None:
    """Zeros of different signs are different constants: ``where(c, 0, -0)`` is not 0."""
    twice = Anything()
    left, right = (Constant(np.array([v], DType(dtype).numpy)) for v in (a, b))
    found = list(matches(ACall(op("sub"), (twice, twice)), call(op("sub"), (left, right)), {}, lambda _: 1, True))
    assert bool(found) == (left.data.tobytes() == right.data.tobytes())
