"""The classic notation for tensor expressions.

>>> from weft import te
>>> n = te.var("n")
>>> A, B = te.placeholder((n, 64), name="A"), te.placeholder((64, 32), name="B")
>>> k = te.reduce_axis((0, 64), name="k")
>>> C = te.compute((n, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

Expressions are built as written: no dtype is widened, and nothing is simplified except constants.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

from weft.expr.iter_var import BoundedAxis, IterVar
from weft.expr.nodes import Const, Expr, ExprLike, Var, index, wrap
from weft.expr.visit import loads
from weft.support.arguments import FUNCTION, MAPPING, TEXT, Form, checked, instance, one_or_several, optional, several
from weft.support.dtypes import INDEX, DType
from weft.support.errors import UserError
from weft.tensor_expr.nodes import ComputeOp, ExternOp, PlaceholderOp, Reduce, ScanOp, Tensor
from weft.tensor_expr.ranges import check_ranges, check_sizes
from weft.tensor_expr.tags import current_tag

Shape = Sequence[ExprLike]

TENSOR = instance("a tensor", Tensor)
_DOMAIN = Form("an extent or a pair (low, high)", lambda v: not isinstance(v, (tuple, list)) or len(v) == 2)
_PAIR = Form("a pair (low, high)", lambda v: isinstance(v, (tuple, list)) and len(v) == 2)


@overload
def var(name: str = "n", dtype: Literal["int64"] = "int64") -> Var: ...


@overload
def var(name: str, dtype: str) -> Expr: ...


@checked("E110", name=TEXT)
def var(name: str = "n", dtype: str = "int64") -> Expr:
    """A new symbolic size, which is not negative. With another ``dtype``, a scalar argument: the element of a
    placeholder of shape (). Both may be passed to ``build`` among the tensors; a call then takes a number."""
    return Var(name, INDEX) if DType(dtype) == INDEX else PlaceholderOp(name, (), DType(dtype)).output(0)()


@checked("E110", name=TEXT)
def size_var(name: str = "size", dtype: str = "int64") -> Var:
    """A new symbolic size, which is not negative. Sizes are 64-bit numbers; ``dtype`` may be any type of integers."""
    if not DType(dtype).is_integer:
        raise UserError(f"a size is a whole number, not {dtype}", code="E110", hint="te.var(name, dtype) is a scalar")
    return Var(name, INDEX)


def _dims(shape: Shape | ExprLike) -> tuple[Expr, ...]:
    return tuple(index(d) for d in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def _shape(name: str, shape: Shape | ExprLike) -> tuple[Expr, ...]:
    dims = _dims(shape)
    check_sizes(f"the shape of '{name}'", dims)
    return dims


@checked("E110", name=TEXT)
def placeholder(shape: Shape | ExprLike, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor. Raises UserError E206 for a shape that depends on data."""
    return PlaceholderOp(name, _shape(name, shape), DType(dtype)).output(0)


def _axis_names(fn: Callable[..., Any], rank: int) -> list[str]:
    """Names of the axes, from the parameters of ``fn``; ``*i`` stands for the rest: i0, i1, …"""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:  # built-in functions have no signature
        return [f"i{d}" for d in range(rank)]
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names.extend(f"{p.name}{d}" for d in range(rank - len(names)))
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or len(names) < rank):
            names.append(p.name)
    if len(names) != rank:
        raise UserError(
            f"the function takes {len(names)} indices but the shape has {rank} dimensions",
            code="E120",
            hint="give it one parameter for each dimension, or *indices",
        )
    return [n.strip("_") or f"i{d}" for d, n in enumerate(names)]


