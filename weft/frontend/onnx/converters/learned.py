"""Classical machine learning: ai.onnx.ml, and n-gram counts. Trees are descended for all rows and trees at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from weft.frontend.onnx.converters.numbers import Tensor, constant, operand
from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.problems import Malformed, Unsupported
from weft.frontend.onnx.tensors import Array
from weft.support.dtypes import FLOAT32, INT64

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
LEAF = len(MODES)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_COMPARE = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")
MAX_DEPTH = 512


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Decision trees over one numbering of nodes, leaves included (they lead to themselves).

    ``value`` (nodes × targets) is what a leaf adds; ``sets`` (nodes × longest) holds the members of BRANCH_MEMBER
    nodes, padded with NaN.
    """

    roots: Array
    feature: Array
    mode: Array
    split: Array
    then: Array
    otherwise: Array
    missing_then: Array
    value: Array
    sets: Array

    def depth(self) -> int:
        """The longest way from a root to a leaf. Raises Malformed for trees that are none."""
        level, found = np.unique(self.roots), 0
        while True:
            inner = level[self.mode[level] != LEAF]
            if not inner.size:
                return found
            found += 1
            if found > MAX_DEPTH:
                raise Malformed(f"its trees are deeper than {MAX_DEPTH} or hold cycles")
            level = np.unique(np.concatenate([self.then[inner], self.otherwise[inner]]))


def descended(x: Tensor, forest: Forest) -> Tensor:
    """The leaf (a node number) that each row of ``x`` (rows × features) reaches in each tree: rows × trees."""
    node, rows, trees = x.node, x.shape[0], len(forest.roots)
    at = constant(node, forest.roots[None], INT64).expand(rows, trees)

    def of(table: Array, dtype: str) -> Tensor:
        return constant(node, table, dtype).call("gather", at, axis=0)

    modes = sorted(set(forest.mode.tolist()) - {LEAF})
    for _ in range(forest.depth()):
        value = x.call("gather_elements", of(forest.feature, INT64), axis=1)
        split = of(forest.split, x.dtype)
        answers = [(m, _answer(m, value, split, of, forest, x.dtype)) for m in modes]
        goes = answers[0][1]
        for mode, answer in answers[1:]:
            goes = of(forest.mode, INT64).equals(mode).choose(answer, goes)
        if forest.missing_then.any():
            absent = value.call("isnan") & of(forest.missing_then, "bool")
            goes = goes.call("logical_or", absent)
        at = goes.choose(of(forest.then, INT64), of(forest.otherwise, INT64))
    return at


def _answer(
    mode: int, value: Tensor, split: Tensor, of: Callable[[Array, str], Tensor], forest: Forest, dtype: str
) -> Tensor:
    if mode < len(_COMPARE):
        return value.call(_COMPARE[mode], split)
    members = of(forest.sets, dtype)
    same = value.call("unsqueeze", axes=(-1,)).equals(members).to("int32")
    return same.call("reduce_max", axes=(2,), keepdims=False) > 0


def _scores(x: Tensor, forest: Forest, aggregate: str) -> Tensor:
    """What the leaves add up to: rows × targets."""
    leaves = descended(x, forest)
    dtype = x.dtype if x.dtype.is_float else FLOAT32
    values = constant(x.node, forest.value, dtype).call("gather", leaves, axis=0)
    name = {"AVERAGE": "reduce_sum", "SUM": "reduce_sum", "MIN": "reduce_min", "MAX": "reduce_max"}[aggregate]
    if name != "reduce_sum" and forest.value.shape[1] > 1:
        raise Unsupported(f"the aggregate {aggregate} of several targets is not supported")
    made = values.call(name, axes=(1,), keepdims=False)
    return made / float(len(forest.roots)) if aggregate == "AVERAGE" else made


