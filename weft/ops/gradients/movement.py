"""Derivatives of operators that move elements: the adjoints move back, and meet where one element went to several
places."""

from __future__ import annotations

from typing import Any

from weft.graph.operator import Attrs
from weft.ops.gradients.notation import T, Wide, fitted, full, numbered
from weft.support.dtypes import INT64
from weft.support.errors import ModelError


def _g(given: list[T | None]) -> T:
    assert given[0] is not None
    return given[0]


def _back(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [_g(given).reshape(args[0].shape), *[None] * (len(args) - 1)]


def _transpose(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    rank = len(args[0].shape)
    perm = tuple(reversed(range(rank))) if a.perm is None else tuple(p % rank for p in a.perm)
    return [_g(given).transpose(*(perm.index(i) for i in range(rank)))]


def _broadcast(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [fitted(_g(given), args[0])]


def _concat(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    g, made, at = _g(given), [], 0
    axis = a.axis % len(g.shape)
    for x in args:
        end = x.shape[axis] + at
        made.append(g.part(axis, at, end))
        at = end
    return list(made)


def _split(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    axis = a.axis % len(args[0].shape)
    zeros = full(args[0], 0.0)
    parts = [
        zeros.part(axis, 0, t.shape[axis]) if g is None else g for g, t in zip(given, call.type.fields, strict=True)
    ]
    return [parts[0].do("concat", *parts[1:], axis=axis) if len(parts) > 1 else parts[0]]


def _slice(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """Along each axis: turned around where steps go back, with zeros between, before and after."""
    x, g = args[0], _g(given)
    rank = len(x.shape)
    axes = range(len(a.begin)) if a.axes is None else [i % rank for i in a.axes]
    strides = a.strides or (1,) * len(a.begin)
    for axis, begin, step in zip(axes, a.begin, strides, strict=True):
        size, count = x.shape[axis], g.shape[axis]
        if not all(isinstance(v, int) for v in (size, count, begin, step)):
            if step == 1:
                start = begin if isinstance(begin, int) and begin >= 0 else None
                if start is not None:
                    pads: list[Any] = [0] * (2 * rank)
                    pads[axis], pads[rank + axis] = start, size - start - count
                    g = g.pad(pads)
                    continue
            raise ModelError("a slice of symbolic places cannot be differentiated", code="M030")
        g = _unsliced(g, axis, size, count, _first(begin, size, step), step)
    return [g]


def _first(begin: int, size: int, step: int) -> int:
    """The place of the first element."""
    at = begin + size if begin < 0 else begin
    return min(max(at, 0), size) if step > 0 else min(max(at, -1), size - 1)


def _unsliced(g: T, axis: int, size: int, count: int, first: int, step: int) -> T:
    if count == 0:
        return full(g.part(axis, 0, 0).pad(_pads(len(g.shape), axis, 0, size)), 0.0)
    if step < 0:
        g, first, step = g.do("flip", axes=(axis,)), first + (count - 1) * step, -step
    rank = len(g.shape)
    if step > 1 and count > 1:
        shape = list(g.shape)
        g = g.do("unsqueeze", axes=(axis + 1,)).pad(_pads(rank + 1, axis + 1, 0, step - 1))
        g = g.reshape([*shape[:axis], count * step, *shape[axis + 1 :]]).part(axis, 0, (count - 1) * step + 1)
    taken = (count - 1) * step + 1
    return g.pad(_pads(rank, axis, first, size - first - taken))


def _pads(rank: int, axis: int, before: int, after: int) -> list[int]:
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return pads


def _pad(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    if a.mode != "constant":
        raise ModelError(f"padding of mode '{a.mode}' cannot be differentiated", code="M030")
    x, g = args[0], _g(given)
    rank = len(x.shape)
    if not all(isinstance(p, int) for p in a.pads):
        raise ModelError("padding by symbolic amounts cannot be differentiated", code="M030")
    return [g.pad([-p for p in a.pads]), *[None] * (len(args) - 1)] if rank else [g]


def _tile(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x = args[0]
    shape = [v for r, d in zip(a.repeats, x.shape, strict=True) for v in (r, d)]
    return [_g(given).reshape(shape).sum(range(0, len(shape), 2), keep=False).reshape(x.shape)]


def _flip(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [_g(given).do("flip", axes=a.axes)]


def _depth_to_space(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x, g = args[0], _g(given)
    if a.mode == "DCR" and isinstance(a.block_size, int) and len(x.shape) == 4:
        return [g.do("space_to_depth", block_size=a.block_size)]
    n, _, *space = x.shape
    rank = len(space)
    blocks = a.block_size if isinstance(a.block_size, tuple) else (a.block_size,) * rank
    wide = g.reshape((n, g.shape[1], *(d for pair in zip(space, blocks, strict=True) for d in pair)))
    places, kept = [3 + 2 * d for d in range(rank)], [2 + 2 * d for d in range(rank)]
    order = (0, *places, 1, *kept) if a.mode == "DCR" else (0, 1, *places, *kept)
    return [wide.transpose(*order).reshape(x.shape)]


def _space_to_depth(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [_g(given).do("depth_to_space", block_size=a.block_size)]


def _gather(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """Rows are added to where they came from, with the axis in front."""
    x, indices, g = args[0], args[1], _g(given)
    rank, inner = len(x.shape), len(indices.shape)
    axis = a.axis % rank
    order = [*range(axis, axis + inner), *range(axis), *range(axis + inner, len(g.shape))]
    front = [axis, *(i for i in range(rank) if i != axis)]
    zeros = full(x.transpose(*front), 0.0)
    rows = indices.to(INT64).do("unsqueeze", axes=(inner,))
    made = zeros.do("scatter_nd", rows, g.transpose(*order), reduction="add")
    return [made.transpose(*(front.index(i) for i in range(rank))), None]


def _gather_elements(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [full(args[0], 0.0).do("scatter_elements", args[1], _g(given), axis=a.axis, reduction="add"), None]


def _gather_nd(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [full(args[0], 0.0).do("scatter_nd", _with_batch(args[1], a.batch_dims), _g(given), reduction="add"), None]


def _with_batch(indices: T, count: int) -> T:
    """Places within each batch as places in the whole: the number of the batch comes first."""
    if not count:
        return indices
    places = (*indices.shape[:-1], 1)
    numbers = []
    for axis in range(count):
        shape = [d if i == axis else 1 for i, d in enumerate(places)]
        numbers.append(numbered(places[axis]).reshape(shape).spread(places))
    return numbers[0].do("concat", *numbers[1:], indices.to(INT64), axis=len(places) - 1)


def _placed(gather: str, scatter: str, *names: str) -> Wide:
    """Of a scatter: what was replaced has no share in the result, and each update has that of its place."""

    def rule(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
        g = _g(given)
        if a.reduction not in ("none", "add"):
            raise ModelError(f"a scatter in the mode '{a.reduction}' cannot be differentiated", code="M030")
        attrs = {name: a[name] for name in names}
        updates = g.do(gather, args[1], **attrs)
        if a.reduction == "none":
            g = g.do(scatter, args[1], full(args[2], 0.0), reduction="none", **attrs)
        return [g, None, updates]

    return rule


def _reverse_sequence(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [_g(given).do("reverse_sequence", args[1], **a), None]


def _trilu(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    return [_g(given).do("trilu", *args[1:], **a.replace(fill=0)), *[None] * (len(args) - 1)]


def _topk(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    from weft.graph.nodes import Project

    if given[0] is None:
        return [None]
    places = T(Project(call, 1))
    return [full(args[0], 0.0).do("scatter_elements", places, given[0], axis=a.axis, reduction="add")]


MOVEMENT: dict[str, Wide] = {
    "reshape": _back,
    "squeeze": _back,
    "unsqueeze": _back,
    "transpose": _transpose,
    "broadcast_to": _broadcast,
    "concat": _concat,
    "split": _split,
    "slice": _slice,
    "pad": _pad,
    "tile": _tile,
    "flip": _flip,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _placed("gather_elements", "scatter_elements", "axis"),
    "scatter_nd": _placed("gather_nd", "scatter_nd"),
    "reverse_sequence": _reverse_sequence,
    "trilu": _trilu,
    "topk": _topk,
}
