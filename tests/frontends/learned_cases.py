"""Cases for ai.onnx.ml: random trees, linear models, support vectors and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from one_node import RNG, Array, OneNode, f, n

FEATURES = 5
ROWS = f(9, FEATURES)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def labels_only(case: OneNode) -> OneNode:
    """onnxruntime leaves scores of two classes untransformed where ONNX asks for a softmax, and adds to one where its
    linear classifier should give opposites: those are held against formulas instead."""
    return replace(case, compared=(0,))


def scores_only(case: OneNode) -> OneNode:
    """onnxruntime does not choose the class of the higher score where two classes have one each."""
    return replace(case, compared=(1,))


def ml(op: str, name: str, *operands: Array | None, outputs: int = 1, **attrs: Any) -> OneNode:
    return OneNode(op, operands, attrs, outputs, domain="ai.onnx.ml", name=name, rtol=1e-4, atol=1e-5)


def grow(tree: int, depth: int, modes: Sequence[str]) -> list[dict[str, Any]]:
    """A random tree as rows of nodes."""
    rows: list[dict[str, Any]] = []

    def node(level: int) -> int:
        place = len(rows)
        row: dict[str, Any] = {
            "treeids": tree,
            "nodeids": place,
            "modes": "LEAF",
            "featureids": 0,
            "values": 0.0,
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": 0,
        }
        rows.append(row)
        if level < depth and (level == 0 or RNG.random() < 0.8):
            row.update(
                modes=str(RNG.choice(list(modes))),
                featureids=int(RNG.integers(FEATURES)),
                values=float(np.float32(RNG.standard_normal())),
                missing_value_tracks_true=int(RNG.integers(2)),
            )
            row["truenodeids"], row["falsenodeids"] = node(level + 1), node(level + 1)
        return place

    node(0)
    return rows


def forest(
    kind: str, targets: Sequence[int], *, trees: int = 3, modes: Sequence[str] = ("BRANCH_LEQ",), positive: bool = False
) -> dict[str, Any]:
    """The attributes of a random forest whose leaves add to all ``targets``."""
    rows = [row for t in range(trees) for row in grow(t, 3, modes)]
    attrs: dict[str, Any] = {f"nodes_{key}": [r[key] for r in rows] for key in rows[0]}
    leaves = [r for r in rows if r["modes"] == "LEAF"]
    weights = RNG.standard_normal(len(leaves)) / trees
    weights = abs(weights) / 2 if positive else weights
    listed = [(row, t, w) for row, w in zip(leaves, weights, strict=True) for t in targets]
    attrs[f"{kind}_treeids"] = [r["treeids"] for r, _, _ in listed]
    attrs[f"{kind}_nodeids"] = [r["nodeids"] for r, _, _ in listed]
    attrs[f"{kind}_ids"] = [t for _, t, _ in listed]
    attrs[f"{kind}_weights"] = [float(np.float32(w * (1 - 0.3 * t))) for _, t, w in listed]
    return attrs


HOLES = ROWS.copy()
HOLES[RNG.random(HOLES.shape) > 0.7] = np.nan
WHOLE, TREES_OF_WHOLE = RNG.integers(-2, 3, (6, FEATURES)), forest("target", (0,))
EVERY = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
REGRESSION = (
    ml("TreeEnsembleRegressor", "one", ROWS, **forest("target", (0,)), n_targets=1),
    ml("TreeEnsembleRegressor", "two", ROWS, **forest("target", (0, 1)), n_targets=2, base_values=[0.5, -1.0]),
    *(
        ml(
            "TreeEnsembleRegressor",
            f"{how}{len(t)}",
            ROWS,
            **forest("target", t),
            n_targets=len(t),
            aggregate_function=how,
        )
        for how in ("SUM", "AVERAGE", "MIN", "MAX")
        for t in ((0,), (0, 1, 2))
    ),
    *(ml("TreeEnsembleRegressor", m, np.rint(ROWS), **forest("target", (0,), modes=(m,)), n_targets=1) for m in EVERY),
    ml("TreeEnsembleRegressor", "mixed", ROWS, **forest("target", (0,), modes=EVERY), n_targets=1),
    ml("TreeEnsembleRegressor", "missing", HOLES, **forest("target", (0,)), n_targets=1),
    replace(
        ml("TreeEnsembleRegressor", "whole", WHOLE, **TREES_OF_WHOLE, n_targets=1),
        instead=ml("TreeEnsembleRegressor", "", WHOLE.astype(np.float32), **TREES_OF_WHOLE, n_targets=1),
    ),
    ml("TreeEnsembleRegressor", "double", ROWS.astype(np.float64), **forest("target", (0,)), n_targets=1),
)


def softened(case: OneNode) -> OneNode:
    return labels_only(case) if "SOFTMAX" in case.name else case


def two_classes(case: OneNode) -> OneNode:
    if case.name.startswith("two-"):
        return scores_only(case)
    return softened(case) if case.name.startswith("two_") else case


CLASSES = tuple(
    two_classes(ml("TreeEnsembleClassifier", f"{name}-{t}", ROWS, outputs=2, post_transform=t, **attrs))
    for t in TRANSFORMS
    for name, attrs in (
        ("three", {**forest("class", (0, 1, 2)), "classlabels_int64s": [4, 7, 9]}),
        (
            "three_base",
            {**forest("class", (0, 1, 2)), "classlabels_int64s": [4, 7, 9], "base_values": [0.1, 0.2, -0.3]},
        ),
        ("two", {**forest("class", (0, 1)), "classlabels_int64s": [0, 1]}),
        ("two_shared", {**forest("class", (0,)), "classlabels_int64s": [3, 5]}),
        ("two_positive", {**forest("class", (0,), positive=True), "classlabels_int64s": [3, 5]}),
        ("two_base", {**forest("class", (0,)), "classlabels_int64s": [3, 5], "base_values": [0.25]}),
    )
)

LINEAR = (
    ml("LinearRegressor", "one", ROWS, coefficients=f(FEATURES).tolist(), intercepts=[0.5]),
    ml("LinearRegressor", "two", ROWS, coefficients=f(2 * FEATURES).tolist(), targets=2),
    *(
        ml(
            "LinearClassifier",
            f"three-{t}",
            ROWS,
            outputs=2,
            coefficients=f(3 * FEATURES).tolist(),
            intercepts=[0.1, 0.2, 0.3],
            classlabels_ints=[4, 5, 6],
            post_transform=t,
        )
        for t in TRANSFORMS
    ),
    *(
        labels_only(
            ml(
                "LinearClassifier",
                f"two-{t}",
                ROWS,
                outputs=2,
                coefficients=f(FEATURES).tolist(),
                intercepts=[0.1],
                classlabels_ints=[4, 5],
                post_transform=t,
            )
        )
        for t in TRANSFORMS[:2]
    ),
)

KERNEL = [0.3, 0.5, 2.0]


def vectors(per_class: Sequence[int], **more: Any) -> dict[str, Any]:
    total, classes = sum(per_class), len(per_class)
    pairs = classes * (classes - 1) // 2
    return {
        "vectors_per_class": list(per_class),
        "support_vectors": f(total * FEATURES).tolist(),
        "coefficients": f((classes - 1) * total).tolist(),
        "rho": f(pairs).tolist(),
        "classlabels_ints": list(range(3, 3 + classes)),
        "kernel_params": KERNEL,
        **more,
    }


SUPPORT = (
    *(
        ml(
            "SVMRegressor",
            k,
            ROWS,
            kernel_type=k,
            kernel_params=KERNEL,
            n_supports=4,
            coefficients=f(4).tolist(),
            support_vectors=f(4 * FEATURES).tolist(),
            rho=[0.25],
        )
        for k in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    ml(
        "SVMRegressor",
        "plane",
        ROWS,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        coefficients=f(FEATURES).tolist(),
        rho=[0.25],
    ),
    ml(
        "SVMRegressor",
        "one_class",
        ROWS,
        kernel_type="RBF",
        kernel_params=KERNEL,
        n_supports=4,
        one_class=1,
        coefficients=f(4).tolist(),
        support_vectors=f(4 * FEATURES).tolist(),
        rho=[0.05],
    ),
    *(
        ml("SVMClassifier", f"{k}-three", ROWS, outputs=2, **vectors((2, 3, 2)), kernel_type=k)
        for k in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    *(
        softened(
            ml("SVMClassifier", f"two-{t}", ROWS, outputs=2, **vectors((3, 2)), kernel_type="RBF", post_transform=t)
        )
        for t in TRANSFORMS
    ),
    ml(
        "SVMClassifier",
        "two_chances",
        ROWS,
        outputs=2,
        **vectors((3, 2), prob_a=[-1.0], prob_b=[0.2]),
        kernel_type="RBF",
    ),
    ml(
        "SVMClassifier",
        "three_chances",
        ROWS,
        outputs=2,
        **vectors((3, 2, 2), prob_a=[-1.0, -0.5, -2.0], prob_b=[0.2, -0.1, 0.0]),
        kernel_type="RBF",
    ),
    ml(
        "SVMClassifier",
        "planes",
        ROWS,
        outputs=2,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        coefficients=f(3 * FEATURES).tolist(),
        rho=[0.1],
        classlabels_ints=[0, 1, 2],
    ),
)

TABLES = (
    ml("Imputer", "one", HOLES, imputed_value_floats=[1.5], replaced_value_float=float("nan")),
    ml("Imputer", "columns", HOLES, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan")),
    ml("Imputer", "value", np.rint(ROWS), imputed_value_floats=[7.0], replaced_value_float=1.0),
    ml("Imputer", "whole", RNG.integers(0, 3, (4, 2)), imputed_value_int64s=[7, 8], replaced_value_int64=1),
    ml("OneHotEncoder", "whole", RNG.integers(0, 4, (3, 2)), cats_int64s=[1, 3, 2]),
    ml("OneHotEncoder", "floats", np.array([1.0, 2.0, 5.0], np.float32), cats_int64s=[1, 2]),
    ml("FeatureVectorizer", "two", f(3, 2), f(3, 4), inputdimensions=[2, 4]),
    ml("FeatureVectorizer", "whole", RNG.integers(0, 9, (3, 2)), RNG.integers(0, 9, (3, 1)), inputdimensions=[2, 1]),
    ml("ArrayFeatureExtractor", "", f(3, 4), n(2, 0, 2, dtype=np.int64)),
    ml("Binarizer", "", f(3, 4), threshold=0.2),
    *(ml("Normalizer", k, abs(f(3, 4)), norm=k) for k in ("L1", "L2", "MAX")),
    ml("Normalizer", "signs", f(3, 4), norm="L2"),
    ml("Scaler", "", f(3, 4), offset=[0.5, 1.0, -1.0, 2.0], scale=[2.0, 1.0, 0.5, 3.0]),
    ml("Scaler", "one", f(3, 4), offset=[0.5], scale=[2.0]),
    ml(
        "LabelEncoder",
        "whole",
        n(1, 5, 3, dtype=np.int64),
        keys_int64s=[1, 3],
        values_floats=[0.5, 2.5],
        default_float=-1.0,
    ),
    ml(
        "LabelEncoder",
        "floats",
        np.array([1.0, 2.0, 3.0], np.float32),
        keys_floats=[1.0, 2.0],
        values_int64s=[4, 5],
        default_int64=9,
    ),
)

LEARNED_CASES = (*REGRESSION, *CLASSES, *LINEAR, *SUPPORT, *TABLES)
