"""Decision trees, evaluated for all rows and trees together."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.common.trees import AGGREGATES, LEAF, MODES, Forest
from weft.frontends.onnx.converters.classes import (
    TRANSFORMS,
    class_labels,
    of_many,
    of_two,
    post_transform,
    transformed,
)
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import Array
from weft.support.dtypes import FLOAT32, INT64

Values = TypeVar("Values", bound=Sized)

_COMPARE = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")


def descended(x: Traced, forest: Forest) -> Traced:
    """The leaf (a node number) that each row of ``x`` (rows × features) reaches in each tree: rows × trees."""
    node, rows, trees = x.node, x.shape[0], len(forest.roots)
    at = constant(node, forest.roots[None], INT64).expand(rows, trees)

    def of(table: Array, dtype: str) -> Traced:
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
    mode: int, value: Traced, split: Traced, of: Callable[[Array, str], Traced], forest: Forest, dtype: str
) -> Traced:
    if mode < len(_COMPARE):
        return value.call(_COMPARE[mode], split)
    members = of(forest.sets, dtype)
    same = value.call("unsqueeze", axes=(-1,)).equals(members).to("int32")
    return same.call("reduce_max", axes=(2,), keepdims=False) > 0


_AGGREGATORS = {
    "AVERAGE": ("reduce_sum", 0.0),
    "SUM": ("reduce_sum", 0.0),
    "MIN": ("reduce_min", np.inf),
    "MAX": ("reduce_max", -np.inf),
}


def _scores(x: Traced, forest: Forest, aggregate: str, empty: float = 0.0) -> Traced:
    """The aggregated values of the leaves: rows × targets; ``empty`` for targets without a value."""
    if aggregate not in _AGGREGATORS:
        raise Malformed(f"its aggregate is '{aggregate}', not one of {', '.join(AGGREGATES)}")
    leaves = descended(x, forest)
    dtype = x.dtype if x.dtype.is_float else FLOAT32
    name, neutral = _AGGREGATORS[aggregate]
    table = np.where(np.isnan(forest.value), neutral, forest.value)
    values = constant(x.node, table, dtype).call("gather", leaves, axis=0)
    made = values.call(name, axes=(1,), keepdims=False)
    if aggregate == "AVERAGE":
        return made / float(len(forest.roots))
    return (
        made
        if aggregate == "SUM"
        else made.call("isinf").choose(constant(x.node, empty, made.dtype).expand(*made.shape), made)
    )


def _ints(node: Node, name: str, default: Sequence[int] = ()) -> Array:
    return np.array(node.integers(name, default), np.int64)


def _tree_ensemble(node: Node) -> Result:
    """TreeEnsemble (opset 5), where nodes and leaves have separate numberings."""
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
        value=np.concatenate([np.full((inner, targets), np.nan), _at(ids, weights, targets)]),
        sets=_member_sets(node, mode, leaves),
    )
    aggregate, transform = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        raise Malformed(f"its aggregate {aggregate} or transformation {transform} is not known")
    name = AGGREGATES[aggregate]
    limits = x.dtype.limits()
    scores = _scores(x, forest, name, limits[1] if name == "MIN" else limits[0])
    return transformed(scores, TRANSFORMS[transform]).x


def _at(ids: Array, weights: Array, targets: int) -> Array:
    """Weights in the columns of their targets, NaN elsewhere."""
    out = np.full((len(ids), targets), np.nan)
    out[np.arange(len(ids)), ids] = weights
    return out


def _reals(node: Node, name: str) -> Array:
    """Numbers given as a list, or as a tensor."""
    if node.has_attribute(f"{name}_as_tensor"):
        return node.tensor(f"{name}_as_tensor").astype(np.float64).reshape(-1)
    return np.array(node.reals(name, ()), np.float64)


def _padded(table: Array, count: int) -> Array:
    return np.concatenate([table, np.zeros(count, table.dtype)])


def _member_sets(node: Node, mode: Array, leaves: int) -> Array:
    """The members of each node, from a list in which NaN ends each set."""
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


def _of_all(keys: Sequence[object], name: str, values: Values) -> Values:
    """The values of an attribute that has one for each node."""
    if len(values) != len(keys):
        raise Malformed(f"its attribute '{name}' has {len(values)} values for {len(keys)} nodes")
    return values


def _listed_forest(node: Node, kind: str, targets: int) -> Forest:
    """Trees of the older operators: one list of nodes, leaves included, by tree and number."""
    keys = list(zip(_ints(node, "nodes_treeids").tolist(), _ints(node, "nodes_nodeids").tolist(), strict=True))
    number = {k: i for i, k in enumerate(keys)}
    names = (*MODES[:6], "LEAF")
    modes = node.texts("nodes_modes")
    if unknown := [m for m in modes if m not in names]:
        raise Malformed(f"'{unknown[0]}' among nodes_modes is none of {', '.join(names)}")
    _of_all(keys, "nodes_modes", modes)
    mode = np.array([LEAF if m == "LEAF" else names.index(m) for m in modes], np.int64)

    def ends(which: str) -> Array:
        ids = _of_all(keys, f"nodes_{which}nodeids", _ints(node, f"nodes_{which}nodeids").tolist())
        lost = [i for i in range(len(keys)) if mode[i] != LEAF and (keys[i][0], ids[i]) not in number]
        if lost:
            tree, own = keys[lost[0]]
            raise Malformed(f"node {own} of tree {tree} continues at node {ids[lost[0]]}, which the tree does not have")
        return np.array([i if mode[i] == LEAF else number[keys[i][0], ids[i]] for i in range(len(keys))], np.int64)

    value = np.full((len(keys), targets), np.nan)
    listed = (_ints(node, f"{kind}_{n}").tolist() for n in ("treeids", "nodeids", "ids"))
    for tree, place, target, weight in zip(*listed, _reals(node, f"{kind}_weights").tolist(), strict=True):
        at = number[tree, place], target
        value[at] = weight if np.isnan(value[at]) else value[at] + weight
    missing = node.integers("nodes_missing_value_tracks_true", ()) or (0,) * len(keys)
    _of_all(keys, "nodes_missing_value_tracks_true", missing)
    first = {tree: i for i, (tree, _) in reversed(list(enumerate(keys)))}
    return Forest(
        roots=np.array([first[t] for t in dict.fromkeys(t for t, _ in keys)], np.int64),
        feature=_of_all(keys, "nodes_featureids", _ints(node, "nodes_featureids")),
        mode=mode,
        split=_of_all(keys, "nodes_values", _reals(node, "nodes_values")),
        then=ends("true"),
        otherwise=ends("false"),
        missing_then=np.array(missing) != 0,
        value=value,
        sets=np.full((len(keys), 1), np.nan),
    )


def _regressor(node: Node) -> Result:
    x = _data(node)
    targets = node.integer("n_targets", 1)
    scores = _scores(x, _listed_forest(node, "target", targets), node.text("aggregate_function", "SUM"))
    base = _reals(node, "base_values")
    if base.size not in (0, 1, targets):
        raise Malformed(f"its {base.size} base values fit no {targets} targets")
    scores = scores + constant(node, base, scores.dtype) if base.size else scores
    return transformed(scores.to(FLOAT32), post_transform(node)).x


def _data(node: Node) -> Traced:
    x = operand(node, 0)
    if len(x.shape) == 1:
        x = x.reshape(1, x.shape[0])
    if len(x.shape) != 2:
        raise Malformed(f"its input {x.x.tensor} must be a matrix")
    return x if x.dtype.is_float else x.to(FLOAT32)


def _classifier(node: Node) -> Result:
    """TreeEnsembleClassifier. Two classes may have one score: a probability if no weight is negative, else a margin."""
    x, labels = _data(node), class_labels(node, "classlabels_int64s")
    used = sorted(set(_ints(node, "class_ids").tolist()))
    forest = _listed_forest(node, "class", len(labels))
    base = _reals(node, "base_values")
    scores = _scores(x, forest, "SUM")
    if len(labels) != 2 or len(used) > 1:
        return of_many(node, scores + constant(node, base, scores.dtype) if base.size else scores, labels)
    score = scores.part(1, used[0], used[0] + 1) if used else scores.part(1, 1, 2)
    if base.size:
        score = score + float(base[-1])
    positive = bool(np.all(_reals(node, "class_weights") >= 0))
    return of_two(node, score, labels, 0.5 if positive else 0.0, complement=positive and base.size < 2)


TREES: dict[str, Callable[[Node], Result]] = {
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
