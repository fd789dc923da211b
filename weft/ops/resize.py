"""Resampling to other sizes: nearest, linear and cubic, one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.folds import any_of
from weft.expr.nodes import Call, Expr, index, make, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.layouts import follow_channels
from weft.ops.stages import accumulator, narrowed
from weft.support.dtypes import FLOAT32, FLOAT64, INDEX, DType

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = ("nearest", "linear", "cubic")
COORDINATE_TOLERANCE = 1e-12
"""What coordinates in float64 may be off, for each element of the operand, and still mean the same fraction."""


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *others = rel.tensors("resize", types, 1, 3)
    _check_operands(attrs, data.rank, others)
    sizes = rel.per_axis("resize", attrs.sizes, data.rank, "sizes")
    if attrs.scales is not None:
        rel.per_axis("resize", attrs.scales, data.rank, "scales")
    for name, allowed in (("mode", MODES), ("coordinates", COORDINATES), ("rounding", ROUNDINGS)):
        if attrs[name] not in allowed:
            rel.fail("resize", f"unknown {name} '{attrs[name]}'", "T015", "one of " + ", ".join(allowed))
    if attrs.coordinates == "tf_crop_and_resize" and attrs.roi is None and len(others) == bool(attrs.scale_axes):
        rel.fail("resize", "tf_crop_and_resize needs a roi", "T015")
    made = rel.nonnegative("resize", (rel.simplified(s) for s in sizes))
    for old, new in zip(data.shape, made, strict=True):
        if rel.equal_dims(old, new) is not True:
            enough = any_of(index(old) >= 1, make("eq", index(new), index(0)))
            rel.require("resize", enough, f"{new} elements cannot be made of {old}")
    return TensorType(made, data.dtype)


def _check_operands(attrs: Attrs, rank: int, others: Sequence[TensorType]) -> None:
    scale_axes = tuple(rel.axis_of("resize", a, rank) for a in attrs.scale_axes)
    lengths = [len(scale_axes)] if scale_axes else []
    if len(others) not in (len(lengths), len(lengths) + 1):
        rel.fail("resize", f"takes {len(lengths) + 1} or {len(lengths) + 2} operands, not {len(others) + 1}", "T016")
    for t, length in zip(others, (*lengths, 2 * rank), strict=False):
        rel.want_kind("resize", t, "float", "scales and roi")
        if t.shape != (length,):
            rel.fail("resize", f"scales or roi must be {length} numbers, not {t}", "T012")


def _completed(attrs: Attrs, rank: int, others: Sequence[Any], read: Callable[[Any, int], Any]) -> Attrs:
    """The attributes with scales and region from the operands that hold them."""
    rest = list(others)
    if attrs.scale_axes:
        scales, given = list(attrs.scales or (None,) * rank), rest.pop(0)
        for k, a in enumerate(attrs.scale_axes):
            scales[a] = read(given, k)
        attrs = attrs.replace(scales=tuple(scales))
    return attrs.replace(roi=tuple(read(rest[0], k) for k in range(2 * rank))) if rest else attrs


def _changed(attrs: Attrs, data: TensorType) -> list[int]:
    """The axes along which something happens."""
    crop = attrs.coordinates == "tf_crop_and_resize"
    out = []
    for a, (old, new) in enumerate(zip(data.shape, attrs.sizes, strict=True)):
        scale = attrs.scales[a] if attrs.scales is not None else None
        ends = (attrs.roi[a], attrs.roi[a + data.rank]) if crop else (0.0, 1.0)
        computed = any(isinstance(v, Expr) for v in (scale, *ends))
        if (
            computed
            or ends != (0.0, 1.0)
            or rel.equal_dims(old, rel.simplified(new)) is not True
            or scale not in (None, 1.0)
        ):
            out.append(a)
    return out


def _number(value: Any) -> Any:
    """A size or number for the coordinate formula, which is written once for expressions and NumPy."""
    return te.cast(value, FLOAT64) if isinstance(value, Expr) else float(value)


def _unless_single(count: Any, single: Any, several: Callable[[], Any]) -> Any:
    """``single`` where the result has one element along the axis."""
    if isinstance(count, Expr):
        return select(count <= 1.0, single, several())
    return single if count <= 1 else several()


def _coordinate(attrs: Attrs, axis: int, old: Dim, new: Dim, i: Any) -> Any:
    """Where in the operand element ``i`` (float64) of the result lies."""
    if not isinstance(old, Expr) and old == 0:
        return i  # there is no element
    mode, size, count = attrs.coordinates, _number(old), _number(new)
    given = attrs.scales[axis] if attrs.scales is not None else None
    scale = count / size if given is None else given
    if mode == "align_corners":
        # The specification takes the new length before it is rounded down.
        length = count if given is None else size * given
        return _unless_single(count, i * 0.0, lambda: i * (size - 1) / (length - 1))
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        start, end = attrs.roi[axis], attrs.roi[axis + len(attrs.sizes)]
        middle = i * 0.0 + 0.5 * (start + end) * (size - 1)
        return _unless_single(
            count, middle, lambda: i * ((end - start) * (size - 1) / (count - 1)) + start * (size - 1)
        )
    x = (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return _unless_single(count, i * 0.0, lambda: x)
    if mode == "half_pixel_symmetric":
        return x + size / 2 * (1 - count / (scale * size))
    return x


_ROUND: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda v: np.asarray(np.ceil(v - 0.5)),
    "round_prefer_ceil": lambda v: np.asarray(np.floor(v + 0.5)),
    "floor": lambda v: np.asarray(np.floor(v)),
    "ceil": lambda v: np.asarray(np.ceil(v)),
}


def _nearest_table(attrs: Attrs, axis: int, old: int, new: int) -> Array:
    """For each element of the result the nearest element of the operand."""
    x = _coordinate(attrs, axis, old, new, np.arange(new, dtype=np.float64)) + np.zeros(new)
    rounded: Array = _ROUND[attrs.rounding](x)
    return np.clip(rounded, 0, max(0, old - 1)).astype(np.int64)


def _line(table: Array, old: int, new: int) -> tuple[int, int, int] | None:
    """``a``, ``b``, ``c`` such that ``(a * i + b) // c``, limited to the axis, is ``table[i]`` for all i; ``a / c`` is
    the ratio of the sizes. Of several ``b`` one that needs no limit is preferred, then the least that is not negative.
    """
    common = math.gcd(old, new)
    a, c = old // common, new // common
    least = c * table - a * np.arange(new)
    low, high = int(least.max()), int(least.min()) + c - 1
    if low > high:  # only what is not at an end of the axis bounds ``b`` on both sides
        low = int(least[table > 0].max(initial=-c * old))
        high = int(least[table < old - 1].min(initial=c * old)) + c - 1
    return (a, min(max(low, 0), high), c) if low <= high else None


def _nearest_place(attrs: Attrs, axis: int, old: Dim, new: Dim, i: Expr) -> Expr:
    """The index of the nearest element; places on a line with a rational slope need no floating point."""
    computed = any(isinstance(v, Expr) for v in (*(attrs.scales or ()), *(attrs.roi or ())))
    if isinstance(old, int) and isinstance(new, int) and old and new and not computed:
        line = _line(_nearest_table(attrs, axis, old, new), old, new)
        if line is not None:
            factor, offset, divisor = line
            place = (i * factor + offset) // divisor
            limited = offset < 0 or (factor * (new - 1) + offset) // divisor >= old
            return _clamped(place, index(old)) if limited else place
    x = _coordinate(attrs, axis, old, new, te.cast(i, FLOAT64))
    name, shift = {
        "round_prefer_floor": ("ceil", -0.5),
        "round_prefer_ceil": ("floor", 0.5),
        "floor": ("floor", 0.0),
        "ceil": ("ceil", 0.0),
    }[attrs.rounding]
    return _clamped(te.cast(Call(name, (x + shift if shift else x,), FLOAT64), INDEX), index(old))


def _clamped(i: Expr, size: Expr) -> Expr:
    return maximum(minimum(i, size - 1), 0)


def _slope(attrs: Attrs, axis: int, old: Dim, new: Dim) -> tuple[int, int, int] | None:
    """``a``, ``b``, ``c`` with ``(a * i + b) / c`` as the coordinate of each element i; None where it has no such form
    or is computed."""
    computed = any(isinstance(v, Expr) for v in (*(attrs.scales or ()), *(attrs.roi or ())))
    if not isinstance(old, int) or not isinstance(new, int) or computed or old < 2 or new < 2:
        return None
    i = np.arange(new, dtype=np.float64)
    x = _coordinate(attrs, axis, old, new, i)
    if not np.isfinite(x).all():
        return None
    for a, c in ((2 * old, 2 * new), (old - 1, new - 1)):
        b = round(c * float(x[0]))
        if np.abs((a * i + b) / c - x).max() <= COORDINATE_TOLERANCE * old:
            common = math.gcd(a, b, c)
            return a // common, b // common, c // common
    return None


def _cubic(a: float, t: Any) -> tuple[Any, ...]:
    """The four weights at distance ``t`` beyond the second element."""

    def far(s: Any) -> Any:
        return ((s * a - 5 * a) * s + 8 * a) * s - 4 * a

    def near(s: Any) -> Any:
        return (s * (a + 2) - (a + 3)) * s * s + 1

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _weights(attrs: Attrs, t: Any) -> tuple[tuple[int, Any], ...]:
    """Offsets from the floor of the coordinate and their weights, ``t`` being the fraction."""
    if attrs.mode == "linear":
        return (0, 1 - t), (1, t)
    return tuple(zip((-1, 0, 1, 2), _cubic(attrs.cubic_coeff, t), strict=True))


def _along(attrs: Attrs, axis: int, data: te.Tensor, new: Dim) -> te.Tensor:
    """``data`` resampled along one axis."""
    old = rel.simplified(data.shape[axis])
    shape = (*data.shape[:axis], index(new), *data.shape[axis + 1 :])

    def load(i: tuple[Expr, ...], at: Expr) -> Expr:
        return data[(*i[:axis], at, *i[axis + 1 :])]

    def nearest(*i: Expr) -> Expr:
        return load(i, _nearest_place(attrs, axis, old, new, i[axis]))

    slope = _slope(attrs, axis, old, new) if attrs.mode == "linear" and not attrs.exclude_outside else None

    def between(*i: Expr) -> Expr:
        """The places of two neighbours, computed with whole numbers; a place beyond an end is that end."""
        assert slope is not None and isinstance(old, int)
        factor, offset, parts = slope
        n = i[axis] * factor + offset
        start, t = n // parts, te.cast(n % parts, data.dtype) * te.const(1 / parts, data.dtype)
        mixed = (1 - t) * load(i, start) + t * load(i, start + 1)
        end = load(i, select(n < 0, index(0), index(old - 1)))
        return te.if_then_else(te.all(n >= 0, n < parts * (old - 1)), mixed, end)

    def blended(*i: Expr) -> Expr:
        x = _coordinate(attrs, axis, old, new, te.cast(i[axis], FLOAT64))
        if attrs.mode == "linear":
            x = te.max(te.min(x, _number(old) - 1.0), 0.0)
        base = te.floor(x)
        start = te.cast(base, INDEX)
        value: Any = None
        total: Any = None
        for offset, weight in _weights(attrs, te.cast(x - base, data.dtype)):
            if attrs.exclude_outside:
                inside = te.all(start + offset >= 0, start + offset < data.shape[axis])
                weight = select(inside, weight, te.const(0, data.dtype))
                total = weight if total is None else total + weight
            part = weight * load(i, _clamped(start + offset, data.shape[axis]))
            value = part if value is None else value + part
        made: Expr = value if total is None else value / total
        return made

    element = nearest if attrs.mode == "nearest" else blended if slope is None else between
    made: te.Tensor = te.compute(shape, element, name=f"resize{axis}")
    return made


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor, *others: te.Tensor) -> Any:
    source = TensorType.of(data.shape, data.dtype)
    attrs = _completed(attrs, out.rank, others, lambda t, k: te.cast(t[k], FLOAT64))
    axes = _changed(attrs, source)
    made = data
    if attrs.mode != "nearest":
        wide = _blending_type(data.dtype)
        made = narrowed(data, wide, "resize_widen")
    for a in axes:
        made = _along(attrs, a, made, out.shape[a])
    if attrs.coordinates == "tf_crop_and_resize":
        inner = made

        def cropped(*i: Expr) -> Expr:
            inside = []
            for a in axes:
                x = _coordinate(attrs, a, source.shape[a], out.shape[a], te.cast(i[a], FLOAT64))
                inside += [x >= 0.0, x <= _number(source.shape[a]) - 1.0]
            return select(te.all(*inside), inner[i], te.const(attrs.extrapolation_value, inner.dtype))

        made = te.compute(out.shape, cropped, name="resize_crop")
    if made is data:
        return te.compute(out.shape, lambda *i: data[i], name="resize")
    if out.dtype.is_integer and attrs.mode != "nearest":
        low, high = _limits(out.dtype)
        source_of = made
        made = te.compute(
            out.shape,
            lambda *i: te.cast(te.min(te.max(te.round(source_of[i]), low), high), out.dtype),
            name="resize_round",
        )
    return narrowed(made, out.dtype, "resize_narrow")


def _blending_type(dtype: DType) -> DType:
    """The type of weights and sums: wide enough for every value of ``dtype`` below 64 bits."""
    if dtype.is_float:
        return accumulator(dtype)
    return FLOAT32 if dtype.bits <= 16 else FLOAT64


def _limits(dtype: DType) -> tuple[float, float]:
    """The range of whole numbers, in numbers that float64 has."""
    low, high = dtype.limits()
    return float(low), float(high) if dtype.bits < 64 else float(np.nextafter(float(high), 0.0))


def _matrix(attrs: Attrs, axis: int, old: int, new: int) -> Array:
    """The weights of all elements of the operand for all of the result, along one axis."""
    out = np.zeros((new, old))
    if attrs.mode == "nearest":
        out[np.arange(new), _nearest_table(attrs, axis, old, new)] = 1
        return out
    for i in range(new):
        x = float(_coordinate(attrs, axis, old, new, float(i)))
        if attrs.mode == "linear":
            x = max(min(x, old - 1.0), 0.0)
        start = math.floor(x)
        weights = [
            (start + o, w) for o, w in _weights(attrs, x - start) if not attrs.exclude_outside or 0 <= start + o < old
        ]
        total = sum(w for _, w in weights) if attrs.exclude_outside else 1.0
        for place, w in weights:
            out[i, min(max(place, 0), old - 1)] += w / total
    return out


def _reference(attrs: Attrs, data: Array, *others: Array) -> Array:
    source = TensorType.of(data.shape, DType(data.dtype))
    attrs = _completed(attrs, data.ndim, others, lambda t, k: float(t[k]))
    out = data.astype(np.float64)
    axes = _changed(attrs, source)
    for a in axes:
        weights = _matrix(attrs, a, data.shape[a], attrs.sizes[a])
        out = np.moveaxis(np.tensordot(weights, out, (1, a)), 0, a)
    if attrs.coordinates == "tf_crop_and_resize":
        for a in axes:
            x = _coordinate(attrs, a, data.shape[a], attrs.sizes[a], np.arange(attrs.sizes[a], dtype=np.float64))
            outside = (x < 0) | (x > data.shape[a] - 1)
            np.moveaxis(out, a, 0)[outside] = attrs.extrapolation_value
    if DType(data.dtype).is_integer and attrs.mode != "nearest":
        out = np.clip(np.rint(out), *_limits(DType(data.dtype)))
    return np.ascontiguousarray(out.astype(data.dtype))


def _case(shape: tuple[int, ...], sizes: tuple[int, ...], **attrs: Any) -> Case:
    return Case(((shape, "float32"),), {"sizes": sizes, **attrs}, rtol=1e-4, atol=1e-5)


def _blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    """The attributes for blocked channels, where only space is resampled."""
    if attrs.scale_axes or any(a < 2 for a in _changed(attrs, data)) or attrs.coordinates == "tf_crop_and_resize":
        return None
    sizes = (attrs.sizes[0], rel.ceil_divide(rel.simplified(data.shape[1]), block), *attrs.sizes[2:], block)
    return attrs.replace(sizes=sizes, scales=None if attrs.scales is None else (*attrs.scales, None))


RESIZE = OpDef(
    "resize",
    (
        Attribute("sizes", REQUIRED, "the shape of the result"),
        Attribute(
            "scales", None, "the factor of each axis for coordinates; None (or an entry None): new size over old"
        ),
        Attribute(
            "scale_axes", (), "axes whose factors are known at run time: the second operand holds them in this order"
        ),
        Attribute("mode", "nearest", "nearest, linear or cubic"),
        Attribute(
            "coordinates", "half_pixel", "how places in the result map to the operand: " + ", ".join(COORDINATES)
        ),
        Attribute("rounding", "round_prefer_floor", "how nearest mode rounds: " + ", ".join(ROUNDINGS)),
        Attribute("cubic_coeff", -0.75, "the coefficient of cubic interpolation"),
        Attribute("exclude_outside", False, "whether weights outside the operand are dropped, else its edge continues"),
        Attribute(
            "roi",
            None,
            "for tf_crop_and_resize: starts of all axes, then ends, as parts of the sizes; or the last operand",
        ),
        Attribute("extrapolation_value", 0.0, "for tf_crop_and_resize: the value outside the operand"),
    ),
    _infer,
    _reference,
    follows=follow_channels(_infer, _blocked),
    compute=_compute,
    cases=(
        _case((1, 2, 3, 4), (1, 2, 6, 8)),
        _case((1, 1, 4, 6), (1, 1, 2, 3), coordinates="asymmetric", rounding="floor"),
        _case((1, 1, 3, 5), (1, 1, 5, 4)),
        _case((1, 1, 3, 4), (1, 1, 6, 6), mode="linear"),
        _case((1, 1, 3, 4), (1, 1, 5, 7), mode="linear", coordinates="align_corners"),
        _case((1, 1, 4, 4), (1, 1, 3, 1), mode="linear", coordinates="pytorch_half_pixel"),
        _case((1, 1, 5), (1, 1, 8), mode="linear", coordinates="half_pixel_symmetric", scales=(None, None, 1.65)),
        _case((1, 1, 4, 4), (1, 1, 8, 6), mode="cubic"),
        _case((1, 1, 4, 4), (1, 1, 3, 6), mode="cubic", exclude_outside=True, cubic_coeff=-0.5),
        Case((np.array([[0, 255, 3], [255, 0, 7]], np.uint8),), {"sizes": (3, 7), "mode": "cubic"}),
        Case((np.array([[-7, 6, 3], [2**40, 0, 7]], np.int64),), {"sizes": (5, 5), "mode": "linear"}),
        _case(
            (1, 1, 4, 4),
            (1, 1, 3, 3),
            mode="linear",
            coordinates="tf_crop_and_resize",
            roi=(0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 0.6, 1.3),
            extrapolation_value=10.0,
        ),
        Case(
            (((1, 1, 3, 4), "float32"), np.array([1.7, 0.5], np.float32)),
            {"sizes": (1, 1, 5, 2), "scale_axes": (2, 3), "mode": "linear"},
            rtol=1e-4,
            atol=1e-5,
        ),
        Case(
            (((3, 4), "float32"), np.array([0.1, 0.2, 0.9, 1.3], np.float32)),
            {"sizes": (3, 3), "coordinates": "tf_crop_and_resize", "mode": "linear"},
            rtol=1e-4,
            atol=1e-5,
        ),
    ),
    doc="the operand resampled to another shape; operands data and, where known at run time, scales and roi",
    source="ONNX Resize-19",
)
