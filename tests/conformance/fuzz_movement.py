"""Nodes that move elements: views, slices, joins, gathers and scatters."""

from __future__ import annotations

import numpy as np
from fuzz_graphs import EVERY, FLOATS, INTEGERS, Graph, Tensor, Unfit
from fuzz_operands import NUMBERS, Maker


def reshape(g: Graph) -> None:
    x = g.operand()
    left, dims = x.value.size, []
    while left > 1 and g.chance(0.7):
        d = g.of([d for d in range(1, left + 1) if left % d == 0])
        dims.append(d)
        left //= max(1, d)
    dims.append(left)
    if 0 in x.shape:
        g.add("Reshape", [x, g.weight([0, g.of((1, 2))][: 2 if g.chance(0.5) else 1])], exact=True, allowzero=1)
        return
    if g.chance(0.3):
        dims[g.pick.randrange(len(dims))] = -1
    g.add("Reshape", [x, g.weight(dims)], exact=True)


def transpose(g: Graph) -> None:
    x = g.operand()
    perm = list(range(len(x.shape)))
    g.pick.shuffle(perm)
    g.add("Transpose", [x], exact=True, **({"perm": perm} if perm and g.chance(0.8) else {}))


def squeeze(g: Graph) -> None:
    x = g.operand(fits=lambda t: 1 in t.shape)
    ones = [i if g.chance(0.5) else i - len(x.shape) for i, d in enumerate(x.shape) if d == 1]
    g.add("Squeeze", [x, g.weight([g.of(ones)])] if g.chance(0.6) else [x], exact=True)


def unsqueeze(g: Graph) -> None:
    x = g.operand(rank=(0, 3))
    g.add("Unsqueeze", [x, g.weight([g.pick.randint(-len(x.shape) - 1, len(x.shape))])], exact=True)


