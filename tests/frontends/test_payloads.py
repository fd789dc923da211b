"""Large weights are read without protobuf; the result is the same."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from seeds import seeds

import weft
from weft.frontends.onnx import load, payloads
from weft.frontends.onnx.payloads import read_apart
from weft.frontends.onnx.reader import read
from weft.frontends.onnx.tensors import to_array
from weft.graph.text import to_text
from weft.support.errors import ModelError, WeftError

DTYPES = ("float32", "float16", "int64", "int8", "bool", "float64")


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MIN_LARGE_BYTES", 100)
    monkeypatch.setattr(payloads, "_PIECE", 64)
    monkeypatch.setattr(payloads, "_WINDOW", 33)


def model(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    weights = []
    for i in range(12):
        shape = tuple(int(n) for n in rng.integers(1, 9, size=rng.integers(0, 4)))
        dtype = DTYPES[i % len(DTYPES)]
        weights.append(numpy_helper.from_array(rng.integers(0, 2, shape).astype(dtype), f"w{i}"))
    weights.append(helper.make_tensor("listed", TensorProto.FLOAT, (50,), rng.standard_normal(50)))  # no raw bytes
    weights.append(numpy_helper.from_array(rng.standard_normal((8, 40)).astype(np.float32), "used"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 40))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "used"], ["y"])], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("threads", ["1", "3"])
def test_arrays_are_those_of_protobuf(seed: int, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", threads)
    proto = model(seed)
    source = read(written(tmp_path / "m.onnx", proto.SerializeToString()))
    assert source.payloads and len(source.model.graph.initializer) == len(proto.graph.initializer)
    for number, (rest, whole) in enumerate(zip(source.model.graph.initializer, proto.graph.initializer, strict=True)):
        payload = source.payloads.get(number)
        assert (payload is not None) == (len(whole.raw_data) >= 100), whole.name
        assert payload is None or (payload.ctypes.data % 64 == 0 and not rest.HasField("raw_data"))
        found, expected = to_array(rest, None, payload), to_array(whole)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_the_module_is_the_same(tmp_path: Path) -> None:
    data = model().SerializeToString()
    assert to_text(load(written(tmp_path / "g.onnx", data))) == to_text(load(data, name="g.onnx"))


def test_weights_of_branches_stay_in_the_message(tmp_path: Path) -> None:
    """Only initializers of the main graph are taken out, whatever their numbers in branches are."""
    branches = []
    for value in (1.0, 2.0):
        weight = numpy_helper.from_array(np.full((8, 40), value, np.float32), "b")
        out = helper.make_tensor_value_info("r", TensorProto.FLOAT, (8, 40))
        node = helper.make_node("Identity", ["b"], ["r"])
        branches.append(helper.make_graph([node], f"branch{value}", [], [out], [weight]))
    proto = model()
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "condition"))
    node = helper.make_node("If", ["condition"], ["chosen"], then_branch=branches[0], else_branch=branches[1])
    proto.graph.node.append(node)
    proto.graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, (8, 40)))
    data = proto.SerializeToString()
    assert to_text(load(written(tmp_path / "g.onnx", data))) == to_text(load(data, name="g.onnx"))


def test_unusual_encodings_are_left_to_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model()
    twice = proto.SerializeToString() + onnx.ModelProto(graph=onnx.GraphProto(name="other")).SerializeToString()
    assert read_apart(written(tmp_path / "twice.onnx", twice)) is None
    assert len(read(tmp_path / "twice.onnx").model.graph.initializer) == len(proto.graph.initializer)
    monkeypatch.setattr(payloads, "MIN_LARGE_BYTES", 1 << 20)
    assert read_apart(written(tmp_path / "small.onnx", proto.SerializeToString())) is None


def test_the_last_of_several_raw_fields_counts(tmp_path: Path) -> None:
    """A field that comes twice is legal in protobuf; such a tensor is not touched."""
    tensor = numpy_helper.from_array(np.zeros(64, np.float32), "w").SerializeToString()
    other = onnx.TensorProto(raw_data=np.ones(64, np.float32).tobytes()).SerializeToString()
    graph = payloads._tagged(5, tensor + other) + onnx.GraphProto(name="g").SerializeToString()
    path = written(tmp_path / "m.onnx", payloads._tagged(7, graph))
    assert read_apart(path) is None


@pytest.mark.parametrize("seed", seeds(40))
def test_damage_is_found_as_before(seed: int, tmp_path: Path) -> None:
    """Truncated and altered files: the same module, or an error of the same kind, as from the bytes."""
    rng = random.Random(seed)
    data = bytearray(model(seed % 3).SerializeToString())
    for _ in range(rng.randint(0, 3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
    path = written(tmp_path / "m.onnx", bytes(data))
    found, expected = (_text(what) for what in (path, bytes(data)))
    assert found == expected


def _text(what: Any) -> str:
    try:
        return to_text(load(what, name="m.onnx"))
    except WeftError as error:
        return type(error).__name__


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "m.onnx", model().SerializeToString())
    monkeypatch.setattr(payloads.os, "preadv", lambda *_: 0)
    assert read_apart(path) is None


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        load(tmp_path)


@pytest.mark.parametrize("seed", seeds(4))
def test_mapped_weights_are_those_of_protobuf(seed: int, tmp_path: Path) -> None:
    """At any alignment: the file decides where the bytes begin."""
    proto = model(seed)
    source = read(written(tmp_path / "m.onnx", proto.SerializeToString()), mapped=True)
    assert source.payloads
    for number, payload in source.payloads.items():
        rest, whole = source.model.graph.initializer[number], proto.graph.initializer[number]
        assert not payload.flags.owndata and not payload.flags.writeable
        found, expected = to_array(rest, None, payload), to_array(whole)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_a_file_that_cannot_be_mapped_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise OSError

    monkeypatch.setattr(payloads.mmap, "mmap", refuse)
    path = written(tmp_path / "m.onnx", model().SerializeToString())
    found, wanted = read(path, mapped=True).payloads, read(path).payloads
    assert wanted and found.keys() == wanted.keys()
    assert all(np.array_equal(found[i], wanted[i]) for i in wanted)


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external"])
def test_executables_do_not_need_the_file(external: bool, tmp_path: Path) -> None:
    """Files of models are written anew in place and cut; what was compiled before goes on with its own weights."""
    random = np.random.default_rng(0)
    table = random.standard_normal((500, 32)).astype(np.float32)  # looked up: nothing packs it
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(table[:32].copy(), "w")]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ("n",))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 32))
    nodes = [helper.make_node("Gather", ["table", "x"], ["g"]), helper.make_node("MatMul", ["g", "w"], ["y"])]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=external, location="m.data", size_threshold=0)
    executables = [
        weft.compile(path, threads=1, options=weft.Options(jobs=1)),
        weft.compile(path, threads=1, options=weft.Options(jobs=1), specialize_after=2),
        weft.compile(path, threads=1, options=weft.Options(jobs=1), specialize={"n": [3, 5]}),
    ]
    modules = [weft.load(path)]
    for file in tmp_path.iterdir():
        with open(file, "r+b") as opened:  # in place: a mapping sees it
            opened.write(bytes(file.stat().st_size))
    check(executables, table)
    for file in tmp_path.iterdir():
        os.truncate(file, 0)  # a mapping ends the process
    executables += [weft.compile(m, threads=1, options=weft.Options(jobs=1)) for m in modules]
    check(executables, table)


def check(executables: list[Any], table: Any) -> None:
    for rows in (3, 2, 5):
        at = np.array([3, 499, 0, 77, 100])[:rows]
        for exe in executables:
            for _ in range(4):  # the last runs of the second one are specialized
                np.testing.assert_allclose(exe(at), table[at] @ table[:32], rtol=1e-4, atol=1e-4)


def test_a_file_of_tiny_fields_takes_little_memory(tmp_path: Path) -> None:
    """Two bytes for a field: an object for each of them, kept until the end, took 50 times the size of the file."""
    large = numpy_helper.from_array(np.ones(1000, np.float32), "w").SerializeToString()
    weight, count = payloads._tagged(5, large), 100_000
    tensor = payloads._tagged(5, b"\x78\x01" * count + large)
    files = {
        "in the model": b"\x78\x01" * count + payloads._tagged(7, weight),
        "in the graph": payloads._tagged(7, b"\x78\x01" * count + weight),
        "empty weights": payloads._tagged(7, b"\x2a\x00" * count + weight),
        "in a weight": payloads._tagged(7, tensor),
        "empty payloads": payloads._tagged(7, payloads._tagged(5, b"\x4a\x00" * count + large)),
        "empty graphs": b"\x3a\x00" * count + payloads._tagged(7, weight),
    }
    for name, data in files.items():
        path = written(tmp_path / "m.onnx", data)
        read_apart(path)  # what is made once and kept
        tracemalloc.start()
        found = read_apart(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * len(data), name
        assert (found is None) == name.startswith(("empty payloads", "empty graphs")), name


def test_a_file_of_too_many_fields_is_left_to_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "m.onnx", model().SerializeToString())
    assert read_apart(path) is not None
    monkeypatch.setattr(payloads, "MAX_FIELDS", 10)
    assert read_apart(path) is None
