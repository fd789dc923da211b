"""Matrix products and sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.cost import Rates, products
from weft.expr.nodes import Expr, index
from weft.graph.operator import REQUIRED, Attribute, Attrs, LayoutChoice, Widening
from weft.graph.types import Dim, TensorType, Type
from weft.ops import layouts
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import NUMBER, Array, read
from weft.ops.packing import parse_layout, unpack
from weft.ops.stages import accumulator, narrowed
from weft.support.dtypes import FLOAT16, DType


def _result_dtype(op: str, attrs: Attrs, a: TensorType, b: TensorType) -> DType:
    if attrs.out_dtype is not None:
        return DType(attrs.out_dtype)
    return rel.same_dtype(op, (a, b))


def _columns(attrs: Attrs, b: TensorType) -> tuple[tuple[Dim, ...], Dim, Dim]:
    """Batch dimensions, rows and columns of the second operand, packed or not."""
    if attrs.b_layout is None:
        rows, columns = b.shape[-2:] if not attrs.transpose_b else b.shape[-2:][::-1]
        return b.shape[:-2], rows, columns
    layout = parse_layout(attrs.b_layout)
    block, tail = layout.blocks.get("N"), len(layout.dims) - len(layout.letters)
    if block is None or b.rank != len(layout.dims) or b.rank < 2 + tail or b.shape[-tail] != block:
        rel.fail("matmul", f"{b} is not packed as {attrs.b_layout}", "T012")
    if tail > 1 and (tail > 2 or layout.dims[-1] != ("K", b.shape[-1])):
        rel.fail("matmul", f"{b} is not packed as {attrs.b_layout}", "T012")
    panels, rows = b.shape[-2 - tail], b.shape[-1 - tail]
    full = rel.multiply((panels, block))
    columns = full if attrs.columns is None else attrs.columns
    if rel.equal_dims(rel.ceil_divide(columns, block), panels) is False:
        rel.fail("matmul", f"{columns} columns do not fill {panels} panels of {block}", "T013")
    return b.shape[: -2 - tail], rel.multiply((rows, layout.blocks.get("K", 1))), columns


def _matmul_infer(attrs: Attrs, *types: Type) -> TensorType:
    a, b = rel.tensors("matmul", types, 2)
    rel.want_kind("matmul", a, NUMBER, "the first operand")
    rel.want_kind("matmul", b, NUMBER, "the second operand")
    dtype = _result_dtype("matmul", attrs, a, b)
    rel.want_rank_at_least("matmul", a, 1, "the first operand")
    rel.want_rank_at_least("matmul", b, 1, "the second operand")
    first = a.with_shape((1, *a.shape)) if a.rank == 1 else a
    second = b.with_shape((*b.shape, 1)) if b.rank == 1 and attrs.b_layout is None else b
    m, k = first.shape[-2:] if not (attrs.transpose_a and a.rank > 1) else first.shape[-2:][::-1]
    batch, k2, n = _columns(attrs.replace(transpose_b=attrs.transpose_b and b.rank > 1), second)
    rel.join_dim("matmul", k, k2, f"the contracted dimensions of {a} and {b}")
    shape = [*rel.broadcast("matmul", first.shape[:-2], batch)]
    if a.rank > 1:
        shape.append(m)
    if b.rank > 1 or attrs.b_layout is not None:
        shape.append(n)
    return TensorType(tuple(shape), dtype)


def _matmul_compute(attrs: Attrs, out: TensorType, a: te.Tensor, b: te.Tensor) -> Any:
    wide = accumulator(out.dtype)
    row, column = a.ndim > 1, b.ndim > 1
    packed = attrs.b_layout is not None
    blocks = parse_layout(attrs.b_layout).blocks if packed else {}
    block, group = blocks.get("N", 0), blocks.get("K", 1)
    depth = a.shape[-2 if attrs.transpose_a and row else -1]
    if depth == te.const(0):
        return te.compute(out.shape, lambda *i: te.const(0, out.dtype), name="matmul_empty")
    k = te.reduce_axis((0, b.shape[-3] if group > 1 else depth), name="k")
    inner = te.reduce_axis((0, group), name="ki") if group > 1 else None
    step = k.var if inner is None else k.var * group + inner.var
    over = [k] if inner is None else [k, inner]
    batch_rank = len(out.shape) - row - column
    batch = out.shape[:batch_rank]
    if packed and out.dtype == FLOAT16:  # stages of their own, which the schedule inlines where few results use them
        a, b = (narrowed(t, wide, "matmul_wide") for t in (a, b))

    def batched(t: te.Tensor, i: tuple[Expr, ...], own: int, tail: tuple[Any, ...]) -> Expr:
        """Load with the leading ``t.ndim - own`` dimensions broadcast against the batch."""
        lead = t.ndim - own
        at: list[Any] = []
        for d in range(lead):
            v, extent, wanted = i[batch_rank - lead + d], t.shape[d], batch[batch_rank - lead + d]
            one = extent == te.const(1)
            known = extent is wanted or (isinstance(wanted, int) and isinstance(extent, type(te.const(1))))
            at.append(0 if one else v if known else te.min(v, extent - 1))
        return te.cast(t[(*at, *tail)], wide)

    def element(*i: Expr) -> Expr:
        lead = i[:batch_rank]
        m = (i[batch_rank],) if row else ()
        n = i[-1:] if column else ()
        left = (step, *m) if attrs.transpose_a and row else (*m, step)
        if packed:
            right: tuple[Any, ...] = (n[0] // block, k.var, n[0] % block, *(() if inner is None else (inner.var,)))
        else:
            right = (*n, k.var) if attrs.transpose_b and column else (k.var, *n)
        x = batched(a, lead, len(left), left)
        return te.sum(x * batched(b, lead, len(right), right), axis=over)

    return narrowed(te.compute(out.shape, element, name="matmul"), out.dtype, "matmul_narrow")


def _matmul_reference(attrs: Attrs, a: Array, b: Array) -> Array:
    dtype = DType(attrs.out_dtype) if attrs.out_dtype is not None else DType(a.dtype)
    wide = np.float64 if dtype.is_float else np.int64
    if attrs.b_layout is not None:
        letters = attrs.b_layout.split("N")[0] + "KN"
        b = unpack(b, attrs.b_layout, letters)
        b = b if attrs.columns is None else b[..., : attrs.columns]
    elif attrs.transpose_b and b.ndim > 1:
        b = np.swapaxes(b, -1, -2)
    if attrs.transpose_a and a.ndim > 1:
        a = np.swapaxes(a, -1, -2)
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(dtype.numpy)


_BATCH_LETTERS = "ABCDEF"


def _matmul_layout(
    attrs: Attrs, types: tuple[TensorType, ...], block: int, tile: int, rates: Rates
) -> list[LayoutChoice]:
    a, b = types
    result = _matmul_infer(attrs, a, b)
    if a.rank < 1 or not 2 <= b.rank <= 8 or attrs.b_layout is not None:
        return [LayoutChoice((None, None), (None,), attrs)]
    batch = _BATCH_LETTERS[: b.rank - 2]
    depth = a.shape[-2 if attrs.transpose_a and a.rank > 1 else -1]
    columns = b.shape[-2 if attrs.transpose_b else -1]
    work = layouts.size(result.shape) * layouts.size((depth,))
    source = batch + ("NK" if attrs.transpose_b else "KN")
    waste = -(-columns // block) * block / columns if isinstance(columns, int) and columns > 0 else 1.0
    plain = products.unpacked_seconds(rates) if attrs.transpose_b else waste * layouts.straight_cost(types, rates)
    choices = [LayoutChoice((None, source), (None,), attrs, work * plain)]
    if isinstance(columns, int) and columns > 1:
        target = f"{batch}NK{block}n{layouts.groups(types, depth)}"
        packed = attrs.replace(b_layout=target, transpose_b=False, columns=columns)
        choices.append(LayoutChoice((None, target), (None,), packed, work * waste * layouts.packed_cost(types, rates)))
    return choices


def first_two(attrs: Attrs, types: tuple[TensorType, ...]) -> tuple[int, ...]:
    """The trait ``halves`` of sums of products of two tensors."""
    return (0, 1) if len(types) == 2 else ()


def _widens(attrs: Attrs, types: tuple[TensorType, ...]) -> Widening | None:
    """Columns of one matrix after those of another."""
    one_matrix = types[0].rank > 0 and types[1].rank == 2 and attrs.b_layout is None
    return Widening((-2 if attrs.transpose_b else -1,), -1) if one_matrix else None


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


MATMUL = OpDef(
    "matmul",
    (
        Attribute("transpose_a", False, "whether the last two dimensions of the first operand are exchanged"),
        Attribute("transpose_b", False, "the same of the second operand"),
        Attribute("b_layout", None, "the layout of a packed second operand, such as NK16n of a logical KN"),
        Attribute("columns", None, "the number of columns of a packed second operand, without padding"),
        Attribute("out_dtype", None, "the dtype of result and sums; None means the operands' (half: sums in float32)"),
    ),
    _matmul_infer,
    _matmul_reference,
    layout=_matmul_layout,
    halves=first_two,
    widens=_widens,
    compute=_matmul_compute,
    cases=(
        Case((_f(3, 4), _f(4, 5)), {}),
        Case((_f(2, 3, 4), _f(4, 5)), {}),
        Case((_f(2, 1, 3, 4), _f(3, 4, 2)), {}),
        Case((_f(4, 3), _f(5, 4)), {"transpose_a": True, "transpose_b": True}),
        Case((_f(2, 3, 4), _f(2, 5, 4)), {"transpose_b": True}),
        Case((_f(4), _f(4)), {}),
        Case((_f(4), _f(2, 4, 3)), {}),
        Case((_f(2, 3, 4), _f(4)), {}),
        Case((_f(3, 4), _f(2, 4, 4)), {"b_layout": "NK4n", "columns": 6}),
        Case((_f(2, 3, 4), _f(2, 2, 4, 4)), {"b_layout": "ANK4n"}),
        Case((_f(3, 0), _f(0, 2)), {}),
        Case((_f(5, 6, dtype="bfloat16"), _f(2, 3, 4, 2, dtype="bfloat16")), {"b_layout": "NK4n2k", "columns": 7}),
        Case((_f(2, 3, 8), _f(2, 2, 4, 4, 2)), {"b_layout": "ANK4n2k"}),
        Case((_f(3, 8, dtype="bfloat16"), _f(8, 5, dtype="bfloat16")), {"out_dtype": "float32"}),
        Case((_f(3, 40, dtype="float16"), _f(40, 5, dtype="float16")), {}, -1, 1, 4e-3, 4e-3),
        Case((_f(3, 4, dtype="int8"), _f(4, 5, dtype="int8")), {"out_dtype": "int32"}, -100, 100),
        Case(
            (_f(5, 8, dtype="uint8"), _f(2, 2, 4, 4, dtype="int8")),
            {"b_layout": "NK4n4k", "columns": 7, "out_dtype": "int32"},
            0,
            100,
        ),
        Case((_f(3, 4, dtype="int32"), _f(4, 5, dtype="int32")), {}, -9, 9),
    ),
    doc="matrix product with broadcast batch dimensions; vectors as in NumPy",
    source="ONNX MatMul-13, Gemm-13, MatMulInteger-10",
)


def expand_ellipsis(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of the operands and of the result; ``...`` becomes capital letters that occur nowhere else."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        rel.fail("einsum", f"'{equation}' has {len(terms)} operands, not {len(ranks)}", "T016")
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation]
    longest = 0
    for i, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        named = len(term.replace("...", ""))
        if named > rank or (named < rank and "..." not in term):
            rel.fail("einsum", f"'{term}' does not label the {rank} dimensions of operand {i}", "T012")
        extra = rank - named
        longest = max(longest, extra if "..." in term else 0)
        terms[i] = term.replace("...", "".join(reversed(free[:extra])))
    if not arrow:
        joined = left.replace("...", "").replace(",", "")
        right = (
            "..." + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
            if "..." in left
            else "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
        )
    return terms, right.replace("...", "".join(reversed(free[:longest])))


def _label_sizes(terms: list[str], shapes: list[tuple[Dim, ...]]) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = rel.broadcast_dim("einsum", sizes.get(label, 1), size, 0)
    return sizes


def _einsum_infer(attrs: Attrs, *types: Type) -> TensorType:
    operands = rel.tensors("einsum", types, 1, 8)
    dtype = DType(attrs.out_dtype) if attrs.out_dtype is not None else rel.same_dtype("einsum", operands)
    rel.want_kind("einsum", operands[0], NUMBER)
    terms, right = expand_ellipsis(attrs.equation, [t.rank for t in operands])
    sizes = _label_sizes(terms, [t.shape for t in operands])
    for label in right:
        if label not in sizes or right.count(label) > 1:
            rel.fail("einsum", f"the label '{label}' of the result is unknown or repeated: {attrs.equation}", "T015")
    if attrs.limit is not None:
        summed, row, _ = attrs.limit
        if summed not in sizes or summed in right or row not in right:
            rel.fail("einsum", f"the limit {summed} ≤ {row} + … is none of a sum by a result: {attrs.equation}", "T015")
    return TensorType(tuple(sizes[label] for label in right), dtype)


def _einsum_compute(attrs: Attrs, out: TensorType, *operands: te.Tensor) -> Any:
    wide = accumulator(out.dtype)
    terms, right = expand_ellipsis(attrs.equation, [t.ndim for t in operands])
    sizes = _label_sizes(terms, [TensorType.of(t.shape, t.dtype).shape for t in operands])
    over = {label: te.reduce_axis((0, n), name=f"r{label}") for label, n in sizes.items() if label not in right}

    def element(*i: Expr) -> Expr:
        at = {**dict(zip(right, i, strict=True)), **{label: axis.var for label, axis in over.items()}}
        value: Expr | None = None
        for t, term in zip(operands, terms, strict=True):
            labels = [at[label] for label in term]
            factor = te.cast(read(t, labels, [sizes[label] for label in term]), wide)
            value = factor if value is None else value * factor
        assert value is not None
        if attrs.limit is None:
            return te.sum(value, axis=list(over.values())) if over else value
        summed, row, k = attrs.limit
        return te.sum(value, axis=list(over.values()), where=at[summed] <= at[row] + index(k))

    return narrowed(te.compute(out.shape, element, name="einsum"), out.dtype, "einsum_narrow")


def _einsum_reference(attrs: Attrs, *operands: Array) -> Array:
    dtype = DType(attrs.out_dtype) if attrs.out_dtype is not None else DType(operands[0].dtype)
    wide = np.float64 if dtype.is_float else np.int64
    wides = [t.astype(wide) for t in operands]
    if attrs.limit is not None:
        return _limited_reference(attrs, wides).astype(dtype.numpy)
    return np.asarray(np.einsum(attrs.equation.replace(" ", ""), *wides)).astype(dtype.numpy)


def _limited_reference(attrs: Attrs, operands: list[Array]) -> Array:
    """Row by row, each with the terms that it sums."""
    terms, right = expand_ellipsis(attrs.equation, [t.ndim for t in operands])
    summed, row, k = attrs.limit
    equation, place = f"{','.join(terms)}->{right}", right.index(row)
    sizes = _label_sizes(terms, [t.shape for t in operands])

    def part(t: Array, term: str, label: str, start: int, stop: int) -> Array:
        d = term.find(label)
        return t if d < 0 or t.shape[d] == 1 < sizes[label] else t.take(range(start, min(stop, t.shape[d])), d)

    shape: list[Any] = [0 if c == row else sizes[c] for c in right]
    made = [np.zeros(shape, operands[0].dtype)]
    for i in range(sizes[row]):  # type: ignore[arg-type]  # a number
        parts = [part(t, term, row, i, i + 1) for t, term in zip(operands, terms, strict=True)]
        parts = [part(t, term, summed, 0, max(0, i + k + 1)) for t, term in zip(parts, terms, strict=True)]
        made.append(np.einsum(equation, *parts))
    return np.concatenate(made, place)


def _einsum_halves(attrs: Attrs, types: tuple[TensorType, ...]) -> tuple[int, ...]:
    """As for all sums of products, but for those with a limit: a pair of products may have one on either side of it."""
    return () if attrs.limit is not None else first_two(attrs, types)


EINSUM = OpDef(
    "einsum",
    (
        Attribute("equation", REQUIRED, "labels of the operands' dimensions and, after ->, of the result's"),
        Attribute(
            "limit", None, "(summed label, label of the result, k): only terms with summed ≤ other + k are added"
        ),
        Attribute("out_dtype", None, "the dtype of result and sums; None means the operands' (half: sums in float32)"),
    ),
    _einsum_infer,
    _einsum_reference,
    halves=_einsum_halves,
    compute=_einsum_compute,
    cases=(
        Case((_f(2, 3), _f(3, 4)), {"equation": "ij,jk->ik"}),
        Case((_f(2, 3, 4), _f(2, 4, 5)), {"equation": "bij, bjk -> bik"}),
        Case(
            (_f(2, 3, dtype="bfloat16"), _f(3, 4, dtype="bfloat16")),
            {"equation": "ij,jk->ik", "out_dtype": "float32"},
        ),
        Case((_f(3, 4),), {"equation": "ij->ji"}),
        Case((_f(2, 3, 4), _f(2, 4, 5)), {"equation": "bij,bjk->bik", "limit": ("j", "i", 0)}),
        Case((_f(4, 3), _f(3, 5)), {"equation": "ij,jk->ki", "limit": ("j", "i", -1)}),
        Case((_f(3, 3),), {"equation": "ii->i"}),
        Case((_f(3, 4),), {"equation": "ij->"}),
        Case((_f(2, 3, 4), _f(4, 5)), {"equation": "...ij,...jk->...ik"}),
        Case(
            (
                _f(2, 3),
                _f(2, 3),
                _f(
                    3,
                ),
            ),
            {"equation": "ij,ij,j"},
        ),
    ),
    doc="sum of products over the labels that the result lacks",
    source="ONNX Einsum-12",
)

CONTRACTIONS: tuple[OpDef, ...] = (MATMUL, EINSUM)
