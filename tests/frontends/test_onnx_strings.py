"""Strings: operators on them, moving them, and the tables of ai.onnx.ml, held against onnxruntime or the
specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.frontends.onnx import backend
from weft.graph.interpret import run
from weft.graph.parser import parse
from weft.graph.text import to_text
from weft.ops.catalogue import OPERATORS
from weft.runtime import _native
from weft.runtime.program import CallHost, CallKernel
from weft.support.errors import InputError, ModelError

WORDS = np.array([["apple", "", "Zürich"], ["b", "apple", "nine 9"]], object)


def model(nodes: list[Any], inputs: dict[str, np.ndarray], weights: dict[str, np.ndarray] | None = None) -> Any:
    """A model whose outputs are those of the last node."""
    infos = [
        helper.make_tensor_value_info(
            k, TensorProto.STRING if v.dtype == object else helper.np_dtype_to_tensor_dtype(v.dtype), list(v.shape)
        )
        for k, v in inputs.items()
    ]
    outs = [onnx.ValueInfoProto(name=o) for o in nodes[-1].output]
    tensors = [onnx.numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "strings", infos, outs, tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)], ir_version=10
    )


def reference(proto: Any, inputs: dict[str, np.ndarray]) -> list[Any]:
    import onnxruntime as ort

    inferred = onnx.shape_inference.infer_shapes(proto)
    session = ort.InferenceSession(inferred.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def check(nodes: list[Any], inputs: dict[str, np.ndarray], weights: dict[str, np.ndarray] | None = None) -> Any:
    proto = model(nodes, inputs, weights)
    wanted = reference(proto, inputs)
    got = backend.prepare(proto).run(list(inputs.values()))
    for g, w in zip(got, wanted, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape
        if w.dtype.kind in "OU":
            assert g.tolist() == w.tolist()
        else:
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    return got


def node(op: str, inputs: str, outputs: str = "y", domain: str = "", **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), domain=domain, **attrs)


I64 = np.int64
MOVES = {
    "reshape": ([node("Reshape", "x s")], {"s": np.array([3, -1], I64)}),
    "transpose": ([node("Transpose", "x", perm=[1, 0])], {}),
    "gather": ([node("Gather", "x i", axis=1)], {"i": np.array([[2, 0]], I64)}),
    "slice": ([node("Slice", "x b e a")], {"b": np.array([1], I64), "e": np.array([3], I64), "a": np.array([1], I64)}),
    "concat": ([node("Concat", "x x w", axis=0)], {"w": np.array([["p", "q", "r"]], object)}),
    "split": ([node("Split", "x n", "a b", axis=1)], {"n": np.array([1, 2], I64)}),
    "tile": ([node("Tile", "x n")], {"n": np.array([1, 2], I64)}),
    "unsqueeze": ([node("Unsqueeze", "x a")], {"a": np.array([0], I64)}),
    "flatten": ([node("Flatten", "x", axis=0)], {}),
    "identity": ([node("Identity", "x")], {}),
    "where": ([node("Where", "c x w")], {"c": np.array([[True], [False]]), "w": np.array(["p", "q", "r"], object)}),
    "expand": ([node("Expand", "x s")], {"s": np.array([2, 2, 3], I64)}),
}


@pytest.mark.parametrize("name", MOVES)
def test_strings_are_moved_as_their_places(name: str) -> None:
    nodes, weights = MOVES[name]
    if name in ("where", "tile", "expand"):  # onnxruntime moves no strings in these
        operands = [WORDS if i == "x" else weights[i] for i in nodes[0].input]
        wanted = {
            "where": lambda: np.where(*operands), "tile": lambda: np.tile(WORDS, (1, 2)),
            "expand": lambda: np.broadcast_to(WORDS, (2, 2, 3)),
        }[name]()  # fmt: skip
        (got,) = backend.run_model(model(nodes, {"x": WORDS}, weights), [WORDS])
        assert got.tolist() == wanted.tolist()
    else:
        check(nodes, {"x": WORDS}, weights)


ML = "ai.onnx.ml"
ROW = np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)
STEPS = np.array([[1, 7], [3, 1]], np.int64)
TABLES = {
    "numbers_of_strings": (node("LabelEncoder", "x", domain=ML, keys_strings=["apple", "b"], values_int64s=[4, 7]),
    WORDS), "floats_of_strings": (
        node("LabelEncoder", "x", domain=ML, keys_strings=["apple", "b"], values_floats=[0.5, 7.0], default_float=-2.0),
        WORDS,
    ),
    "strings_of_strings": (
        node("LabelEncoder", "x", domain=ML, keys_strings=["apple", "b"], values_strings=["fruit", "c"]), WORDS,
    ),
    "strings_of_numbers": (
        node("LabelEncoder", "x", domain=ML, keys_int64s=[1, 3], values_strings=["one", "three"], default_string="?"),
        STEPS,
    ),
    "mapper": (node("CategoryMapper", "x", domain=ML, cats_int64s=[1, 3], cats_strings=["apple", "b"]), WORDS),
    "mapper_back": (node("CategoryMapper", "x", domain=ML, cats_int64s=[1, 3], cats_strings=["apple", "b"]), STEPS),
    "one_hot": (node("OneHotEncoder", "x", domain=ML, cats_strings=["b", "apple"], zeros=1), WORDS),
    "linear": (
        node("LinearClassifier", "x", "l s", domain=ML, coefficients=[float(i) for i in range(-4, 5)],
             intercepts=[0.1, 0.2, 0.3], classlabels_strings=["a", "b", "c"], multi_class=0), ROW,
    ),
    "vectors": (
        node("SVMClassifier", "x", "l s", domain=ML, classlabels_strings=["n", "y"], coefficients=[0.3, -0.7],
             support_vectors=[0.1, 0.2, 0.3, -0.4, 0.5, 0.6], vectors_per_class=[1, 1], rho=[0.05],
             kernel_type="RBF", kernel_params=[0.5, 0.0, 0.0]), ROW,
    ),
    "tree": (
        node("TreeEnsembleClassifier", "x", "l s", domain=ML, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
             nodes_featureids=[1, 0, 0], nodes_values=[0.1, 0.0, 0.0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
             nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], class_treeids=[0, 0, 0], class_nodeids=[1, 2,
             2], class_ids=[0, 1, 2], class_weights=[1.0, 0.4, 0.6], classlabels_strings=["a", "b", "c"]), ROW,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_strings(name: str) -> None:
    made, x = TABLES[name]
    check([made], {"x": x})


def test_n_grams_of_words() -> None:
    x = np.array([["a", "b", "c", "a"], ["c", "a", "zzz", "b"]], object)
    made = node(
        "TfIdfVectorizer", "x", mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
        ngram_counts=[0, 2], ngram_indexes=[0, 1, 2, 3], pool_strings=["a", "c", "a", "b", "c", "a"],
    )  # fmt: skip
    check([made], {"x": x})


@pytest.mark.parametrize(
    "attrs, wanted",
    [
        ({}, ["apple", "B", "Zebra", "b"]),
        ({"case_change_action": "LOWER", "stopwords": ["B"]}, ["apple", "zebra"]),
        ({"case_change_action": "UPPER", "stopwords": ["B"], "is_case_sensitive": 1}, ["APPLE", "ZEBRA", "B"]),
        ({"stopwords": ["Apple", "zebra", "b"]}, [""]),
        ({"stopwords": ["Apple", "zebra", "b"], "is_case_sensitive": 1}, ["apple", "B", "Zebra"]),
    ],
)
def test_normalized_words(attrs: dict[str, Any], wanted: list[str]) -> None:
    """By the words of the specification: onnxruntime needs a locale, the reference folds accents."""
    made = node("StringNormalizer", "x", **attrs)
    for x in (np.array(["apple", "B", "Zebra", "b"], object), np.array([["apple", "B", "Zebra", "b"]], object)):
        (got,) = backend.run_model(model([made], {"x": x}), [x])
        assert got.tolist() == (wanted if x.ndim == 1 else [wanted])


def test_casts() -> None:
    numbers = np.array(["1.5", "-2", "1e3", " 7"], object)
    check([node("Cast", "x", to=TensorProto.FLOAT)], {"x": numbers[:3]})
    check([node("Cast", "x", to=TensorProto.INT64)], {"x": np.array(["12", "-3"], object)})
    check([node("Cast", "x", to=TensorProto.STRING)], {"x": np.array([1, -20], np.int32)})
    (shown,) = backend.run_model(
        model([node("Cast", "x", to=TensorProto.STRING)], {"x": ROW}), [ROW]
    )  # what is shown reads back exactly
    np.testing.assert_array_equal(shown.astype(np.float32), ROW)
    with pytest.raises(InputError, match="is no float32"):
        backend.run_model(model([node("Cast", "x", to=TensorProto.FLOAT)], {"x": WORDS}), [WORDS])


def pipeline() -> Any:
    """Words and numbers in one model: words → numbers → a kernel → words."""
    nodes = [
        node("LabelEncoder", "x", "n", domain=ML, keys_strings=["a", "b"], values_floats=[1.0, -1.0]),
        node("Mul", "n k", "m"),
        node("Exp", "m", "e"),
        node("ReduceSum", "e", "t", keepdims=0),
        node("ArgMax", "e", "i", axis=0, keepdims=0),
        node(
            "LabelEncoder", "i", "name", domain=ML, keys_int64s=[0, 1, 2], values_strings=["first", "second", "third"]
        ),
        node("Concat", "x x", "xx", axis=0),
        node("Identity", "name", "best"),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("k", TensorProto.FLOAT, [1]),
    ]
    outs = [onnx.ValueInfoProto(name=o) for o in ("t", "best", "xx")]
    return helper.make_model(
        helper.make_graph(nodes, "pipeline", infos, outs),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)],
    )


def test_strings_and_kernels_in_one_program(tmp_path: Any) -> None:
    module = weft.load(pipeline())
    exe = weft.compile(module, threads=1)
    steps = exe.artifact.program.instructions
    assert any(isinstance(i, CallHost) for i in steps) and any(isinstance(i, CallKernel) for i in steps)
    exe.save(tmp_path / "strings.weft")
    for each in (exe, weft.load_executable(tmp_path / "strings.weft")):
        for words in (["a", "b", "a"], ["b"]):
            x, k = np.array(words, object), np.array([0.5], np.float32)
            got, wanted = each(x, k), run(module, [x, k])
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
            assert got[1].tolist() == wanted[1].tolist() and got[2].tolist() == wanted[2].tolist()
    assert exe(["a", "b", "a"], [0.5])[2].tolist() == ["a", "b", "a"] * 2  # lists and NumPy's own strings will do
    assert exe(np.array(["a", "b", "a"]), [0.5])[1].tolist() == "first"


def test_strings_cost_nothing_in_the_end() -> None:
    exe = weft.compile(pipeline(), threads=1)
    x, k = np.array(["a", "b", "a"], object), np.array([0.5], np.float32)
    exe(x, k)
    before = _native.allocated_blocks()
    for _ in range(5):
        exe(x, k)
    assert _native.allocated_blocks() == before


def test_inputs_that_are_no_strings() -> None:
    exe = weft.compile(pipeline(), threads=1)
    with pytest.raises(InputError, match="strings is needed"):
        exe(np.zeros(3, np.float32), [0.5])
    with pytest.raises(InputError, match="must be string"):
        exe(np.array([["a"]], object), [0.5])


def test_text_with_strings_reads_back() -> None:
    text = """
