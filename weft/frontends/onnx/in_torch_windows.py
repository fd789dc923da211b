"""Transposed convolutions, pooling and resampling: part of the table of ``in_torch``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.frontends.onnx.in_torch_functions import Attributes, Converter, integers
from weft.support.errors import ModelError

_DIMENSIONS: Final = (1, 2, 3)


def _named(t: Any, name: str, rank: int) -> Callable[..., Any]:
    """``conv_transpose2d`` for ``conv_transpose`` and two dimensions, and so on."""
    if rank not in _DIMENSIONS:
        raise ModelError(f"the PyTorch peer has no converter for {name} in {rank} dimensions", code="M040")
    found: Callable[..., Any] = getattr(t.nn.functional, f"{name}{rank}d")
    return found


def padded(
    t: Any, x: Any, a: Attributes, kernel: Sequence[int], value: float, half: bool = False
) -> tuple[Any, list[int]]:
    """The input, explicitly padded if the padding is not symmetric, and the symmetric padding for torch. ``half``:
    torch pads at most half a window."""
    rank = len(kernel)
    pads = list(a.get("pads", [0] * 2 * rank)) if a.get("auto_pad", "NOTSET") == "NOTSET" else [0] * 2 * rank
    strides = list(a.get("strides", [1] * rank))
    if a.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        dilations = a.get("dilations", [1] * rank)
        begins, ends = [], []
        for i in range(rank):
            size = x.shape[2 + i]
            need = max(0, (-(-size // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size)
            low = need // 2 if a["auto_pad"] == "SAME_UPPER" else need - need // 2
            begins.append(low)
            ends.append(need - low)
        pads = begins + ends
    fits = not half or all(2 * p <= k for p, k in zip(pads, kernel, strict=False))
    if pads[:rank] == pads[rank:] and min(pads, default=0) >= 0 and fits:
        return x, pads[:rank]
    flat = [p for i in reversed(range(rank)) for p in (pads[i], pads[rank + i])]
    return t.nn.functional.pad(x, flat, value=value), [0] * rank


def _conv_transpose(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    rank = x[1].dim() - 2
    function = _named(t, "conv_transpose", rank)
    bias = x[2] if len(x) > 2 else None
    extra = list(a.get("output_padding", [0] * rank))
    strides, dilations = list(a.get("strides", [1] * rank)), list(a.get("dilations", [1] * rank))
    sizes = list(x[0].shape[2:])
    spans = [
        s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, sizes, x[1].shape[2:], dilations, strict=True)
    ]
    begins, ends = _crops(a, [s + e for s, e in zip(spans, extra, strict=True)], strides, sizes)
    group = a.get("group", 1)
    fits = all(0 <= e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    if begins == ends and min(begins) >= 0 and fits:
        return function(x[0], x[1], bias, strides, begins, extra, group, dilations)
    made = function(x[0], x[1], None, strides, 0, 0, group, dilations)
    flat = [p for i in reversed(range(rank)) for p in (-begins[i], extra[i] - ends[i])]
    made = t.nn.functional.pad(made, flat)  # negative: removed
    return made if bias is None else made + bias.reshape([-1] + [1] * rank)


def _crops(
    a: Attributes, full: Sequence[int], strides: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """How many elements of the whole result are removed before and behind, by axis; negative: added."""
    rank, auto = len(full), a.get("auto_pad", "NOTSET")
    if "output_shape" in a:
        wanted = list(a["output_shape"])[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    else:
        pads = list(a.get("pads", [0] * 2 * rank)) if auto == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    totals = [f - w for f, w in zip(full, wanted, strict=True)]
    small, large = [d // 2 for d in totals], [d - d // 2 for d in totals]
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def _max_pool(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    kernel = list(a["kernel_shape"])
    lowest = float("-inf") if x[0].is_floating_point() else t.iinfo(x[0].dtype).min
    data, padding = padded(t, x[0], a, kernel, lowest, half=True)
    strides = list(a.get("strides", [1] * len(kernel)))
    dilations = list(a.get("dilations", [1] * len(kernel)))
    ceil = bool(a.get("ceil_mode", 0))
    return _named(t, "max_pool", len(kernel))(data, kernel, strides, padding, dilations, ceil)


def _average_pool(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    kernel = list(a["kernel_shape"])
    whole = bool(a.get("count_include_pad", 0))
    data, padding = padded(t, x[0], a, kernel, 0.0, half=True)
    strides = list(a.get("strides", [1] * len(kernel)))
    pool, ceil = _named(t, "avg_pool", len(kernel)), bool(a.get("ceil_mode", 0))
    made = pool(data, kernel, strides, padding, ceil, whole)
    if data is x[0] or whole:
        return made
    ones, _ = padded(t, t.ones_like(x[0][:1, :1]), a, kernel, 0.0, half=True)
    return made / pool(ones, kernel, strides, 0, ceil)


# ---- resampling ------------------------------------------------------------------------------------------------------


def _resize(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    data = x[0]
    axes = [axis % data.dim() for axis in a.get("axes", range(data.dim()))]
    sizes, scales = _resized(x, a, axes, opset)
    kind = a.get("mode", "nearest")
    where = a.get("coordinate_transformation_mode", "half_pixel" if opset >= 11 else "asymmetric")
    rounding = a.get("nearest_mode", "round_prefer_floor" if opset >= 11 else "floor")
    changed = [i for i, axis in enumerate(axes) if sizes[i] != data.shape[axis] or scales[i] != 1]
    if native := _native(kind, where, rounding, [(data.shape[axes[i]], sizes[i], scales[i]) for i in changed]):
        rank, first = data.dim() - 2, min((axes[i] for i in changed), default=2)
        plain = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("", "bicubic", "")}.get(
            kind, ("nearest",) * 3
        )
        fits = 1 <= rank <= 3 and first >= 2 and plain[rank - 1] and a.get("cubic_coeff_a", -0.75) == -0.75
        if fits and (kind == "nearest" or len(changed) == rank):
            spatial = [sizes[axes.index(axis)] if axis in axes else data.shape[axis] for axis in range(2, rank + 2)]
            aligned = None if kind == "nearest" else native == "aligned"
            return t.nn.functional.interpolate(data, size=spatial, mode=plain[rank - 1], align_corners=aligned)
    for i in changed:
        size = data.shape[axes[i]]
        places = [_place(where, j, size, sizes[i], scales[i]) for j in range(sizes[i])]
        data = _taken(t, data, axes[i], [_taps(kind, rounding, p, a.get("cubic_coeff_a", -0.75)) for p in places])
    return data


def _resized(x: Sequence[Any], a: Attributes, axes: Sequence[int], opset: int) -> tuple[list[int], list[float]]:
    """The new sizes of ``axes``, and the scales of the coordinates."""
    before = [x[0].shape[axis] for axis in axes]
    if len(x) > 3 and x[3] is not None and x[3].numel():
        sizes = integers(x[3])
        return sizes, [n / max(b, 1) for n, b in zip(sizes, before, strict=True)]
    given = x[2 if len(x) > 2 else 1].tolist() if len(x) > 1 else a["scales"]
    scales = [float(s) for s in given]
    return [math.floor(b * s) for b, s in zip(before, scales, strict=True)], scales


def _native(kind: str, where: str, rounding: str, axes: Sequence[tuple[int, int, float]]) -> str:
    """How PyTorch's own function reads the same elements, for axes of these sizes before and after, and scales; empty
    if it does not."""
    if any(after != before * scale for before, after, scale in axes):
        return ""
    if kind == "nearest":
        multiples = all(scale >= 1 and scale == int(scale) for *_, scale in axes)
        same = (where == "asymmetric" and rounding == "floor") or (
            where in ("half_pixel", "half_pixel_symmetric") and rounding.startswith("round")
        )
        return "nearest" if multiples and same else ""
    if where == "align_corners":
        return "aligned"
    halves = where == "half_pixel" or (where == "pytorch_half_pixel" and all(after > 1 for _, after, _ in axes))
    return "halves" if halves else ""


def _place(where: str, i: int, before: int, after: int, scale: float) -> float:
    """The coordinate that element ``i`` of the result reads."""
    if where == "align_corners":
        length = before * scale
        return i * (before - 1) / (length - 1) if length != 1 else 0.0
    if where == "asymmetric":
        return i / scale
    if where == "pytorch_half_pixel" and after == 1:
        return 0.0
    if where == "half_pixel_symmetric":
        return before / 2 * (1 - after / (before * scale)) + (i + 0.5) / scale - 0.5
    if where in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    raise ModelError(f"the PyTorch peer has no converter for Resize with {where}", code="M040")


_ROUND: Final[dict[str, Callable[[float], int]]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda p: math.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: math.floor(p + 0.5),
}


def _taps(kind: str, rounding: str, place: float, a: float) -> list[tuple[int, float]]:
    """The elements that make one of the result, and their weights."""
    if kind == "nearest":
        return [(_ROUND[rounding](place), 1.0)]
    low = math.floor(place)
    r = place - low
    if kind == "linear":
        return [(low, 1 - r), (low + 1, r)]
    return [
        (low - 1, ((a * (r + 1) - 5 * a) * (r + 1) + 8 * a) * (r + 1) - 4 * a),
        (low, ((a + 2) * r - (a + 3)) * r * r + 1),
        (low + 1, ((a + 2) * (1 - r) - (a + 3)) * (1 - r) * (1 - r) + 1),
        (low + 2, ((a * (2 - r) - 5 * a) * (2 - r) + 8 * a) * (2 - r) - 4 * a),
    ]


def _taken(t: Any, data: Any, axis: int, taps: Sequence[Sequence[tuple[int, float]]]) -> Any:
    """Weighted sums of elements along an axis; what lies outside is its last element."""
    last, made = data.shape[axis] - 1, None
    shape = [-1 if d == axis else 1 for d in range(data.dim())]
    for k in range(len(taps[0]) if taps else 1):
        places = t.tensor([min(max(tap[k][0], 0), last) for tap in taps], dtype=t.long)
        part = data.index_select(axis, places)
        if len(taps) and len(taps[0]) > 1:
            part = part * t.tensor([tap[k][1] for tap in taps], dtype=data.dtype).reshape(shape)
        made = part if made is None else made + part
    return made


WINDOWS: dict[str, Converter] = {
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Resize": _resize,
    "Upsample": _resize,
    "GlobalMaxPool": lambda t, x, a, v: t.amax(x[0], list(range(2, x[0].dim())), keepdim=True),
    "GlobalAveragePool": lambda t, x, a, v: x[0].mean(list(range(2, x[0].dim())), keepdim=True),
}
"""ONNX operator → what computes it, as in ``FUNCTIONS``."""
