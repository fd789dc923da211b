"""Fourier transforms as products with matrices of cosines, mel filters, determinants.

Lengths, axes and steps may be known at run time only. Known parts become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.expr.nodes import Var, index, make
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, bounds, divide_products, product
from weft.frontends.onnx.converters.computed_axes import ComputedAxes, integers, require, vector
from weft.frontends.onnx.converters.loops import repeat
from weft.frontends.onnx.converters.numbers import Operand, Traced, constant, operand, size, stack
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import dtype_of
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT64, INDEX

MAX_TRANSFORM_LENGTH = 1 << 14
"""Longest signal of a transform; longer ones would need too large matrices."""


def _counted(node: Node, count: Dim) -> Traced:
    """0, 1, … as int64."""
    return Traced(node, node.call("arange", start=0, step=1, count=count, dtype=INDEX))


def _must(node: Node, op: str, a: Dim, b: Dim, message: str) -> None:
    """Require a comparison of two sizes. Raises Malformed if it is false; it is checked at run time if not known."""
    node.importer.require(make(op, index(a), index(b)), f"{node.name}: {message}")


def _between(node: Node, d: Dim, low: int, what: str) -> None:
    if isinstance(d, int) and d > MAX_TRANSFORM_LENGTH:
        raise Unsupported(f"{what} is {d}; up to {MAX_TRANSFORM_LENGTH} is supported")
    _must(node, "ge", d, low, f"{what} is {d}, but must be at least {low}")
    _must(node, "le", d, MAX_TRANSFORM_LENGTH, f"{what} is {d}; up to {MAX_TRANSFORM_LENGTH} is supported")


def _turns(node: Node, rows: Dim, columns: Dim, length: Dim, dtype: str) -> tuple[Traced, Traced]:
    """Cosine and sine of 2π · row · column / length: [rows, columns]. Products are reduced modulo ``length`` in
    integers and used as indices into a table of the ``length`` angles, so that no precision is lost."""
    circle = _counted(node, length).to(FLOAT64) * (2 * np.pi) / size(node, length, FLOAT64)
    at = _counted(node, rows).reshape(rows, 1) * _counted(node, columns).reshape(1, columns)
    at = at.call("mod", size(node, length, INDEX), fmod=False)
    cos, sin = (circle.call(f).to(dtype).call("gather", at, axis=0) for f in ("cos", "sin"))
    return cos, sin


def transform_matrix(
    node: Node, used: Dim, length: Dim, parts: int, dtype: str, *, inverse: bool, onesided: bool
) -> Traced:
    """The matrix of a discrete Fourier transform, (used · parts) × (outputs · parts out). It maps ``used`` samples with
    ``parts`` (1: real, 2: real and imaginary, adjacent) to spectra with adjacent real and imaginary parts."""
    if inverse and onesided:  # half of a Hermitian spectrum to a real signal
        cos, sin = _turns(node, used, length, length, dtype)
        place = _counted(node, used).reshape(used, 1)
        single = place.equals(0).call("logical_or", (place * 2).equals(size(node, length, INDEX)))
        weight = (2.0 - single.to(dtype)) / size(node, length, dtype)
        rows = stack([cos * weight, sin * weight * -1.0][:parts], axis=1)
        return rows.reshape(product([used, parts]), length)
    outputs = divide_products([length], [2]) if onesided else length
    outputs = arithmetic("add", outputs, 1) if onesided else outputs
    cos, sin = _turns(node, used, outputs, length, dtype)
    if inverse:
        cos, sin = (t / size(node, length, dtype) for t in (cos, sin * -1.0))
    rows = stack([stack([cos, sin * -1.0]), stack([sin, cos])][:parts], axis=1)
    return rows.reshape(product([used, parts]), product([outputs, 2]))


def _parts(x: Traced, axis: int) -> int:
    parts = x.shape[-1]
    if not isinstance(parts, int) or parts not in (1, 2) or axis == len(x.shape) - 1:
        raise Malformed(f"it transforms axis {axis} of {x.x.tensor}, whose last axis must hold one or two parts")
    return parts


def transformed(x: Traced, axis: int, length: Dim | None, *, inverse: bool = False, onesided: bool = False) -> Traced:
    """The transform along ``axis`` of a signal whose last axis contains its real (and imaginary) parts."""
    rank, parts, given = len(x.shape), _parts(x, axis), x.shape[axis]
    half = inverse and onesided
    if length is None:
        length = arithmetic("mul", arithmetic("sub", given, 1), 2) if half else given
    _between(x.node, length, 1, "the length of the transform")
    most = arithmetic("add", divide_products([length], [2]), 1) if half else length
    used = arithmetic("min", given, most)
    if used != given:
        x = x.part(axis, 0, used)
    order = (*(i for i in range(rank - 1) if i != axis), axis, rank - 1)
    moved = x.transpose(*order)
    matrix = transform_matrix(x.node, used, length, parts, x.dtype, inverse=inverse, onesided=onesided)
    parts_out = 1 if half else 2
    outer, outputs = moved.shape[:-2], divide_products([matrix.shape[1]], [parts_out])
    flat = moved.reshape(*outer, product([used, parts])).call("matmul", matrix)
    back = [0] * rank
    for i, o in enumerate(order):
        back[o] = i
    return flat.reshape(*outer, outputs, parts_out).transpose(*back)


def _scalar(node: Node, i: int, what: str) -> Dim:
    """Operand ``i``, one non-negative integer."""
    if node.elements(i) is None:
        return node.bound(integers(node, i).x, what, i)[0]
    return node.dims(i, what)[0]


def _dft(node: Node) -> Result:
    x = operand(node, 0)
    rank = len(x.shape)
    length = _scalar(node, 1, "dft_length") if node.has(1) else None
    how = {"inverse": node.flag("inverse"), "onesided": node.flag("onesided")}
    if node.is_computed(2):
        return _dft_computed(node, x, length, **how).x
    axis = node.integer("axis", 1 if node.opset < 20 else -2)
    if node.has(2):
        (axis,) = node.numbers(2, "axis")
    return transformed(x, node.checked_axis(axis, rank), length, **how).x


def _dft_computed(node: Node, x: Traced, length: Dim | None, **how: bool) -> Traced:
    """The transform along the axis in operand 2: any axis except the last, which contains the parts."""
    rank = len(x.shape)
    axis = ComputedAxes(node, 2, rank - 1, "axis", counted=rank)
    made = transformed(axis.around(x), 1, length, **how)
    sizes = axis.spread(vector(node, [made.shape[1]]), vector(node, x.shape[:-1]))
    return made.reshape(*axis.bound(sizes), made.shape[-1])


def _stft(node: Node) -> Result:
    signal = operand(node, 0)
    if len(signal.shape) == 2:  # real signals, as PyTorch exports them and onnxruntime takes them
        signal = signal.reshape(*signal.shape, 1)
    if len(signal.shape) != 3:
        raise Malformed(f"its signal has {len(signal.shape)} dimensions, not 3: batch, samples, parts")
    step = _scalar(node, 1, "frame_step")
    shaped = operand(node, 2) if node.has(2) else None
    if node.has(3):
        length = _scalar(node, 3, "frame_length")
    elif shaped is not None:
        length = shaped.shape[0]
    else:
        raise Malformed("it needs a window or a frame length")
    samples = signal.shape[1]
    message = f"frames of {length} samples, {step} apart, do not fit a signal of {samples}"
    for op, a, b in (("ge", step, 1), ("ge", length, 1), ("le", length, samples)):
        _must(node, op, a, b, message)
    if shaped is not None:
        _must(node, "eq", shaped.shape[0], length, f"its window has {shaped.shape[0]} numbers, a frame {length}")
    count = _frames(node, samples, length, step)
    starts = _counted(node, count) * size(node, step, INDEX)
    frames = signal.call("gather", starts.reshape(count, 1) + _counted(node, length), axis=1)
    if shaped is not None:
        frames = frames * shaped.reshape(shaped.shape[0], 1)
    return transformed(frames, 2, None, onesided=node.flag("onesided", True)).x


def _frames(node: Node, samples: Dim, length: Dim, step: Dim) -> Dim:
    """The number of frames in a signal. A separate check reports signals that are too short, before the size is
    used."""
    room = arithmetic("max", arithmetic("sub", samples, length), 0)
    pace = step if bounds(step)[0] >= 1 else arithmetic("max", step, 1)
    return arithmetic("add", divide_products([room], [pace]), 1)


def _mel_weights(node: Node) -> Result:
    """Triangular filters over the bins of a spectrum, with corners at equal distances in mel: [spectrum, bins]"""
    bins, length = (_scalar(node, i, n) for i, n in enumerate(("num_mel_bins", "dft_length")))
    rate, low, high = (operand(node, i).to(FLOAT64).reshape() for i in (2, 3, 4))
    edges = _mel_edges(node, bins, size(node, length, FLOAT64), rate, low, high)
    count = arithmetic("add", divide_products([length], [2]), 1)
    inside = edges.reshape(1, arithmetic("add", bins, 2))
    fits = (inside >= 0) & (inside <= size(node, count, INDEX))
    require(node, fits.reshape(arithmetic("add", bins, 2)), "its edges must lie between 0 and half its sample rate")
    left, middle, right = (edges.part(0, i, arithmetic("add", bins, i)).reshape(1, bins) for i in range(3))
    place = _counted(node, count).reshape(count, 1)

    def share(a: Traced, b: Traced) -> Traced:
        """a / b, with b limited to at least 1."""
        return a.to(FLOAT64) / b.call("maximum", 1).to(FLOAT64)

    rising = ((place >= left) & (place <= middle)).choose(share(place - left, middle - left), 0.0)
    rising = left.equals(middle).choose(place.equals(middle).to(FLOAT64), rising)
    falls = (place >= middle) & (place < right)
    made = falls.choose(share(right - place, right - middle), rising)
    return made.to(dtype_of(node.integer("output_datatype", 1))).x


def _mel_edges(node: Node, bins: Dim, length: Operand, rate: Traced, low: Traced, high: Traced) -> Traced:
    """The bins of the spectrum in which filters begin, peak and end: int64 [bins + 2]"""
    first, last = ((t / 700.0 + 1.0).call("log") * float(2595 / np.log(10)) for t in (low, high))
    count = arithmetic("add", bins, 2)
    places = first + _counted(node, count).to(FLOAT64) * ((last - first) / size(node, count, FLOAT64))
    hertz = ((places * float(np.log(10) / 2595)).call("exp") - 1.0) * 700.0
    return (hertz * (length + 1.0) / rate).call("floor").to(INDEX)


MAX_UNROLLED_ROWS = 64
"""Most rows of a matrix whose elimination has no loop."""


def _det(node: Node) -> Result:
    """Det: elimination with row pivoting, unrolled over the size of small matrices."""
    x = operand(node, 0)
    if len(x.shape) < 2:
        raise Malformed(f"it has {len(x.shape)} dimensions, not those of matrices")
    *batch, rows, n = x.shape
    if rows != n:
        node.importer.assume("eq", rows, n, node.name)
    a = x.to("float64") if x.dtype.bits > 32 else x.to("float32")
    total = constant(node, 1, a.dtype).expand(*batch)
    if isinstance(n, int) and n <= MAX_UNROLLED_ROWS:
        return _eliminated(a, batch, n, total).to(x.dtype).x
    return _eliminated_in_a_loop(a.reshape(*batch, n, n), batch, n, total).to(x.dtype).x


def _eliminated(a: Traced, batch: Sequence[Dim], n: int, total: Traced) -> Traced:
    """``total`` times the determinants of matrices; each step leaves a row and a column less."""
    node = a.node
    for left in range(n, 0, -1):
        places = constant(node, np.arange(left), "int64")
        best = a.part(len(batch) + 1, 0).call("abs").call("argmax", axis=-1, keepdims=True)
        chosen = places.equals(best).call("unsqueeze", axes=(-1,))
        pivot = chosen.choose(a, 0.0).call("reduce_sum", axes=(-2,), keepdims=True)
        first = a.part(len(batch), 0, 1)
        swapped = chosen.choose(first.expand(*a.shape), a)
        head = pivot.part(len(batch) + 1, 0, 1)
        sign = best.equals(0).to(a.dtype) * 2.0 - 1.0
        total = total * head.reshape(*batch) * sign.reshape(*batch)
        if left == 1:
            break
        rest = swapped.part(len(batch), 1, left)
        safe = head.equals(0.0).choose(head * 0.0 + 1.0, head)
        a = (rest - rest.part(len(batch) + 1, 0, 1) / safe * pivot).part(len(batch) + 1, 1, left)
    return total


def _eliminated_in_a_loop(a: Traced, batch: Sequence[Dim], n: Dim, total: Traced) -> Traced:
    """The same for matrices of any size, which stay whole: rows above that of the step are not read again."""
    node, rank = a.node, len(batch)
    places = _counted(node, n)

    def step(k: Var, state: list[GraphExpr]) -> tuple[None, list[GraphExpr], list[GraphExpr]]:
        a, total = (Traced(node, s) for s in state)
        row, end = size(node, k, INDEX), arithmetic("add", k, 1)
        column = a.part(rank + 1, k, end).reshape(*batch, n).call("abs")
        best = (places < row).choose(column * 0.0 - 1.0, column).call("argmax", axis=-1, keepdims=True).to(INDEX)
        chosen = places.equals(best).call("unsqueeze", axes=(-1,))
        pivot = chosen.choose(a, 0.0).call("reduce_sum", axes=(-2,), keepdims=True)
        swapped = chosen.choose(a.part(rank, k, end).expand(*a.shape), a)
        head = pivot.part(rank + 1, k, end)
        sign = best.equals(row).to(a.dtype) * 2.0 - 1.0
        total = total * head.reshape(*batch) * sign.reshape(*batch)
        safe = head.equals(0.0).choose(head * 0.0 + 1.0, head)
        below = (places > row).call("unsqueeze", axes=(-1,))
        after = below.choose(swapped - swapped.part(rank + 1, k, end) / safe * pivot, swapped)
        return None, [after.x, total.x], []

    (_, found), _ = repeat(node, [a.x, total.x], step, trips=n)
    return Traced(node, found)


SPECTRAL: dict[str, Callable[[Node], Result]] = {
    "DFT": _dft,
    "Det": _det,
    "MelWeightMatrix": _mel_weights,
    "STFT": _stft,
}
