"""Weights of 2, 4 or 8 bits in blocks with a common scale and zero point."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.contrib.scores import counted, number, want_rank, whole
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.numbers import Traced, constant, operand, stack
from weft.frontends.onnx.node import Node, Result
from weft.graph.types import Dim
from weft.ops.packed_weights import PANEL
from weft.support.dtypes import FLOAT32, INT64

BITS = (2, 4, 8)


def unpacked(x: Traced, bits: int) -> Traced:
    """Bytes [..., n] as the numbers packed in them, the lowest bits first: uint8 [..., n · 8 / bits]"""
    if bits == 8:
        return x
    *outer, count = x.shape
    mask = (1 << bits) - 1
    parts = []
    for shift in range(0, 8, bits):
        moved = x.call("shift_right", shift) if shift else x
        parts.append(moved.call("bitwise_and", mask))
    if not isinstance(count, int):
        raise Unsupported(f"the number of packed bytes must be known, but is {count}")
    return stack(parts).reshape(*outer, count * len(parts))


def _bits(node: Node) -> int:
    bits = node.integer("bits", 4)
    if bits not in BITS:
        raise Unsupported(f"its attribute 'bits' is {bits}; 2, 4 and 8 are supported")
    return bits


def _block(node: Node, default: int | None = None) -> int:
    size = node.integer("block_size", default)
    if size < 16 or size & (size - 1):
        raise Malformed(f"its attribute 'block_size' is {size}, not a power of two from 16 on")
    return size


def _zero_points(node: Node, i: int, bits: int, shape: tuple[Dim, ...]) -> Traced | float:
    """One zero point for each block, packed like the weights or not packed; default: the middle of the range."""
    if not node.has(i):
        return float(1 << (bits - 1))
    given = operand(node, i)
    if given.dtype == "uint8":
        given = unpacked(given.reshape(shape[0], -1), bits).part(1, 0, shape[1])
    return given.to(FLOAT32).reshape(*shape)


def _matmul(node: Node) -> Result:
    x, weights, scales = (operand(node, i) for i in range(3))
    bits, block = _bits(node), _block(node)
    depth, columns = node.integer("K"), node.integer("N")
    if node.integer("weight_prepacked", 0):
        raise Unsupported("its attribute 'weight_prepacked' is set; only weights in the specified layout are supported")
    if depth < 1 or columns < 1:
        raise Malformed(f"its weights have {depth} rows and {columns} columns")
    blocks = -(-depth // block)
    expected = (columns, blocks, block * bits // 8)
    if tuple(weights.shape) != expected and tuple(weights.shape) != (columns, blocks * expected[2]):
        raise Malformed(f"its weights are {weights.x.tensor}; N, K, bits and block_size ask for {list(expected)}")
    if x.shape[-1] != depth:
        raise Malformed(f"its input {x.x.tensor} must end in K = {depth}")
    zero = _zero_points(node, 3, bits, (columns, blocks))
    bytes_ = weights.reshape(*expected)
    if node.has(4):
        made = _by_groups(node, unpacked(bytes_, bits).reshape(columns, -1).part(1, 0, depth), scales, zero)
        product = x.call("matmul", made.to(x.dtype), transpose_b=True)
    else:
        scale = scales.reshape(columns, blocks).to(FLOAT32)
        shift = (zero * scale).call("neg") if isinstance(zero, Traced) else scale * -zero
        missing = blocks * block - depth
        wide = x.call("pad", pads=(*(0,) * (2 * len(x.shape) - 1), missing), mode="constant", value=0) if missing else x
        product = wide.call(
            "packed_matmul", _panels(bytes_), _panels(scale), _panels(shift), bits=bits, columns=columns
        )
    return (product + operand(node, 5) if node.has(5) else product).x


def _panels(x: Traced) -> Traced:
    """[columns, …] → [columns / 16, …, 16], padded with zeros."""
    columns, *rest = x.shape
    missing = -whole(columns, "the number of columns") % PANEL
    if missing:
        x = x.call("pad", pads=(*(0,) * (len(rest) + 1), missing, *(0,) * len(rest)), mode="constant", value=0)
    split = x.reshape(x.shape[0] // PANEL, PANEL, *rest)
    return split.transpose(0, *range(2, len(rest) + 2), 1)


def _by_groups(node: Node, numbers: Traced, scales: Traced, zero: Traced | float) -> Traced:
    """The weights as floats; ``g_idx`` gives the group of each row."""
    columns, depth = numbers.shape
    by_group = scales.reshape(columns, -1).to(FLOAT32)
    groups = checked(operand(node, 4).part(0, 0, depth), 4, by_group.shape[1])
    scale = by_group.call("gather", groups, axis=1)
    return (numbers.to(FLOAT32) - (zero.call("gather", groups, axis=1) if isinstance(zero, Traced) else zero)) * scale


def _gather(node: Node) -> Result:
    """Rows of a quantized table, as floats; indices out of range give zeros."""
    table, places, scales = (operand(node, i) for i in range(3))
    rank = len(table.shape)
    gathered = node.axis(rank, 0, "gather_axis")
    quantized = node.axis(rank, 1 if rank > 1 else 0, "quantize_axis")
    is_bytes, is_float = table.dtype == "uint8", table.dtype.is_float
    bits = _bits(node) if is_bytes else table.dtype.bits
    if is_bytes and gathered != 0:
        raise Malformed("packed bytes are gathered along their first dimension only")
    zero = _table_zeros(node, bits, is_bytes, is_float)
    want_rank(scales, (rank,), "scales")
    extent = table.shape[gathered]
    at = places.to(INT64)
    at = (at < 0).choose(at + number(node, extent), at)
    inside = (at >= 0) & (at < number(node, extent))
    safe = at.limited(0, number(node, extent) - 1)
    rows, row_scales = (t.call("gather", safe, axis=gathered) for t in (table, _wide(scales, gathered, extent)))
    if is_bytes:
        rows = unpacked(rows, bits)
    moved = quantized if quantized < gathered else quantized + len(places.shape) - 1
    size = rows.shape[moved]
    block = size if is_float and not node.integer("block_size", 128) else _block(node, 128)
    value = rows.to(FLOAT32)
    if isinstance(zero, Traced):
        value = value - _by_block(zero.call("gather", safe, axis=gathered), moved, block, size).to(FLOAT32)
    elif zero:
        value = value - zero
    made = value * _by_block(row_scales, moved, block, size).to(FLOAT32)
    mask = inside.reshape(*(1,) * gathered, *inside.shape, *(1,) * (len(rows.shape) - gathered - len(inside.shape)))
    return mask.choose(made, 0.0).to(scales.dtype).x


def _table_zeros(node: Node, bits: int, is_bytes: bool, is_float: bool) -> Traced | float:
    if not node.has(3):
        return float(1 << (bits - 1)) if is_bytes else 0.0
    if is_float:
        raise Malformed("tables of floats have no zero points")
    return unpacked(operand(node, 3), bits) if is_bytes else operand(node, 3)


def _wide(scales: Traced, axis: int, size: Dim) -> Traced:
    """Scales that are constant along an axis, repeated along it."""
    shape = list(scales.shape)
    if shape[axis] == 1 and size != 1:
        shape[axis] = size
    return scales.expand(*shape)


def _by_block(x: Traced, axis: int, block: Dim, size: Dim) -> Traced:
    """One value for each block of an axis, repeated for each position of the block."""
    if x.shape[axis] == 1:
        return x
    steps = counted(x.node, size)
    return x.call("gather", steps.call("div", number(x.node, block)), axis=axis)


# The values of the 16 codes of 4 bits, relative to the largest value of their block (Dettmers et al. 2023, QLoRA).
_FP4 = (0.0, 0.00520833, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)  # fmt: skip
TABLES = ((*_FP4, *(-v for v in _FP4)), _NF4)


def _bitsandbytes(node: Node) -> Result:
    """A product with a matrix [N, K] of codes in a table of 16 values; constant matrices are decoded at compile
    time."""
    x, packed, largest = (operand(node, i) for i in range(3))
    rows, columns, block, kind = (node.integer(name) for name in ("N", "K", "block_size", "quant_type"))
    if kind not in (0, 1):
        raise Malformed(f"its attribute 'quant_type' is {kind}, not 0 or 1")
    _block(node)
    count = rows * columns
    if tuple(packed.shape) not in (((count + 1) // 2,), ((count + 1) // 2, 1)) or whole(
        largest.shape[0], "the number of blocks"
    ) != -(-count // block):
        raise Malformed(
            f"its weights {packed.x.tensor} and scales {largest.x.tensor} do not hold {rows}×{columns} numbers"
        )
    bytes_ = packed.reshape((count + 1) // 2)
    numbers = stack([bytes_.call("shift_right", 4), bytes_.call("bitwise_and", 15)]).reshape(-1).part(0, 0, count)
    decoded = constant(node, TABLES[kind]).call("gather", numbers.to(INT64), axis=0)
    scale = largest.to(FLOAT32).call("gather", counted(node, count).call("div", number(node, block)), axis=0)
    weights = (decoded * scale).reshape(rows, columns).to(x.dtype)
    return x.call("matmul", weights, transpose_b=bool(node.integer("transB", 1))).x


PACKED: dict[str, Callable[[Node], Result]] = {
    "GatherBlockQuantized": _gather,
    "MatMulBnb4": _bitsandbytes,
    "MatMulNBits": _matmul,
}