def @main(%x: str[2]) -> (str[2], bool[2]) {
  %0: str[2] = text_concat(%x, str[2]["a \\"b\\"", ""])
  %1: bool[2] = text_equal(%0, str[1]["qa \\"b\\""])
  %2: (str[2], bool[2]) = (%0, %1)
  return %2
}
"""
    module = parse(text, OPERATORS)
    assert to_text(parse(to_text(module), OPERATORS)) == to_text(module)
    joined, same = weft.compile(module)(np.array(["q", "r"], object))
    assert joined.tolist() == ['qa "b"', "r"] and same.tolist() == [True, False]


def test_a_matrix_of_words_is_not_normalized() -> None:
    with pytest.raises(ModelError, match="in one row"):
        weft.load(model([node("StringNormalizer", "x")], {"x": WORDS}))


def test_strings_in_sequences_and_loops_of_known_length() -> None:
    """Joined and cut as their places; a loop that carries strings is unrolled."""

    def tensor(name: str, dtype: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Concat", ["s", "x"], ["s2"], axis=0),
         helper.make_node("Identity", ["x"], ["r"])],
        "body",
        [tensor("i", TensorProto.INT64), tensor("c", TensorProto.BOOL), helper.make_tensor_value_info("s", 8, None)],
        [tensor("c2", TensorProto.BOOL), helper.make_tensor_value_info("s2", 8, None),
         helper.make_tensor_value_info("r", 8, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
        helper.make_node("ConcatFromSequence", ["parts"], ["again"], axis=0),
        helper.make_node("Loop", ["k", "", "again"], ["last", "rows"], body=body),
        helper.make_node("Identity", ["last"], ["y"]),
    ]
    proto = model(nodes, {"x": WORDS[:, :1], "k": np.array(0)})
    prepared = backend.prepare(proto)
    for k in (0, 1, 3, 12):
        (y,) = prepared.run({"x": WORDS[:, :1], "k": np.array(k)})
        assert y.tolist() == WORDS[:, :1].tolist() * (k + 1)
    with pytest.raises(ModelError, match="need a known number of iterations"):
        weft.compile(proto)


def test_a_condition_does_not_choose_between_strings() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Identity", ["x"], [name])] if name == "then" else
            [helper.make_node("Concat", ["x", "x"], [name], axis=0)],
            name, [], [helper.make_tensor_value_info(name, 8, None)],
        )
        for name in ("then", "else")
    }  # fmt: skip
    proto = model([helper.make_node("If", ["c"], ["y"], **branches)], {"x": WORDS, "c": np.array(True)})
    with pytest.raises(ModelError, match="chooses between strings"):
        weft.compile(proto)
    prepared = backend.prepare(proto)
    for c in (True, False):
        assert prepared.run({"x": WORDS, "c": np.array(c)})[0].tolist() == WORDS.tolist() * (1 if c else 2)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("skips", [0, 2, 1 << 40])
def test_n_grams_of_any_distance(skips: int, length: int) -> None:
    """Distances beyond the length cost nothing."""
    x = {"x": np.array([1, 2, 1, 2, 3][:length], np.int64)}
    attrs: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 3, "pool_int64s": [1, 2, 1, 2, 1, 1, 3]}
    counts = {"mode": "TF", "ngram_counts": [0, 2, 4], "ngram_indexes": [0, 1, 2, 3], **attrs}
    (wanted,) = reference(model([node("TfIdfVectorizer", "x", max_skip_count=min(skips, 9), **counts)], x), x)
    (got,) = backend.prepare(model([node("TfIdfVectorizer", "x", max_skip_count=skips, **counts)], x)).run(
        [*x.values()]
    )
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("indexes", [[0, 1 << 40], [0, -1], [0]])
def test_n_grams_need_columns(indexes: list[int]) -> None:
    x = {"x": np.array([1, 2], np.int64)}
    made = node("TfIdfVectorizer", "x", mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
                ngram_counts=[0], ngram_indexes=indexes, pool_int64s=[1, 2])  # fmt: skip
    with pytest.raises(ModelError, match="TfIdfVectorizer"):
        backend.prepare(model([made], x))
