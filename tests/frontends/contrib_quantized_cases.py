"""Cases for the quantized operators of com.microsoft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from one_node import RNG, Array, OneNode, f, i8, n, s, u8, z

I8 = np.int8


def q(op: str, name: str, *operands: Array | None, known: tuple[int, ...] = (), **attrs: Any) -> OneNode:
    """Results that are rounded may be one step apart."""
    return OneNode(op, operands, attrs, name=name, known=known, atol=1.0, rtol=0.0)


def r(op: str, name: str, *operands: Array | None, known: tuple[int, ...] = (), **attrs: Any) -> OneNode:
    """Results that are real numbers."""
    return OneNode(op, operands, attrs, name=name, known=known, rtol=1e-4, atol=1e-4)


A, BQ, IMAGE = u8(2, 3, 4), u8(2, 3, 4), u8(2, 3, 6, 6)
COLUMN = u8(3, 1)
SA, SB, SC = s(0.02), s(0.03), s(0.05)

ELEMENTWISE = (
    *(
        case
        for op in ("QLinearAdd", "QLinearMul")
        for case in (
            q(op, "plain", A, SA, z(120), BQ, SB, z(130), SC, z(100)),
            q(op, "signed", i8(2, 5), SA, z(-3, I8), i8(2, 5), SB, z(7, I8), SC, z(1, I8)),
            q(op, "broadcast", A, SA, z(120), u8(4), SB, z(130), SC, z(100)),
            replace(
                q(op, "no_zeros", A, SA, None, COLUMN, SB, None, SC),
                instead=q(op, "", A, SA, z(0), COLUMN, SB, z(0), SC, z(0)),
            ),
        )
    ),
    q("QLinearSigmoid", "plain", A, SA, z(120), s(1 / 256), z(0), known=(1, 2, 3, 4)),
    q("QLinearSigmoid", "signed", i8(7), SA, z(-5, I8), s(1 / 256), z(-128, I8)),
    q("QLinearLeakyRelu", "plain", A, SA, z(120), SC, z(60), alpha=0.2),
    q("QLinearLeakyRelu", "default", i8(7), SA, z(-5, I8), SC, z(10, I8)),
    q("QLinearSoftmax", "last", A, SA, z(120), s(1 / 256), z(0), opset=13),
    q("QLinearSoftmax", "axis", i8(2, 5, 3), SA, z(-5, I8), s(1 / 256), z(-128, I8), opset=13, axis=1),
    q("QLinearSoftmax", "old", A, SA, z(120), s(1 / 256), z(0), opset=12, axis=1),
    q("QLinearConcat", "two", SC, z(100), A, SA, z(120), BQ, SB, z(130), axis=1),
    q(
        "QLinearConcat",
        "three",
        SC,
        z(0, I8),
        i8(2, 3),
        SA,
        z(1, I8),
        i8(2, 2),
        SB,
        z(-1, I8),
        i8(2, 1),
        SC,
        z(0, I8),
        axis=-1,
    ),
    q("QLinearWhere", "plain", RNG.random((2, 3, 4)) > 0.5, A, SA, z(120), BQ, SB, z(130), SC, z(100)),
    q("QLinearWhere", "broadcast", RNG.random((3, 1)) > 0.5, A, SA, z(120), u8(4), SB, z(130), SC, z(100)),
)

POOLS = (
    q("QLinearGlobalAveragePool", "plain", IMAGE, SA, z(120), SB, z(100)),
    q("QLinearGlobalAveragePool", "last", IMAGE, SA, z(120), SB, z(100), channels_last=1),
    q("QLinearAveragePool", "plain", IMAGE, SA, z(120), SB, z(100), kernel_shape=[3, 3]),
    q(
        "QLinearAveragePool",
        "pads",
        IMAGE,
        SA,
        z(120),
        SB,
        z(100),
        kernel_shape=[3, 3],
        pads=[1, 0, 1, 1],
        strides=[2, 1],
    ),
    q(
        "QLinearAveragePool",
        "count",
        IMAGE,
        SA,
        z(120),
        SB,
        z(100),
        kernel_shape=[2, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    q(
        "QLinearAveragePool",
        "ceil",
        i8(1, 2, 5, 5),
        SA,
        z(3, I8),
        SB,
        z(-4, I8),
        kernel_shape=[2, 2],
        strides=[2, 2],
        ceil_mode=1,
    ),
    q("QLinearAveragePool", "last", IMAGE, SA, z(120), SB, z(100), kernel_shape=[3, 3], channels_last=1),
    q(
        "QLinearConv",
        "last",
        u8(1, 5, 5, 3),
        SA,
        z(120),
        i8(4, 3, 3, 3)
        // 2,  # two products fit 16 bits, in which onnxruntime adds them on CPUs without products of bytes
        SB,
        z(0, I8),
        s(0.9),
        z(100),
        known=(3,),
        channels_last=1,
        pads=[1, 1, 1, 1],
    ),
    q("NhwcMaxPool", "plain", u8(1, 6, 6, 3), kernel_shape=[2, 2], strides=[2, 2]),
)

PA, PB = u8(3, 8), i8(8, 5)
PRODUCTS = (
    r("DynamicQuantizeMatMul", "plain", f(3, 8), PB, s(0.03), known=(1,)),
    r("DynamicQuantizeMatMul", "zero", f(2, 3, 8), PB, s(0.03), z(4, I8), f(5), known=(1,)),
    r("DynamicQuantizeMatMul", "columns", f(3, 8), PB, abs(f(5)), i8(5), known=(1,)),
    r("DynamicQuantizeMatMul", "unsigned", f(3, 8), u8(8, 5), s(0.03), z(128), known=(1,)),
    r("DynamicQuantizeMatMul", "negative", -abs(f(3, 8)) - 1, PB, s(0.03)),
    r("MatMulIntegerToFloat", "plain", PA, PB, SA, SB),
    r("MatMulIntegerToFloat", "zeros", PA, PB, SA, SB, z(120), z(3, I8), known=(1,)),
    r("MatMulIntegerToFloat", "columns", u8(2, 3, 8), PB, SA, abs(f(5)), z(120), i8(5), f(5), known=(1,)),
    r("MatMulIntegerToFloat", "signed", i8(3, 8), PB, SA, SB, z(-2, I8), z(3, I8), f(5), known=(1,)),
    r("QGemm", "real", PA, SA, z(120), PB, SB, z(3, I8), known=(3,)),
    r("QGemm", "trans", PA, SA, z(120), i8(5, 8), SB, z(3, I8), known=(3,), transB=1, alpha=0.7),
    r("QGemm", "bias", PA, SA, z(120), PB, SB, z(3, I8), RNG.integers(-900, 900, 5).astype(np.int32), known=(3, 6)),
    q("QGemm", "quantized", PA, SA, z(120), PB, SB, z(3, I8), None, s(0.4), z(90), known=(3,)),
    q(
        "QGemm",
        "columns",
        u8(8, 3),
        SA,
        z(120),
        i8(5, 8),
        abs(f(5)),
        i8(5),
        RNG.integers(-900, 900, (3, 5)).astype(np.int32),
        s(3.0),
        z(4),
        known=(3,),
        transA=1,
        transB=1,
    ),
    r(
        "MatMulInteger16",
        "plain",
        RNG.integers(-999, 999, (2, 3, 4)).astype(np.int16),
        RNG.integers(-999, 999, (4, 2)).astype(np.int16),
    ),
)


def packed(bits: int, rows: int, columns: int, block: int) -> Array:
    return u8(columns, -(-rows // block), block * bits // 8)


def bits(
    name: str,
    bits_: int,
    k: int,
    columns: int,
    block: int,
    *more: Array | None,
    lead: tuple[int, ...] = (3,),
    dtype: Any = np.float32,
    **attrs: Any,
) -> OneNode:
    scales = f(columns, -(-k // block), dtype=dtype, scale=0.1)
    operands = (f(*lead, k, dtype=dtype), packed(bits_, k, columns, block), scales, *more)
    sizes = {"K": k, "N": columns, "bits": bits_, "block_size": block, **attrs}
    known = tuple(i for i in range(1, len(operands)))
    return OneNode("MatMulNBits", operands, sizes, name=name, known=known, rtol=1e-3, atol=1e-3)


PACKED = (
    bits("four", 4, 64, 24, 32),
    bits("four_row", 4, 64, 24, 32, lead=(1,)),
    bits("four_batch", 4, 32, 8, 16, lead=(2, 3)),
    bits("four_odd", 4, 50, 7, 16),
    bits("four_zero", 4, 64, 24, 32, u8(24, 1)),
    bits("four_zero_odd", 4, 96, 5, 32, u8(5, 2)),
    bits("four_zero_real", 4, 64, 24, 32, f(24, 2)),
    bits("four_groups", 4, 64, 8, 32, None, RNG.integers(0, 2, 64).astype(np.int32)),
    bits("four_bias", 4, 64, 24, 32, None, None, f(24)),
    bits("two", 2, 64, 24, 32),
    bits("two_zero", 2, 160, 6, 32, u8(6, 2)),
    bits("eight", 8, 64, 24, 32),
    bits("eight_zero", 8, 64, 24, 16, u8(24, 4)),
    bits("half", 4, 64, 24, 32, dtype=np.float16),
)


def table(name: str, data: Array, places: Array, scales: Array, zeros: Array | None = None, **attrs: Any) -> OneNode:
    operands = (data, places, scales) if zeros is None else (data, places, scales, zeros)
    return OneNode("GatherBlockQuantized", operands, attrs, name=name, known=(0, 2, 3))


GATHERS = (
    table("four", u8(5, 16), n(0, 4, -1, 2), f(5, 2), bits=4, block_size=16, quantize_axis=1),
    table(
        "four_zero", u8(5, 16), n(0, 4, 1, 2).reshape(2, 2), f(5, 2), u8(5, 1), bits=4, block_size=16, quantize_axis=1
    ),
    table("eight", u8(5, 32), n(3, 1), f(5, 2), bits=8, block_size=16, quantize_axis=1),
    table("two", u8(5, 8), n(3, 1), f(5, 2), bits=2, block_size=16, quantize_axis=1),
)

QUANTIZED_CASES = (*ELEMENTWISE, *POOLS, *PRODUCTS, *PACKED, *GATHERS)
