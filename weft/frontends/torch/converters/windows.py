"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontends.common.problems import Unsupported
from weft.frontends.common.sizes import arithmetic
from weft.frontends.torch.converters.movement import sliced
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import GraphExpr

Converter = Callable[[AtenNode], Result]


def _batched(node: AtenNode, n: int) -> tuple[GraphExpr, bool]:
    """The operand with samples, channels and ``n`` more dimensions, and whether it had samples."""
    x = node.data("self" if "self" in node.arguments else "input")
    has_samples = x.tensor.rank == n + 2
    return (x if has_samples else node.call("unsqueeze", x, axes=(0,))), has_samples


def _back(node: AtenNode, x: GraphExpr, has_samples: bool) -> GraphExpr:
    return x if has_samples else node.call("squeeze", x, axes=(0,))


def _window(node: AtenNode, n: int) -> dict[str, Any]:
    kernel = node.numbers("kernel_size", n)
    pads = node.numbers("padding", n)
    return {
        "kernel": kernel,
        "strides": node.numbers("stride", n) or kernel,
        "pads": (*pads, *pads),
        "dilations": node.numbers("dilation", n) if "dilation" in node.arguments else (1,) * n,
        "ceil_mode": bool(node.value("ceil_mode")),
    }


def _max_pool(n: int, with_places: bool) -> Converter:
    def convert(node: AtenNode) -> Result:
        x, has_samples = _batched(node, n)
        window = _window(node, n)
        made = _back(node, node.call("max_pool", x, **window), has_samples)
        if not with_places:
            return made
        _, places = node.calls("max_pool_with_indices", x, **window, column_major=False)
        pixels: Any = 1
        for d in x.tensor.shape[2:]:
            pixels = arithmetic("mul", pixels, d)
        # The operator counts over all samples and channels, PyTorch within each.
        return made, _back(node, node.call("mod", places, node.as_data(pixels)), has_samples)

    return convert


def _avg_pool(n: int) -> Converter:
    def convert(node: AtenNode) -> Result:
        if node.arguments.get("divisor_override") is not None:
            raise Unsupported("averages with a divisor of their own are not supported")
        x, has_samples = _batched(node, n)
        window = _window(node, n)
        del window["dilations"]
        made = node.call("avg_pool", x, **window, count_include_pad=bool(node.value("count_include_pad")))
        return _back(node, made, has_samples)

    return convert


def _parts(old: int, new: int) -> list[tuple[int, int]]:
    """Where the parts of an axis begin and end of which adaptive pooling makes one element each."""
    return [(i * old // new, -(-(i + 1) * old // new)) for i in range(new)]


def _adaptive(n: int, mean: bool) -> Converter:
    def convert(node: AtenNode) -> Result:
        x, has_samples = _batched(node, n)
        said = node.said if mean else node.said[0]
        target = node.table.dims(said.shape)[-n:]
        old = x.tensor.shape[2:]
        if all(d == 1 for d in target):
            made = node.call("reduce_mean" if mean else "reduce_max", x, axes=tuple(range(2, n + 2)), keepdims=True)
        elif not all(isinstance(d, int) for d in (*old, *target)):
            raise Unsupported("adaptive pooling of open sizes is supported for results of size 1 only")
        else:
            made = _pooled_in_parts(node, x, old, target, mean)  # type: ignore[arg-type]  # all are ints
        made = _back(node, made, has_samples)
        return made if mean else (made, None)

    return convert


def _pooled_in_parts(
    node: AtenNode, x: GraphExpr, old: Sequence[int], new: Sequence[int], mean: bool
) -> GraphExpr:  # fmt: skip
    if all(d and e and d % e == 0 for d, e in zip(old, new, strict=True)):
        kernel = tuple(d // e for d, e in zip(old, new, strict=True))
        pads = (0,) * 2 * len(kernel)
        if mean:
            return node.call("avg_pool", x, kernel=kernel, strides=kernel, pads=pads, ceil_mode=False)
        return node.call("max_pool", x, kernel=kernel, strides=kernel, pads=pads, ceil_mode=False)
    for i, (d, e) in enumerate(zip(old, new, strict=True)):
        axis = i + 2
        if d == e:
            continue
        if mean:
            weights = np.zeros((d, e), np.float32)
            for k, (begin, end) in enumerate(_parts(d, e)):
                weights[begin:end, k] = 1 / (end - begin)
            letters = "".join(chr(ord("a") + k) for k in range(x.tensor.rank))
            out = letters.replace(letters[axis], "z")
            table = node.constant(weights.astype(x.tensor.dtype.numpy))
            x = node.call("einsum", x, table, equation=f"{letters},{letters[axis]}z->{out}")
        else:
            found = [
                node.call("reduce_max", sliced(node, x, axis, begin, end), axes=(axis,), keepdims=True)
                for begin, end in _parts(d, e)
            ]
            x = found[0] if len(found) == 1 else node.call("concat", *found, axis=axis)
    return x


def _resize(n: int, mode: str, exact: bool = False) -> Converter:
    """``upsample_*``; the sizes of the result are those that PyTorch states."""

    def convert(node: AtenNode) -> Result:
        x, _ = _batched(node, n)
        aligned = bool(node.arguments.get("align_corners"))
        coordinates = "align_corners" if aligned else "asymmetric" if mode == "nearest" and not exact else "half_pixel"
        return node.call(
            "resize",
            x,
            sizes=node.shape,
            scales=(None, None, *_factors(node, n)),
            mode=mode,
            coordinates=coordinates,
            rounding="round_prefer_ceil" if exact else "floor",
            cubic_coeff=-0.75,
        )

    return convert


def _factors(node: AtenNode, n: int) -> list[float | None]:
    """The given factors, which PyTorch uses instead of the quotients of sizes."""
    given = node.arguments.get("scale_factors")
    if given is not None:
        return [float(f) for f in given]
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[n]
    found = [node.arguments.get(name) for name in names]
    return [None if f is None else float(f) for f in found]


WINDOWS: dict[str, Converter] = {
    **{f"max_pool{n}d_with_indices": _max_pool(n, with_places=True) for n in (2, 3)},
    **{f"max_pool{n}d": _max_pool(n, with_places=False) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive(n, mean=True) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive(n, mean=True) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive(n, mean=False) for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d": _resize(n, "nearest") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _resize(n, "nearest", exact=True) for n in (1, 2, 3)},
    "upsample_bicubic2d": _resize(2, "cubic"),
    "upsample_bilinear2d": _resize(2, "linear"),
    "upsample_linear1d": _resize(1, "linear"),
    "upsample_trilinear3d": _resize(3, "linear"),
}
