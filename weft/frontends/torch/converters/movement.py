"""Operators that move elements: views, joins, parts, padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.frontends.common.problems import Unsupported
from weft.frontends.common.sizes import arithmetic, bounds, decide, divide_products, product
from weft.frontends.torch.converters.promotion import common_dtype
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INDEX

Converter = Callable[[AtenNode], Result]
ENDLESS = 2**62
"""Bounds from here on mean the end of an axis."""


def _view(node: AtenNode) -> Result:
    """Whatever PyTorch calls a view with the elements in the same order: the shape is that of the result."""
    x = node.data("self")
    if "dtype" in node.arguments:
        return _bitcast(node, x)
    return node.reshaped(x, node.shape)


def _bitcast(node: AtenNode, x: GraphExpr) -> GraphExpr:
    to = node.result_dtype
    if to.nbytes != x.tensor.dtype.nbytes:
        raise Unsupported("views of elements as others of another width are not supported")
    return x if to == x.tensor.dtype else node.call("bitcast", x, to=to)


def _expand(node: AtenNode) -> Result:
    return node.expanded(node.data("self"), node.shape)


def _permute(node: AtenNode) -> Result:
    x = node.data("self")
    return _transposed(node, x, [d % x.tensor.rank for d in node.numbers("dims")] if x.tensor.rank else [])


def _transposed(node: AtenNode, x: GraphExpr, perm: Sequence[int]) -> GraphExpr:
    return x if list(perm) == list(range(len(perm))) else node.call("transpose", x, perm=tuple(perm))


def _transpose(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.rank:
        return x
    a, b = (node.axis(n, x.tensor.rank) for n in ("dim0", "dim1"))
    perm = list(range(x.tensor.rank))
    perm[a], perm[b] = b, a
    return _transposed(node, x, perm)


def _t(node: AtenNode) -> Result:
    x = node.data("self")
    return _transposed(node, x, range(x.tensor.rank)[::-1])


def _moved(node: AtenNode) -> Result:
    x = node.data("self")
    rank = x.tensor.rank
    source, target = ([d % rank for d in node.numbers(n)] for n in ("source", "destination"))
    perm: list[int] = [-1] * rank
    for s, d in zip(source, target, strict=True):
        perm[d] = s
    rest = iter(i for i in range(rank) if i not in source)
    return _transposed(node, x, [p if p >= 0 else next(rest) for p in perm])


def _cat(node: AtenNode) -> Result:
    given = node.all_data("tensors")
    dtype = common_dtype(*given)
    parts = [x for x in given if x.tensor.shape != (0,)] or given[:1]
    parts = [node.cast(x, dtype) for x in parts]
    axis = node.axis("dim", parts[0].tensor.rank)
    return parts[0] if len(parts) == 1 else node.call("concat", *parts, axis=axis)


def _stack(node: AtenNode) -> Result:
    given = node.all_data("tensors")
    dtype = common_dtype(*given)
    axis = node.axis("dim", given[0].tensor.rank + 1)
    parts = [node.call("unsqueeze", node.cast(x, dtype), axes=(axis,)) for x in given]
    return parts[0] if len(parts) == 1 else node.call("concat", *parts, axis=axis)


# --- parts ------------------------------------------------------------------------------------------------------------


def from_front(value: Dim, size: Dim) -> Dim:
    """A bound of a slice, counted from the front and not outside of the axis."""
    if isinstance(value, int) and value >= ENDLESS:
        return size
    low, high = bounds(value)
    if high < 0:
        value = arithmetic("max", arithmetic("add", size, value), 0)
    elif low < 0:
        raise Unsupported("a slice begins or ends at a place of which the sign is not known")
    return arithmetic("min", value, size)


def sliced(node: AtenNode, x: GraphExpr, axis: int, start: Dim, end: Dim, step: int = 1) -> GraphExpr:
    """The elements of an axis from ``start`` to before ``end``, both counted from the front and inside of it."""
    if start == 0 and step == 1 and decide("eq", end, x.tensor.shape[axis]):
        return x
    return node.call("slice", x, begin=(start,), end=(end,), strides=(step,), axes=(axis,), in_bounds=True)


def slice_bounds(node: AtenNode, size: Dim) -> tuple[Dim, Dim, int]:
    """Start, end and step of a slice of an axis."""
    start = from_front(0 if node.value("start") is None else node.value("start"), size)
    end = from_front(ENDLESS if node.value("end") is None else node.value("end"), size)
    return start, arithmetic("max", start, end), int(node.number("step"))


def _slice(node: AtenNode) -> Result:
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    return sliced(node, x, axis, *slice_bounds(node, x.tensor.shape[axis]))


def place(node: AtenNode, name: str, size: Dim) -> Dim:
    """An index into an axis, counted from the front."""
    value = node.value(name)
    if isinstance(value, GraphExpr):
        raise Unsupported(f"its argument '{name}' is computed by the model")
    return arithmetic("add", size, value) if bounds(value)[1] < 0 else value


def _select(node: AtenNode) -> Result:
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    at = place(node, "index", x.tensor.shape[axis])
    one = sliced(node, x, axis, at, arithmetic("add", at, 1))
    return node.call("squeeze", one, axes=(axis,))


def parts(node: AtenNode, x: GraphExpr, axis: int, sizes: Sequence[Dim]) -> list[GraphExpr]:
    """``x`` in consecutive parts of these sizes."""
    return [x] if len(sizes) == 1 else list(node.calls("split", x, axis=axis, sizes=tuple(sizes)))


def _split_with_sizes(node: AtenNode) -> Result:
    x = node.data("self")
    return parts(node, x, node.axis("dim", x.tensor.rank), node.dims("split_sizes"))


def _as_said(node: AtenNode) -> Result:
    """Parts whose sizes PyTorch states."""
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    return parts(node, x, axis, [node.table.dim(s.shape[axis]) for s in node.said])


def _unbind(node: AtenNode) -> Result:
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    made = parts(node, x, axis, [1] * len(node.said))
    return [node.call("squeeze", p, axes=(axis,)) for p in made]


def _flip(node: AtenNode) -> Result:
    x = node.data("self")
    axes = tuple(sorted({d % x.tensor.rank for d in node.numbers("dims")})) if x.tensor.rank else ()
    return node.call("flip", x, axes=axes) if axes else x


def _roll(node: AtenNode) -> Result:
    x = node.data("self")
    shifts, axes = node.dims("shifts"), node.numbers("dims")
    if not axes:
        flat = node.reshaped(x, (product(x.tensor.shape),))
        return node.reshaped(_rolled(node, flat, 0, shifts[0]), x.tensor.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(node, x, axis % x.tensor.rank, shift)
    return x


def _rolled(node: AtenNode, x: GraphExpr, axis: int, shift: Dim) -> GraphExpr:
    size = x.tensor.shape[axis]
    if size == 0:
        return x
    cut = arithmetic("floormod", arithmetic("sub", 0, shift), size)
    if cut == 0:
        return x
    return node.call("concat", sliced(node, x, axis, cut, size), sliced(node, x, axis, 0, cut), axis=axis)


def _repeat(node: AtenNode) -> Result:
    x, repeats = node.data("self"), node.dims("repeats" if "repeats" in node.arguments else "dims")
    x = node.reshaped(x, (*(1,) * (len(repeats) - x.tensor.rank), *x.tensor.shape))
    repeats = (*(1,) * (x.tensor.rank - len(repeats)), *repeats)
    return x if all(r == 1 for r in repeats) else node.call("tile", x, repeats=tuple(repeats))


def _repeat_interleave(node: AtenNode) -> Result:
    x, times = node.data("self"), node.value("repeats")
    if isinstance(times, GraphExpr):
        raise Unsupported("its repeats are a tensor")
    if node.has("dim"):
        axis = node.axis("dim", x.tensor.rank)
    else:
        x, axis = node.reshaped(x, (product(x.tensor.shape),)), 0
    shape = x.tensor.shape
    wide = node.call("unsqueeze", x, axes=(axis + 1,))
    wide = node.expanded(wide, (*shape[: axis + 1], times, *shape[axis + 1 :]))
    return node.reshaped(wide, (*shape[:axis], arithmetic("mul", shape[axis], times), *shape[axis + 1 :]))


# --- padding ----------------------------------------------------------------------------------------------------------


def padded(node: AtenNode, x: GraphExpr, given: Sequence[Dim], mode: str, value: float = 0) -> GraphExpr:
    """``x`` with elements added: pairs of amounts, those of the last axis first. Negative amounts remove some."""
    rank = x.tensor.rank
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i in range(len(given) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = given[2 * i], given[2 * i + 1]
    if all(v == 0 for v in (*before, *after)):
        return x
    return node.call("pad", x, pads=(*before, *after), mode=mode, value=value)


def _pad(mode: str, argument: str = "padding") -> Converter:
    def convert(node: AtenNode) -> Result:
        value = node.number("value") if "value" in node.arguments and node.has("value") else 0
        return padded(node, node.data("self"), node.dims(argument), mode, value)

    return convert


def _any_pad(node: AtenNode) -> Result:
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    value = node.number("value") if node.has("value") else 0
    return padded(node, node.data("self"), node.dims("pad"), modes[node.value("mode")], value)


# --- triangles, blocks ------------------------------------------------------------------------------------------------


def _triangle(upper: bool) -> Converter:
    def convert(node: AtenNode) -> Result:
        return node.call("trilu", node.data("self"), upper=upper, k=int(node.number("diagonal")))

    return convert


def _pixel_shuffle(node: AtenNode) -> Result:
    x, block = node.data("self"), int(node.number("upscale_factor"))
    *batch, channels, height, width = x.tensor.shape
    plain = node.reshaped(x, (product(batch), channels, height, width))
    return node.reshaped(node.call("depth_to_space", plain, block_size=block, mode="CRD"), node.shape)


def _pixel_unshuffle(node: AtenNode) -> Result:
    x, block = node.data("self"), int(node.number("downscale_factor"))
    *batch, channels, height, width = x.tensor.shape
    rows, columns = (divide_products([d], [block]) for d in (height, width))
    split = node.reshaped(x, (product(batch), channels, rows, block, columns, block))
    return node.reshaped(node.call("transpose", split, perm=(0, 1, 3, 5, 2, 4)), node.shape)


def _channel_shuffle(node: AtenNode) -> Result:
    x, groups = node.data("self"), int(node.number("groups"))
    batch, channels, *rest = x.tensor.shape
    each = divide_products([channels], [groups])
    split = node.reshaped(x, (batch, groups, each, product(rest)))
    return node.reshaped(node.call("transpose", split, perm=(0, 2, 1, 3)), node.shape)


def _diagonal(node: AtenNode) -> Result:
    x = node.data("self")
    rank = x.tensor.rank
    first, second = (node.axis(n, rank) for n in ("dim1", "dim2"))
    offset = int(node.number("offset"))
    x = _transposed(node, x, [*(i for i in range(rank) if i not in (first, second)), first, second])
    *batch, rows, columns = x.tensor.shape
    count = node.shape[-1]
    start = arithmetic("mul", columns, -offset) if offset < 0 else offset
    flat = node.reshaped(x, (*batch, arithmetic("mul", rows, columns)))
    steps = node.call("arange", start=start, step=1, count=count, dtype=INDEX)
    along = node.call("arange", start=0, step=1, count=count, dtype=INDEX)
    width = node.cast(node.as_data(columns), INDEX)
    places = node.call("add", steps, node.call("mul", along, width))
    return node.call("gather", flat, places, axis=len(batch))


def _as_strided(node: AtenNode) -> Result:
    """Of a dense tensor that is read in order."""
    x, shape, strides = node.data("self"), node.dims("size"), node.dims("stride")
    dense = [prod(d for d in shape[i + 1 :] if isinstance(d, int)) for i in range(len(shape))]
    whole = product(shape) == product(x.tensor.shape) and all(isinstance(d, int) for d in shape)
    read_in_order = all(s == d or n == 1 for s, d, n in zip(strides, dense, shape, strict=True))
    if not whole or not read_in_order or node.arguments.get("storage_offset"):
        raise Unsupported("as_strided is supported for all elements in order only")
    return node.reshaped(x, shape)


def _unfold(node: AtenNode) -> Result:
    """Windows along an axis: a new last axis has the elements of each."""
    x = node.data("self")
    axis = node.axis("dimension", x.tensor.rank)
    size, step = int(node.number("size")), int(node.number("step"))
    count = node.shape[axis]
    first = node.call("arange", start=0, step=step, count=count, dtype=INDEX)
    inside = node.call("arange", start=0, step=1, count=size, dtype=INDEX)
    places = node.call("add", node.call("unsqueeze", first, axes=(1,)), inside)
    taken = node.call("gather", x, places, axis=axis)  # …, windows, elements, …
    rank = taken.tensor.rank
    perm = [*(i for i in range(rank) if i != axis + 1), axis + 1]
    return _transposed(node, taken, perm)


MOVEMENT: dict[str, Converter] = {
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "view_copy", "_reshape_alias", "unsqueeze", "squeeze", "flatten",
         "unflatten", "view_as", "reshape_as", "unsqueeze_copy", "squeeze_copy"),
        _view,
    ),
    **dict.fromkeys(("expand", "expand_copy", "broadcast_to", "expand_as"), _expand),
    **dict.fromkeys(("permute", "permute_copy"), _permute),
    **dict.fromkeys(("transpose", "transpose_copy", "swapaxes"), _transpose),
    **dict.fromkeys(("t", "t_copy", "numpy_T"), _t),
    **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("split_with_sizes", "split_with_sizes_copy"), _split_with_sizes),
    **dict.fromkeys(("split", "chunk", "tensor_split", "split_copy"), _as_said),
    **dict.fromkeys(("unbind", "unbind_copy"), _unbind),
    **dict.fromkeys(("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"), _pad("reflect")),
    **dict.fromkeys(("replication_pad1d", "replication_pad2d", "replication_pad3d"), _pad("edge")),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "_pad_circular": _pad("wrap", "pad"),
    "as_strided": _as_strided,
    "channel_shuffle": _channel_shuffle,
    "constant_pad_nd": _pad("constant", "pad"),
    "diagonal": _diagonal,
    "diagonal_copy": _diagonal,
    "flip": _flip,
    "movedim": _moved,
    "pad": _any_pad,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "repeat_interleave": _repeat_interleave,
    "roll": _roll,
    "stack": _stack,
    "tril": _triangle(upper=False),
    "triu": _triangle(upper=True),
    "unfold": _unfold,
    "unfold_copy": _unfold,
}  # fmt: skip