def _transformed(scores: Tensor, name: str) -> Tensor:
    if name == "SOFTMAX":
        return scores.call("softmax", axis=-1)
    if name == "LOGISTIC":
        return scores.call("sigmoid")
    if name == "NONE":
        return scores
    raise Unsupported(f"the transformation {name} of scores is not supported")


def _ints(node: Node, name: str, default: Sequence[int] = ()) -> Array:
    return np.array(node.integers(name, default), np.int64)


def _tree_ensemble(node: Node) -> Result:
    """Opset 5: nodes and leaves are numbered apart."""
    x = operand(node, 0)
    mode = node.tensor("nodes_modes").astype(np.int64)
    inner, targets = len(mode), node.integer("n_targets", 1)
    weights, ids = node.tensor("leaf_weights").astype(np.float64), _ints(node, "leaf_targetids")
    leaves = len(weights)

    def ends(which: str) -> Array:
        ids_, is_leaf = _ints(node, f"nodes_{which}nodeids"), _ints(node, f"nodes_{which}leafs")
        return np.concatenate([np.where(is_leaf, inner + ids_, ids_), inner + np.arange(leaves)])

    missing = _ints(node, "nodes_missing_value_tracks_true", (0,) * inner)
    forest = Forest(
        roots=_ints(node, "tree_roots"),
        feature=_padded(_ints(node, "nodes_featureids"), leaves),
        mode=np.concatenate([mode, np.full(leaves, LEAF)]),
        split=_padded(node.tensor("nodes_splits").astype(np.float64), leaves),
        then=ends("true"),
        otherwise=ends("false"),
        missing_then=_padded(missing, leaves) != 0,
        value=np.concatenate([np.zeros((inner, targets)), np.eye(targets)[ids] * weights[:, None]]),
        sets=_member_sets(node, mode, leaves),
    )
    scores = _scores(x, forest, AGGREGATES[node.integer("aggregate_function", 1)])
    return _transformed(scores, TRANSFORMS[node.integer("post_transform", 0)]).x


def _padded(table: Array, count: int) -> Array:
    return np.concatenate([table, np.zeros(count, table.dtype)])


def _member_sets(node: Node, mode: Array, leaves: int) -> Array:
    """The members of each node, from the list in which a NaN ends each set."""
    sets: list[list[float]] = [[]]
    if node.has_attribute("membership_values"):
        for value in node.tensor("membership_values"):
            if np.isnan(value):
                sets.append([])
            else:
                sets[-1].append(float(value))
    out = np.full((len(mode) + leaves, max(1, *map(len, sets))), np.nan)
    for place, members in zip(np.flatnonzero(mode == MODES.index("BRANCH_MEMBER")), sets, strict=False):
        out[place, : len(members)] = members
    return out


def _listed_forest(node: Node, kind: str, targets: int) -> Forest:
    """Trees of the older operators: one list of nodes by tree and number, leaves among them."""
    keys = list(zip(_ints(node, "nodes_treeids").tolist(), _ints(node, "nodes_nodeids").tolist(), strict=True))
    number = {k: i for i, k in enumerate(keys)}
    names = (*MODES[:6], "LEAF")
    mode = np.array([LEAF if m == "LEAF" else names.index(m) for m in node.texts("nodes_modes")], np.int64)

    def ends(which: str) -> Array:
        ids = _ints(node, f"nodes_{which}nodeids").tolist()
        return np.array([i if mode[i] == LEAF else number[keys[i][0], ids[i]] for i in range(len(keys))], np.int64)

    value = np.zeros((len(keys), targets))
    listed = (_ints(node, f"{kind}_{n}").tolist() for n in ("treeids", "nodeids", "ids"))
    for tree, place, target, weight in zip(*listed, node.reals(f"{kind}_weights"), strict=True):
        value[number[tree, place], target] += weight
    missing = node.integers("nodes_missing_value_tracks_true", ()) or (0,) * len(keys)
    first = {tree: i for i, (tree, _) in reversed(list(enumerate(keys)))}
    return Forest(
        roots=np.array([first[t] for t in dict.fromkeys(t for t, _ in keys)], np.int64),
        feature=_ints(node, "nodes_featureids"),
        mode=mode,
        split=np.array(node.reals("nodes_values"), np.float64),
        then=ends("true"),
        otherwise=ends("false"),
        missing_then=np.array(missing) != 0,
        value=value,
        sets=np.full((len(keys), 1), np.nan),
    )