def flatten(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    g.add("Flatten", [x], exact=True, axis=g.pick.randint(-len(x.shape), len(x.shape)))


def expand(g: Graph) -> None:
    x = g.operand(rank=(0, 3))
    shape = [g.of((1, d)) if d != 1 else g.of((1, 2, 3)) for d in x.shape]
    g.add("Expand", [x, g.weight([g.of((1, 2)), *shape] if g.chance(0.3) else shape)], exact=True)


def tile(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    g.add("Tile", [x, g.weight([g.of((1, 1, 2, 3)) for _ in x.shape])], exact=True)


def slicing(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    axes = sorted({g.pick.randrange(len(x.shape)) for _ in range(2)})
    starts = [g.pick.randint(-9, 9) for _ in axes]
    steps = [g.of((1, 1, 2, -1, -2)) for _ in axes]
    ends = [g.of((g.pick.randint(-9, 9), np.iinfo(np.int64).max if step > 0 else -99)) for step in steps]
    if any(step < 0 and start < -x.shape[a] for a, start, step in zip(axes, starts, steps, strict=True)):
        raise Unfit  # the evaluator takes nothing, the text of the specification the first element
    axes = [a - len(x.shape) if g.chance(0.3) else a for a in axes]
    g.add("Slice", [x, *(g.weight(v) for v in (starts, ends, axes, steps))], exact=True)


def pad(g: Graph) -> None:
    x = g.operand(FLOATS[:3] + INTEGERS, rank=(1, 4))
    mode = g.of(("constant", "constant", "edge", "reflect", "wrap"))
    low = -1 if mode == "constant" else 0
    pads = [g.pick.randint(low, 2) if g.chance(0.5) else 0 for _ in range(2 * len(x.shape))]
    if mode != "constant" and any(d < 3 and (pads[i] or pads[i + len(x.shape)]) for i, d in enumerate(x.shape)):
        raise Unfit
    if any(d + min(0, pads[i]) + min(0, pads[i + len(x.shape)]) < 0 for i, d in enumerate(x.shape)):
        raise Unfit
    operands = [x, g.weight(pads)]
    if mode == "constant" and g.chance(0.5):
        operands.append(g.weight(3, x.dtype))
    g.add("Pad", operands, exact=True, mode=mode)


def concat(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    axis = g.pick.randrange(len(x.shape))
    others = []
    for _ in range(g.pick.randint(1, 2)):
        shape = list(x.shape)
        shape[axis] = g.pick.randint(0, 3)
        others.append(g.like(x, shape) if g.chance(0.7) else x)
    parts = [x, *others]
    g.pick.shuffle(parts)
    g.add("Concat", parts, exact=True, axis=axis - len(x.shape) if g.chance(0.3) else axis)


def split(g: Graph) -> None:
    x = g.operand(rank=(1, 4), fits=lambda t: max(t.shape) > 1)
    axis = g.of([i for i, d in enumerate(x.shape) if d > 1])
    cut = g.pick.randint(0, x.shape[axis])
    g.add("Split", [x, g.weight([cut, x.shape[axis] - cut])], 2, exact=True, axis=axis)


def places(g: Graph, size: int, shape: tuple[int, ...]) -> Tensor:
    if size == 0:
        raise Unfit
    value = g.numpy().integers(-size, size, shape).astype(g.of((np.int32, np.int64)))
    return g.fresh(value, constant=g.chance(0.5))


def gather(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    axis = g.pick.randint(-len(x.shape), len(x.shape) - 1)
    g.add("Gather", [x, places(g, x.shape[axis], g.shape(0, 2))], exact=True, axis=axis)


def gather_elements(g: Graph) -> None:
    x = g.operand(rank=(1, 4))
    axis = g.pick.randrange(len(x.shape))
    shape = [g.pick.randint(1, d) if d else 0 for d in x.shape]
    g.add("GatherElements", [x, places(g, x.shape[axis], tuple(shape))], exact=True, axis=axis)


def gather_nd(g: Graph) -> None:
    x = g.operand(rank=(1, 4), fits=lambda t: 0 not in t.shape)
    depth = g.pick.randint(1, len(x.shape))
    columns = [g.numpy().integers(-d, d, 3) for d in x.shape[:depth]]
    g.add("GatherND", [x, g.fresh(np.stack(columns, -1).astype(np.int64))], exact=True)


def scatter_elements(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32", "int64"), rank=(1, 3), fits=lambda t: 0 not in t.shape, finite=True)
    axis = g.pick.randrange(len(x.shape))
    shape = [g.pick.randint(1, d) for d in x.shape]
    how = g.of(("none", "add", "mul", "min", "max"))
    rng = g.numpy()
    if how == "none":  # each place once
        index = np.argsort(rng.random(x.shape), axis=axis)[tuple(slice(0, d) for d in shape)]
        shape[axis] = index.shape[axis]
    else:
        index = rng.integers(-x.shape[axis], x.shape[axis], shape)
    updates = g.like(x, index.shape, finite=True)
    exact = how in ("none", "min", "max") or x.dtype in INTEGERS
    g.add("ScatterElements", [x, g.fresh(index.astype(np.int64)), updates], exact=exact, axis=axis, reduction=how)


def scatter_nd(g: Graph) -> None:
    x = g.operand(("float32", "int32", "int64"), rank=(1, 3), fits=lambda t: 0 not in t.shape, finite=True)
    rows = g.pick.randint(1, x.shape[0])
    index = g.numpy().permutation(x.shape[0])[:rows, None].astype(np.int64)
    g.add("ScatterND", [x, g.fresh(index), g.like(x, (rows, *x.shape[1:]), finite=True)], exact=True)


def one_hot(g: Graph) -> None:
    x = g.operand(("int32", "int64"), rank=(0, 3))
    depth = g.pick.randint(1, 5)
    values = g.weight([g.pick.randint(-2, 2), 3], g.of(("float32", "int32", "int64")))
    g.add("OneHot", [x, g.weight(depth), values], exact=True, axis=g.pick.randint(-1, len(x.shape)))


def trilu(g: Graph) -> None:
    x = g.operand(rank=(2, 4))
    operands = [x, g.weight(g.pick.randint(-3, 3))] if g.chance(0.7) else [x]
    g.add("Trilu", operands, exact=True, upper=int(g.chance(0.5)))


def compress(g: Graph) -> None:
    x = g.operand(rank=(1, 3))
    axis = g.pick.randrange(len(x.shape))
    marks = g.fresh(g.array("bool", (x.shape[axis],)), constant=g.chance(0.3))
    g.add("Compress", [x, marks], exact=True, axis=axis)


def nonzero(g: Graph) -> None:
    g.add("NonZero", [g.operand((*NUMBERS, "bool"), rank=(1, 3), exact=True)], exact=True)


def shape_of(g: Graph) -> None:
    g.add("Shape", [g.operand(rank=(1, 4))], exact=True, start=g.of((0, 0, -1)))


def reverse(g: Graph) -> None:
    x = g.operand(rank=(2, 3), fits=lambda t: 0 not in t.shape)
    batch = g.of((0, 1))
    lengths = g.numpy().integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    g.add("ReverseSequence", [x, g.fresh(lengths.astype(np.int64))], exact=True, batch_axis=batch, time_axis=1 - batch)


def blocks(op: str) -> Maker:
    def make(g: Graph) -> None:
        batch, block = g.pick.randint(1, 2), g.of((1, 2))
        shape = (batch, 4 * g.pick.randint(1, 2), 2 * g.pick.randint(1, 2), 4)
        x = g.fresh(g.array(g.of(EVERY), shape))
        attrs = {"blocksize": block}
        if op == "DepthToSpace":
            g.add(op, [x], exact=True, mode=g.of(("DCR", "CRD")), **attrs)
        else:
            g.add(op, [x], exact=True, **attrs)

    return make


MOVEMENT: dict[str, Maker] = {
    **{op: blocks(op) for op in ("DepthToSpace", "SpaceToDepth")},
    "Compress": compress, "Concat": concat, "Expand": expand, "Flatten": flatten, "Gather": gather,
    "GatherElements": gather_elements, "GatherND": gather_nd, "NonZero": nonzero, "OneHot": one_hot, "Pad": pad,
    "Reshape": reshape, "ReverseSequence": reverse, "ScatterElements": scatter_elements, "ScatterND": scatter_nd,
    "Shape": shape_of, "Slice": slicing, "Split": split, "Squeeze": squeeze, "Tile": tile, "Transpose": transpose,
    "Trilu": trilu, "Unsqueeze": unsqueeze,
}  # fmt: skip
