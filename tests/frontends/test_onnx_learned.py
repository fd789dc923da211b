"""ai.onnx.ml where onnxruntime cannot be the reference: formulas, maps, wrong attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learned_cases import FEATURES, ROWS, forest, ml, vectors
from one_node import Array, OneNode, by_compiler, by_interpreter, f, make_model

import weft
from weft.frontends.onnx import backend

W = f(FEATURES)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes_from_one_plane(transform: str) -> None:
    case = ml("LinearClassifier", "", ROWS, outputs=2, coefficients=W.tolist(), intercepts=[0.1],
              classlabels_ints=[4, 5], post_transform=transform)  # fmt: skip
    score = ROWS @ W + np.float32(0.1)
    both = np.stack([-score, score], axis=1)
    expected = {"NONE": both, "LOGISTIC": 1 / (1 + np.exp(-both)), "SOFTMAX": softmax(both)}[transform]
    labels, made = by_interpreter(case)
    np.testing.assert_array_equal(labels, np.where(score > 0, 5, 4))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["tree", "vectors"])
def test_two_classes_softened(op: str) -> None:
    if op == "tree":
        attrs = {**forest("class", (0,)), "classlabels_int64s": [3, 5]}
        name = "TreeEnsembleClassifier"
    else:
        # Coefficients of both signs: where all are positive, the first of two scores means something else.
        attrs = vectors((3, 2), kernel_type="RBF", coefficients=[0.5, -1.0, 0.25, -0.75, 1.5])
        name = "SVMClassifier"
    _, plain = by_interpreter(ml(name, "", ROWS, outputs=2, **attrs))
    _, soft = by_interpreter(ml(name, "", ROWS, outputs=2, **attrs, post_transform="SOFTMAX"))
    np.testing.assert_allclose(soft, softmax(plain), rtol=1e-4, atol=1e-5)


def test_two_trees_scores_choose_the_higher() -> None:
    attrs = {**forest("class", (0, 1)), "classlabels_int64s": [3, 5]}
    labels, scores = by_interpreter(ml("TreeEnsembleClassifier", "", ROWS, outputs=2, **attrs))
    np.testing.assert_array_equal(labels, np.array([3, 5])[scores.argmax(1)])


def test_probit_is_the_quantile_of_the_normal_distribution() -> None:
    x = np.array([[0.1], [0.5], [0.975]], np.float32)
    (made,) = by_interpreter(
        ml("LinearRegressor", "", x, coefficients=[1.0], intercepts=[0.0], post_transform="PROBIT")
    )
    np.testing.assert_allclose(made, [[-1.2816], [0.0], [1.96]], atol=5e-3)


def test_keys_that_are_no_number() -> None:
    case = ml("LabelEncoder", "", np.array([1.0, np.nan, 3.0], np.float32), keys_floats=[1.0, float("nan")],
              values_int64s=[4, 5], default_int64=9)  # fmt: skip
    np.testing.assert_array_equal(by_interpreter(case)[0], [4, 5, 9])


@pytest.mark.parametrize("labels", [[3, 5], ["cat", "dog"]])
def test_maps_leave_through_the_backend(labels: list[Any]) -> None:
    kind = "classlabels_int64s" if isinstance(labels[0], int) else "classlabels_strings"
    x = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    case = ml("ZipMap", "", x, **{kind: labels})
    (made,) = backend.run_model(make_model(case), [x])
    assert made == [{labels[0]: 0.25, labels[1]: 0.75}, {labels[0]: 0.5, labels[1]: 0.5}]
    np.testing.assert_array_equal(by_compiler(case)[0], x)


def without(attrs: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in attrs.items() if k != name}


TREES = forest("target", (0,))
COUNT = len(TREES["nodes_modes"])
WRONG: dict[str, tuple[OneNode, str]] = {
    "kernel": (
        ml(
            "SVMRegressor",
            "",
            ROWS,
            coefficients=[1.0] * 5,
            rho=[0.1],
            kernel_type="CUBE",
            n_supports=1,
            support_vectors=[1.0] * 5,
        ),
        "support|kernel",
    ),
    "rho": (ml("SVMRegressor", "", ROWS, coefficients=[1.0] * 5), "rho"),
    "vectors": (
        ml("SVMClassifier", "", ROWS, outputs=2, **{**vectors((2, 3)), "support_vectors": [1.0] * 7}),
        "vectors",
    ),
    "pairs": (ml("SVMClassifier", "", ROWS, outputs=2, **{**vectors((2, 3)), "coefficients": [1.0]}), "coefficients"),
    "transform": (ml("LinearRegressor", "", ROWS, coefficients=[1.0] * 5, post_transform="CUBE"), "post_transform"),
    "aggregate": (
        ml("TreeEnsembleRegressor", "", ROWS, **TREES, n_targets=1, aggregate_function="MEDIAN"),
        "aggregate",
    ),
    "modes": (
        ml("TreeEnsembleRegressor", "", ROWS, **without(TREES, "nodes_modes"), n_targets=1),
        "'nodes_modes' has 0 values for",
    ),
    "mode": (
        ml("TreeEnsembleRegressor", "", ROWS, **{**TREES, "nodes_modes": ["BRANCH_X"] * 5}, n_targets=1),
        "'BRANCH_X' among nodes_modes",
    ),
    "child": (
        ml(
            "TreeEnsembleRegressor",
            "",
            ROWS,
            **{**TREES, "nodes_truenodeids": [77] * COUNT},
            n_targets=1,
        ),
        "continues at node 77",
    ),
    "splits": (ml("TreeEnsembleRegressor", "", ROWS, **{**TREES, "nodes_values": [1.0]}, n_targets=1), "nodes_values"),
    "base": (ml("TreeEnsembleRegressor", "", ROWS, **TREES, n_targets=1, base_values=[1.0, 2.0]), "base values"),
    "rank": (ml("SVMRegressor", "", f(2, 3, 5), coefficients=[1.0] * 5, rho=[0.1]), "matrix"),
    "imputer": (ml("Imputer", "", ROWS, imputed_value_floats=[1.0, 2.0]), "columns"),
    "imputer_kind": (ml("Imputer", "", ROWS, imputed_value_int64s=[1]), "no replacement values"),
    "one_hot": (ml("OneHotEncoder", "", ROWS, cats_strings=["a"]), "text_lookup"),
    "one_hot_stop": (ml("OneHotEncoder", "", ROWS, cats_int64s=[1], zeros=0), "zeros=1"),
    "zip": (ml("ZipMap", "", ROWS, classlabels_int64s=[1, 2]), "labels"),
    "norm": (ml("Normalizer", "", ROWS, norm="L7"), "norm"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_attributes_are_named(name: str) -> None:
    case, words = WRONG[name]
    with pytest.raises(weft.UserError, match=words) as caught:
        by_interpreter(case)
    assert case.op in str(caught.value)