def _tree_regressor(node: Node) -> Result:
    x = operand(node, 0)
    forest = _listed_forest(node, "target", node.integer("n_targets", 1))
    scores = _scores(x.to(FLOAT32) if not x.dtype.is_float else x, forest, node.text("aggregate_function", "SUM"))
    base = node.reals("base_values", ())
    scores = scores + constant(node, base, scores.dtype) if base else scores
    return _transformed(scores.to(FLOAT32), node.text("post_transform", "NONE")).x


def _labels(node: Node, name: str = "classlabels_int64s") -> Array:
    found = _ints(node, name)
    if not found.size:
        raise Unsupported("classes with labels of strings are not supported")
    return found


def _classified(node: Node, scores: Tensor, labels: Array, threshold: float = 0.0) -> Result:
    """Labels and scores; a single column of two classes is the score of the second."""
    transform = node.text("post_transform", "NONE")
    if scores.shape[-1] == 1 and len(labels) == 2:
        second = _transformed(scores, transform)
        both = (1.0 - second) if transform == "LOGISTIC" or threshold else second.call("neg")
        chosen = (scores > threshold).to(INT64).reshape(scores.shape[0])
        final = both.call("concat", second, axis=-1)
    else:
        chosen = scores.call("argmax", axis=-1, keepdims=False)
        final = _transformed(scores, transform)
    return constant(node, labels, INT64).call("gather", chosen, axis=0).x, final.x


def _tree_classifier(node: Node) -> Result:
    x, labels = operand(node, 0), _labels(node)
    x = x if x.dtype.is_float else x.to(FLOAT32)
    used = sorted(set(_ints(node, "class_ids").tolist()))
    forest = _listed_forest(node, "class", len(labels))
    single = len(labels) == 2 and len(used) == 1
    if single:
        forest = replace(forest, value=forest.value[:, used])
    base = node.reals("base_values", ())
    scores = _scores(x, forest, "SUM")
    scores = scores + constant(node, base, scores.dtype) if base else scores
    plain = node.text("post_transform", "NONE") == "NONE"
    return _classified(node, scores.to(FLOAT32), labels, 0.5 if single and plain else 0.0)


# --- linear models, tables, scaling -----------------------------------------------------------------------------------


def _linear(node: Node, targets: int) -> Tensor:
    x = operand(node, 0).to(FLOAT32)
    weights = np.array(node.reals("coefficients"), np.float32).reshape(targets, -1).T
    made = x.call("matmul", constant(node, weights))
    bias = node.reals("intercepts", ())
    return made + constant(node, bias) if bias else made


def _linear_regressor(node: Node) -> Result:
    return _transformed(_linear(node, node.integer("targets", 1)), node.text("post_transform", "NONE")).x


def _linear_classifier(node: Node) -> Result:
    labels = _labels(node, "classlabels_ints")
    rows = max(1, len(node.reals("intercepts", ())) or len(labels))
    return _classified(node, _linear(node, rows), labels)


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
    x, places = operand(node, 0), operand(node, 1)
    made = x.call("gather", places.reshape(-1), axis=len(x.shape) - 1)
    return (made.reshape(1, -1) if len(x.shape) == 1 else made).x


_TABLE_KINDS = (("int64s", INT64), ("floats", FLOAT32))