@checked("E110", fn=FUNCTION, name=TEXT, attrs=optional(MAPPING), tag=TEXT)
def compute(
    shape: Shape | ExprLike,
    fn: Callable[..., Any],
    name: str = "compute",
    attrs: Mapping[str, Any] | None = None,
    tag: str = "",
) -> Any:
    """The tensor of ``shape`` whose element at ``i, j, …`` is ``fn(i, j, …)``.

    If ``fn`` returns a tuple of expressions or a tuple reduction, the result is a tuple of tensors. ``attrs`` are
    passed to the block that computes the tensor; ``tag`` is one of them. Raises UserError E120 if the number of indices
    is wrong, E121 if a reduction is not the outermost operation, E206 if the range of an axis depends on other axes or
    on data.
    """
    dims = _dims(shape)
    axis = tuple(IterVar(Var(n, INDEX), d) for n, d in zip(_axis_names(fn, len(dims)), dims, strict=True))
    result = fn(*(a.var for a in axis))
    several = isinstance(result, (tuple, list))
    body = tuple(wrap(b) for b in (result if several else (result,)))
    reduced = _reduce_axes(name, body)
    check_ranges(name, (*axis, *reduced), {a.var for a in (*axis, *reduced)})
    tag = tag or current_tag()
    notes = {**({"tag": tag} if tag else {}), **(attrs or {})}
    op = ComputeOp(name, axis, reduced, body, tuple(sorted(notes.items())))
    outputs = tuple(op.output(i) for i in range(len(body)))
    return outputs if several else outputs[0]


def _reduce_axes(name: str, body: tuple[Expr, ...]) -> tuple[IterVar, ...]:
    """The reduce axes of a body. Either all its parts are values of one reduction, or none of them is a reduction."""
    first = body[0] if body else None
    if not isinstance(first, Reduce):
        bad = any(isinstance(b, Reduce) for b in body)
    else:
        bad = len(body) != len(first.sources) or any(
            b is not Reduce(first.reducer, first.sources, first.axes, first.condition, i, first.init)
            for i, b in enumerate(body)
        )
    if bad:
        raise UserError(
            f"the values of '{name}' must all come from one reduction",
            code="E121",
            hint="compute each reduction as a tensor of its own, or write one tuple reducer with te.comm_reducer",
        )
    return first.axes if isinstance(first, Reduce) else ()


@checked("E110", dom=_PAIR, name=TEXT)
def reduce_axis(dom: tuple[ExprLike, ExprLike], name: str = "rv", bound: ExprLike | None = None) -> IterVar:
    """An axis to reduce over, ``lo <= axis < hi``.

    Without ``bound``, sizes decide the range. With it, also positions and data may: ``(S[i], S[i + 1])``, in an axis
    made inside of the function of ``te.compute``. ``bound`` is an expression of sizes, the largest length of the range;
    of a longer one the first ``bound`` values count. A range whose end is before its start is empty. Raises UserError
    E136 for a bound that sizes do not decide.
    """
    lo, hi = (index(d) for d in dom)
    if bound is None:
        return IterVar(Var(name, INDEX), hi - lo, IterVar.REDUCE, lo)
    most = index(bound)
    if loads(most):
        raise UserError(
            f"the bound {most} of the axis '{name}' depends on data", code="E136", hint="give the largest length"
        )
    return BoundedAxis(Var(name, INDEX), most, IterVar.REDUCE, low=lo, count=hi - lo)


