"""Linear models, tables and scalings of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import product
from weft.frontends.onnx.converters.classes import class_labels, of_many, of_two, post_transform, transformed
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.converters.tables import from_table
from weft.frontends.onnx.converters.text import selected
from weft.frontends.onnx.converters.trees import TREES
from weft.frontends.onnx.converters.vectors import VECTORS
from weft.frontends.onnx.node import Maps, Node, Result
from weft.frontends.onnx.tensors import Array
from weft.support.dtypes import FLOAT32, INT64, DType


def _linear(node: Node, targets: int) -> Traced:
    x = operand(node, 0).to(FLOAT32)
    weights = np.array(node.reals("coefficients"), np.float32).reshape(targets, -1).T
    made = x.call("matmul", constant(node, weights))
    bias = node.reals("intercepts", ())
    return made + constant(node, bias) if bias else made


def _linear_regressor(node: Node) -> Result:
    return transformed(_linear(node, node.integer("targets", 1)), post_transform(node)).x


def _linear_classifier(node: Node) -> Result:
    labels = class_labels(node, "classlabels_ints")
    scores = _linear(node, max(1, len(node.reals("intercepts", ())) or len(labels)))
    if scores.shape[-1] == 1 and len(labels) == 2:
        return of_two(node, scores, labels, 0.0, complement=False)
    return of_many(node, scores, labels)


def _scaler(node: Node) -> Result:
    x = operand(node, 0).to(FLOAT32)
    offset, scale = (constant(node, node.reals(n)) for n in ("offset", "scale"))
    return ((x - offset) * scale).x


def _normalizer(node: Node) -> Result:
    x, norm = operand(node, 0).to(FLOAT32), node.text("norm", "MAX")
    names = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}
    if norm not in names:
        raise Malformed(f"its norm is '{norm}'")
    length = (x.call("abs") if norm == "MAX" else x).call(names[norm], axes=(-1,), keepdims=True)
    return (x / length.equals(0.0).choose(length * 0.0 + 1.0, length)).x


def _binarizer(node: Node) -> Result:
    x = operand(node, 0)
    return (x > node.real("threshold", 0.0)).to(x.dtype).x


def _array_features(node: Node) -> Result:
    x = operand(node, 0)
    places = checked(operand(node, 1), 1, x.shape[-1])
    made = x.call("gather", places.reshape(product(places.shape)), axis=len(x.shape) - 1)
    return (made.reshape(1, -1) if len(x.shape) == 1 else made).x


_TABLE_KINDS = (("int64s", INT64), ("floats", FLOAT32))


def _label_table(node: Node, side: str) -> Array:
    """The keys or values of a table; strings are an array of dtype object."""
    for suffix, dtype in _TABLE_KINDS:
        if node.has_attribute(f"{side}_{suffix}"):
            values = node.integers(f"{side}_{suffix}") if dtype == INT64 else node.reals(f"{side}_{suffix}")
            return np.array(values, dtype.numpy)
    if node.has_attribute(f"{side}_strings"):
        return np.array(node.texts(f"{side}_strings"), object)
    return node.tensor(f"{side}_tensor").reshape(-1)


def _from_table(x: Traced, keys: Array, values: Array, default: Array) -> Result:
    """The values of the keys that equal the elements; ``default`` for other elements. Strings are arrays of objects."""
    if keys.dtype != object and values.dtype != object:
        return from_table(x, keys, values, default).x
    if keys.dtype == object:
        places = x.call("text_lookup", keys=tuple(keys))
    else:
        places = from_table(x, keys, np.arange(keys.size), np.array(-1))
    if values.dtype == object:
        return selected(places, values.tolist(), str(default.reshape(-1)[0]))
    found = constant(x.node, values, DType(values.dtype)).call("gather", places.call("maximum", 0), axis=0)
    return (places > -1).choose(found, constant(x.node, default.reshape(()), found.dtype)).x


def _label_encoder(node: Node) -> Result:
    x, keys, values = operand(node, 0), _label_table(node, "keys"), _label_table(node, "values")
    if node.has_attribute("default_tensor"):
        default = node.tensor("default_tensor")
    elif values.dtype == object:
        default = np.array(node.text("default_string", "_Unused"), object)
    else:
        whole = values.dtype.kind in "iu"
        default = np.array(
            node.integer("default_int64", -1) if whole else node.real("default_float", -0.0), values.dtype
        )
    return _from_table(x, keys, values, default)


def _categories(node: Node) -> Result:
    """CategoryMapper: strings to numbers, or numbers to strings."""
    x = operand(node, 0)
    numbers, words = np.array(node.integers("cats_int64s"), np.int64), np.array(node.texts("cats_strings"), object)
    if x.dtype.kind == "string":
        return _from_table(x, words, numbers, np.array(node.integer("default_int64", -1)))
    return _from_table(x, numbers, words, np.array(node.text("default_string", "_Unused"), object))


def _imputer(node: Node) -> Result:
    """Imputer: replaces a given value (or NaN) by one value, or by one value for each column."""
    x = operand(node, 0)
    if x.dtype.is_float:
        values, missing = node.reals("imputed_value_floats", ()), node.real("replaced_value_float", 0.0)
    else:
        whole = node.integers("imputed_value_int64s", ())
        values, missing = tuple(map(float, whole)), float(node.integer("replaced_value_int64", 0))
    if not values:
        raise Malformed(f"it has no replacement values for {x.dtype}")
    if len(values) != 1 and (not x.shape or x.shape[-1] != len(values)):
        raise Malformed(f"it has {len(values)} replacement values, which do not fit the columns of {x.x.tensor}")
    absent = x.call("isnan") if np.isnan(missing) else x.equals(missing)
    filler = constant(node, values if len(values) > 1 else values[0], x.dtype)
    return absent.choose(filler, x).x


def _one_hot(node: Node) -> Result:
    """OneHotEncoder: 1 if the value equals the category, in a new last dimension."""
    x, categories = operand(node, 0), node.integers("cats_int64s", ())
    if not categories:
        words = node.texts("cats_strings", ())
        x, categories = x.call("text_lookup", keys=words), tuple(range(len(words)))
    wide = x.to(INT64).call("unsqueeze", axes=(-1,))
    made = wide.equals(constant(node, categories, INT64)).to(FLOAT32)
    if not node.flag("zeros", True):
        raise Unsupported("its attribute 'zeros' is 0 (stop at unknown categories); with zeros=1 they become zeros")
    return made.x


def _features(node: Node) -> Result:
    """FeatureVectorizer: concatenates the columns of several tensors; each is cut or padded to its size."""
    widths = node.integers("inputdimensions", ())
    parts = []
    for i in range(len(node.inputs)):
        x = operand(node, i).to(FLOAT32)
        if len(x.shape) == 1:
            x = x.reshape(x.shape[0], 1)
        rows, columns = x.shape[0], int(np.prod([d for d in x.shape[1:] if isinstance(d, int)]))
        x = x.reshape(rows, columns)
        wanted = widths[i] if i < len(widths) else columns
        if wanted < columns:
            x = x.part(1, 0, wanted)
        elif wanted > columns:
            x = x.call("pad", pads=(0, 0, 0, wanted - columns), mode="constant", value=0)
        parts.append(x)
    if not parts:
        raise Malformed("it has no inputs")
    return (parts[0].call("concat", *parts[1:], axis=1) if len(parts) > 1 else parts[0]).x


def _zip_map(node: Node) -> Result:
    """ZipMap: scores by label. The labels are stored with the output; the values are the scores."""
    x = operand(node, 0)
    x = x.reshape(1, x.shape[0]) if len(x.shape) == 1 else x
    labels = node.integers("classlabels_int64s", ()) or node.texts("classlabels_strings", ())
    if not labels or len(x.shape) != 2 or x.shape[1] != len(labels):
        raise Malformed(f"it has {len(labels)} labels, which do not fit the columns of {x.x.tensor}")
    return Maps(x.x, tuple(labels))


LEARNED: dict[str, Callable[[Node], Result]] = {
    **TREES,
    **VECTORS,
    "ArrayFeatureExtractor": _array_features,
    "Binarizer": _binarizer,
    "CategoryMapper": _categories,
    "FeatureVectorizer": _features,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
    "ZipMap": _zip_map,
}
