"""What the importer says about models it cannot import."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_samples import convolutional, model, shape_arithmetic, tensor_info

from weft.frontends import onnx as frontend
from weft.frontends.onnx import payloads
from weft.frontends.onnx.importer import Importer
from weft.support.errors import MALFORMED, MissingExtra, ModelError, UserError


def refused(proto: onnx.ModelProto, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        frontend.load(proto, name="m.onnx", **options)
    return str(caught.value)


def test_all_problems_at_once() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="f1"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="f2"),
        helper.make_node("Squash", ["x"], ["c"], name="s1", domain="com.acme"),
        helper.make_node("MatMul", ["x", "x"], ["d"], name="product"),
        helper.make_node("Relu", ["nowhere"], ["e"], name="lost"),
        helper.make_node("LeakyRelu", ["x"], ["g"], name="leak", alpha="steep"),
        helper.make_node("Concat", ["x", "x"], ["y"], name="join"),
    ]
    proto = model(nodes, [tensor_info("x", [2, 3])], ["y", "missing"], domains={"com.acme": 1})
    assert refused(proto) == (
        "error[M010] the model cannot be imported: 7 problems\n"
        "  [M004] Frobnicate 'f1': this operator is not supported\n"
        "  [M004] com.acme.Squash 's1': this operator is not supported\n"
        "  [T013] MatMul 'product': matmul: the contracted dimensions of f32[2, 3] and f32[2, 3] differ: 3 and 2\n"
        "  [M003] Relu 'lost': nothing before it in the graph computes its input 'nowhere'\n"
        "  [M003] LeakyRelu 'leak': its attribute 'alpha' must be of type FLOAT\n"
        "  [M003] Concat 'join': it needs the attribute 'axis'\n"
        "  [M003] nothing computes the output 'missing'\n"
        "  operators that Weft does not have: Frobnicate ×2, com.acme.Squash ×1\n"
        " --> m.onnx"
    )


def test_problems_are_data() -> None:
    proto = model([helper.make_node("Frobnicate", ["x"], ["y"])], [tensor_info("x", [2])], ["y"])
    with pytest.raises(frontend.ModelProblems) as caught:
        frontend.load(proto)
    (problem,) = caught.value.problems
    assert (problem.node, problem.op_type, problem.code) == ("Frobnicate_0", "Frobnicate", "M004")
    assert caught.value.unsupported == {"Frobnicate": 1}


def test_inside_functions_and_subgraphs() -> None:
    bad = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["a"])], "bad", [], [tensor_info("a", [2])])
    good = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "good", [], [tensor_info("b", [2])])
    nodes = [helper.make_node("If", ["c"], ["y"], name="choice", then_branch=bad, else_branch=good)]
    proto = model(nodes, [tensor_info("x", [2]), tensor_info("c", [], TensorProto.BOOL)], ["y"])
    assert "Frobnicate 'choice/Frobnicate_0': this operator is not supported" in refused(proto)
    assert "1 problem\n" in refused(proto)


def test_recursive_function() -> None:
    body = [helper.make_node("Again", ["a"], ["b"], domain="own")]
    function = helper.make_function("own", "Again", ["a"], ["b"], body, [helper.make_opsetid("own", 1)])
    proto = model([helper.make_node("Again", ["x"], ["y"], domain="own")], [tensor_info("x", [2])], ["y"],
                  functions=[function], domains={"own": 1})  # fmt: skip
    assert "nest deeper than" in refused(proto)


def test_many_expansions() -> None:
    """Each function calls the next one twice: 2^24 nodes."""
    functions = []
    for i in range(24):
        inner = ("Identity", "") if i == 23 else (f"F{i + 1}", "own")
        body = [helper.make_node(inner[0], [a], [b], domain=inner[1]) for a, b in (("a", "t"), ("t", "b"))]
        imports = [helper.make_opsetid("own", 1), helper.make_opsetid("", 21)]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], body, imports))
    proto = model([helper.make_node("F0", ["x"], ["y"], domain="own")], [tensor_info("x", [2])], ["y"],
                  functions=functions, domains={"own": 1})  # fmt: skip
    assert "more than 100,000 nodes" in refused(proto)


@pytest.mark.parametrize(
    ("shape", "message"),
    [([1 << 40, 1 << 40], "a tensor of"), ([-3], "its shape is [-3]")],
)
def test_absurd_sizes(shape: list[int], message: str) -> None:
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["y"])]
    assert message in refused(model(nodes, [], ["y"], {"s": np.array(shape, np.int64)}))


def test_weights_that_do_not_fit() -> None:
    proto = convolutional()
    proto.graph.initializer[0].dims[0] = 1 << 40
    assert "needs" in refused(proto) and "bytes, but has 432" in refused(proto)


def test_unknown_rank() -> None:
    proto = shape_arithmetic()
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "the input 'x': its rank is not known" in refused(proto)
    assert frontend.load(proto, shapes={"x": ("batch", "length", 6)}).main.params[0].tensor.rank == 3


@pytest.mark.parametrize(
    "shapes, says",
    [
        ({"length": 3}, "the model has no open size 'length'\n --> m.onnx\n  = there are: batch, w, x_1"),
        ({"y": (2, 3)}, "the model has no input 'y'\n --> m.onnx\n  = there are: x, v"),
        ({"batch": -1}, "'batch' cannot have the size -1"),
        ({"batch": 2.0}, "'batch' cannot have the size 2.0"),
        ({"batch": True}, "'batch' cannot have the size True"),
        ({"batch": "two"}, "'batch' cannot have the size 'two'"),
        ({"x": (2, -3)}, "'x' cannot have the size (2, -3)"),
    ],
)
def test_invalid_sizes_are_refused(shapes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        frontend.load(_open_sizes(), name="m.onnx", shapes=shapes)
    assert says in str(caught.value)


def test_a_dimension_whose_name_is_not_text() -> None:
    data = _open_sizes().SerializeToString().replace(b"batch", b"b\xfftch")
    with pytest.raises(ModelError, match="the name of dimension 0 of the input 'x' is not text"):
        frontend.load(data)


@pytest.mark.parametrize("sizes", [{"batch": 2, "x_1": 3, "w": 4}, {"batch": np.int64(2), "x_1": np.uint8(3), "v": 4}])
def test_sizes_by_name(sizes: dict[str, int]) -> None:
    """A size is given by the name in the model, by the name that Weft gives to an unnamed dimension, or as a whole
    shape with one number."""
    module = frontend.load(_open_sizes(), shapes=sizes)
    assert [p.tensor.shape for p in module.main.params] == [(2, 3), (4,)]


def _open_sizes() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["v"], ["z"])]
    return model(nodes, [tensor_info("x", ["batch", None]), tensor_info("v", ["w"])], ["y", "z"])


def test_no_operator_set() -> None:
    proto = convolutional()
    del proto.opset_import[:]
    assert "which version of the operator set" in refused(proto)
    assert frontend.load(proto, opset=21)


def test_external_data(tmp_path: Path) -> None:
    proto = convolutional()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert frontend.load(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="not read from a file"):
        frontend.load((tmp_path / "m.onnx").read_bytes())
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match="beyond the end"):
        frontend.load(tmp_path / "m.onnx")
    moved = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for entry in moved.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../../secret"
    (tmp_path / "n.onnx").write_bytes(moved.SerializeToString())
    with pytest.raises(ModelError, match="outside the folder"):
        frontend.load(tmp_path / "n.onnx")


def external(folder: Path, location: str) -> Path:
    """A model whose weights all lie at ``location``."""
    onnx.save(convolutional(), folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    moved = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in moved.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "n.onnx").write_bytes(moved.SerializeToString())
    return folder / "n.onnx"


@pytest.mark.parametrize(
    "location", [".", "", "..", "a/../w.bin", "/etc/passwd", "w\0.bin", "circle", "folder", "pipe", "x" * 5000, "none"]
)
def test_external_data_that_is_not_a_file(tmp_path: Path, location: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match=r"cannot be read|outside the folder"):
        frontend.load(external(tmp_path, location))


@pytest.mark.parametrize("field", ["location", "offset", "length", "checksum"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_external_data_with_texts_that_are_no_utf8(tmp_path: Path, field: str, part: str) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", 1, [2, 4])],
            [helper.make_tensor_value_info("y", 1, [2, 4])],
            [onnx.TensorProto(name="w", dims=[4, 4], data_type=1, data_location=1)],
        )
    )
    for key in ("location", field):
        entry = model.graph.initializer[0].external_data.add()
        entry.key, entry.value = key, "w.bin" if key == "location" else "0"
    setattr(entry, part, "QQQQQQQQ")
    (tmp_path / "w.bin").write_bytes(bytes(64))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"QQQQQQQQ", b"\xff\xfe\xfd\xfc" * 2))
    with pytest.raises(ModelError, match="no valid text"):
        frontend.load(path)


def test_external_data_behind_links(tmp_path: Path) -> None:
    """A store of downloads keeps files under digests, and models as folders of links to them."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    model = external(tmp_path, "w.bin")
    model.rename(blobs / "1234")
    (tmp_path / "w.bin").rename(blobs / "5678")
    (snapshot / "n.onnx").symlink_to("../../blobs/1234")
    (snapshot / "w.bin").symlink_to("../../blobs/5678")
    assert frontend.load(snapshot / "n.onnx")
    (snapshot / "n.onnx").unlink()
    (snapshot / "n.onnx").write_bytes((blobs / "1234").read_bytes())
    with pytest.raises(ModelError, match="outside the folder"):  # a model that is no link has no links out either
        frontend.load(snapshot / "n.onnx")


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    for path in (tmp_path / "a\0b", tmp_path / ("x" * 5000)):
        with pytest.raises(ModelError, match="cannot read"):
            frontend.load(path)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["any thread", "this thread", "another thread"])
