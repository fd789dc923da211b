"""Recipes for single nodes: products, windows, normalizations, recurrences, attention, losses and quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
from schema_cases import DTYPES, Made, Maker, Recipe, code_of
from schema_elementwise import one
from schema_movement import fixed, longs

SCALE = np.float32(0.25)


def matmul(m: Maker) -> Made:
    return [m.x(0, 2, 3, 5), m.x(1, 5, 4)], {}


def matmul_integer(m: Maker) -> Made:
    return [m.x(0, 3, 5), m.x(1, 5, 4), m.of(2, 1), m.of(3, 2)], {}


def gemm(m: Maker) -> Made:
    legacy = {"broadcast": 1} if m.known("broadcast") else {}
    return [m.x(0, 3, 5), m.x(1, 5, 4), m.x(2, 4)], legacy


def gemm_turned(m: Maker) -> Made:
    legacy = {"broadcast": 1} if m.known("broadcast") else {}
    return [m.x(0, 5, 3), m.x(1, 4, 5), m.x(2, 3, 4)], {"transA": 1, "transB": 1, "alpha": 2.0, "beta": 3.0, **legacy}


def einsum(equation: str, *shapes: tuple[int, ...]) -> Recipe:
    return lambda m: ([m.x(0, *s) for s in shapes], {"equation": equation})


def conv(m: Maker) -> Made:
    return [m.x(0, 1, 4, 6, 5), m.x(1, 6, 2, 3, 3), m.x(2, 6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2]}


def conv_line(m: Maker) -> Made:
    return [m.x(0, 2, 2, 7), m.x(1, 3, 2, 3)], {"dilations": [2], "auto_pad": "VALID"}


def conv_same(m: Maker) -> Made:
    return [m.x(0, 1, 2, 7, 6), m.x(1, 3, 2, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}


def conv_transpose(m: Maker) -> Made:
    attrs = {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0], "group": 2}
    return [m.x(0, 1, 4, 3, 4), m.x(1, 4, 3, 3, 2), m.x(2, 6)], attrs


def conv_integer(m: Maker) -> Made:
    return [m.x(0, 1, 2, 5, 5), m.x(1, 3, 2, 3, 3), m.of(2, 1), m.of(3, 0)], {"pads": [1, 1, 1, 1]}


def deform(m: Maker) -> Made:
    return [m.x(0, 1, 2, 4, 4), m.x(1, 3, 2, 2, 2), m.x(2, 1, 8, 3, 3, low=-1, high=1), m.x(3, 3)], {}


def pool(**attrs: Any) -> Recipe:
    def make(m: Maker) -> Made | None:
        if not all(m.known(k) for k in attrs):
            return None
        p = {"p": 1.0 if m.version == 1 else 1} if m.schema.name == "LpPool" else {}
        return [m.x(0, 1, 2, 6, 5)], {"kernel_shape": [3, 2], "strides": [2, 1], **attrs, **p}

    return make


def max_unpool(m: Maker) -> Made:
    index = np.array([[[[5, 7], [13, 15]]]], np.int64)
    return [m.x(0, 1, 1, 2, 2), index], {"kernel_shape": [2, 2], "strides": [2, 2]}


def max_roi_pool(m: Maker) -> Made:
    return [m.x(0, 1, 2, 6, 6), m.of(1, [[0, 0, 0, 3, 3], [0, 1, 1, 5, 5]])], {"pooled_shape": [2, 2]}


def roi_align(mode: str) -> Recipe:
    def make(m: Maker) -> Made:
        rois = m.of(1, [[0, 0, 3, 3], [1, 1, 5, 4]])
        return [m.x(0, 1, 2, 6, 6), rois, longs(0, 0)], {
            "output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode,
        }  # fmt: skip

    return make


def global_lp(m: Maker) -> Made:
    return [m.x(0, 1, 2, 3, 4)], {"p": 1.0 if m.version == 1 else 1}


def batch_norm(m: Maker) -> Made:
    x = m.x(0, 2, 3, 4)
    attrs: dict[str, Any] = {"epsilon": 0.01}
    if m.known("is_test"):
        attrs["is_test"] = 1
    if m.known("consumed_inputs"):
        attrs["consumed_inputs"] = [0, 0, 0, 1, 1]
    return [x, m.x(1, 3), m.x(2, 3), m.x(3, 3), m.x(4, 3, low=1)], attrs


def batch_norm_training(m: Maker) -> Made | None:
    if not m.known("training_mode"):
        return None
    return [m.x(0, 4, 3, 5), m.x(1, 3), m.x(2, 3), m.x(3, 3), m.x(4, 3, low=1)], {"training_mode": 1, "_outputs": 3}


def instance_norm(m: Maker) -> Made:
    return [m.x(0, 2, 3, 4, 5), m.x(1, 3), m.x(2, 3)], {"epsilon": 0.01}


def group_norm(m: Maker) -> Made:
    return [m.x(0, 2, 4, 5), m.x(1, 4), m.x(2, 4)], {"num_groups": 2, "epsilon": 0.01}


def layer_norm(outputs: int, **attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 2, 3, 8), m.x(1, 8), m.x(2, 8)], {"_outputs": outputs, **attrs})


def rms_norm(m: Maker) -> Made:
    return [m.x(0, 2, 3, 8), m.x(1, 8)], {"epsilon": 0.01}


def recurrent(gates: int, **attrs: Any) -> Recipe:
    def make(m: Maker) -> Made | None:
        attributes = dict(attrs)
        if not all(m.known(k) for k in attributes):
            return None
        both = 2 if attributes.get("direction") == "bidirectional" else 1
        size, steps, batch, width = 3, 4, 2, 2
        if m.known("output_sequence"):
            attributes["output_sequence"] = 1
        x = m.x(0, batch, steps, width) if attributes.get("layout") else m.x(0, steps, batch, width)
        w = m.x(1, both, gates * size, width, low=-1, high=1)
        r = m.x(2, both, gates * size, size, low=-1, high=1)
        b = m.x(3, both, 2 * gates * size, low=-1, high=1)
        return [x, w, r, b], {"hidden_size": size, "_outputs": 3 if gates == 4 else 2, **attributes}

    return make


def lengths(gates: int) -> Recipe:
    def make(m: Maker) -> Made:
        made = recurrent(gates)(m)
        assert made is not None
        x, w, r, b = made[0]
        attrs = {**made[1], "clip": 1.5}
        state = m.x(5, 1, 2, 3)
        more = [m.x(6, 1, 2, 3), m.x(7, 1, 9)] if gates == 4 else []
        return [x, w, r, b, m.of(4, [4, 2]), state, *more], attrs

    return make


def dft(m: Maker) -> Made:
    return [m.x(0, 2, 8, 1)], {"onesided": 1}


def stft(m: Maker) -> Made:
    return [m.x(0, 1, 16, 1), m.of(1, 4), m.of(2, np.hanning(8)), m.of(3, 8)], {}


def window(m: Maker) -> Made:
    return [m.of(0, 8)], {}


def window_as(name: str) -> Recipe:
    def make(m: Maker) -> Made:
        return [m.of(0, 8)], {"output_datatype": code_of(DTYPES[name]), "periodic": 0, "_result": DTYPES[name]}

    return make


def mel(m: Maker) -> Made:
    return [m.of(0, 4), m.of(1, 16), m.of(2, 8192), m.of(3, 0), m.of(4, 4096)], {}


def attention(**attrs: Any) -> Recipe:
    def make(m: Maker) -> Made | None:
        if not all(m.known(k) for k in attrs):
            return None
        shapes = ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
        return [m.x(i, *s, low=-1, high=1) for i, s in enumerate(shapes)], attrs

    return make


def attention_masked(m: Maker) -> Made:
    mask = m.x(3, 3, 5, low=-1, high=1)
    return [m.x(0, 1, 2, 3, 4), m.x(1, 1, 2, 5, 4), m.x(2, 1, 2, 5, 4), mask], {}


def attention_past(m: Maker) -> Made:
    past = [m.x(4, 1, 2, 3, 4), m.x(5, 1, 2, 3, 4)]
    return [m.x(0, 1, 2, 2, 4), m.x(1, 1, 2, 2, 4), m.x(2, 1, 2, 2, 4), None, *past], {"_outputs": 3}


def rotary(m: Maker) -> Made:
    return [m.x(0, 1, 2, 3, 4), m.x(1, 8, 2), m.x(2, 8, 2), longs(0, 3, 5)[None]], {}


def linear_attention(m: Maker) -> Made:
    size = {"q_num_heads": 2, "kv_num_heads": 2}
    return [m.x(0, 1, 4, 8), m.x(1, 1, 4, 8), m.x(2, 1, 4, 8)], {"update_rule": "linear", "_outputs": 2, **size}


def causal_conv(m: Maker) -> Made:
    return [m.x(0, 1, 2, 5), m.x(1, 2, 1, 3), m.x(2, 2)], {"_outputs": 2}


def nll(**attrs: Any) -> Recipe:
    return lambda m: ([m.x(0, 3, 4), m.of(1, [0, 3, 1]), m.x(2, 4, low=1)], attrs)


def grid(mode: str, padding: str) -> Recipe:
    def make(m: Maker) -> Made:
        known = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode) if m.version > 16 else mode
        return [m.x(0, 1, 2, 4, 5), m.x(1, 1, 3, 3, 2, low=-1, high=1)], {"mode": known, "padding_mode": padding}

    return make


def affine_grid(m: Maker) -> Made:
    return [m.x(0, 1, 2, 3), longs(1, 2, 3, 4)], {"align_corners": 1}


def det(m: Maker) -> Made:
    return [m.x(0, 2, 3, 3)], {}


def nms(m: Maker) -> Made:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.5, 0.6]]], np.float32)
    return [boxes, scores, longs(3), np.float32([0.5]), np.float32([0.0])], {}


def quantize(*, block: int = 0, axis: int | None = None, precision: bool = False) -> Recipe:
    def make(m: Maker) -> Made | None:
        attrs: dict[str, Any] = {}
        if block and not m.known("block_size"):
            return None
        if axis is not None and not m.known("axis"):
            return None
        shape: tuple[int, ...] = (3, 2) if block else (3,) if axis is not None else ()
        scale = m.of(1, m.rng.choice([1, 2, 4] if m.dtype(1).kind == "i" else [0.25, 0.5, 1.0], shape))
        zero = m.x(2, *shape, low=0, high=1)
        if m.dtype(2).name.startswith("float"):
            zero = np.zeros(shape, m.dtype(2))
        if block:
            attrs = {"block_size": 4, "axis": 1}
        elif axis is not None:
            attrs = {"axis": axis}
        x = m.x(0, 3, 8, low=-40, high=40)
        return [x, scale, zero], {"_result": m.dtype(2), **attrs}

    return make


def quantize_as(name: str) -> Recipe:
    def make(m: Maker) -> Made | None:
        target = next(c for c in m.schema.type_constraints if c.type_param_str in ("T3", "T2"))
        if not m.known("output_dtype") or name not in target.allowed_type_strs:
            return None
        return [m.x(0, 3, 8, low=-9, high=9), m.of(1, 2)], {
            "output_dtype": code_of(DTYPES[name]),
            "_result": DTYPES[name],
        }

    return make


def dequantize(*, block: int = 0, axis: int | None = None) -> Recipe:
    def make(m: Maker) -> Made | None:
        if (block and not m.known("block_size")) or (axis is not None and not m.known("axis")):
            return None
        shape: tuple[int, ...] = (3, 2) if block else (3,) if axis is not None else ()
        attrs = {"block_size": 4, "axis": 1} if block else {"axis": axis} if axis is not None else {}
        scale = m.of(1, m.rng.choice([0.25, 0.5, 1.0], shape))
        dtype = m.dtype(0)
        zero = None if dtype.name.startswith("float") or dtype == np.int32 else m.x(2, *shape, low=0, high=1)
        return [m.x(0, 3, 8, low=-2, high=1), scale, zero], attrs

    return make


def qlinear_matmul(m: Maker) -> Made:
    def zero(i: int) -> Any:
        return m.of(i, 0 if m.dtype(i).name.startswith("float") else 1)

    s = [m.of(i, SCALE) for i in (1, 4, 6)]
    return [m.x(0, 3, 5), s[0], zero(2), m.x(3, 5, 4), s[1], zero(5), s[2], zero(7)], {}


def qlinear_conv(m: Maker) -> Made:
    x, w = m.x(0, 1, 2, 5, 5), m.x(3, 3, 2, 3, 3)
    bias = np.array([1, -2, 3], np.int32)
    return [x, SCALE, m.of(2, 1), w, SCALE, m.of(5, 1 if m.dtype(3).kind == "u" else 0), SCALE, m.of(7, 2), bias], {}


LAYERS: dict[str, list[Recipe]] = {
    "MatMul": [matmul],
    "MatMulInteger": [matmul_integer],
    "Gemm": [gemm, gemm_turned],
    "Einsum": [einsum("ij,jk->ik", (3, 4), (4, 5)), einsum("bii->bi", (2, 3, 3)), einsum("i,j", (3,), (4,))],
    "Conv": [conv, conv_line, conv_same],
    "ConvTranspose": [conv_transpose],
    "ConvInteger": [conv_integer],
    "DeformConv": [deform],
    "MaxPool": [
        pool(),
        pool(pads=[1, 0, 1, 1]),
        pool(dilations=[1, 2]),
        pool(ceil_mode=1),
        pool(auto_pad="SAME_UPPER"),
    ],
    "AveragePool": [
        pool(),
        pool(pads=[1, 0, 1, 1]),
        pool(count_include_pad=1, pads=[1, 0, 1, 1]),
        pool(dilations=[1, 2]),
    ],
    "LpPool": [pool(), pool(pads=[1, 0, 1, 1])],
    "GlobalAveragePool": [fixed(2, 3, 4, 5)],
    "GlobalMaxPool": [fixed(2, 3, 4, 5)],
    "GlobalLpPool": [global_lp],
    "MaxUnpool": [max_unpool],
    "MaxRoiPool": [max_roi_pool],
    "RoiAlign": [roi_align("avg"), roi_align("max")],
    "BatchNormalization": [batch_norm, batch_norm_training],
    "InstanceNormalization": [instance_norm],
    "GroupNormalization": [group_norm],
    "LayerNormalization": [layer_norm(1), layer_norm(3)],
    "RMSNormalization": [rms_norm],
    "LpNormalization": [fixed(3, 4), fixed(3, 4, p=1, axis=0)],
    "MeanVarianceNormalization": [fixed(2, 3, 4, 5)],
    "LRN": [fixed(1, 6, 3, 2, size=3), fixed(1, 6, 3, 2, size=5, alpha=0.5, beta=0.5, bias=2.0)],
    "Softmax": [one(), one(axis=1)],
    "LogSoftmax": [one(), one(axis=1)],
    "Hardmax": [one(), one(axis=1)],
    "LSTM": [recurrent(4), recurrent(4, direction="bidirectional"), recurrent(4, layout=1), lengths(4)],
    "GRU": [
        recurrent(3),
        recurrent(3, direction="reverse"),
        recurrent(3, linear_before_reset=1),
        recurrent(3, layout=1),
        lengths(3),
    ],
    "RNN": [
        recurrent(1),
        recurrent(1, direction="bidirectional"),
        recurrent(1, activations=["Relu"]),
        recurrent(1, layout=1),
        lengths(1),
    ],
    "DFT": [dft],
    "STFT": [stft],
    **{
        f"{n}Window": [window, *(window_as(t) for t in ("tensor(double)", "tensor(float16)", "tensor(bfloat16)"))]
        for n in ("Hann", "Hamming", "Blackman")
    },
    "MelWeightMatrix": [mel],
    "Attention": [
        attention(),
        attention(is_causal=1),
        attention(scale=0.5, softcap=2.0),
        attention(left_window_size=1, right_window_size=1),
        attention_masked,
        attention_past,
    ],
    "RotaryEmbedding": [rotary],
    "LinearAttention": [linear_attention],
    "CausalConvWithState": [causal_conv],
    "NegativeLogLikelihoodLoss": [nll(), nll(reduction="sum"), nll(reduction="none", ignore_index=1)],
    "SoftmaxCrossEntropyLoss": [nll(), nll(reduction="sum"), nll(reduction="none", _outputs=2, ignore_index=1)],
    "GridSample": [
        grid("bilinear", "zeros"),
        grid("bicubic", "zeros"),
        grid("nearest", "border"),
        grid("bilinear", "reflection"),
    ],
    "AffineGrid": [affine_grid],
    "Det": [det],
    "NonMaxSuppression": [nms],
    "QuantizeLinear": [
        quantize(),
        quantize(axis=0),
        quantize(block=4),
        *(quantize_as(n) for n in DTYPES),
    ],
    "DequantizeLinear": [dequantize(), dequantize(axis=0), dequantize(block=4)],
    "DynamicQuantizeLinear": [one(_outputs=3)],
    "QLinearMatMul": [qlinear_matmul],
    "QLinearConv": [qlinear_conv],
}
