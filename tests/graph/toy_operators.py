"""A few small operators to test `weft.graph` without the catalogue of operators."""

from __future__ import annotations

import math

import numpy as np

from weft.graph.layout import convert, follow_elementwise, letters_of, parse
from weft.graph.operator import Attribute, Attrs, LayoutChoice, Operator
from weft.graph.types import TensorType, TupleType
from weft.support.errors import TypeRelationError


def broadcast_type(attrs, *types):
    rank = max(t.rank for t in types)
    shape = []
    for i in range(rank):
        d = 1
        for t in types:
            k = i - rank + t.rank
            if k < 0 or t.shape[k] == 1:
                continue
            if d == 1:
                d = t.shape[k]
            elif isinstance(d, int) and isinstance(t.shape[k], int) and d != t.shape[k]:
                raise TypeRelationError(f"{types[0]} and {t} do not broadcast")
        shape.append(d)
    return TensorType(tuple(shape), types[0].dtype)


def elementwise(name, fn, arity=1, **more):
    return Operator(
        name,
        (),
        broadcast_type,
        lambda attrs, *a: np.asarray(fn(*a)).astype(a[0].dtype),
        follows=follow_elementwise,
        elementwise=True,
        **more,
    )


relu = elementwise("relu", lambda x: np.maximum(x, 0))
exp = elementwise("exp", np.exp)
cosine = elementwise("cosine", np.cos)
neg = elementwise("neg", np.negative)
add = elementwise("add", np.add, 2, commutative=True)
mul = elementwise("mul", np.multiply, 2, commutative=True)


def _matmul_type(attrs, a, b):
    if a.rank != 2 or b.rank != 2 or (a.shape[1] != b.shape[0]) is True:
        raise TypeRelationError(f"{a} and {b} do not multiply")
    if isinstance(a.shape[1], int) and isinstance(b.shape[0], int) and a.shape[1] != b.shape[0]:
        raise TypeRelationError(f"{a} and {b} do not multiply")
    return TensorType((a.shape[0], b.shape[1]), a.dtype)


matmul = Operator("matmul", (), _matmul_type, lambda attrs, a, b: a @ b)


def _perm_type(attrs, x):
    return TensorType(tuple(x.shape[i] for i in attrs.axes), x.dtype)


transpose = Operator("transpose", (Attribute("axes"),), _perm_type, lambda attrs, x: np.transpose(x, attrs.axes))


def _reshape_type(attrs, x):
    known = math.prod(d for d in attrs.shape if isinstance(d, int))
    if x.is_static and all(isinstance(d, int) for d in attrs.shape) and math.prod(x.shape) != known:
        raise TypeRelationError(f"{x} cannot become {attrs.shape}")
    return TensorType.of(attrs.shape, x.dtype)


reshape = Operator(
    "reshape",
    (Attribute("shape"),),
    _reshape_type,
    lambda attrs, x: x.reshape(attrs.shape),
    cheap=True,
    view=True,
)

total = Operator(
    "total",
    (),
    lambda attrs, x: TensorType((*x.shape[:-1], 1), x.dtype),
    lambda attrs, x: x.sum(-1, keepdims=True, dtype=x.dtype),
)


def _halves_type(attrs, x):
    half = TensorType((x.shape[0] // 2, *x.shape[1:]), x.dtype)
    return TupleType((half, half))


halves = Operator(
    "halves", (), _halves_type, lambda attrs, x: (x[: x.shape[0] // 2], x[x.shape[0] // 2 : x.shape[0] // 2 * 2])
)


def _fill_type(attrs):
    return TensorType.of(attrs.shape, attrs.dtype)


fill = Operator(
    "fill",
    (Attribute("value"), Attribute("shape"), Attribute("dtype", "float32")),
    _fill_type,
    lambda attrs: np.full(attrs.shape, attrs.value, attrs.dtype),
    cheap=True,
)
shout = Operator("shout", (), lambda attrs, x: x, lambda attrs, x: x, pure=False)


# A pointwise convolution: input [N, C, H, W], weight [O, C]; blocked: input NCHW{b}c, weight OC{b}o{b}c.
def _pointwise_type(attrs, x, w):
    if attrs.block:
        if x.rank != 5 or w.rank != 4:
            raise TypeRelationError(f"a blocked convolution of {x} and {w}")
        return TensorType((x.shape[0], w.shape[0], x.shape[2], x.shape[3], w.shape[2]), x.dtype)
    if x.rank != 4 or w.rank != 2 or x.shape[1] != w.shape[1]:
        raise TypeRelationError(f"a convolution of {x} and {w}")
    return TensorType((x.shape[0], w.shape[0], x.shape[2], x.shape[3]), x.dtype)


def _pointwise(attrs, x, w):
    if attrs.block:
        return np.einsum("nchwb,ocdb->nohwd", x, w).astype(x.dtype)
    return np.einsum("nchw,oc->nohw", x, w).astype(x.dtype)


def _pointwise_layout(attrs: Attrs, types, block, tile, rates):
    plain = LayoutChoice((None, None), (None,), attrs, 1e-3)
    b = f"{block}"
    fast = LayoutChoice((f"NCHW{b}c", f"OC{b}o{b}c"), (f"NCHW{b}c",), attrs.replace(block=block), 1e-4)
    return [plain, fast]


pointwise = Operator("pointwise", (Attribute("block", 0),), _pointwise_type, _pointwise, layout=_pointwise_layout)


def _reorder(attrs, shape):
    src = parse(attrs.src_layout)
    dst = parse(attrs.dst_layout, letters_of(attrs.src_layout))
    sizes = attrs.sizes or [n * src.factor(d) for n, (d, f) in zip(shape, src.dims, strict=True) if f is None]
    return src, dst, tuple(sizes)


def _reorder_type(attrs, x):
    src, dst, sizes = _reorder(attrs, x.shape)
    assert src.shape(sizes) == x.shape
    return TensorType(dst.shape(sizes), x.dtype)


reorder = Operator(
    "reorder",
    (Attribute("src_layout"), Attribute("dst_layout"), Attribute("sizes", None)),
    _reorder_type,
    lambda attrs, x: convert(x, *_reorder(attrs, x.shape)),
)
ALL = (
    reorder,
    relu,
    exp,
    cosine,
    neg,
    add,
    mul,
    matmul,
    transpose,
    reshape,
    total,
    halves,
    fill,
    shout,
    pointwise,
)
BY_NAME = {o.name: o for o in ALL}