@checked("E110", dom=_DOMAIN, tag=TEXT, name=optional(TEXT))
def thread_axis(dom: Any = None, tag: str = "", name: str | None = None) -> IterVar:
    """A GPU thread axis: ``thread_axis("threadIdx.x")`` or ``thread_axis((0, 64), "threadIdx.x")``.

    Without a domain the extent is 0, which means: the extent of the loop that is bound to the axis. Raises UserError
    E122 without a name, E206 for a domain that depends on data.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise UserError("a thread axis needs the name of a hardware axis", code="E122", hint='such as "threadIdx.x"')
    lo, hi = (0, 0) if dom is None else (0, dom) if not isinstance(dom, (tuple, list)) else dom
    lo, hi = index(lo), index(hi)
    check_sizes(f"the range of the thread axis '{tag}'", (lo, hi))
    return IterVar(Var(name or tag, INDEX), hi - lo, IterVar.THREAD, lo, tag)


@checked(
    "E110",
    init=one_or_several(TENSOR),
    update=one_or_several(TENSOR),
    state=one_or_several(TENSOR),
    inputs=one_or_several(TENSOR),
    name=TEXT,
    tag=TEXT,
)
def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] = (),
    name: str = "scan",
    tag: str = "",
) -> Any:
    """A recurrence over the first dimension: the first ``init.shape[0]`` steps are ``init``, the others ``update``.

    ``state`` are placeholders with the shape of the result, through which ``update`` reads earlier steps. Returns one
    tensor for each state; a single tensor is not in a tuple. ``tag`` is that of the operation. Raises UserError E123 if
    shapes or dtypes differ.

    What depends on a state is computed step by step. So is what only steps read, at their own time, if it would read
    outside of a tensor at earlier times, as the sum of ``X[t - 1, k] * W[k]`` would.
    """
    several = isinstance(state, (tuple, list))
    inits, updates, states, ins = (
        tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (init, update, state, inputs)
    )
    if not len(inits) == len(updates) == len(states) or not states:
        raise UserError(f"scan '{name}' needs one init and one update for each state", code="E123")
    for i, u, s in zip(inits, updates, states, strict=True):
        if u.shape != s.shape or i.shape[1:] != s.shape[1:] or not i.dtype == u.dtype == s.dtype:
            raise UserError(
                f"init, update and state '{s.name}' of scan '{name}' differ: {i!r}, {u!r}, {s!r}",
                code="E123",
                hint="update has the shape of the state; init may be shorter in the first dimension only",
            )
    start = inits[0].shape[0]
    axis = IterVar(Var("t", INDEX), states[0].shape[0] - start, IterVar.ORDERED, start)
    op = ScanOp(name, axis, inits, updates, states, ins, tag=tag or current_tag())
    outputs = tuple(op.output(i) for i in range(len(states)))
    return outputs if several else outputs[0]


@checked("E110", inputs=several(TENSOR), fn=FUNCTION, name=TEXT, dtype=optional(one_or_several(TEXT)), tag=TEXT)
def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fn: Callable[[Sequence[Any], Sequence[Any]], Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    *,
    tag: str = "",
) -> Any:
    """Tensors computed by statements: ``fn(ins, outs)`` gets buffers and returns a tir statement, such as
    ``te.call_extern`` and ``te.call_packed`` make.

    ``shape`` is one shape, or a list of shapes for several outputs; so is ``dtype`` (default: that of the first
    input). ``tag`` is that of the operation. Returns one tensor, or a tuple of tensors for a list of shapes. Raises
    UserError E206 for a shape that depends on data.
    """
    several = isinstance(shape, (list, tuple)) and len(shape) > 0 and isinstance(shape[0], (list, tuple))
    shapes = tuple(_shape(name, s) for s in (shape if several else (shape,)))
    if dtype is None:
        if not inputs:
            raise UserError(f"extern '{name}' has no input to take its dtype from", code="E124", hint="give dtype=")
        dtype = inputs[0].dtype
    dtypes = (dtype,) * len(shapes) if isinstance(dtype, str) else tuple(dtype)
    if len(dtypes) != len(shapes):
        raise UserError(f"extern '{name}' has {len(shapes)} outputs but {len(dtypes)} dtypes", code="E124")
    op = ExternOp(
        name,
        tuple(inputs),
        shapes,
        tuple(DType(d) for d in dtypes),
        lambda i, o, new: fn(i, o),
        tag=tag or current_tag(),
    )
    outputs = tuple(op.output(i) for i in range(len(shapes)))
    return outputs if several else outputs[0]


@checked("E110", dtype=TEXT)
def max_value(dtype: str) -> Const:
    """The largest finite value of ``dtype``."""
    return Const(DType(dtype).limits()[1], DType(dtype))


@checked("E110", dtype=TEXT)
def min_value(dtype: str) -> Const:
    """The smallest (most negative) finite value of ``dtype``."""
    return Const(DType(dtype).limits()[0], DType(dtype))
