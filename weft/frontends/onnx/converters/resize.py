"""Resize and its predecessor Upsample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, decide, divide_products
from weft.frontends.onnx.converters.computed_axes import require, vector
from weft.frontends.onnx.converters.numbers import Operand, Traced, constant, operand, size
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, FLOAT64, INDEX


def _scaled_size(size: Dim, scale: float) -> Dim:
    """floor(size · scale)."""
    if isinstance(size, int):
        return int(size * scale)
    exact = Fraction(scale).limit_denominator(4096)
    return divide_products([arithmetic("mul", size, exact.numerator)], [exact.denominator])


def _targets(
    node: Node, x: GraphExpr, axes: Sequence[int], scales: Sequence[float], sizes: Sequence[Dim]
) -> tuple[list[Dim], list[float | None]]:
    """Sizes of the result, and the scales if they are given, by axis of the data."""
    shape = list(x.tensor.shape)
    factors: list[float | None] = [None] * len(shape)
    _one_each(axes, scales or sizes)
    for i, axis in enumerate(axes):
        if scales:
            if not 0 < scales[i] < 1e6:
                raise Malformed(f"its scale is {scales[i]}")
            factors[axis], shape[axis] = float(scales[i]), _scaled_size(shape[axis], scales[i])
        else:
            shape[axis] = sizes[i]
    return shape, factors


def _one_each(axes: Sequence[int], given: Sequence[object]) -> None:
    if len(given) != len(axes):
        raise Malformed(f"it resizes {len(axes)} axes, but is given {len(given)} numbers")


def _kept_aspect(
    node: Node, x: GraphExpr, axes: Sequence[int], sizes: Sequence[Dim]
) -> tuple[Sequence[Dim], float | Traced]:
    """Sizes with a common scale (opset 18), all at most or all at least the requested sizes; and the scale: 0 for none,
    a vector (one for each axis) if it is computed."""
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    _one_each(axes, sizes)
    have = [x.tensor.shape[a] for a in axes]
    known = [(h, s) for h, s in zip(have, sizes, strict=True) if isinstance(h, int) and isinstance(s, int) and h]
    if policy == "stretch":
        return sizes, 0.0
    if policy not in ("not_larger", "not_smaller"):
        raise Malformed(f"its keep_aspect_ratio_policy is '{policy}'")
    if len(known) != len(axes):
        old, new = (vector(node, dims).to(FLOAT64) for dims in (have, sizes))
        smaller = policy == "not_larger"
        common = (new / old).call("reduce_min" if smaller else "reduce_max", axes=(0,), keepdims=True)
        return node.bound((old * common + 0.5).call("floor").to(INDEX).x, "sizes", 3), common.expand(len(axes))
    ratios = [s / h for h, s in known]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(h * scale + 0.5) for h, _ in known], scale


def _resize(node: Node) -> Result:
    x = node.data(0)
    rank = x.tensor.rank
    first = 1 if node.opset < 11 else 2
    axes = tuple(node.checked_axis(a, rank) for a in node.integers("axes", range(rank)))
    given = _scales(node, first, axes) if node.has(first) and node.shape(first) != (0,) else ()
    sizes: Sequence[Dim] = ()
    common: float | Traced = 0.0
    if isinstance(given, Traced):
        sizes = _scaled_sizes(node, x, axes, given, first)
    elif not given:
        if not node.has(3):
            raise Malformed("it needs scales or sizes")
        sizes, common = _kept_aspect(node, x, axes, node.dims(3, "sizes"))
    computed = next((t for t in (given, common) if isinstance(t, Traced)), None)
    scales = () if isinstance(given, Traced) else given
    shape, factors = _targets(node, x, axes, scales, sizes)
    if isinstance(common, float) and common:
        for axis in axes:
            factors[axis] = common
    mode = node.text("mode", "nearest")
    if node.flag("antialias") and mode in ("linear", "cubic"):
        return _antialiased(node, shape, factors, None if computed is None else (axes, computed), cubic=mode == "cubic")
    old = node.opset < 11
    coordinates = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    roi: tuple[float, ...] | Traced = ()
    if coordinates == "tf_crop_and_resize":
        roi = _roi(node, axes, rank)
    return resized(
        node,
        x,
        shape,
        factors,
        computed=None if computed is None else (axes, computed),
        mode=mode,
        coordinates=coordinates,
        rounding="floor" if old else node.text("nearest_mode", "round_prefer_floor"),
        cubic=node.real("cubic_coeff_a", -0.75),
        exclude_outside=node.flag("exclude_outside"),
        roi=roi,
        extrapolation=node.real("extrapolation_value", 0.0),
    )


def _scales(node: Node, i: int, axes: Sequence[int]) -> tuple[float, ...] | Traced:
    """Operand ``i``, one scale for each axis: numbers, or a vector if they are computed."""
    found = node.array(i)
    if found is not None:
        return tuple(float(v) for v in found.reshape(-1))
    x = operand(node, i)
    if x.shape != (len(axes),):
        raise Malformed(f"it resizes {len(axes)} axes, but is given scales {x.x.tensor}")
    large = (x > 0.0) & (x < 1e6)
    require(node, large, "its scales must be positive and below 1,000,000")
    return x.to(FLOAT32)


def _scaled_sizes(node: Node, x: GraphExpr, axes: Sequence[int], scales: Traced, i: int) -> tuple[Dim, ...]:
    """floor(size · scale) by axis, for scales (operand ``i``) that are computed."""
    old = vector(node, [x.tensor.shape[a] for a in axes]).to(FLOAT64)
    return node.bound((old * scales.to(FLOAT64)).call("floor").to(INDEX).x, "sizes", i)


def _roi(node: Node, axes: Sequence[int], rank: int) -> tuple[float, ...] | Traced:
    """The region of tf_crop_and_resize for all dimensions, starts before ends."""
    found = node.array(1)
    if found is not None:
        return _full_roi(tuple(float(v) for v in found.reshape(-1)), axes, rank)
    given = operand(node, 1)
    if given.shape != (2 * len(axes),):
        raise Malformed(f"its roi is {given.x.tensor}, not {2 * len(axes)} numbers")
    places = np.array([*(axes.index(a) if a in axes else 2 * len(axes) for a in range(rank))])
    ends = np.where(places < 2 * len(axes), places + len(axes), 2 * len(axes) + 1)
    full = given.to(FLOAT32).call("concat", constant(node, [0.0, 1.0]), axis=0)
    return full.call("gather", constant(node, np.concatenate([places, ends]), INDEX), axis=0)


def _antialiased(
    node: Node,
    shape: Sequence[Dim],
    factors: Sequence[float | None],
    computed: tuple[Sequence[int], Traced] | None,
    *,
    cubic: bool,
) -> GraphExpr:
    """Linear or cubic resampling with antialiasing: the filter is wider if the data is reduced. Sums over windows, one
    axis after the other. ``computed`` are axes with the vector of their scales, known at run time only."""
    x = operand(node, 0)
    made = x.to(FLOAT64 if x.dtype == FLOAT64 or (x.dtype.is_integer and x.dtype.bits > 16) else FLOAT32)
    for axis, (old, new) in enumerate(zip(x.shape, shape, strict=True)):
        scale: Operand | None = factors[axis]
        if computed is not None and axis in computed[0]:
            scale = computed[1].to(FLOAT64).part(0, computed[0].index(axis))
        elif scale in (None, 1.0) and decide("eq", old, new):
            continue
        first, weights = _antialias_weights(node, old, new, scale, cubic)
        made = made.call("resample", first, weights.to(made.dtype), axis=axis)
    if x.dtype.is_integer:
        low, high = x.dtype.limits()
        most = float(np.nextafter(float(high), 0.0)) if x.dtype.bits > 32 else high  # float64 has no 2^63 - 1
        made = made.call("round").limited(low, most)
    return made.to(x.dtype).x


def _antialias_weights(node: Node, old: Dim, new: Dim, scale: Operand | None, cubic: bool) -> tuple[Traced, Traced]:
    """The resampling of one axis: for each element of the result the first neighbour, int64 [new], and the weights of
    all neighbours, float64 [new, neighbours]."""
    length, count = (_number(node, size(node, d, FLOAT64)) for d in (old, new))
    factor = count / length.call("maximum", 1.0) if scale is None else _number(node, scale)
    steps = Traced(node, node.call("arange", start=0, step=1, count=new, dtype=INDEX)).to(FLOAT64)
    x = _antialias_places(node, steps, length, count, factor)
    narrow = factor.limited(1e-6, 1.0)
    reach = (_number(node, 2.0 if cubic else 1.0) / narrow).call("ceil")
    if isinstance(reach.x, Constant):
        half: Dim = int(reach.x.data)
    else:
        (half,) = node.bound(reach.to(INDEX).reshape(1).x, "reach")
    taps = arithmetic("add", arithmetic("mul", half, 2), 2)
    first = x.call("floor") - reach
    tap = Traced(node, node.call("arange", start=0, step=1, count=taps, dtype=INDEX)).to(FLOAT64)
    places = first.reshape(new, 1) + tap
    d = (places - x.reshape(new, 1)).call("abs") * narrow
    weights = _cubic_filter(d, node.real("cubic_coeff_a", -0.75)) if cubic else (1.0 - d).limited(0.0, 1.0)
    if node.flag("exclude_outside"):
        weights = ((places >= 0.0) & (places < length)).choose(weights, 0.0)
    return first.to(INDEX), weights / weights.call("reduce_sum", axes=(1,), keepdims=True)


def _number(node: Node, value: Operand) -> Traced:
    return value if isinstance(value, Traced) else constant(node, value, FLOAT64)


def _antialias_places(node: Node, steps: Traced, old: Traced, new: Traced, scale: Traced) -> Traced:
    """The positions of the result's elements in the data."""
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    if coordinates == "asymmetric":
        return steps / scale
    if coordinates == "align_corners":
        return steps * (old - 1.0) / (scale * old - 1.0).call("maximum", 1.0)
    if coordinates not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise Unsupported(f"antialiasing with coordinates '{coordinates}' is not supported")
    x = (steps + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        return x + (1.0 - new / (scale * old.call("maximum", 1.0))) * old * 0.5
    return (new > 1.0).choose(x, x * 0.0) if coordinates == "pytorch_half_pixel" else x


def _cubic_filter(d: Traced, a: float) -> Traced:
    """The cubic convolution of Keys at distances ``d``."""
    near, far = ((d * (a + 2) - (a + 3)) * d * d + 1.0, ((d * a - 5 * a) * d + 8 * a) * d - 4 * a)
    return (d <= 1.0).choose(near, (d < 2.0).choose(far, 0.0))


def _full_roi(given: Sequence[float], axes: Sequence[int], rank: int) -> tuple[float, ...]:
    if len(given) != 2 * len(axes):
        raise Malformed(f"its roi holds {len(given)} numbers, not {2 * len(axes)}")
    start, end = [0.0] * rank, [1.0] * rank
    for i, axis in enumerate(axes):
        start[axis], end[axis] = given[i], given[len(axes) + i]
    return (*start, *end)


def resized(
    node: Node,
    x: GraphExpr,
    shape: Sequence[Dim],
    factors: Sequence[float | None],
    *,
    computed: tuple[Sequence[int], Traced] | None = None,
    mode: str,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude_outside: bool,
    roi: tuple[float, ...] | Traced,
    extrapolation: float,
) -> GraphExpr:
    """``x`` resampled to ``shape``; ``computed`` are axes with the vector of their scales, known at run time only."""
    if mode not in ("nearest", "linear", "cubic"):
        raise Malformed(f"its mode is '{mode}'")
    same = all(decide("eq", a, b) for a, b in zip(shape, x.tensor.shape, strict=True))
    others = [t.x for t in ((computed[1] if computed else None), roi) if isinstance(t, Traced)]
    if same and not roi and not computed and all(f in (None, 1.0) for f in factors):
        return x
    return node.call(
        "resize",
        x,
        *others,
        sizes=tuple(shape),
        scales=tuple(factors),
        scale_axes=tuple(computed[0]) if computed else (),
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        cubic_coeff=cubic,
        exclude_outside=exclude_outside,
        roi=None if isinstance(roi, Traced) else roi or None,
        extrapolation_value=extrapolation,
    )


def _upsample(node: Node) -> Result:
    x = node.data(0)
    axes, sizes = tuple(range(x.tensor.rank)), tuple[Dim, ...]()
    given: tuple[float, ...] | Traced
    if node.opset < 7:
        given = (1.0, 1.0, node.real("height_scale"), node.real("width_scale"))
    else:
        given = node.reals("scales") if node.opset < 9 else _scales(node, 1, axes)
    if isinstance(given, Traced):
        sizes = _scaled_sizes(node, x, axes, given, 1)
    shape, factors = _targets(node, x, axes, () if isinstance(given, Traced) else given, sizes)
    mode = {"bilinear": "linear"}.get(node.text("mode", "nearest"), node.text("mode", "nearest"))
    return resized(
        node,
        x,
        shape,
        factors,
        computed=(axes, given) if isinstance(given, Traced) else None,
        mode=mode,
        coordinates="asymmetric",
        rounding="floor",
        cubic=-0.75,
        exclude_outside=False,
        roi=(),
        extrapolation=0.0,
    )


RESIZE: dict[str, Callable[[Node], Result]] = {"Resize": _resize, "Upsample": _upsample}
