"""Recipes for single nodes: operators that move, choose, join, reduce and order elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.numpy_helper import from_array
from schema_cases import DTYPES, Made, Maker, Recipe, code_of
from schema_elementwise import given, single

LONG = np.int64


def longs(*values: int) -> Any:
    return np.array(values, LONG)


def fixed(*shape: int, **attrs: Any) -> Recipe:
    """One operand of a shape, with attributes that all versions have."""
    return lambda m: ([m.x(0, *shape)], given(m, attrs))


def behind(first: tuple[int, ...], *others: Any, **attrs: Any) -> Recipe:
    """A tensor and known numbers in the dtype of their operand (None: left out)."""

    def make(m: Maker) -> Made:
        rest = [None if v is None else m.of(i + 1, v) for i, v in enumerate(others)]
        return [m.x(0, *first), *rest], given(m, attrs)

    return make


def moved(first: tuple[int, ...], name: str, values: Any, **attrs: Any) -> Recipe:
    """What was an attribute once is an operand now."""

    def make(m: Maker) -> Made:
        if m.known(name):
            return [m.x(0, *first)], {name: list(values), **given(m, attrs)}
        return [m.x(0, *first), longs(*values)], given(m, attrs)

    return make


def pad(mode: str) -> Recipe:
    def make(m: Maker) -> Made:
        x, pads = m.x(0, 3, 4), [1, 0, 2, 1]
        if not m.has(1):
            return [x], {"mode": mode, "paddings" if m.known("paddings") else "pads": pads}
        constant = m.of(2, 1) if mode == "constant" else None
        return [x, longs(*pads), constant], {"mode": mode}

    return make


def pad_axes(m: Maker) -> Made | None:
    return ([m.x(0, 2, 3, 4), longs(1, -1), m.of(2, 1), m.of(3, [-1])], {}) if m.has(3) else None


def slice_(m: Maker) -> Made:
    x = m.x(0, 4, 5, 6)
    if not m.has(1):
        return [x], {"starts": [1, -4], "ends": [9, -1], "axes": [1, 2]}
    return [x, m.of(1, [1, -1]), m.of(2, [9, -6]), m.of(3, [1, 2]), m.of(4, [2, -2])], {}


def split(m: Maker) -> Made | None:
    x = m.x(0, 2, 6)
    if m.known("split"):
        return [x], {"split": [1, 2, 3], "axis": 1, "_outputs": 3}
    return [x, longs(1, 2, 3)], {"axis": 1, "_outputs": 3}


def split_even(m: Maker) -> Made | None:
    attrs = {"num_outputs": 3} if m.known("num_outputs") else {}
    return [m.x(0, 2, 6)], {"axis": 1, "_outputs": 3, **attrs}


def split_uneven(m: Maker) -> Made | None:
    return ([m.x(0, 2, 7)], {"axis": 1, "_outputs": 3, "num_outputs": 3}) if m.known("num_outputs") else None


def concat(m: Maker) -> Made:
    return [m.x(0, 2, 1, 3), m.x(0, 2, 2, 3), m.x(0, 2, 0, 3)], {"axis": 1}


def gather_nd(m: Maker) -> Made:
    return [m.x(0, 3, 4, 5), m.of(1, [[0, 1], [-1, 2]] if m.version > 10 else [[0, 1], [2, 2]])], {}


def scatter(reduction: str = "") -> Recipe:
    def make(m: Maker) -> Made | None:
        if reduction and (not m.known("reduction") or (reduction in ("max", "min") and m.version < 18)):
            return None
        attrs: dict[str, Any] = {"axis": 1, **({"reduction": reduction} if reduction else {})}
        index = [[0, 2, 2], [3, 1, 1]] if reduction else [[0, 2, -1], [3, 1, 0]]
        return [m.x(0, 3, 4), m.of(1, index), m.x(2, 2, 3)], attrs

    return make


def scatter_nd(reduction: str = "") -> Recipe:
    def make(m: Maker) -> Made | None:
        if reduction and (not m.known("reduction") or (reduction in ("max", "min") and m.version < 18)):
            return None
        index = [[0], [2], [2]] if reduction else [[0], [2], [1]]
        return [m.x(0, 3, 4), m.of(1, index), m.x(2, 3, 4)], {"reduction": reduction} if reduction else {}

    return make


def top_k(axis: int = -1, largest: int = 1) -> Recipe:
    def make(m: Maker) -> Made | None:
        x = m.of(0, m.rng.permutation(20).reshape(4, 5))
        attrs = {"axis": axis, "_outputs": 2, **given(m, {"largest": largest})}
        if not largest and not m.known("largest"):
            return None
        return ([x], {"k": 3, **attrs}) if not m.has(1) else ([x, longs(3)], attrs)

    return make


def constant_of_shape(name: str) -> Recipe:
    def make(m: Maker) -> Made | None:
        target = next(c for c in m.schema.type_constraints if c.type_param_str == "T2")
        if name not in target.allowed_type_strs:
            return None
        dtype = DTYPES[name]
        return [longs(2, 3)], {"value": from_array(np.array([1]).astype(dtype)), "_result": dtype}

    return make


def constant(name: str) -> Recipe:
    def make(m: Maker) -> Made | None:
        target = m.schema.type_constraints[0]
        if name not in target.allowed_type_strs:
            return None
        dtype = DTYPES[name]
        return [], {"value": from_array(np.array([[1, 0, 1]]).astype(dtype)), "_result": dtype}

    return make


def constant_attribute(**attrs: Any) -> Recipe:
    return lambda m: ([], attrs) if all(m.known(k) for k in attrs) else None


def tile(m: Maker) -> Made:
    if m.version == 1:
        return [m.x(0, 2, 3), m.of(1, 2), m.of(2, 1)], {}
    return [m.x(0, 2, 3), longs(2, 3)], {}


def range_(m: Maker) -> Made:
    return [m.of(0, 1), m.of(1, 11), m.of(2, 3)], {}


def range_down(m: Maker) -> Made:
    return [m.of(0, 9), m.of(1, -2), m.of(2, -2)], {}


def one_hot(m: Maker) -> Made:
    return [m.of(0, [[0, 2], [1, 4]]), m.of(1, 3), m.of(2, [0, 1])], {"axis": 1}


def eye(m: Maker) -> Made:
    return [m.x(0, 3, 4)], {"k": 1}


def eye_as(name: str) -> Recipe:
    return lambda m: ([m.x(0, 3, 4)], {"dtype": code_of(DTYPES[name]), "_result": DTYPES[name]})


def unique(**attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 3, 4, low=0, high=1)], {"_outputs": 4, **attrs})


def trilu(**attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 2, 4, 5), np.array(1, LONG)], attrs)


def reduction(**attrs: Any) -> list[Recipe]:
    def some(m: Maker) -> Made:
        if m.known("axes"):
            return [m.x(0, 2, 3, 4, low=1)], {"axes": [1] if m.version < 11 else [-2], "keepdims": 0}
        return [m.x(0, 2, 3, 4, low=1), longs(0, -1)], {"keepdims": 0}

    def every(m: Maker) -> Made:
        return [m.x(0, 2, 3, 4, low=1)], {}

    def none(m: Maker) -> Made | None:
        return ([m.x(0, 2, 3)], {"noop_with_empty_axes": 1}) if m.known("noop_with_empty_axes") else None

    return [some, every, none]


def arg(**attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 3, 4, low=0, high=2)], given(m, attrs))


def cumulative(**attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 3, 4, low=1, high=2), m.of(1, 1)], attrs)


def resize(mode: str, **attrs: Any) -> Recipe:
    def make(m: Maker) -> Made | None:
        x, scales = m.x(0, 1, 2, 4, 5), np.array([1, 1, 2, 1.5], np.float32)
        if m.version == 10:
            return ([x, scales], {"mode": mode}) if mode != "cubic" and not attrs else None
        if not all(m.known(k) for k in attrs):
            return None
        region = np.zeros(0, np.float32) if m.version == 11 else None  # required once
        return [x, region, scales], {"mode": mode, **attrs}

    return make


def upsample(mode: str) -> Recipe:
    def make(m: Maker) -> Made:
        x = m.x(0, 1, 2, 3, 4)
        if m.version == 1:
            return [x], {
                "height_scale": 2.0,
                "width_scale": 3.0,
                "mode": "nearest" if mode == "nearest" else "bilinear",
            }
        if m.version == 7:
            return [x], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": mode}
        return [x, np.array([1, 1, 2, 3], np.float32)], {"mode": mode}

    return make


def reshape(m: Maker) -> Made:
    return ([m.x(0, 2, 3, 4)], {"shape": [0, -1]}) if m.known("shape") else ([m.x(0, 2, 3, 4), longs(0, -1)], {})


def unsqueeze(m: Maker) -> Made:
    axes = [0, 2] if m.version < 11 else [0, -1]
    return ([m.x(0, 2, 3)], {"axes": axes}) if m.known("axes") else ([m.x(0, 2, 3), longs(*axes)], {})


def compress(m: Maker) -> Made:
    return [m.x(0, 3, 4), m.of(1, [True, False, True])], {"axis": 1}


def compress_flat(m: Maker) -> Made:
    return [m.x(0, 3, 4), m.of(1, [True, False, True])], {}


def col2im(m: Maker) -> Made:
    return [m.x(0, 1, 5, 5), longs(5, 5), longs(1, 5)], {}


def tensor_scatter(m: Maker) -> Made:
    return [m.x(0, 2, 5, 3), m.x(1, 2, 2, 3), longs(1, 3)], {"axis": 1}


MOVEMENT: dict[str, list[Recipe]] = {
    "Identity": [single, fixed()],
    "Flatten": [fixed(2, 3, 4), fixed(2, 3, 4, axis=2)],
    "Transpose": [fixed(2, 3, 4), fixed(2, 3, 4, perm=[1, 2, 0])],
    "Reshape": [reshape],
    "Squeeze": [moved((1, 3, 1), "axes", [0])],
    "Unsqueeze": [unsqueeze],
    "Shape": [single, fixed(2, 3, 4, start=1, end=-1)],
    "Size": [single],
    "Concat": [concat],
    "Split": [split, split_even, split_uneven],
    "Slice": [slice_],
    "Pad": [pad("constant"), pad("reflect"), pad("edge"), pad_axes],
    "Expand": [behind((3, 1), [2, 1, 4])],
    "Tile": [tile],
    "Gather": [behind((3, 4), [[0, 2], [1, 1]]), behind((3, 4), [0, 2], axis=1)],
    "GatherElements": [behind((2, 4), [[0, 2], [1, 1]], axis=1)],
    "GatherND": [gather_nd],
    "Scatter": [scatter()],
    "ScatterElements": [scatter(r) for r in ("", "add", "mul", "max", "min")],
    "ScatterND": [scatter_nd(r) for r in ("", "add", "mul", "max", "min")],
    "TensorScatter": [tensor_scatter],
    "DepthToSpace": [fixed(1, 8, 2, 3, blocksize=2), fixed(1, 8, 2, 3, blocksize=2, mode="CRD")],
    "SpaceToDepth": [fixed(1, 2, 4, 6, blocksize=2)],
    "ReverseSequence": [behind((4, 3, 2), [1, 4, 2])],
    "TopK": [top_k(), top_k(0), top_k(1, 0)],
    "ConstantOfShape": [constant_of_shape(n) for n in DTYPES],
    "Constant": [
        *(constant(n) for n in DTYPES),
        constant_attribute(value_float=1.5),
        constant_attribute(value_floats=[1.5, 2.5]),
        constant_attribute(value_int=3),
        constant_attribute(value_ints=[3, 4]),
    ],
    "Range": [range_, range_down],
    "OneHot": [one_hot],
    "EyeLike": [eye, *(eye_as(n) for n in ("tensor(double)", "tensor(bool)", "tensor(uint16)"))],
    "NonZero": [single],
    "Unique": [unique(), unique(sorted=0), unique(axis=1)],
    "Compress": [compress, compress_flat],
    "Trilu": [fixed(4, 5), trilu(), trilu(upper=0)],
    "CenterCropPad": [behind((4, 5), [5, 3])],
    "Col2Im": [col2im],
    **{
        f"Reduce{n}": reduction()
        for n in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    "ArgMax": [arg(), arg(axis=1, keepdims=0), arg(axis=1, select_last_index=1)],
    "ArgMin": [arg(), arg(axis=1, keepdims=0), arg(axis=1, select_last_index=1)],
    "CumSum": [cumulative(), cumulative(exclusive=1, reverse=1)],
    "CumProd": [cumulative(), cumulative(exclusive=1, reverse=1)],
    "Resize": [
        resize("nearest"),
        resize("linear"),
        resize("cubic"),
        resize("linear", coordinate_transformation_mode="align_corners"),
        resize("linear", antialias=1),
    ],
    "Upsample": [upsample("nearest"), upsample("linear")],
}
