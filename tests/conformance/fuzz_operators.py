"""The operators that random graphs are made of: each entry puts one node into a graph, or raises Unfit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fuzz_graphs import EVERY, FLOATS, INTEGERS, SIGNED, UNSIGNED, Graph, Tensor, Unfit, dtype_of
from onnx import helper

NUMBERS = FLOATS + INTEGERS
Maker = Callable[[Graph], None]

# Continuous functions of one operand: the dtypes, and the interval in which the slope is small.
SMOOTH = {
    "Exp": (-5.0, 5.0), "Sigmoid": (-99.0, 99.0), "Tanh": (-99.0, 99.0), "Erf": (-99.0, 99.0), "Sin": (-50.0, 50.0),
    "Cos": (-50.0, 50.0), "Softplus": (-99.0, 60.0), "Softsign": (-99.0, 99.0), "Elu": (-99.0, 99.0),
    "Selu": (-99.0, 99.0), "Celu": (-99.0, 99.0), "HardSigmoid": (-99.0, 99.0), "HardSwish": (-99.0, 99.0),
    "Mish": (-60.0, 60.0), "Gelu": (-60.0, 60.0), "LeakyRelu": (-99.0, 99.0), "Sqrt": (0.25, 9999.0),
    "Log": (0.25, 9999.0),
    "Reciprocal": (0.25, 9999.0), "Atan": (-99.0, 99.0), "Asinh": (-99.0, 99.0), "Sinh": (-4.0, 4.0),
    "Cosh": (-4.0, 4.0),
    "Asin": (-0.75, 0.75), "Acos": (-0.75, 0.75), "Atanh": (-0.75, 0.75), "Acosh": (1.25, 999.0), "Tan": (-1.0, 1.0),
}  # fmt: skip
NO_BFLOAT = {"Celu", "Mish"}
NO_DOUBLE = {"HardSwish", "Erf", "Gelu"}  # the evaluator computes with single 1/6, and an approximation of erf
MOVING = {"Floor": FLOATS, "Ceil": FLOATS, "Round": FLOATS, "Sign": NUMBERS, "IsNaN": FLOATS,
          "IsInf": ("float32", "float64"),
          "Abs": NUMBERS, "Neg": FLOATS + SIGNED, "Relu": FLOATS + SIGNED, "Identity": EVERY, "Not": ("bool",),
          "BitwiseNot": INTEGERS}  # fmt: skip


def within(low: float, high: float) -> Callable[[Tensor], bool]:
    def fits(t: Tensor) -> bool:
        wide = t.value.astype(np.float64)
        return bool(np.isfinite(wide).all() and (wide >= low).all() and (wide <= high).all())

    return fits


def smooth(op: str, low: float, high: float) -> Maker:
    def make(g: Graph) -> None:
        dtypes = tuple(
            d for d in FLOATS if (d != "bfloat16" or op not in NO_BFLOAT) and (d != "float64" or op not in NO_DOUBLE)
        )
        found = [t for t in g.tensors if t.dtype in dtypes and within(low, high)(t)]
        if found:
            x = g.of(found)
        else:
            value = low + (high - low) * g.numpy().random(g.shape()) if high < 50 else 0.5 + g.numpy().random(g.shape())
            x = g.fresh(np.asarray(value).astype(dtype_of(g.of(dtypes))))
        g.add(op, [x], gain=4.0)

    return make


def moving(op: str) -> Maker:
    continuous = op in ("Abs", "Neg", "Relu", "Identity")
    return lambda g: g.add(op, [g.operand(MOVING[op], exact=not continuous)], exact=True)


def partner(g: Graph, x: Tensor, *, exact: bool = False, finite: bool = False) -> Tensor:
    """A second operand of the same dtype whose shape broadcasts with that of ``x``."""

    def fits(t: Tensor) -> bool:
        try:
            return int(np.prod(np.broadcast_shapes(t.shape, x.shape))) <= 4096
        except ValueError:
            return False

    if g.chance(0.5):
        return g.operand((x.dtype,), exact=exact, fits=fits, finite=finite)
    shape = [1 if g.chance(0.3) else d for d in x.shape]
    return g.like(x, shape[g.pick.randint(0, len(shape)) :], finite=finite)


ARITHMETIC = {"Add": NUMBERS, "Sub": NUMBERS, "Mul": NUMBERS, "Max": NUMBERS, "Min": NUMBERS}
JUMPING = {"Equal": EVERY, "Less": NUMBERS, "Greater": NUMBERS, "LessOrEqual": NUMBERS, "GreaterOrEqual": NUMBERS,
           "And": ("bool",), "Or": ("bool",), "Xor": ("bool",), "BitwiseAnd": INTEGERS, "BitwiseOr": INTEGERS,
           "BitwiseXor": INTEGERS}  # fmt: skip


def binary(op: str, dtypes: tuple[str, ...], jumps: bool) -> Maker:
    def make(g: Graph) -> None:
        x = g.operand(dtypes, exact=jumps)
        y = partner(g, x, exact=jumps)
        a, b = (x, y) if g.chance(0.5) else (y, x)
        g.add(op, [a, b], exact=jumps or x.dtype in INTEGERS or op in ("Max", "Min"))

    return make


def div(g: Graph) -> None:
    x = g.operand(NUMBERS)
    y = partner(g, x)
    if not y.value.all() or (y.dtype in FLOATS and not within(0.25, 999)(Tensor("", np.abs(y.value), True))):
        raise Unfit
    if y.dtype in SIGNED and (y.value == -1).any() and (x.value == np.iinfo(x.value.dtype).min).any():
        raise Unfit
    g.add("Div", [x, y], exact=x.dtype in INTEGERS, gain=4.0)


def mod(g: Graph) -> None:
    x = g.operand(INTEGERS)
    y = partner(g, x)
    if not y.value.all() or (y.dtype in SIGNED and (y.value == -1).any()):
        raise Unfit
    g.add("Mod", [x, y], exact=True, fmod=int(g.chance(0.3)))


def shift(g: Graph) -> None:
    x = g.operand(UNSIGNED)
    y = g.fresh((np.abs(g.numpy().integers(0, x.value.dtype.itemsize * 8, x.shape))).astype(x.value.dtype))
    g.add("BitShift", [x, y], exact=True, direction=g.of(("LEFT", "RIGHT")))


def power(g: Graph) -> None:
    x = g.operand(("float32", "float64"), fits=within(0.25, 4.0))
    g.add("Pow", [x, g.weight(g.of((2.0, 0.5, -1.0, 3.0)), x.dtype)], gain=8.0)


def where(g: Graph) -> None:
    x = g.operand()
    y = partner(g, x)
    g.add("Where", [g.operand(("bool",)), x, y], exact=True)


def clip(g: Graph) -> None:
    x = g.operand(NUMBERS)
    low, high = (g.weight(v, x.dtype) if g.chance(0.8) else None for v in (1, 5))
    g.add("Clip", [x, low, high], exact=True)


def variadic(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = g.operand(FLOATS)
        g.add(op, [x, *(partner(g, x) for _ in range(g.pick.randint(0, 2)))])

    return make


def cast(g: Graph) -> None:
    to = g.of(EVERY)
    limit = 100.0 if to not in ("uint8", "uint16", "uint32", "uint64") else 0.0

    def fits(t: Tensor) -> bool:
        """Whole numbers wrap; floats beyond the range are undefined."""
        if t.dtype not in FLOATS or to in FLOATS or to == "bool":
            return True
        return within(-limit, 100.0)(t)

    x = g.operand(exact=to not in FLOATS, fits=fits)
    g.add(
        "Cast",
        [x],
        exact=not (x.dtype in FLOATS + INTEGERS and to in FLOATS),
        to=helper.np_dtype_to_tensor_dtype(dtype_of(to)),
    )


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "ReduceSum": ("float32", "float64", "int32", "int64"), "ReduceMean": ("float32", "float64"),
    "ReduceMax": ("float32", "float64", "int8", "uint8", "int32", "int64", "float16"),
    "ReduceMin": ("float32", "float64", "int8", "uint8", "int32", "int64", "float16"),
    "ReduceProd": ("float32", "int32", "int64"), "ReduceL1": ("float32",), "ReduceL2": ("float32",),
    "ReduceSumSquare": ("float32",), "ReduceLogSumExp": ("float32",),
}  # fmt: skip


def axes_of(g: Graph, rank: int) -> list[int]:
    chosen = [a for a in range(rank) if g.chance(0.5)]
    return [a - rank if g.chance(0.3) else a for a in chosen]


def reduction(op: str, dtypes: tuple[str, ...]) -> Maker:
    def make(g: Graph) -> None:
        x = g.operand(dtypes, finite=op not in ("ReduceMax", "ReduceMin"))
        axes = axes_of(g, len(x.shape))
        kept = 0 in [x.shape[a] for a in axes] or (not axes and 0 in x.shape)
        if kept and op not in ("ReduceSum", "ReduceProd"):
            raise Unfit
        attrs = {"keepdims": int(g.chance(0.5))}
        if not axes:
            attrs["noop_with_empty_axes"] = int(g.chance(0.3))
        operands = [x, g.weight(axes)] if axes or g.chance(0.5) else [x]
        exact = x.dtype in INTEGERS or op in ("ReduceMax", "ReduceMin")
        g.add(op, operands, exact=exact, gain=4.0, **attrs)

    return make


def arg(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = g.operand(("float32", "float64", "int32", "int8", "uint8"), rank=(1, 4), exact=True, finite=True)
        axis = g.pick.randint(-len(x.shape), len(x.shape) - 1)
        if x.shape[axis] == 0:
            raise Unfit
        attrs = {"axis": axis, "keepdims": int(g.chance(0.5)), "select_last_index": int(g.chance(0.3))}
        g.add(op, [x], exact=True, **attrs)

    return make


def top(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32", "int64"), rank=(1, 4), exact=True, finite=True)
    axis = g.pick.randint(-len(x.shape), len(x.shape) - 1)
    k = g.pick.randint(0, x.shape[axis])
    g.add("TopK", [x, g.weight([k])], 2, exact=True, axis=axis, largest=int(g.chance(0.5)), sorted=1)


def cumulative(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32", "int64"), rank=(1, 4), finite=True)
    axis = g.pick.randint(-len(x.shape), len(x.shape) - 1)
    attrs = {"exclusive": int(g.chance(0.5)), "reverse": int(g.chance(0.5))}
    g.add("CumSum", [x, g.weight(axis)], exact=x.dtype in INTEGERS, gain=4.0, **attrs)


# --- movement ---------------------------------------------------------------------------------------------------------


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


# --- layers -----------------------------------------------------------------------------------------------------------


def finite_floats(g: Graph, rank: tuple[int, int], dtypes: tuple[str, ...] = FLOATS) -> Tensor:
    return g.operand(dtypes, rank=rank, finite=True, fits=lambda t: 0 not in t.shape)


def matmul(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32", "float16"), rank=(1, 4), finite=True)
    width = g.of((1, 3, 8))
    lead = x.shape[:-2] if g.chance(0.4) else ()
    if len(x.shape) == 1:
        lead = ()
    shape = (x.shape[-1],) if g.chance(0.2) else (*lead, x.shape[-1], width)
    g.add("MatMul", [x, g.like(x, shape, finite=True)], exact=x.dtype in INTEGERS, gain=8.0)


def gemm(g: Graph) -> None:
    x = g.operand(("float32", "float64"), rank=(2, 2), finite=True)
    ta, tb = int(g.chance(0.4)), int(g.chance(0.4))
    m, k = x.shape[::-1] if ta else x.shape
    n = g.of((1, 4, 9))
    operands = [x, g.like(x, (n, k) if tb else (k, n), finite=True)]
    if g.chance(0.6):
        operands.append(g.like(x, g.of(((n,), (1, n), (m, 1), (m, n), ())), finite=True))
    g.add("Gemm", operands, gain=16.0, transA=ta, transB=tb, alpha=g.of((1.0, 0.5)), beta=g.of((1.0, 2.0)))


def image(g: Graph, dtypes: tuple[str, ...] = ("float32", "float64", "float16")) -> Tensor:
    """Samples, channels, one or two dimensions of space."""
    found = [
        t
        for t in g.tensors
        if t.dtype in dtypes
        and len(t.shape) in (3, 4)
        and min(t.shape[2:]) >= 2
        and 0 not in t.shape
        and within(-999, 999)(t)
    ]
    if found and g.chance(0.7):
        return g.of(found)
    space = tuple(g.pick.randint(3, 9) for _ in range(g.of((1, 2, 2))))
    return g.fresh(g.array(g.of(dtypes), (g.pick.randint(1, 2), g.of((1, 2, 3, 4)), *space), special=False))


def window(g: Graph, x: Tensor) -> dict[str, object]:
    n = len(x.shape) - 2
    kernel = [g.pick.randint(1, min(3, d)) for d in x.shape[2:]]
    attrs: dict[str, object] = {"kernel_shape": kernel, "strides": [g.of((1, 1, 2)) for _ in range(n)]}
    if g.chance(0.6):
        attrs["pads"] = [g.pick.randint(0, k - 1) for k in kernel * 2]
    elif g.chance(0.5):
        attrs["auto_pad"] = g.of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return attrs


def conv(g: Graph) -> None:
    x = image(g, ("float32", "float64"))
    attrs = window(g, x)
    channels = x.shape[1]
    groups = g.of([d for d in (1, 2, 3, 4) if channels % d == 0])
    outputs = groups * g.of((1, 2, 4))
    kernel = tuple(attrs["kernel_shape"])  # type: ignore[arg-type]
    operands = [x, g.like(x, (outputs, channels // groups, *kernel), finite=True)]
    if g.chance(0.5):
        operands.append(g.like(x, (outputs,), finite=True))
    g.add("Conv", operands, gain=16.0, group=groups, **attrs)


def conv_transpose(g: Graph) -> None:
    x = image(g, ("float32",))
    n, channels = len(x.shape) - 2, x.shape[1]
    kernel = [g.pick.randint(1, 3) for _ in range(n)]
    attrs = {"strides": [g.of((1, 2)) for _ in range(n)], "kernel_shape": kernel}
    if g.chance(0.4):
        attrs["pads"] = [g.pick.randint(0, max(0, k - 1)) for k in kernel * 2]
    operands = [x, g.like(x, (channels, g.of((1, 2, 3)), *kernel), finite=True)]
    g.add("ConvTranspose", operands, gain=16.0, **attrs)


def pool(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g, ("float32", "float64", "float16") if op != "MaxPool" else ("float32", "int8", "uint8"))
        attrs = window(g, x)
        if op == "AveragePool":
            attrs["count_include_pad"] = int(g.chance(0.5))
        if op == "LpPool":
            attrs["p"] = g.of((1, 2))
        elif "auto_pad" not in attrs and g.chance(0.3):
            attrs["ceil_mode"] = 1
        g.add(op, [x], exact=op == "MaxPool", gain=4.0, known="window-shapes", **attrs)

    return make


def over_space(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g)
        known = "global-max" if op == "GlobalMaxPool" and len(x.shape) != 4 else ""
        g.add(op, [x], exact=op == "GlobalMaxPool", known=known)

    return make


def norm(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g, ("float32",) if op == "GroupNormalization" else ("float32", "float64"))
        wide = [g.like(x, (x.shape[1],), finite=True) for _ in range(2)]
        if op == "BatchNormalization":
            mean = g.like(x, (x.shape[1],), finite=True)
            variance = g.fresh((1 + np.abs(g.array(x.dtype, (x.shape[1],), special=False))).astype(x.value.dtype))
            g.add(op, [x, *wide, mean, variance], gain=4.0)
        elif op == "GroupNormalization":
            if x.value.std() < 0.5:
                raise Unfit
            g.add(
                op, [x, *wide], gain=16.0, num_groups=g.of([d for d in (1, 2, 4) if x.shape[1] % d == 0]), epsilon=0.1
            )
        else:
            g.add(op, [x, *wide], gain=16.0, epsilon=0.1)

    return make


def layer_norm(g: Graph) -> None:
    x = finite_floats(g, (1, 4), ("float32",))  # of doubles the statistics are single all the same
    axis = g.pick.randint(-len(x.shape), -1)
    wide = [g.like(x, x.shape[axis:], finite=True) for _ in range(g.pick.randint(1, 2))]
    g.add("LayerNormalization", [x, *wide], gain=16.0, axis=axis, epsilon=0.1)


def soft(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = finite_floats(g, (1, 4))
        g.add(op, [x], gain=4.0, axis=g.pick.randint(-len(x.shape), len(x.shape) - 1))

    return make


def resize(g: Graph) -> None:
    x = g.fresh(g.array("float32", (1, g.of((1, 2)), g.pick.randint(2, 6), g.pick.randint(2, 6)), special=False))
    mode = g.of(("nearest", "linear", "cubic"))
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": g.of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")),
    }
    if mode == "nearest":
        attrs["nearest_mode"] = g.of(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    known = "resize-single" if attrs["coordinate_transformation_mode"] == "pytorch_half_pixel" else ""
    if g.chance(0.5):
        sizes = [*x.shape[:2], g.pick.randint(1, 9), g.pick.randint(1, 9)]
        g.add("Resize", [x, None, None, g.weight(sizes)], gain=8.0, known=known, **attrs)
    else:
        scales = [1.0, 1.0, g.of((0.5, 1.5, 2.0)), g.of((0.5, 2.0, 3.0))]
        g.add("Resize", [x, None, g.weight(scales, "float32")], gain=8.0, known=known, **attrs)


def quantize(g: Graph) -> None:
    x = g.operand(("float32",), exact=True, finite=True, rank=(1, 3), fits=within(-99, 99))
    to = g.of(("uint8", "int8", "uint16", "int16"))
    g.add("QuantizeLinear", [x, g.weight(g.of((0.25, 0.5, 2.0)), "float32"), g.weight(3, to)], exact=True)


def dequantize(g: Graph) -> None:
    x = g.operand(("uint8", "int8", "uint16", "int16", "int32"), rank=(1, 3))
    if x.dtype == "int32":
        g.add("DequantizeLinear", [x, g.weight(0.25, "float32")])
        return
    axis = g.pick.randrange(len(x.shape))
    if g.chance(0.5):
        scale = g.weight(np.full(x.shape[axis], 0.25), "float32")
        zero = g.fresh(g.array(x.dtype, (x.shape[axis],)), constant=True)
        g.add("DequantizeLinear", [x, scale, zero], axis=axis)
    else:
        g.add("DequantizeLinear", [x, g.weight(0.5, "float32"), g.weight(3, x.dtype)])


def einsum(g: Graph) -> None:
    equation, a, b = g.of(
        (
            ("ij,jk->ik", (3, 4), (4, 2)),
            ("bij,bjk->bki", (2, 3, 4), (2, 4, 2)),
            ("i,j->ij", (3,), (4,)),
            ("ij,ij->i", (3, 4), (3, 4)),
            ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),
        )
    )
    left, right = (g.fresh(g.array("float32", s, special=False)) for s in (a, b))
    g.add("Einsum", [left, right], gain=8.0, equation=equation)


MAKERS: dict[str, Maker] = {
    **{op: smooth(op, *bounds) for op, bounds in SMOOTH.items()},
    **{op: moving(op) for op in MOVING},
    **{op: binary(op, dtypes, False) for op, dtypes in ARITHMETIC.items()},
    **{op: binary(op, dtypes, True) for op, dtypes in JUMPING.items()},
    **{op: reduction(op, dtypes) for op, dtypes in REDUCTIONS.items()},
    **{op: arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: over_space(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    **{op: norm(op) for op in ("BatchNormalization", "InstanceNormalization", "GroupNormalization")},
    **{op: soft(op) for op in ("Softmax", "LogSoftmax")},
    **{op: blocks(op) for op in ("DepthToSpace", "SpaceToDepth")},
    **{op: variadic(op) for op in ("Sum", "Mean")},
    "BitShift": shift, "Cast": cast, "Clip": clip, "Compress": compress, "Concat": concat, "Conv": conv,
    "ConvTranspose": conv_transpose, "CumSum": cumulative, "DequantizeLinear": dequantize, "Div": div, "Einsum": einsum,
    "Expand": expand, "Flatten": flatten, "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd,
    "Gemm": gemm, "LayerNormalization": layer_norm, "MatMul": matmul, "Mod": mod, "NonZero": nonzero, "OneHot": one_hot,
    "Pad": pad, "Pow": power, "QuantizeLinear": quantize, "Reshape": reshape, "Resize": resize,
    "ReverseSequence": reverse,
    "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Shape": shape_of, "Slice": slicing, "Split": split,
    "Squeeze": squeeze, "Tile": tile, "TopK": top, "Transpose": transpose, "Trilu": trilu, "Unsqueeze": unsqueeze,
    "Where": where,
}  # fmt: skip
