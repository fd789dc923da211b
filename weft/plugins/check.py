"""Checks operators by their cases, and scalar intrinsics by samples: all that is said of one must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft import tensor_expr as te
from weft.expr.added import adding
from weft.expr.evaluate import evaluate
from weft.expr.intrinsic_table import Intrinsic
from weft.expr.nodes import Call, Var
from weft.graph.operator import Attrs
from weft.graph.types import TensorType, TupleType, Type
from weft.lowering.graph_to_te import compute
from weft.lowering.kernel.common.added import expansion
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.definition import Case, OpDef
from weft.plugins.scalar import verify_intrinsic
from weft.support.dtypes import DType
from weft.support.errors import UserError
from weft.tir import interpret

Array = np.ndarray[Any, Any]


def check_operator(op: OpDef, intrinsics: Sequence[Intrinsic] = ()) -> None:
    """Test ``op``, which may call the scalar ``intrinsics``, on each of its cases. The results of ``reference`` must
    have the types that ``infer`` gives. The tensor expression of ``compute`` must have the same types and, interpreted,
    the same values within the tolerances of the case. Raises UserError X013, which names the case and the difference,
    or if there is no case."""
    if not op.cases:
        raise UserError(f"the operator '{op.name}' has no cases to check it with", code="X013", hint="cases=(Case(…),)")
    for number, case in enumerate(op.cases):
        try:
            with adding(intrinsics):
                _check(op, case)
        except UserError as error:
            raise UserError(f"case {number} of '{op.name}': {error.message}", code="X013", hint=error.hint) from error
        except Exception as error:  # functions of plugins may raise anything
            raise UserError(f"case {number} of '{op.name}': {type(error).__name__}: {error}", code="X013") from error


def operands(case: Case, seed: int = 0) -> list[Array]:
    """The operands of a case: arrays as given, the others filled with seeded random values."""
    rng = np.random.default_rng(seed)
    return [e if isinstance(e, np.ndarray) else _filled(case, e[0], e[1], rng) for e in case.inputs]


def _filled(case: Case, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind, numpy_dtype = DType(dtype).kind, DType(dtype).numpy
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "float":
        return np.asarray(rng.uniform(case.low, case.high, shape)).astype(numpy_dtype)
    low, high = int(np.ceil(case.low)), int(np.floor(case.high))
    limits = DType(dtype).limits()
    drawn = rng.integers(max(low, int(limits[0])), min(high, int(limits[1])) + 1, shape)
    return np.asarray(drawn).astype(numpy_dtype)


def _check(op: OpDef, case: Case) -> None:
    attrs, arrays = op.complete(case.attrs), operands(case)
    types = [TensorType.of(a.shape, DType(a.dtype)) for a in arrays]
    result = op.infer(attrs, *types)
    made = op.reference(attrs, *arrays)
    expected = [np.asarray(a) for a in (made if isinstance(made, tuple) else (made,))]
    given = [TensorType.of(a.shape, DType(a.dtype)) for a in expected]
    wanted = list(result.fields) if isinstance(result, TupleType) else [result]
    if given != wanted:
        raise UserError(f"'reference' gives {_types(given)}, but 'infer' says {_types(wanted)}")
    if op.host or op.checks or (op.compute is None and not op.pure):
        return
    for got, want in zip(_interpreted(op, attrs, result, arrays, types), expected, strict=True):
        _compare(got, want, case)


def _interpreted(op: OpDef, attrs: Attrs, result: Type, arrays: list[Array], types: list[TensorType]) -> list[Array]:
    inputs = [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(types)]
    return list(interpret.run(te_to_tir(op.name, inputs, compute(op, attrs, result, inputs)), arrays))


def _compare(got: Array, want: Array, case: Case) -> None:
    if DType(want.dtype).is_float:
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = np.isclose(a, b, case.rtol, case.atol, equal_nan=True)
    else:
        same = np.asarray(got == want)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        raise UserError(f"'compute' gives {got[at]} at {at}, but 'reference' gives {want[at]}")


def _types(types: list[Any]) -> str:
    return ", ".join(map(str, types)) or "nothing"


_SAMPLED: Final[dict[str, tuple[str, ...]]] = {
    "float": ("float32", "float64"),
    "integer": ("int32", "int64"),
    "number": ("float32", "int32"),
    "any": ("float32", "int32"),
}
"""By what a scalar intrinsic accepts: the dtypes that are tried."""
_SAMPLES: Final = 64


def check_intrinsic(
    row: Intrinsic, low: float = -4.0, high: float = 4.0, rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    """Test a scalar intrinsic on random arguments from ``low`` to ``high``: the results of ``evaluate`` must have the
    dtype that ``result`` gives, and ``expand`` must have the same values. Raises UserError X013, which names the
    difference, and X014 for a declaration that cannot be right."""
    verify_intrinsic(row, "check_intrinsic")
    for dtype in _SAMPLED[row.accepts]:
        rng = np.random.default_rng(0)
        values = [_drawn(rng, low, high, DType(dtype)) for _ in range(row.arity)]
        assert row.result is not None
        wanted = DType(row.result([DType(dtype)] * row.arity))
        got = np.asarray(row.evaluate(*values))
        if got.shape != (_SAMPLES,) or got.dtype != wanted.numpy:
            raise UserError(
                f"'evaluate' of '{row.name}' gives {got.dtype}{list(got.shape)} for {dtype}[{_SAMPLES}], but 'result' "
                f"says {wanted}",
                code="X013",
                hint="it is given arrays as well as numbers",
            )
        if row.expand is not None:
            _check_expansion(row, DType(dtype), wanted, values, (got, rtol, atol))


def _drawn(rng: np.random.Generator, low: float, high: float, dtype: DType) -> Array:
    if dtype.is_float:
        return np.asarray(rng.uniform(low, high, _SAMPLES)).astype(dtype.numpy)
    return np.asarray(rng.integers(int(np.ceil(low)), int(np.floor(high)) + 1, _SAMPLES)).astype(dtype.numpy)


def _check_expansion(
    row: Intrinsic, dtype: DType, wanted: DType, values: list[Array], expected: tuple[Array, float, float]
) -> None:
    got, rtol, atol = expected
    operands = tuple(Var(f"x{i}", dtype) for i in range(row.arity))
    with adding([row]):
        made = expansion(row, Call(row.name, operands, wanted), "any")
        for i, want in enumerate(got):
            one = evaluate(made, {v: a[i] for v, a in zip(operands, values, strict=True)})
            if not np.isclose(one, want, rtol, atol, equal_nan=True):
                given = ", ".join(str(a[i]) for a in values)
                raise UserError(f"'expand' of '{row.name}' gives {one} for {given}, but 'evaluate' {want}", code="X013")
