"""One-node models whose deciding operands are inputs of the graph, each with several values for the same executable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ValueInfoProto, helper

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Runs:
    """An operator and the operands of each run; ``open`` are axes by operand that have symbolic sizes."""

    op: str
    runs: Sequence[Sequence[Any]]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 22
    open: dict[int, tuple[int, ...]] = field(default_factory=dict)
    rtol: float = 1e-4
    atol: float = 1e-5
    name: str = ""

    def __str__(self) -> str:
        return f"{self.op}-{self.name}" if self.name else self.op

    def model(self) -> Any:
        """The model: every operand an input."""
        first = self.runs[0]
        names = ["" if v is None else f"x{i}" for i, v in enumerate(first)]
        node = helper.make_node(self.op, names, [f"y{i}" for i in range(self.outputs)], **self.attrs)
        inputs = []
        for i, value in enumerate(first):
            if value is None:
                continue
            value = np.asarray(value)
            shape = [f"d{i}_{a}" if a in self.open.get(i, ()) else d for a, d in enumerate(value.shape)]
            inputs.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(value.dtype), shape))
        outputs = [ValueInfoProto(name=f"y{i}") for i in range(self.outputs)]
        graph = helper.make_graph([node], "one", inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def one(value: Any, dtype: Any = np.int64) -> Array:
    """A tensor without dimensions."""
    return np.array(value, dtype)


def data(*shape: int, dtype: Any = np.float32) -> Array:
    """Numbers that are all different."""
    made = np.random.default_rng(3).permutation(int(np.prod(shape))).reshape(shape) - np.prod(shape) // 3
    return (made * (0.25 if np.dtype(dtype).kind == "f" else 1)).astype(dtype)


X = data(4, 5, 6)
FAR = (1 << 63) - 1

SLICES = [
    Runs(
        "Slice", [(X, i64(s), i64(e)) for s, e in ((0, 2), (1, 9), (-2, FAR), (3, 1), (-9, -1), (4, 4))], name="bounds"
    ),
    Runs(
        "Slice",
        [(X, i64(s), i64(e), i64(a)) for s, e, a in ((0, 2, 0), (1, 9, 1), (-2, FAR, -1), (2, -1, -3))],
        name="axis",
    ),
    Runs(
        "Slice",
        [
            (X, i64(s), i64(e), i64(a), i64(t))
            for s, e, a, t in (
                (0, 5, 0, 2),
                (-1, -99, 1, -1),
                (4, 0, 2, -2),
                (1, FAR, 2, 3),
                (FAR, -FAR, 0, -1),
                (0, 3, 1, -1),
                (2, 2, 2, 1),
                (-3, -FAR - 1, 1, -4),
                (0, -99, 0, -1),
            )
        ],
        name="all",
    ),
    Runs(
        "Slice",
        [
            (X, i64(1, -1), i64(3, -99), i64(0, 2), i64(1, -2)),
            (X, i64(0, 0), i64(5, 99), i64(2, 1), i64(3, 1)),
            (X, i64(0, -1), i64(0, 0), i64(-1, -3), i64(1, -1)),
        ],
        name="two",
    ),
    Runs("Slice", [(X[:, :n], i64(n - 1), i64(-99), i64(1), i64(-1)) for n in (5, 1, 3)], open={0: (1,)}, name="open"),
    Runs(
        "Slice",
        [
            (X, np.array([s], np.int32), np.array([9], np.int32), np.array([1], np.int32), np.array([t], np.int32))
            for s, t in ((1, 2), (0, 1), (2, 5))
        ],
        name="int32",
    ),
]

AXES = [
    Runs("Squeeze", [(data(1, 3, 1, 4)[:, :, :, :], i64(a)) for a in (0, 2, -2, -4)], name="one"),
    Runs("Squeeze", [(data(1, 3, 1, 4), i64(0, 2)), (data(1, 3, 1, 4), i64(-2, 0))], name="two"),
    Runs("Unsqueeze", [(data(3, 4), i64(a)) for a in (0, 1, 2, -1, -3)], name="one"),
    Runs("Unsqueeze", [(data(3, 4), i64(*a)) for a in ((0, 1), (3, 1), (-1, 0), (0, -1))], name="two"),
    *(
        Runs(op, [(abs(X) + 1, i64(a)) for a in (0, 1, 2, -1)], {"keepdims": keep}, name=f"keep{keep}")
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")
        for keep in (0, 1)
    ),
    *(
        Runs(op, [(X, i64(*a)) for a in ((0, 1), (2, 0), (-1, -2))], {"keepdims": keep}, name=f"two{keep}")
        for op in ("ReduceSum", "ReduceMin")
        for keep in (0, 1)
    ),
    Runs("ReduceSum", [(data(4, 5, dtype=np.int64), i64(a)) for a in (0, 1)], name="int64"),
    Runs("ReduceMax", [(X > 0, i64(a)) for a in (0, 1)], name="bool"),
    Runs("CumSum", [(X, one(a)) for a in (0, 1, 2, -1)], name="axis"),
    Runs("CumProd", [(data(2, 3, 2), one(a)) for a in (0, 1, 2, -1)], opset=26, name="axis"),
    Runs("CumSum", [(X, one(a)) for a in (0, -2)], {"exclusive": 1, "reverse": 1}, name="options"),
    Runs("Trilu", [(X, one(k)) for k in (0, 1, -2, 9, -9)], name="k"),
    Runs("Trilu", [(X, one(k)) for k in (0, 1, -2)], {"upper": 0}, name="lower"),
]

SIZES = [
    Runs("TopK", [(X, i64(k)) for k in (1, 3, 6, 0)], outputs=2, name="k"),
    Runs("OneHot", [(i64(0, 2, -1), one(d), f32(0, 2)) for d in (3, 5)], name="depth"),
    Runs("OneHot", [(i64(0, 2, -1), one(d, np.float32), f32(0, 2)) for d in (3, 5)], name="real-depth"),
    Runs("Range", [tuple(one(v) for v in r) for r in ((0, 5, 1), (5, 0, -2), (1, 1, 1), (3, 10, 4))], name="int"),
    Runs("Range", [tuple(one(v, np.float32) for v in r) for r in ((0, 5, 1.5), (5, 0, -2), (1, 1, 1))], name="float"),
    Runs("Expand", [(data(3, 1), i64(*s)) for s in ((3, 4), (1, 1), (3, 0), (3, 1))], name="shape"),
    Runs("Expand", [(data(3, 1), i64(*s)) for s in ((2, 3, 4), (1, 1, 1))], name="rank"),
    Runs("Tile", [(data(2, 3), i64(*r)) for r in ((1, 2), (3, 1), (0, 2))], name="repeats"),
    Runs("Reshape", [(data(4, 6), i64(*r)) for r in ((2, 12), (-1, 3), (0, -1))], name="shape"),
    Runs("ConstantOfShape", [(i64(*r),) for r in ((2, 3), (0, 3))], name="shape"),
    Runs("Pad", [(data(4, 6), i64(*p)) for p in ((1, 0, 2, 0), (0, 0, 0, 0), (-1, 2, 3, -2))], name="pads"),
    Runs("Pad", [(data(4, 6), i64(1, 0, 0, 2), one(v, np.float32)) for v in (0, 1.5, -7)], name="value"),
    Runs(
        "Pad",
        [
            (data(4, 6), i64(*p), one(2, np.float32), i64(a))
            for p, a in (((1, 2), 0), ((3, 0), 1), ((0, 1), -1), ((-1, -1), 0))
        ],
        name="axes",
    ),
    *(
        Runs(
            "Pad",
            [(data(4, 6), i64(*p), None, i64(a)) for p, a in (((1, 2), 0), ((3, 0), 1), ((0, 1), -1))],
            {"mode": m},
            name=m,
        )
        for m in ("reflect", "edge", "wrap")
    ),
    Runs("Split", [(data(6, 2), i64(*p)) for p in ((1, 2, 3), (2, 2, 2), (0, 5, 1))], outputs=3, name="sizes"),
    Runs("CenterCropPad", [(data(4, 6), i64(*p)) for p in ((4, 6), (2, 9), (7, 3))], name="shape"),
    Runs("CenterCropPad", [(data(4, 6), i64(p)) for p in (2, 6, 9)], {"axes": [1]}, name="axes"),
    Runs("AffineGrid", [(data(2, 2, 3), i64(*p)) for p in ((2, 3, 4, 5), (2, 1, 2, 2))], name="size"),
    Runs("HannWindow", [(one(p),) for p in (5, 8, 1)], name="size"),
    Runs("HammingWindow", [(one(p),) for p in (5, 8)], {"periodic": 0}, name="size"),
    Runs("BlackmanWindow", [(one(p),) for p in (5, 8)], name="size"),
]

LIMITS = [
    Runs("Clip", [(X, one(a, np.float32), one(b, np.float32)) for a, b in ((-1, 1), (0, 5), (2, 1))], name="bounds"),
    Runs("Dropout", [(X, one(0.5, np.float32), one(t, np.bool_)) for t in (False, False)], name="training"),
    Runs("Dropout", [(X, one(r, np.float32)) for r in (0.0, 0.5)], outputs=2, name="ratio"),
    Runs(
        "QuantizeLinear", [(X, one(v, np.float32), one(z, np.uint8)) for v, z in ((0.5, 3), (0.1, 128))], name="scale"
    ),
    Runs(
        "DequantizeLinear",
        [(data(3, 4, dtype=np.int8), one(v, np.float32), one(z, np.int8)) for v, z in ((0.5, 3), (0.1, 12))],
        name="scale",
    ),
    Runs(
        "NonMaxSuppression",
        [
            (
                np.sort(np.random.default_rng(1).random((1, 8, 2, 2)).astype(np.float32), 2).reshape(1, 8, 4),
                np.random.default_rng(2).random((1, 2, 8)).astype(np.float32),
                i64(m),
                f32(i),
                f32(s),
            )
            for m, i, s in ((3, 0.5, 0.0), (8, 0.2, 0.3), (1, 0.9, 0.9), (0, 0.5, 0.1))
        ],
        name="limits",
    ),
    Runs(
        "Compress",
        [(X, np.array(c, np.bool_)) for c in ((True, False, True, True), (False,) * 4)],
        {"axis": 0},
        name="condition",
    ),
    Runs("Gather", [(X, i64(*p)) for p in ((0, 1), (-1, 3))], name="indices"),
    Runs(
        "GatherElements",
        [(X, np.broadcast_to(i64(*p).reshape(2, 1, 1), (2, 5, 6)).copy()) for p in ((0, 1), (-1, 3))],
        name="indices",
    ),
    Runs(
        "ReverseSequence",
        [(X, i64(*p)) for p in ((0, 1, 2, 3, 4), (4, 4, 4, 4, 4))],
        {"batch_axis": 1, "time_axis": 0},
        name="lengths",
    ),
]

IMAGES = data(1, 2, 4, 6)
RESIZES = [
    *(
        Runs(
            "Resize",
            [
                (IMAGES, None, None, i64(1, 2, *s))
                for s in ((8, 12), (3, 5), (4, 6), (1 + (c == "pytorch_half_pixel"), 1), (7, 2))
            ],
            {"mode": m, "coordinate_transformation_mode": c},
            name=f"sizes-{m}-{c}",
        )
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    ),
    *(
        Runs(
            "Resize",
            [(IMAGES, None, f32(1, 1, *s)) for s in ((2, 2), (0.6, 0.8), (1, 1), (1.5, 0.5))],
            {"mode": m, "coordinate_transformation_mode": c},
            name=f"scales-{m}-{c}",
        )
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    ),
    *(
        Runs(
            "Resize",
            [
                (IMAGES, f32(0, 0, *r), None, i64(1, 2, 3, 5))
                for r in ((0.4, 0.6, 1, 1, 0.6, 1.3), (0, 0, 1, 1, 1, 1), (0.1, 0.2, 1, 1, 0.9, 0.7))
            ],
            {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0},
            name=f"roi-{m}",
        )
        for m in ("nearest", "linear", "cubic")
    ),
    *(
        Runs(
            "Resize",
            [(IMAGES, None, None, i64(*s)) for s in ((8, 12), (3, 5), (7, 2))],
            {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": p},
            name=p,
        )
        for p in ("not_larger", "not_smaller")
    ),
    Runs(
        "Resize",
        [(IMAGES, None, f32(1, 1, *s)) for s in ((0.6, 0.6), (2, 2))],
        {"mode": "cubic", "exclude_outside": 1},
        name="exclude",
    ),
    Runs("Upsample", [(IMAGES, f32(1, 1, *s)) for s in ((2, 2), (1, 3))], {"mode": "nearest"}, opset=9, name="scales"),
]

SMALL = data(1, 2, 6, 8)
ANTIALIASED = [
    *(
        Runs(
            "Resize",
            [
                (SMALL, None, None, i64(1, 2, *s))
                for s in ((3, 5), (2, 2), (9, 16), (6, 8), (5, 1 + (c != "half_pixel")))
            ],
            {"mode": m, "antialias": 1, "coordinate_transformation_mode": c},
            name=f"antialias-sizes-{m}-{c}",
        )
        for m in ("linear", "cubic")
        for c in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    ),
    *(
        Runs(
            "Resize",
            [(SMALL, None, f32(1, 1, *s)) for s in ((0.5, 0.6), (0.3, 0.25), (1, 1), (2, 1.5))],
            {"mode": m, "antialias": 1, "coordinate_transformation_mode": c},
            name=f"antialias-scales-{m}-{c}",
        )
        for m in ("linear", "cubic")
        for c in ("half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    ),
    Runs(
        "Resize",
        [(SMALL, None, f32(1, 1, *s)) for s in ((0.5, 0.6), (0.3, 0.25))],
        {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
        name="antialias-exclude",
    ),
    Runs(
        "Resize",
        [(data(1, 1, n, k), None, None, i64(3, 5)) for n, k in ((6, 8), (9, 4), (3, 5))],
        {"mode": "linear", "antialias": 1, "axes": [2, 3]},
        open={0: (2, 3)},
        name="antialias-open",
    ),
    Runs(
        "Resize",
        [(SMALL, None, None, i64(*s)) for s in ((3, 5), (9, 2))],
        {"mode": "linear", "antialias": 1, "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
        name="antialias-aspect",
    ),
]

REAL, COMPLEX, HALF, DEEP = data(2, 10, 1), data(2, 10, 2), data(2, 6, 2), data(3, 4, 5, 2)
SPECTRA = [
    Runs("DFT", [(REAL, one(n)) for n in (10, 7, 16, 1)], opset=20, name="length"),
    Runs("DFT", [(REAL.astype(np.float64), one(n)) for n in (9, 64)], opset=20, rtol=1e-12, atol=1e-12, name="double"),
    Runs("DFT", [(COMPLEX, one(n)) for n in (10, 7, 16)], {"inverse": 1}, opset=20, name="inverse"),
    Runs("DFT", [(REAL, one(n)) for n in (10, 7, 16)], {"onesided": 1}, opset=20, name="onesided"),
    Runs("DFT", [(HALF, one(n)) for n in (10, 7, 16, 11)], {"onesided": 1, "inverse": 1}, opset=20, name="real"),
    Runs("DFT", [(DEEP, None, one(a)) for a in (0, 1, 2, -2, -3)], opset=20, name="axis"),
    Runs("DFT", [(DEEP, one(n), one(a)) for n, a in ((4, 0), (9, 1), (3, -2))], {"onesided": 1}, opset=20, name="both"),
    Runs("DFT", [(data(2, n, 1),) for n in (10, 7, 1)], open={0: (1,)}, opset=20, name="open"),
    Runs("STFT", [(data(2, 40, 1), one(s), data(8)) for s in (4, 3, 8, 33)], opset=17, name="step"),
    Runs(
        "STFT", [(data(2, 40, 1), one(s), None, one(n)) for s, n in ((4, 8), (3, 7), (5, 40))], opset=17, name="length"
    ),
    Runs(
        "STFT",
        [(data(1, n, 2), one(s), data(k)) for n, s, k in ((40, 4, 8), (33, 3, 7), (12, 5, 12))],
        {"onesided": 0},
        open={0: (1,), 2: (0,)},
        opset=17,
        name="open",
    ),
    Runs(
        "MelWeightMatrix",
        [
            (one(bins), one(n), one(rate), one(low, np.float32), one(high, np.float32))
            for bins, n, rate, low, high in (
                (8, 16, 8192, 0, 4096),
                (4, 64, 16000, 20, 8000),
                (20, 400, 16000, 0, 7600),
                (1, 16, 8192, 0, 4096),
            )
        ],
        opset=17,
        name="all",
    ),
]


def boxes(seed: int, count: int) -> Array:
    """Boxes of many sizes, partly beyond the data."""
    random = np.random.default_rng(seed)
    corner = random.random((count, 2)) * 4
    return np.concatenate([corner, corner + random.random((count, 2)) * 8], 1).astype(np.float32)


PLACES = [
    *(
        Runs(
            "RoiAlign",
            [(data(2, 3, 9, 8), boxes(k, n), i64(0, 1, 1, 0)[:n]) for k, n in ((0, 3), (1, 1), (2, 4))],
            {"output_height": 2, "output_width": 3, "mode": m, "spatial_scale": s, "coordinate_transformation_mode": c},
            open={1: (0,), 2: (0,)},
            opset=16,
            name=f"{m}-{c}",
        )
        for m in ("avg", "max")
        for s, c in ((1.0, "half_pixel"), (0.5, "output_half_pixel"))
    ),
    Runs(
        "Col2Im",
        [
            (data(1, 12, n), i64(*i), i64(*b))
            for n, i, b in ((9, (4, 4), (2, 2)), (9, (5, 3), (3, 1)), (6, (3, 4), (2, 2)), (9, (3, 6), (1, 4)))
        ],
        open={0: (2,)},
        opset=18,
        name="sizes",
    ),
    Runs(
        "Col2Im",
        [(data(2, 12, n), i64(*i), i64(*b)) for n, i, b in ((6, (4, 4), (2, 2)), (12, (6, 5), (3, 2)))],
        {"strides": [2, 1], "pads": [0, 1, 1, 0], "dilations": [1, 2]},
        open={0: (2,)},
        opset=18,
        name="attributes",
    ),
]

EVERY = [*SLICES, *AXES, *SIZES, *LIMITS, *RESIZES, *ANTIALIASED, *SPECTRA, *PLACES]


USUAL = {
    "Slice-axis", "Slice-all", "Slice-open", "Squeeze-two", "Unsqueeze-two", "ReduceSum-keep0", "ReduceMean-keep1",
    "ReduceMin-two0", "CumSum-axis", "Trilu-k", "OneHot-real-depth", "Pad-pads", "Pad-value", "Pad-axes", "Split-sizes",
    "TopK-k", "Range-int", "Expand-rank", "Dropout-training",
    "Resize-scales-linear-half_pixel", "Resize-roi-nearest", "Resize-not_larger", "Upsample-scales",
    "Resize-antialias-scales-cubic-half_pixel", "Resize-antialias-open", "DFT-both", "DFT-real", "STFT-step",
    "MelWeightMatrix-all", "RoiAlign-avg-half_pixel", "Col2Im-attributes",
}  # fmt: skip
"""Cases that always run; the others with ``--slow``."""
