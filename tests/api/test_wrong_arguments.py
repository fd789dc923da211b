"""Arguments of a wrong kind raise errors that say what would fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from weft.api import compile_artifact, compile_with_report
from weft.frontends.onnx import backend
from weft.frontends.onnx import load as load_onnx
from weft.measure.roofline import kernel_bounds, roofline
from weft.support.errors import InputError

X = np.zeros((1, 2), np.float32)


@pytest.fixture(scope="module")
def model() -> Any:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def executable(model: Any) -> weft.Executable:
    return weft.compile(model)


COMMON: list[tuple[str, Any, str, str]] = [
    ("options", 3, "I029", "weft.Options"),
    ("shapes", 5, "I029", "names as keys"),
    ("shapes", {3: 4}, "I029", "names as keys"),
    ("shapes", {"n": "x"}, "I020", "cannot have the size"),
    ("precision", 7, "I029", "a text"),
    ("precision", "f64", "I022", "precision"),
    ("target", object(), "I029", "a target"),
    ("target", None, "I029", "a target"),
    ("target", "", "G001", "empty"),
    ("also", 3, "I029", "a target"),
    ("also", [3], "I029", "a target"),
    ("schedules", 3, "I029", "'find'"),
    ("tuning_db", 3, "I029", "a path or a weft.tune.database.Database"),
    ("tuning_db", "none.db", "I021", "there is no tuning database"),
    ("cache", "no", "I029", "True or False"),
    ("progress", 3, "I029", "True or False"),
    ("specialize", 3, "I029", "names as keys"),
    ("specialize", {"n": 1.5}, "I033", "cannot be specialized"),
    ("specialize", {"n": "8"}, "I033", "cannot be specialized"),
    ("bogus", 1, "I029", "bogus"),
]
RUNNING: list[tuple[str, Any, str, str]] = [
    ("threads", "a", "I029", "whole number"),
    ("threads", 1.5, "I029", "whole number"),
    ("threads", True, "I029", "whole number"),
    ("threads", 0, "I010", "threads"),
    ("threads", 10**400, "I010", "000… threads"),
    ("specialize_after", "a", "I029", "whole number"),
    ("specialize_after", 0, "I033", "at least 1"),
]


@pytest.mark.parametrize(("name", "value", "code", "words"), [*COMMON, *RUNNING], ids=lambda v: repr(v)[:20])
def test_compile(model: Any, name: str, value: Any, code: str, words: str) -> None:
    functions: list[Callable[..., Any]] = [weft.compile, compile_with_report]
    if (name, value, code, words) in COMMON:
        functions.append(compile_artifact)
    for function in functions:
        with pytest.raises(weft.UserError, match=words) as error:
            function(model, **{name: value})
        assert error.value.code == code
        if code == "I029":
            assert f"{function.__name__}(model, target" in str(error.value.hint)


@pytest.mark.parametrize(
    "wrong",
    [
        {"merge": "a"},
        {"max_ops": "a"},
        {"max_ops": 0},
        {"max_ops": True},
        {"layouts": 3},
        *({"winograd": v} for v in ("yes", "2", 0, 1, 3, 6, -2, 2.0, None)),
    ],
    ids=str,
)
def test_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(weft.UserError, match=f"'{next(iter(wrong))}' must be") as error:
        weft.Options(**wrong)
    assert error.value.code == "I029"


def test_tiles_on_offer_are_named() -> None:
    with pytest.raises(weft.UserError, match=r"True, False or the largest tile allowed \(2 or 4\), not 3"):
        weft.Options(winograd=3)


def test_executables(executable: weft.Executable, tmp_path: Path) -> None:
    executable.save(tmp_path / "m.weft")
    calls: list[Callable[[], Any]] = [
        lambda: weft.load_executable(3),  # type: ignore[arg-type]
        lambda: weft.load_executable(None),  # type: ignore[arg-type]
        lambda: weft.load_executable(tmp_path / "m.weft", threads="a"),  # type: ignore[arg-type]
        lambda: weft.load_executable(tmp_path / "m.weft", verify=3),  # type: ignore[arg-type]
        lambda: executable.save(3),  # type: ignore[arg-type]
        lambda: executable.run([X]),  # type: ignore[arg-type]
        lambda: executable.run(3),  # type: ignore[arg-type]
        lambda: executable.profile(X, runs="a"),  # type: ignore[arg-type]
        lambda: executable.benchmark(X, seconds="a"),  # type: ignore[arg-type]
        lambda: executable.benchmark(X, max_runs=1.5),  # type: ignore[arg-type]
        lambda: roofline(executable, X, peaks=3),  # type: ignore[arg-type]
        lambda: kernel_bounds(executable, X, peaks=None),  # type: ignore[arg-type]
        lambda: setattr(executable, "threads", "a"),
    ]
    for call in calls:
        with pytest.raises(weft.UserError, match=r"must be|are not"):
            call()


def test_models(model: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: weft.load(model, shapes=3),  # type: ignore[arg-type]
        lambda: weft.load(model, name=3),  # type: ignore[arg-type]
        lambda: load_onnx(model, opset="a"),  # type: ignore[arg-type]
        lambda: load_onnx(model, known=3),
        lambda: backend.prepare(model, 3),
        lambda: backend.prepare(model, threads="a"),
        *(lambda wrong=wrong: weft.load(wrong) for wrong in (None, 3, object(), [], b"abc")),  # type: ignore[misc]
    ]
    for call in calls:
        with pytest.raises(weft.UserError):
            call()


def test_inputs_by_name(executable: weft.Executable) -> None:
    np.testing.assert_array_equal(executable(x=X + 1), X + 1)
    for call, says in (
        (lambda: executable(X=X), "'X' is unknown"),
        (lambda: executable(z=X), "'z' is unknown"),
        (lambda: executable(X, threads=2), "'threads' is unknown"),
        (lambda: executable(X, x=X), "in order and by name"),
        (lambda: executable(X, X, z=X), "1 input is needed, 3 given"),
        (lambda: executable(X, X), "1 input is needed, 2 given"),
        (lambda: executable(), "1 input is needed, 0 given"),
        (lambda: executable.run({"x": X}, x=X), "'x' is given twice"),
    ):
        with pytest.raises(InputError, match=says) as caught:
            call()
        assert caught.value.code == "I001"
        assert "x: float32[n, 2]" in str(caught.value)


def test_some_inputs_in_order_and_some_by_name() -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "abcy"]
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Mul", ["d", "c"], ["y"])]
    run = weft.compile(helper.make_model(helper.make_graph(nodes, "g", ports[:3], ports[3:])))
    a, b, c = (np.array([v, v + 1], np.float32) for v in (9, 4, 3))
    out = np.empty(2, np.float32)
    for call in (
        lambda: run(a, b, c),
        lambda: run(a, c=c, b=b),
        lambda: run(c=c, a=a, b=b),
        lambda: run(a, b, c=c, timeout=9),
        lambda: run(a, c=c, b=b, out=out),
    ):
        np.testing.assert_array_equal(call(), (a - b) * c)
    with pytest.raises(InputError, match="'b' is missing"):
        run(a, c=c)


def test_views_larger_than_memory(executable: weft.Executable) -> None:
    for dtype in (np.float32, np.dtype(">f4")):
        with pytest.raises(weft.UserError, match="input 'x' takes") as caught:
            executable(np.broadcast_to(np.zeros(1, dtype), (1 << 50, 2)))
        assert caught.value.code == "I007"


def test_sizes_refuses_what_a_run_refuses(executable: weft.Executable) -> None:
    assert executable.sizes(X) == executable.sizes({"x": X}) == {"n": 1}
    for wrong in ((), (X, X), (X[0],), (X[..., None],), (X[:, :1],), (X.astype(np.int32),), ({"z": X},), ("a",)):
        told = []
        for ask in (executable.sizes, executable.profile):
            with pytest.raises(InputError) as caught:
                ask(*wrong)
            told.append(str(caught.value))
        assert told[0] == told[1], wrong


def test_sizes_of_inputs_that_must_agree() -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", "m"]) for n in "aby"]
    run = weft.compile(helper.make_model(helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", ports[:2],
                                                           ports[2:])))  # fmt: skip
    assert run.sizes(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) == {"n": 0, "m": 3}
    with pytest.raises(InputError, match="dimension 0 is 2, not 1"):
        run.sizes(np.zeros((1, 3), np.float32), np.zeros((2, 3), np.float32))


def test_options_with_other_names_are_refused() -> None:
    with pytest.raises(InputError, match="presicion") as error:
        weft.Options(presicion="bf16")  # type: ignore[call-arg]  # the point
    assert error.value.code == "I029"
    assert "did you mean 'precision'?" in str(error.value.hint)
    with pytest.raises(InputError, match="too many positional") as error:
        weft.Options(*range(9))  # type: ignore[call-arg, arg-type]  # the point
    assert "Options(layouts, winograd" in str(error.value.hint)
    with pytest.raises(weft.UserError, match="missing a required argument: 'version'") as found:
        weft.Plugin("mine")  # type: ignore[call-arg]  # the point
    assert found.value.code == "X010"


def test_a_misspelt_argument_has_a_hint(model: Any) -> None:
    with pytest.raises(InputError, match="tarjet") as error:
        weft.compile(model, tarjet="cpu")  # type: ignore[call-arg]  # the point
    assert "did you mean 'target'?" in str(error.value.hint)
