"""Resize and its predecessor Upsample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.problems import Malformed, Unsupported
from weft.frontend.onnx.sizes import arithmetic, decide, divide_products
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim


def _scaled_size(size: Dim, scale: float) -> Dim:
    """floor(size · scale)."""
    if isinstance(size, int):
        return int(size * scale)
    exact = Fraction(scale).limit_denominator(4096)
    return divide_products([arithmetic("mul", size, exact.numerator)], [exact.denominator])


def _targets(
    node: Node, x: GraphExpr, axes: Sequence[int], scales: Sequence[float], sizes: Sequence[Dim]
) -> tuple[list[Dim], list[float | None]]:
    """Sizes of the result, and the scales where they were given, by axis of the data."""
    shape = list(x.tensor.shape)
    factors: list[float | None] = [None] * len(shape)
    if len(scales or sizes) != len(axes):
        raise Malformed(f"it resizes {len(axes)} axes, but is given {len(scales or sizes)} numbers")
    for i, axis in enumerate(axes):
        if scales:
            if not 0 < scales[i] < 1e6:
                raise Malformed(f"its scale is {scales[i]}")
            factors[axis], shape[axis] = float(scales[i]), _scaled_size(shape[axis], scales[i])
        else:
            shape[axis] = sizes[i]
    return shape, factors


def _kept_aspect(node: Node, x: GraphExpr, axes: Sequence[int], sizes: Sequence[Dim]) -> tuple[Sequence[Dim], float]:
    """Sizes with one common scale (opset 18): all at most, or at least, those asked for."""
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    have = [x.tensor.shape[a] for a in axes]
    known = [(h, s) for h, s in zip(have, sizes, strict=True) if isinstance(h, int) and isinstance(s, int) and h]
    if policy == "stretch":
        return sizes, 0.0
    if len(known) != len(axes):
        raise Unsupported("keeping the aspect ratio of symbolic sizes is not supported")
    ratios = [s / h for h, s in known]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(h * scale + 0.5) for h, _ in known], scale


def _resize(node: Node) -> Result:
    x = node.data(0)
    rank = x.tensor.rank
    first = 1 if node.opset < 11 else 2
    axes = tuple(node.checked_axis(a, rank) for a in node.integers("axes", range(rank)))
    scales = tuple(float(v) for v in node.known(first, "scales").reshape(-1)) if node.has(first) else ()
    sizes: Sequence[Dim] = ()
    common = 0.0
    if not scales:
        if not node.has(3):
            raise Malformed("it needs scales or sizes")
        sizes, common = _kept_aspect(node, x, axes, node.dims(3, "sizes"))
    shape, factors = _targets(node, x, axes, scales, sizes)
    if common:
        for axis in axes:
            factors[axis] = common
    if node.flag("antialias") and any(f is not None and f < 1 for f in factors):
        raise Unsupported("resizing with antialiasing is not supported")
    old = node.opset < 11
    coordinates = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    roi: tuple[float, ...] = ()
    if coordinates == "tf_crop_and_resize":
        given = tuple(float(v) for v in node.known(1, "roi").reshape(-1))
        roi = _full_roi(given, axes, rank)
    return resized(
        node,
        x,
        shape,
        factors,
        mode=node.text("mode", "nearest"),
        coordinates=coordinates,
        rounding="floor" if old else node.text("nearest_mode", "round_prefer_floor"),
        cubic=node.real("cubic_coeff_a", -0.75),
        exclude_outside=node.flag("exclude_outside"),
        roi=roi,
        extrapolation=node.real("extrapolation_value", 0.0),
    )


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
    mode: str,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude_outside: bool,
    roi: tuple[float, ...],
    extrapolation: float,
) -> GraphExpr:
    """``x`` resampled to ``shape``."""
    if mode not in ("nearest", "linear", "cubic"):
        raise Malformed(f"its mode is '{mode}'")
    same = all(decide("eq", a, b) for a, b in zip(shape, x.tensor.shape, strict=True))
    if same and not roi and all(f in (None, 1.0) for f in factors):
        return x
    return node.call(
        "resize",
        x,
        sizes=tuple(shape),
        scales=tuple(factors),
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        cubic_coeff=cubic,
        exclude_outside=exclude_outside,
        roi=roi or None,
        extrapolation_value=extrapolation,
    )


def _upsample(node: Node) -> Result:
    x = node.data(0)
    if node.opset < 7:
        tall, wide = node.real("height_scale"), node.real("width_scale")
        scales: tuple[float, ...] = (1.0, 1.0, tall, wide)
    elif node.opset < 9:
        scales = node.reals("scales")
    else:
        scales = tuple(float(v) for v in node.known(1, "scales").reshape(-1))
    shape, factors = _targets(node, x, range(x.tensor.rank), scales, ())
    mode = {"bilinear": "linear"}.get(node.text("mode", "nearest"), node.text("mode", "nearest"))
    return resized(node, x, shape, factors, mode=mode, coordinates="asymmetric", rounding="floor", cubic=-0.75,
                   exclude_outside=False, roi=(), extrapolation=0.0)  # fmt: skip


RESIZE: dict[str, Callable[[Node], Result]] = {"Resize": _resize, "Upsample": _upsample}
