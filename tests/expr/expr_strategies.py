"""Random expressions for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.expr import intrinsics as intrin
from weft.expr.nodes import (
    BINARY,
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Source,
    Var,
)
from weft.support.dtypes import BOOL, DType

INDEX_VARS = tuple(Var(name) for name in "ijkn")
DTYPES = tuple(DType(d) for d in ("int64", "int32", "uint8", "float32", "float16", "bfloat16", "float64", "bool"))
TYPED_VARS = {d: tuple(Var(f"{name}_{d.short}", d) for name in "xy") for d in DTYPES}


class Tensor(Source):
    """Something to load from."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, rank: int, dtype: str) -> None:
        self.name, self.shape, self.dtype = name, (Const(16),) * rank, DType(dtype)


TENSORS = (Tensor("A", 2, "float32"), Tensor("conv.out", 1, "int32"), Tensor("z", 0, "float16"))
SCOPE = {
    **{v.name: v for v in INDEX_VARS},
    **{v.name: v for vs in TYPED_VARS.values() for v in vs},
    **{t.name: t for t in TENSORS},
}
_ARITHMETIC = tuple(name for name, op in BINARY.items() if not op.compares and name not in ("and", "or", "div"))
_COMPARISONS = tuple(name for name, op in BINARY.items() if op.compares)


def index_expressions(max_leaves: int = 12, division: bool = True) -> st.SearchStrategy[Expr]:
    """INDEX expressions over INDEX_VARS; divisors are positive constants."""
    leaves = st.one_of(st.sampled_from(INDEX_VARS), st.integers(-20, 20).map(Const))

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        ops = st.sampled_from(("add", "sub", "mul", "min", "max"))
        choices = [st.builds(Binary, ops, inner, inner)]
        if division:
            divisors = st.integers(1, 9).map(Const)
            choices.append(st.builds(Binary, st.sampled_from(("floordiv", "floormod")), inner, divisors))
        conditions = st.builds(Binary, st.sampled_from(_COMPARISONS), inner, inner)
        choices.append(st.builds(Select, conditions, inner, inner))
        return st.one_of(choices)

    return st.recursive(leaves, extend, max_leaves=max_leaves)


def conditions(max_leaves: int = 8) -> st.SearchStrategy[Expr]:
    """Conditions over INDEX expressions."""
    inner = index_expressions(max_leaves)
    atoms = st.builds(Binary, st.sampled_from(_COMPARISONS), inner, inner)

    def extend(c: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(st.builds(Binary, st.sampled_from(("and", "or")), c, c), st.builds(Not, c))

    return st.recursive(atoms, extend, max_leaves=4)


@st.composite
def constants(draw: st.DrawFn, dtype: DType) -> Expr:
    if dtype == BOOL:
        return Const(draw(st.booleans()), BOOL)
    if dtype.is_float:
        return Const(draw(st.floats(width=32 if dtype.bits >= 32 else 16)), dtype)
    return Const(draw(st.integers(-300, 300)), dtype)


@st.composite
def typed_expressions(draw: st.DrawFn, dtype: DType | None = None, depth: int = 4) -> Expr:
    """Expressions of any dtype with every kind of node; not meant to be evaluated (it may divide by zero)."""
    dtype = dtype or draw(st.sampled_from(DTYPES))
    sub = lambda d=dtype: draw(typed_expressions(d, depth - 1))  # noqa: E731
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind == 0:
        return draw(constants(dtype))
    if kind == 1:
        return draw(st.sampled_from(TYPED_VARS[dtype]))
    if kind == 2:
        return Cast(sub(draw(st.sampled_from(DTYPES))), dtype)
    if kind == 3:
        return Select(sub(BOOL), sub(), sub())
    if kind == 4:
        for tensor in TENSORS:
            if tensor.dtype == dtype:
                return Load(tensor, tuple(sub(DType("int64")) for _ in tensor.shape))
    if kind == 5 and dtype.is_float:
        return draw(st.sampled_from((intrin.exp, intrin.tanh, intrin.floor)))(sub())
    if kind == 6:
        lane = Broadcast(sub(), 4) if dtype == BOOL else Ramp(sub(), sub(), 4)
        return Shuffle((lane, Broadcast(sub(), 4)), (draw(st.integers(0, 7)),))
    if dtype == BOOL:
        other = draw(st.sampled_from(DTYPES))
        if kind == 7:
            return Not(sub())
        if kind == 8:
            return Binary(draw(st.sampled_from(("and", "or"))), sub(), sub())
        return Binary(draw(st.sampled_from(_COMPARISONS)), sub(other), sub(other))
    return Binary(draw(st.sampled_from(_ARITHMETIC)), sub(), sub())
