"""Nodes that work element by element, and those that reduce or scan an axis."""

from __future__ import annotations

import numpy as np
from fuzz_graphs import EVERY, FLOATS, INTEGERS, SIGNED, UNSIGNED, Graph, Tensor, Unfit, dtype_of
from fuzz_operands import NUMBERS, Maker, partner, within
from onnx import helper

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


ELEMENTWISE: dict[str, Maker] = {
    **{op: smooth(op, *bounds) for op, bounds in SMOOTH.items()},
    **{op: moving(op) for op in MOVING},
    **{op: binary(op, dtypes, False) for op, dtypes in ARITHMETIC.items()},
    **{op: binary(op, dtypes, True) for op, dtypes in JUMPING.items()},
    **{op: variadic(op) for op in ("Sum", "Mean")},
    "BitShift": shift, "Cast": cast, "Clip": clip, "Div": div, "Mod": mod, "Pow": power, "Where": where,
}  # fmt: skip
REDUCING: dict[str, Maker] = {
    **{op: reduction(op, dtypes) for op, dtypes in REDUCTIONS.items()},
    **{op: arg(op) for op in ("ArgMax", "ArgMin")},
    "CumSum": cumulative, "TopK": top,
}  # fmt: skip
