"""Operators on strings. No kernel reads strings: the host runs these between kernels (trait ``host``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.expr.folds import product
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type, dim
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import BOOL, INT64, DType
from weft.support.strings import FUNCTIONS

STRING = DType("string")
Shape = tuple[Dim, ...]


def _words(*words: str, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    made = np.array(words, object)
    return made if shape is None else made.reshape(shape)


def _operator(
    name: str,
    operands: tuple[DType | None, ...] | None,
    result: Callable[[Attrs, tuple[TensorType, ...]], TensorType],
    *cases: Case,
    doc: str,
    source: str = "Weft",
    attributes: tuple[Attribute, ...] = (),
) -> OpDef:
    """An operator on operands of these dtypes (None: any; for all of them: any number of strings)."""

    def infer(attrs: Attrs, *types: Type) -> TensorType:
        given = rel.tensors(name, types, len(types) if operands is None else len(operands))
        for i, t in enumerate(given):
            wanted = STRING if operands is None else operands[i]
            if wanted is not None and t.dtype != wanted:
                rel.fail(name, f"operand {i} must be {wanted}, not {t}", "T012")
        return result(attrs, tuple(given))

    return OpDef(name, attributes, infer, FUNCTIONS[name], cases=cases, doc=doc, source=source, host=True)


def _like(dtype: DType) -> Callable[[Attrs, tuple[TensorType, ...]], TensorType]:
    return lambda attrs, types: TensorType(types[0].shape, dtype)


def _broadcast(dtype: DType) -> Callable[[Attrs, tuple[TensorType, ...]], TensorType]:
    return lambda attrs, types: TensorType(rel.broadcast("strings", types[0].shape, types[1].shape), dtype)


def _joined(attrs: Attrs, types: tuple[TensorType, ...]) -> TensorType:
    total: Any = 0
    for t in types:
        total = product(t.shape) + total
    return TensorType((dim(total),), STRING)


def _normalized(attrs: Attrs, types: tuple[TensorType, ...]) -> TensorType:
    size = rel.simplified(attrs.size)
    return TensorType((1, size) if types[0].rank == 2 else (size,), STRING)


_NORMAL = (
    Attribute("case", "NONE", "LOWER, UPPER or NONE: what becomes of letters"),
    Attribute("case_sensitive", False, "whether stopwords must have the same case"),
    Attribute("stopwords", (), "words to leave out"),
)
_SPLIT = (
    Attribute("delimiter", "", "what stands between pieces; empty: any white space"),
    Attribute("maxsplit", None, "split so often at most"),
)
_SIZE = Attribute("size", REQUIRED, "the size of the result that depends on the strings")
_AB = (_words("a", "bc"), _words("x", "bc"))

TEXTS = (
    _operator(
        "text_concat",
        (STRING, STRING),
        _broadcast(STRING),
        Case(_AB, {}),
        Case((_words("a", "b"), _words("c")), {}),
        doc="each string with the other behind it",
        source="ONNX StringConcat-20",
    ),
    _operator(
        "text_equal",
        (STRING, STRING),
        _broadcast(BOOL),
        Case(_AB, {}),
        doc="whether strings are the same",
        source="ONNX Equal-19",
    ),
    _operator("text_join", None, _joined, Case(_AB, {}), doc="all strings of some tensors in a vector"),
    _operator(
        "text_lookup",
        (STRING,),
        _like(INT64),
        Case((_words("b", "q"),), {"keys": ("a", "b", "b")}),
        doc="where each string stands in a table, -1 where it does not",
        attributes=(Attribute("keys", REQUIRED, "the table"),),
    ),
    _operator(
        "text_matches",
        (STRING,),
        _like(BOOL),
        Case((_words("ab", "b"),), {"pattern": "a.*"}),
        doc="whether whole strings have the form of a regular expression",
        source="ONNX RegexFullMatch-20",
        attributes=(Attribute("pattern", REQUIRED, "the regular expression"),),
    ),
    _operator(
        "text_normalize",
        (STRING,),
        _normalized,
        Case((_words("A", "the"),), {"stopwords": ("The",), "size": 1}),
        doc="words in one case, without stopwords",
        source="ONNX StringNormalizer-10",
        attributes=(*_NORMAL, _SIZE),
    ),
    _operator(
        "text_normalize_count",
        (STRING,),
        lambda attrs, types: TensorType((1,), INT64),
        Case((_words("A", "the"),), {"stopwords": ("The",)}),
        doc="how many words text_normalize gives",
        attributes=_NORMAL,
    ),
    _operator(
        "text_parse",
        (STRING,),
        lambda attrs, types: TensorType(types[0].shape, DType(attrs.to)),
        Case((_words("1.5", "-inf"),), {"to": "float32"}),
        Case((_words("3", "-4"),), {"to": "int64"}),
        doc="the numbers that strings say",
        source="ONNX Cast-13",
        attributes=(Attribute("to", REQUIRED, "the dtype"),),
    ),
    _operator(
        "text_select",
        (INT64,),
        _like(STRING),
        Case((np.array([1, -1]),), {"values": ("a", "b"), "default": "?"}),
        doc="the strings of a table at some places",
        attributes=(
            Attribute("values", REQUIRED, "the table"),
            Attribute("default", "_Unused", "what stands where the table has nothing"),
        ),
    ),
    _operator(
        "text_show",
        (None,),
        _like(STRING),
        Case((np.array([1.5, -2], np.float32),), {}),
        doc="numbers in words",
        source="ONNX Cast-13",
    ),
    _operator(
        "text_split",
        (STRING,),
        lambda attrs, types: TensorType((*types[0].shape, rel.simplified(attrs.size)), STRING),
        Case((_words("a b", "c"),), {"size": 2}),
        Case((_words("a,b,c", ""),), {"delimiter": ",", "maxsplit": 1, "size": 2}),
        doc="the pieces of strings, filled up with empty ones",
        source="ONNX StringSplit-20",
        attributes=(*_SPLIT, _SIZE),
    ),
    _operator(
        "text_split_counts",
        (STRING,),
        _like(INT64),
        Case((_words("a b", "c"),), {}),
        doc="how many pieces strings have",
        source="ONNX StringSplit-20",
        attributes=_SPLIT,
    ),
    _operator(
        "text_take",
        (STRING, INT64),
        lambda attrs, types: TensorType(types[1].shape, STRING),
        Case((_words("a", "b"), np.array([[1, 0]])), {}),
        doc="the strings at some places of a tensor in row-major order: how strings are moved about",
    ),
)
