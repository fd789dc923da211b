"""Derivatives of products and convolutions: products and convolutions of the adjoint with the other operand."""

from __future__ import annotations

from typing import Any

from weft.graph.operator import Attrs
from weft.graph.types import Dim
from weft.ops.gradients.notation import T, Wide, fitted
from weft.support.errors import ModelError


def _matmul(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x, y, (g,) = args[0], args[1], given
    assert g is not None
    if a.b_layout is not None:
        raise ModelError("a product with packed weights cannot be differentiated", code="M030")
    column, row = len(y.shape) == 1, len(x.shape) == 1
    if row:
        x, g = x.reshape((1, *x.shape)), g.do("unsqueeze", axes=(len(g.shape) - (0 if column else 1),))
    if column:
        y, g = y.reshape((*y.shape, 1)), g.do("unsqueeze", axes=(len(g.shape),))
    ta, tb = a.transpose_a and not row, a.transpose_b and not column
    left = y.do("matmul", g, transpose_a=tb, transpose_b=True) if ta else g.do("matmul", y, transpose_b=not tb)
    right = g.do("matmul", x, transpose_a=True, transpose_b=ta) if tb else x.do("matmul", g, transpose_a=not ta)
    return [fitted(left, x).reshape(args[0].shape).to(args[0].t.dtype), fitted(right, y).reshape(args[1].shape)]


def _einsum(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """Each operand takes the place of the result; letters that only it has are broadcast."""
    (g,) = given
    assert g is not None
    left, _, out = a.equation.replace(" ", "").partition("->")
    terms = left.split(",")
    repeated = any(len(set(t)) < len(t) for t in (*terms, out))
    if "." in a.equation or "->" not in a.equation or repeated or a.limit is not None:
        raise ModelError(f"the einsum '{a.equation}' cannot be differentiated", code="M030")
    made: list[T | None] = []
    for i, term in enumerate(terms):
        others = [t for k, t in enumerate(terms) if k != i]
        known = "".join(c for c in term if c in out or any(c in t for t in others))
        equation = ",".join([out, *others]) + "->" + known
        part = g.do("einsum", *(x for k, x in enumerate(args) if k != i), equation=equation)
        kept = [d if c in known else 1 for c, d in zip(term, args[i].shape, strict=True)]
        made.append(part.reshape(kept).spread(args[i].shape))
    return made


def _filled(a: Attrs, n: int) -> tuple[list[int], list[int], list[int]]:
    strides, dilations = list(a.strides or [1] * n), list(a.dilations or [1] * n)
    pads = list(a.pads or [0] * (2 * n))
    if not all(isinstance(v, int) for v in (*strides, *dilations, *pads)):
        raise ModelError("a window with symbolic padding cannot be differentiated", code="M030")
    return strides, dilations, pads


def _whole(shape: tuple[Dim, ...]) -> list[int]:
    if not all(isinstance(d, int) for d in shape):
        raise ModelError("a window over dimensions of symbolic size cannot be differentiated", code="M030")
    return [d for d in shape if isinstance(d, int)]


def spread_windows(g: T, kernel: T, a: Attrs, size: tuple[Dim, ...], groups: int) -> T:
    """The adjoint of the data of a convolution: what the windows saw, put back; ``size`` is that of the data."""
    n = len(size)
    strides, dilations, pads = _filled(a, n)
    sizes, kernels, counts = _whole(size), _whole(kernel.shape[2:]), _whole(g.shape[2:])
    rest = []
    for d in range(n):
        reached = (counts[d] - 1) * strides[d] + (kernels[d] - 1) * dilations[d] + 1
        rest.append(sizes[d] + pads[d] + pads[n + d] - reached)
    whole = g.do(
        "conv_transpose", kernel, strides=tuple(strides), dilations=tuple(dilations), groups=groups
    )  # all that windows touch, padding included
    before = [max(0, p) for p in pads[:n]]
    for d in range(n):
        axis, extent = 2 + d, sizes[d] + pads[d] + pads[n + d]
        if rest[d] > 0:
            amounts = [0] * (2 * len(whole.shape))
            amounts[len(whole.shape) + axis] = rest[d]
            whole = whole.pad(amounts)
        elif rest[d] < 0:
            whole = whole.part(axis, 0, extent)
        whole = whole.part(axis, before[d], before[d] + sizes[d])
    return whole


def _plain(a: Attrs) -> None:
    if any(a.get(k) is not None for k in ("data_layout", "kernel_layout", "out_layout")):
        raise ModelError("a convolution in a blocked layout cannot be differentiated", code="M030")


def kernel_adjoint(x: T, g: T, a: Attrs, kernel: tuple[Dim, ...], groups: int) -> T:
    """The adjoint of the kernel: a convolution of the data with the adjoint, whose batch is summed like channels."""
    n = len(kernel) - 2
    strides, dilations, pads = _filled(a, n)
    batch, channels, *size = _whole(x.shape)
    out, counts = _whole(g.shape)[1], _whole(g.shape)[2:]
    space = tuple(range(3, 3 + n))
    data = x.reshape((batch, groups, channels // groups, *size)).transpose(2, 1, 0, *space)
    data = data.reshape((channels // groups, groups * batch, *size))
    window = g.reshape((batch, groups, out // groups, *counts)).transpose(1, 2, 0, *space)
    window = window.reshape((out, batch, *counts))
    made = data.do("conv", window, strides=tuple(dilations), dilations=tuple(strides), pads=tuple(pads), groups=groups)
    made = made.transpose(1, 0, *range(2, 2 + n))
    for d, extent in enumerate(_whole(kernel[2:])):
        made = made.part(2 + d, 0, extent)
    return made


def _conv(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    _plain(a)
    x, w, (g,) = args[0], args[1], given
    assert g is not None
    return [spread_windows(g, w, a, x.shape[2:], a.groups), kernel_adjoint(x, g, a, w.shape, a.groups)]


def _conv_transpose(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """Data and result of a convolution with their roles exchanged."""
    x, w, (g,) = args[0], args[1], given
    assert g is not None
    n = len(x.shape) - 2
    strides, dilations, pads = _filled(a, n)
    window = {"strides": tuple(strides), "dilations": tuple(dilations), "pads": tuple(pads), "groups": a.groups}
    data = g.do("conv", w, **window)
    for d, extent in enumerate(_whole(x.shape[2:])):
        data = data.part(2 + d, 0, extent)
    return [data, kernel_adjoint(g, x, a, w.shape, a.groups)]


CONTRACTION: dict[str, Wide] = {
    "matmul": _matmul,
    "einsum": _einsum,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
