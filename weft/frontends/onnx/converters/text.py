"""Strings: operators on strings, and operators that only move elements, applied to strings.

For operators that only move elements, kernels move the positions of the strings; then the strings are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.expr.folds import product
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.node import Node, Result, Sequence_, Value
from weft.graph.nodes import GraphExpr
from weft.graph.types import TensorType, dim
from weft.support.dtypes import INT64
from weft.support.patterns import re2_pattern
from weft.support.pictures import CHANNELS, pillow

if TYPE_CHECKING:
    from weft.frontends.onnx.converters.numbers import Traced

STRING = 8
"""The number that ONNX has for the dtype of strings."""

MOVES = frozenset(
    [
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Reshape",
        "ReverseSequence",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "Split",
        "SplitToSequence",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
    ]
)
"""Operators whose result elements are all elements of an operand."""


def is_text(value: Value | None) -> bool:
    """Whether a value is a tensor of strings."""
    return isinstance(value, GraphExpr) and isinstance(value.type, TensorType) and value.type.dtype.kind == "string"


def holds_text(value: Any) -> bool:
    """Whether a value is a tensor of strings, or a sequence of them."""
    return is_text(value) or (isinstance(value, Sequence_) and any(map(is_text, value.items)))


def convert(node: Node, again: Callable[[Node], Any]) -> Any:
    """The values of a node with string operands; None if its own converter handles strings."""
    if node.domain:
        return None
    if node.op_type in MOVES:
        return _moved(node, again)
    if node.op_type == "Equal":
        return node.call("text_equal", node.data(0), node.data(1))
    return None


def _moved(node: Node, again: Callable[[Node], Any]) -> Any:
    texts: list[GraphExpr] = []
    count: Any = 0

    def places(v: Any) -> Any:
        nonlocal count
        if isinstance(v, Sequence_):
            return Sequence_(tuple(places(item) for item in v.items))
        if not is_text(v):
            return v
        shape, first = v.tensor.shape, count
        texts.append(v)
        count = product(shape) + first
        numbers = node.call("arange", start=first, step=1, count=dim(product(shape)), dtype="int64")
        return node.call("reshape", numbers, shape=shape)

    made = again(node.altered(tuple(places(v) for v in node.inputs)))
    text = texts[0] if len(texts) == 1 else node.call("text_join", *texts)

    def taken(r: Any) -> Any:
        if isinstance(r, Sequence_):
            return Sequence_(tuple(taken(item) for item in r.items))
        return node.call("text_take", text, node.as_data(r))

    return tuple(taken(r) for r in made) if isinstance(made, (tuple, list)) else taken(made)


def selected(places: Traced, values: Sequence[str], default: str = "_Unused") -> GraphExpr:
    """The strings of a table at positions that the model computes."""
    return places.node.call("text_select", places.to(INT64).x, values=tuple(values), default=default)


def _concat(node: Node) -> Result:
    return node.call("text_concat", node.data(0), node.data(1))


def _full_match(node: Node) -> Result:
    pattern = node.text("pattern", "")
    try:
        re2_pattern(pattern)
    except ValueError as why:
        raise Malformed(f"its pattern is not in the syntax of RE2: {why}") from None
    return node.call("text_matches", node.data(0), pattern=pattern)


def _picture(node: Node) -> Result:
    """ImageDecoder. A file that cannot be decoded gives a picture without pixels."""
    data, pixels = node.data(0), node.text("pixel_format", "RGB")
    if pixels not in CHANNELS:
        raise Malformed(f"its pixel_format is '{pixels}', not one of {', '.join(CHANNELS)}")
    pillow()
    size = node.bound(node.call("picture_size", data, pixels=pixels), "picture")
    return node.call("picture_decode", data, pixels=pixels, size=size)


def _normalizer(node: Node) -> Result:
    x = node.data(0)
    if x.tensor.rank not in (1, 2) or (x.tensor.rank == 2 and x.tensor.shape[0] != 1):
        raise Unsupported(f"words must stand in a vector or in one row, not in {x.tensor}")
    attrs = {
        "case": node.text("case_change_action", "NONE"),
        "case_sensitive": node.flag("is_case_sensitive"),
        "stopwords": node.texts("stopwords"),
    }
    (size,) = node.bound(node.call("text_normalize_count", x, **attrs), "words")
    return node.call("text_normalize", x, size=size, **attrs)


def _split(node: Node) -> Result:
    x = node.data(0)
    attrs: dict[str, Any] = {"delimiter": node.text("delimiter", "")}
    if node.has_attribute("maxsplit"):
        attrs["maxsplit"] = node.integer("maxsplit")
    counts = node.call("text_split_counts", x, **attrs)
    flat = node.call("reshape", counts, shape=(dim(product(x.tensor.shape)),))
    zero = node.constant([0], "int64")
    most = node.call("reduce_max", node.call("concat", flat, zero, axis=0), axes=(0,), keepdims=True)
    (size,) = node.bound(most, "pieces")
    return node.call("text_split", x, size=size, **attrs), counts


TEXT_OPERATORS: dict[str, Callable[[Node], Result]] = {
    "ImageDecoder": _picture,
    "RegexFullMatch": _full_match,
    "StringConcat": _concat,
    "StringNormalizer": _normalizer,
    "StringSplit": _split,
}
