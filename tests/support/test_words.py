"""Misspelt names in messages: the most similar name is suggested, by one helper, for every kind of name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import weft
from weft import te
from weft.cli.main import cli
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS, op
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Instruction, Trace
from weft.support.dtypes import DType
from weft.support.errors import WeftError
from weft.support.words import closest, counted, did_you_mean
from weft.tir.parser import parse as parse_program
from weft.tir.text import to_text


def test_the_most_similar_name_is_suggested() -> None:
    assert did_you_mean("softmx", ["softmax", "max", "add"], "or another") == "did you mean 'softmax'? or another"
    assert did_you_mean("Relu", ["relu", "prelu"]) == "did you mean 'relu'?"
    assert closest("batchnorm", OPERATORS) == "batch_norm"


def test_without_a_similar_name_there_is_no_suggestion() -> None:
    assert did_you_mean("quux", ["relu"], "one of relu") == "one of relu"
    assert did_you_mean("quux", ["relu"]) is None
    assert did_you_mean("anything", []) is None


def test_one_thing_has_no_plural() -> None:
    assert (counted(1, "kernel"), counted(0, "kernel")) == ("1 kernel", "0 kernels")


def _program() -> Schedule:
    a = te.placeholder((8,), name="A")
    return Schedule(te.create_schedule(te.compute((8,), lambda i: a[i] + 1, name="total").op).schedule.program)


_GRAPH = "def @main(%x: f32[4]) -> f32[4] {{ %0 = {} return %0 }}"
_LISTS = """
type List<t> {{ Nil(); Cons(t, List<t>) }}
def @main(%x: f32[4]) -> {} {{
  %0 = List<f32[4]>::{}()
  return %0
}}
"""
MISSPELT: dict[str, tuple[Callable[[], Any], str]] = {
    "operator": (lambda: op("softmx"), "softmax"),
    "operator in text": (lambda: parse(_GRAPH.format("rleu(%x)"), OPERATORS), "relu"),
    "attribute": (lambda: parse(_GRAPH.format("softmax(%x, axs=0)"), OPERATORS), "axis"),
    "function": (lambda: parse(_GRAPH.format("@mian(%x)"), OPERATORS), "main"),
    "size in text": (lambda: parse("def @main<size>(%x: f32[sizes]) -> f32[size] { return %x }", OPERATORS), "size"),
    "dtype in text": (lambda: parse("def @main(%x: f23[4]) -> f32[4] { return %x }", OPERATORS), "f32"),
    "type of a result": (lambda: parse(_LISTS.format("Lst<f32[4]>", "Nil"), OPERATORS), "List"),
    "type of a value": (
        lambda: parse(_LISTS.format("List<f32[4]>", "Nil").replace("= List", "= Lisst"), OPERATORS),
        "List",
    ),
    "constructor": (lambda: parse(_LISTS.format("List<f32[4]>", "Nill"), OPERATORS), "Nil"),
    "dtype": (lambda: DType("flot32"), "float32"),
    "dtype of an array": (lambda: weft.nd.empty((2,), "flot32"), "float32"),
    "intrinsic": (lambda: te.call("sqt", 1.0), "sqrt"),
    "target": (lambda: weft.Target("zen44"), "zen4"),
    "cpu": (lambda: weft.Target("llvm -mcpu=znver33"), "znver3"),
    "option of a target": (lambda: weft.Target("llvm -mcp=znver3"), "mcpu"),
    "precision": (lambda: weft.Options(precision="b16"), "bf16"),
    "block": (lambda: _program().get_block("totl"), "total"),
    "thread axis": (lambda: _bound("threadIdx.X"), "threadIdx.x"),
    "scope": (lambda: _cached("shred"), "shared"),
    "primitive": (lambda: _program().replay(Trace((Instruction("splt", (), ()),))), "split"),
    "name in a loop program": (lambda: parse_program(to_text(_program().program).replace("A[", "AA[")), "A"),
}


def _bound(thread: str) -> None:
    s = _program()
    s.bind(s.get_loops("total")[0], thread)


def _cached(scope: str) -> None:
    s = _program()
    s.cache_read(s.get_block("total"), 0, scope)


@pytest.mark.parametrize("kind", MISSPELT)
def test_a_misspelt_name_is_recognized(kind: str) -> None:
    call, meant = MISSPELT[kind]
    with pytest.raises(WeftError) as found:
        call()
    assert f"did you mean '{meant}'?" in str(found.value)


def test_a_misspelt_input_is_recognized() -> None:
    module = parse("def @main(%image: f32[2]) -> f32[2] { %0 = relu(%image) return %0 }", OPERATORS)
    exe = weft.compile(module)
    with pytest.raises(weft.UserError, match=r"did you mean 'image'\?"):
        exe.run({"imge": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["compil"], "compile"),
        (["bench", "m.onnx", "--peers", "openvnio"], "openvino"),
    ],
)
def test_a_misspelt_word_of_the_command_line_is_recognized(words: list[str], meant: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code
    assert f"did you mean '{meant}'?" in result.output + str(result.exception)
