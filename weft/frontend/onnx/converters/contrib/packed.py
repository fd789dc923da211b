"""Weights of 2, 4 or 8 bits in blocks that share a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontend.onnx.converters.contrib.scores import counted, number, want_rank
from weft.frontend.onnx.converters.numbers import Tensor, operand, stack
from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.problems import Malformed, Unsupported
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, INT64

BITS = (2, 4, 8)


def unpacked(x: Tensor, bits: int) -> Tensor:
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


def _zero_points(node: Node, i: int, bits: int, shape: tuple[Dim, ...]) -> Tensor | float:
    """One zero point a block: packed like the weights, or as they are; the middle of the range without."""
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
        raise Unsupported("its attribute 'weight_prepacked' is set; weights in the layout of the specification are")
    if depth < 1 or columns < 1:
        raise Malformed(f"its weights have {depth} rows and {columns} columns")
    blocks = -(-depth // block)
    expected = (columns, blocks, block * bits // 8)
    if tuple(weights.shape) != expected and tuple(weights.shape) != (columns, blocks * expected[2]):
        raise Malformed(f"its weights are {weights.x.tensor}; N, K, bits and block_size ask for {list(expected)}")
    if x.shape[-1] != depth:
        raise Malformed(f"its input {x.x.tensor} must end in K = {depth}")
    whole = unpacked(weights.reshape(*expected), bits).to(FLOAT32)
    scale = scales.reshape(columns, blocks, 1).to(FLOAT32)
    zero = _zero_points(node, 3, bits, (columns, blocks))
    if node.has(4):
        made = _by_groups(node, whole.reshape(columns, blocks * block).part(1, 0, depth), scales, zero)
    else:
        spread = zero.reshape(columns, blocks, 1) if isinstance(zero, Tensor) else zero
        made = ((whole - spread) * scale).reshape(columns, blocks * block).part(1, 0, depth)
    product = x.call("matmul", made.to(x.dtype), transpose_b=True)
    return (product + operand(node, 5) if node.has(5) else product).x


def _by_groups(node: Node, whole: Tensor, scales: Tensor, zero: Tensor | float) -> Tensor:
    """Weights whose rows belong to the groups that ``g_idx`` names."""
    columns, depth = whole.shape
    groups = operand(node, 4).part(0, 0, depth)
    scale = scales.reshape(columns, -1).to(FLOAT32).call("gather", groups, axis=1)
    return (whole - (zero.call("gather", groups, axis=1) if isinstance(zero, Tensor) else zero)) * scale


def _gather(node: Node) -> Result:
    """Rows of a quantized table, as numbers; places outside of the table give zeros."""
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
    if isinstance(zero, Tensor):
        value = value - _by_block(zero.call("gather", safe, axis=gathered), moved, block, size).to(FLOAT32)
    elif zero:
        value = value - zero
    made = value * _by_block(row_scales, moved, block, size).to(FLOAT32)
    mask = inside.reshape(*(1,) * gathered, *inside.shape, *(1,) * (len(rows.shape) - gathered - len(inside.shape)))
    return mask.choose(made, 0.0).to(scales.dtype).x


def _table_zeros(node: Node, bits: int, is_bytes: bool, is_float: bool) -> Tensor | float:
    if not node.has(3):
        return float(1 << (bits - 1)) if is_bytes else 0.0
    if is_float:
        raise Malformed("tables of floats have no zero points")
    return unpacked(operand(node, 3), bits) if is_bytes else operand(node, 3)


def _wide(scales: Tensor, axis: int, size: Dim) -> Tensor:
    """Scales that are the same for all places of an axis, for each."""
    shape = list(scales.shape)
    if shape[axis] == 1 and size != 1:
        shape[axis] = size
    return scales.expand(*shape)


def _by_block(x: Tensor, axis: int, block: Dim, size: Dim) -> Tensor:
    """One value a block of an axis, for each place of it."""
    if x.shape[axis] == 1:
        return x
    steps = counted(x.node, size)
    return x.call("gather", steps.call("div", number(x.node, block)), axis=axis)


PACKED: dict[str, Callable[[Node], Result]] = {"GatherBlockQuantized": _gather, "MatMulNBits": _matmul}