def _label_table(node: Node, side: str) -> Tensor:
    for suffix, dtype in _TABLE_KINDS:
        if node.has_attribute(f"{side}_{suffix}"):
            values = node.integers(f"{side}_{suffix}") if dtype == INT64 else node.reals(f"{side}_{suffix}")
            return constant(node, values, dtype)
    if node.has_attribute(f"{side}_tensor"):
        return Tensor(node, node.constant(node.tensor(f"{side}_tensor")))
    raise Unsupported("tables of strings are not supported")


def _label_encoder(node: Node) -> Result:
    x, keys, values = operand(node, 0), _label_table(node, "keys"), _label_table(node, "values")
    if node.has_attribute("default_tensor"):
        default = Tensor(node, node.constant(node.tensor("default_tensor")))
    else:
        plain = node.integer("default_int64", -1) if values.dtype == INT64 else node.real("default_float", -0.0)
        default = constant(node, plain, values.dtype)
    wide = x.call("unsqueeze", axes=(-1,))
    same = wide.equals(keys)
    if x.dtype.is_float:
        same = same.call("logical_or", wide.call("isnan") & keys.call("isnan"))
    found = same.to("int32")
    place = found.call("argmax", axis=-1, keepdims=False)
    known = found.call("reduce_max", axes=(-1,), keepdims=False) > 0
    return known.choose(values.call("gather", place, axis=0), default.reshape()).x


# --- n-grams ----------------------------------------------------------------------------------------------------------


def _tf_idf(node: Node) -> Result:
    """Each n-gram of the pool is compared at every place and distance."""
    x = operand(node, 0)
    if node.has_attribute("pool_strings"):
        raise Unsupported("n-grams of strings are not supported")
    rows = x if len(x.shape) == 2 else x.reshape(1, -1)
    length = rows.shape[1]
    if not isinstance(length, int):
        raise Unsupported("n-grams of sequences of symbolic length are not supported")
    pool, counts = _ints(node, "pool_int64s"), _ints(node, "ngram_counts").tolist()
    low, high = node.integer("min_gram_length"), node.integer("max_gram_length")
    places, number = _ints(node, "ngram_indexes"), 0
    columns: dict[int, list[Tensor]] = {}
    for size, (start, end) in enumerate(zip(counts, [*counts[1:], len(pool)], strict=True), 1):
        for gram in pool[start:end].reshape(-1, size) if end > start else ():
            if low <= size <= high:
                steps = range(1, 2 if size == 1 else node.integer("max_skip_count") + 2)
                found = [_occurrences(rows, gram, step) for step in steps if (size - 1) * step < length]
                columns.setdefault(int(places[number]), []).extend(found)
            number += 1
    zero = constant(node, 0.0).expand(rows.shape[0], 1)
    width = int(places.max()) + 1
    made = [reduce(lambda a, b: a + b, columns.get(i) or [zero]) for i in range(width)]
    counted = made[0].call("concat", *made[1:], axis=1)
    mode, weights = node.text("mode"), node.reals("weights", ())
    if mode == "IDF":
        counted = (counted > 0.0).to(FLOAT32)
    if weights and mode in ("IDF", "TFIDF"):
        counted = counted * constant(node, weights)
    return (counted if len(x.shape) == 2 else counted.reshape(width)).x


def _occurrences(rows: Tensor, gram: Array, step: int) -> Tensor:
    """How often a gram with its items ``step`` apart stands in each row: rows × 1."""
    starts = int(rows.shape[1]) - (len(gram) - 1) * step  # type: ignore[arg-type]
    hits = [rows.part(1, i * step, i * step + starts).equals(int(g)) for i, g in enumerate(gram)]
    both = reduce(lambda a, b: a & b, hits)
    return both.to(FLOAT32).call("reduce_sum", axes=(1,), keepdims=True)


TEXT: dict[str, Callable[[Node], Result]] = {"TfIdfVectorizer": _tf_idf}

LEARNED: dict[str, Callable[[Node], Result]] = {
    "ArrayFeatureExtractor": _array_features,
    "Binarizer": _binarizer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}