def test_weights_that_cannot_be_read(tmp_path: Path, monkeypatch: Any, error: BaseException, where: str) -> None:
    """A read that fails in any thread is an error, and no thread reads after the file is closed."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(64 << 20))
    places = {0: (0, 32 << 20), 1: (32 << 20, 64 << 20)}
    main, reads, ended = threading.get_ident(), [0], []

    def preadv(handle: int, rooms: Any, at: int) -> int:
        assert not ended
        reads[0] += 1
        here = threading.get_ident() == main
        if reads[0] > 1 and (where == "any thread" or here == (where == "this thread")):
            raise error
        time.sleep(0.01)
        return real(handle, rooms, at)

    real = os.preadv
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setenv("WEFT_NUM_THREADS", "4")
    handle = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(type(error)):
            payloads._payloads(handle, places)
    finally:
        ended.append(True)
        os.close(handle)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"\x08\x07", "no ONNX graph"), (b"not a model at all", "not an ONNX model")],
)
def test_foreign_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        frontend.load(path)
    assert " --> model.onnx" in str(caught.value)


def test_absent_file() -> None:
    with pytest.raises(ModelError, match="No such file"):
        frontend.load("/nowhere/model.onnx")


def test_without_the_onnx_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match="needs the package 'onnx'"):
        frontend.load("model.onnx")


def test_importing_the_frontend_does_not_import_onnx() -> None:
    code = "import sys, weft.frontends.onnx; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("policy", ["stretch", "not_larger"])
def test_sizes_of_another_number_than_axes(policy: str) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], keep_aspect_ratio_policy=policy)
    sizes = {"sizes": np.array([3, 5], np.int64)}
    said = refused(model([node], [tensor_info("x", (1, 1, 6, 8))], ["y"], sizes, opset=19))
    assert "it resizes 4 axes, but is given 2 numbers" in said


def _twice() -> dict[str, onnx.ModelProto]:
    """Models in which one name, or one setting, has two meanings."""
    x, relu = tensor_info("x", [2, 2]), helper.make_node("Relu", ["x"], ["y"])
    made = {
        "two versions, 21 and 7": model([relu], [x], ["y"]),
        "two inputs have the name 'x'": model([relu], [x, tensor_info("x", [3])], ["y"]),
        "its output 'y' exists already": model([helper.make_node("Split", ["x"], ["y", "y"], axis=0)], [x], ["y"]),
        "it has two attributes 'axis'": model([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], [x], ["y"]),
    }
    weights = model([helper.make_node("Add", ["x", "w"], ["y"])], [x], ["y"], {"w": np.zeros((2, 2), np.float32)})
    weights.graph.initializer.append(weights.graph.initializer[0])
    made["two weights have the name 'w'"] = weights
    made["two versions, 21 and 7"].opset_import.add(domain="ai.onnx", version=7)
    made["it has two attributes 'axis'"].graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    return made


@pytest.mark.parametrize(("says", "proto"), _twice().items(), ids=["version", "input", "output", "attribute", "weight"])
def test_what_has_two_meanings_is_refused(says: str, proto: onnx.ModelProto) -> None:
    assert says in refused(proto)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            helper.make_node("Softmax", ["x"], ["y"], axes=0),
            "the operator has no attribute 'axes' (did you mean 'axis'? there are: axis)",
        ),
        (helper.make_node("Relu", ["x"], ["y"], alpha=0.5), "no attribute 'alpha' (there are: none)"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), "the operator takes 1 input at most, not 2"),
        (helper.make_node("Celu", ["x"], ["y"], beta=0.5), "no attribute 'beta' (there are: alpha)"),
        (helper.make_node("Shape", ["x"], ["y"], begin=1), "no attribute 'begin'"),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_what_the_operator_does_not_take(node: onnx.NodeProto, says: str) -> None:
    """A misspelt attribute would have its default: wrong numbers without a word."""
    assert says in refused(model([node], [tensor_info("x", ["n", 2])], ["y"]))


def test_what_exporters_note_and_what_no_list_limits() -> None:
    """Names with two underscores; operators of other domains; operators with any number of inputs; old attributes."""
    x = tensor_info("x", [2])
    frontend.load(model([helper.make_node("Relu", ["x"], ["y"], __origin="layer 3")], [x], ["y"]))
    frontend.load(model([helper.make_node("Sum", ["x"] * 40, ["y"])], [x], ["y"]))
    frontend.load(model([helper.make_node("Relu", ["x"], ["y"], consumed_inputs=[0])], [x], ["y"], opset=1))
    own = helper.make_function("own", "Id", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"])],
                               [helper.make_opsetid("", 21)])  # fmt: skip
    frontend.load(
        model([helper.make_node("Id", ["x"], ["y"], "n", domain="own", more=1)], [x], ["y"], functions=[own],
              domains={"own": 1})
    )  # fmt: skip


def test_one_version_said_twice_is_one() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [tensor_info("x", [2])], ["y"])
    proto.opset_import.add(domain="ai.onnx", version=proto.opset_import[0].version)
    frontend.load(proto)


@pytest.mark.parametrize("error", [e for e in MALFORMED if e is not AttributeError] + [ZeroDivisionError])
def test_whatever_a_converter_stumbles_over_is_a_problem_of_the_node(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(self: Importer, node: Any) -> Any:
        raise error("here")

    monkeypatch.setattr(Importer, "convert", stumble)
    said = refused(model([helper.make_node("Relu", ["x"], ["y"], name="act")], [tensor_info("x", [2])], ["y"]))
    assert f"[M003] Relu 'act': its operands or attributes do not fit its operator ({error.__name__}" in said


@pytest.mark.parametrize("count", [-1, 0, 3, 1 << 40])
@pytest.mark.parametrize("opset", [8, 21])
def test_scans_over_more_inputs_than_there_are(count: int, opset: int) -> None:
    row = tensor_info("r", (4,))
    body = helper.make_graph([helper.make_node("Relu", ["r"], ["o"])], "body", [row], [tensor_info("o", (4,))])
    operands = ["", "x"] if opset == 8 else ["x"]
    node = helper.make_node("Scan", operands, ["y"], num_scan_inputs=count, body=body)
    shape = (1, 3, 4) if opset == 8 else (3, 4)
    said = refused(model([node], [tensor_info("x", shape)], ["y"], opset=opset))
    assert f"num_scan_inputs is {count}, but must be 1 to 1, the number of operands" in said


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 3)])
def test_conditions_of_several_elements(shape: tuple[int, ...]) -> None:
    sides = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["x"], [name])], name, [], [tensor_info(name, (2,))]
        )
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    node = helper.make_node("If", ["c"], ["y"], **sides)
    given = [tensor_info("x", (2,)), tensor_info("c", shape, onnx.TensorProto.BOOL)]
    assert "its condition must be a single value, not of shape" in refused(model([node], given, ["y"]))
    known = {"c": np.ones(shape, bool)}
    assert "its condition must be a single value" in refused(model([node], given[:1], ["y"], known))
