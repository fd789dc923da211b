"""Metadata of artifacts that anything may have written, with right checksums: refused, or shown without raw errors."""

from __future__ import annotations

import base64
import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from seeds import seeds
from test_artifact_hostile import VALUES, header_of, places, rewritten

import weft
import weft.api.compiling as compiling
from weft import te
from weft.cli.main import cli
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.support.errors import ArtifactError, UserError, WeftError

WRONG: dict[str, list[Any]] = {
    "weft": [3, None, ["0.1"], {}],
    "model": [3, None, {"name": "m"}],
    "precision": [1.5],
    "arena_bytes": ["x", -1, 1.5, None, True],
    "largest_live_set": [[]],
    "plugins": [3, "ab", [3], [["name"]], [["name", 1]], {"name": "1"}],
    "in_process": [3, "f", [3], {}],
    "graphs": [3, None, {}],
    "function": [3, None, [], {}, "loops"],
}
WRONG_IN_A_FUNCTION: dict[str, list[Any]] = {
    "loops": [3, None, ["x"]],
    "scalars": [3, "x", [3]],
    "notes": [3, "x", [None]],
    "order": [1, [1], [["input"]], [["input", 0]], [["input", "0"], ["output", 0]], [["input", 0], ["input", 0]],
              [["input", 0], ["output", 1]], [["other", 0], ["output", 0]], [["input", 0], ["output", 0], ["size", 0]]],
    "sizes": [0, [0], [["n", None]], [["n", None, 1]], [[3, None, False]], [["n", ["add"], False]],
              [["n", ["m"], False]], [["n", [None], False]], [["n", [1, 1], False]], [["n", None, True]],
              [["n", [1, "n", 1, "sub", "floordiv", "add"], False]], [["n", [], False]], [["n", 3, False]]],
}  # fmt: skip
TEXTS = ["", "x", "program", 'program "f"() -> ():\n', "\0", "(" * 10_000]


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    path = tmp_path_factory.mktemp("function") / "f.weft"
    weft.build(te.create_schedule(b.op), [a, b]).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    x = build.var("x", (build.size("n"),))
    path = tmp_path_factory.mktemp("model") / "m.weft"
    weft.compile_artifact(Module.of(build.function([x], call(op("relu"), [x])))).save(path)
    return path.read_bytes()


def changed(raw: bytes, metadata: dict[str, Any]) -> bytes:
    header = header_of(raw)
    header["metadata"] = {**header["metadata"], **metadata}
    return rewritten(raw, json.dumps(header).encode())


def shown(path: Path) -> list[int]:
    """The exit status of ``weft inspect`` at several stages: no error is raw, or a bug."""
    found = []
    for stage in ("summary", "imported", "groups", "te", "scheduled", "assembly", "program"):
        result = CliRunner().invoke(cli, ["inspect", str(path), "--stage", stage])
        assert result.exception is None or isinstance(result.exception, (SystemExit, UserError)), (stage, result)
        found.append(result.exit_code)
    return found


def test_unchanged_artifacts_are_shown(function: bytes, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.weft"
    for raw, failing in ((function, 3), (model, 0)):  # functions have no graph
        path.write_bytes(changed(raw, {"anything": [1, None, {"else": 2}]}))
        assert sum(map(bool, shown(path))) == failing


@pytest.mark.parametrize("name", WRONG)
def test_fields_of_another_form_are_refused(name: str, function: bytes, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.weft"
    for raw in (function, model):
        for value in WRONG[name]:
            path.write_bytes(changed(raw, {name: value}))
            with pytest.raises(ArtifactError, match="metadata"):
                weft.load_function(path)
            with pytest.raises(ArtifactError, match="metadata"):
                weft.load_executable(path)
            assert all(shown(path))


@pytest.mark.parametrize("name", WRONG_IN_A_FUNCTION)
def test_fields_of_functions_of_another_form_are_refused(name: str, function: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.weft"
    inside = header_of(function)["metadata"]["function"]
    for value in WRONG_IN_A_FUNCTION[name]:
        path.write_bytes(changed(function, {"function": {**inside, name: value}}))
        with pytest.raises(ArtifactError):
            weft.load_function(path)
        assert all(shown(path))


def test_a_function_without_its_fields_is_refused(function: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.weft"
    inside = header_of(function)["metadata"]["function"]
    for name in ("loops", "order", "sizes"):
        path.write_bytes(changed(function, {"function": {k: v for k, v in inside.items() if k != name}}))
        with pytest.raises(ArtifactError):
            weft.load_function(path)


def packed(value: Any) -> str:
    return base64.b85encode(zlib.compress(json.dumps(value).encode())).decode()


@pytest.mark.parametrize(
    "graphs",
    ["", "x", packed(3), packed([]), packed({}), packed({"imported": "x"}), packed({"imported": 1, "groups": 2}),
     *(packed({"imported": text, "groups": text}) for text in TEXTS),
     packed({"imported": "", "groups": "def @main(%x: f32[2]) -> f32[3] {\n  return %x\n}\n"})],
)  # fmt: skip
def test_graphs_that_are_none(graphs: str, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.weft"
    path.write_bytes(changed(model, {"graphs": graphs}))
    np.testing.assert_array_equal(weft.load_executable(path)(np.array([-1, 2], np.float32)), [0, 2])
    assert shown(path)[3] != 0


def test_graphs_that_never_end(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that stand for more than any memory are unpacked up to a limit only."""
    path = tmp_path / "m.weft"
    path.write_bytes(model)
    assert not any(shown(path)[1:3])
    monkeypatch.setattr(compiling, "MAX_GRAPH_BYTES", 10)
    assert all(shown(path)[1:4])


@pytest.mark.parametrize("text", TEXTS)
def test_loops_that_are_none(text: str, function: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.weft"
    inside = header_of(function)["metadata"]["function"]
    path.write_bytes(changed(function, {"function": {**inside, "loops": text}}))
    made = weft.load_function(path)
    np.testing.assert_array_equal(made(np.array([1, 2], np.float32)), [2, 3])
    for stage in ("scheduled", "kernel", "assembly"):
        with pytest.raises(UserError):
            made.inspect(stage)
    assert all(shown(path)[4:6])


@pytest.mark.parametrize("seed", seeds(2))
def test_random_changes(seed: int, function: bytes, model: bytes, tmp_path: Path) -> None:
    choose = random.Random(seed)
    path = tmp_path / "f.weft"
    for raw in (function, model):
        for _ in range(20):
            header = header_of(raw)
            container, k = choose.choice(places(header["metadata"], []))
            container[k] = choose.choice(VALUES)
            path.write_bytes(rewritten(raw, json.dumps(header).encode()))
            for load in (weft.load_function, weft.load_executable):
                try:
                    repr(load(path))
                except WeftError as error:
                    assert isinstance(error, UserError)
            shown(path)


def test_numbers_and_sizes_of_the_program(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.weft"
    header = header_of(model)
    call_at = next(i for i, step in enumerate(header["program"]["instructions"]) if step[0] == "call")
    for place, value in ((1, 99), (1, -1), (2, [99])):
        header = header_of(model)
        header["program"]["instructions"][call_at][place] = value
        path.write_bytes(rewritten(model, json.dumps(header).encode()))
        assert all(shown(path))
    for size in ([], ["add"], [1, 1], [1, "not", "add"], ["not"]):
        header = header_of(model)
        header["program"]["inputs"][0][2] = [size]
        path.write_bytes(rewritten(model, json.dumps(header).encode()))
        assert all(shown(path))
