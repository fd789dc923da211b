"""What notebooks show of values (``_repr_html_``, well formed and escaped), and their short ``repr``."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.classic.function import Measurement
from weft.graph.nodes import Module
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.runtime import Executable
from weft.runtime.profile import KernelProfile, Profile
from weft.support.html import MAX_LINES, preformatted


class Reader(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Any) -> Reader:
    reader = Reader()
    reader.feed(value._repr_html_())
    reader.close()
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def module() -> Module:
    text = "def @main<n>(%x: f32[n, 4]) -> f32[n, 4] { %0 = relu(%x) %1 = softmax(%0, axis=1) return %1 }"
    return parse(text, OPERATORS)


@pytest.fixture(scope="module")
def exe(module: Module) -> Executable:
    return weft.compile(module)


def test_an_executable_shows_its_inputs_and_outputs(exe: Executable) -> None:
    reader = shown(exe)
    assert "x" in reader.text and reader.text.count("float32[n, 4]") == 2
    assert "kernel" in reader.text and "thread" in reader.text and "-mattr" not in reader.text
    assert shown(exe.artifact).tags == reader.tags


def test_a_graph_shows_its_text(module: Module) -> None:
    assert "%1: f32[n, 4] = softmax(%0" in str(module)
    assert shown(module).text == str(module)
    assert repr(module) == "<Module of 1 function: main>"


def test_schedules_programs_and_loops_show_their_loops() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: te.if_then_else(a[i] < 1, a[i], 0.0), name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].axis[0])
    loops = str(weft.lower(s, [a, b], name="B"))
    assert shown(s).text == shown(s.schedule).text == shown(s.program).text == loops
    assert shown(weft.lower(s, [a, b], name="B")).text == loops
    assert "vectorized" in loops and "<" in loops
    assert repr(s.program) == "<Program B: 1 input, 1 output>"
    assert shown(s.schedule.trace).text == s.schedule.trace.to_python() and "vectorize" in str(s.schedule.trace)


def test_looking_at_a_stage_records_nothing() -> None:
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    assert repr(s[b]) == "<Stage B: i, j>"
    assert not s.schedule.trace.instructions


def test_a_profile_shows_the_kernels_that_take_most_time(exe: Executable) -> None:
    profile = exe.profile(np.zeros((3, 4), np.float32), runs=2)
    assert repr(profile) == str(profile)
    reader = shown(profile)
    assert reader.tags.count("tr") == 1 + len(profile.kernels)
    assert profile.summary in reader.text and "100.0%" in reader.text


def test_of_a_long_profile_only_a_part_is_shown() -> None:
    kernels = tuple(KernelProfile(i, f"k{i}", "<b>", 1, 1.0, 1.0, 0.01, None, 2.5) for i in range(100))
    reader = shown(Profile(kernels, 100.0, 1, 1))
    assert reader.tags.count("tr") == 21 and "80 kernels more" in reader.text
    assert "<b>" in reader.text and "b" not in reader.tags


def test_long_texts_are_folded() -> None:
    class Long:
        def _repr_html_(self) -> str:
            return preformatted("line\n" * (MAX_LINES + 1))

    assert "details" in shown(Long()).tags
    assert preformatted("line\n" * MAX_LINES).startswith("<pre")


def test_other_values_are_short() -> None:
    assert repr(weft.Target("zen4")) == f'Target("{weft.Target("zen4")}")'
    assert weft.Target(str(weft.Target("zen4"))) == weft.Target("zen4")


def test_a_target_shows_its_machine() -> None:
    reader = shown(weft.Target("zen4"))
    assert (
        "znver4" in reader.text and "512 bits, 32 registers" in reader.text and str(weft.Target("zen4")) in reader.text
    )
    assert "none" in shown(weft.Target("c")).text or "bits" in shown(weft.Target("c")).text


def test_options_show_what_differs() -> None:
    reader = shown(weft.Options(max_ops=3, winograd_tiles=(("<a>", 2),)))
    assert reader.text.count("not the default") == 2 and "(('<a>', 2),)" in reader.text and "a" not in reader.tags
    assert "not the default" not in shown(weft.Options()).text


def test_a_measurement_shows_its_times() -> None:
    reader = shown(Measurement((3e-6, 1e-6, 2e-6, 4e-6)))
    assert "fastest1.000 µs" in reader.text and "median2.500 µs" in reader.text and "slowest4.000 µs" in reader.text
    assert "in 4 repetitions" in reader.text


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "int4", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (40, 50)])
def test_a_tensor_shows_its_elements(shape: tuple[int, ...], dtype: str) -> None:
    tensor = weft.nd.empty(shape, dtype)
    np.asarray(tensor)[...] = 1
    reader = shown(tensor)
    assert dtype in reader.text and (" × ".join(map(str, shape)) or "one number") in reader.text
    one = "True" if dtype == "bool" else "1"
    assert (one in reader.text.split("cpu(0)")[-1]) == (0 not in shape) and len(reader.text) < 3000


def test_a_tensor_expression_shows_what_its_elements_equal() -> None:
    n = te.var("n")
    a, k = te.placeholder((n, 4), name="A<"), te.reduce_axis((0, 4), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k, where=k < 3), name="B")
    assert "A<" in shown(b).text and "B[i] = sum over k in 4 of" in shown(b).text
    assert "C[i] = B[i] + 1.0" in shown(te.compute((n,), lambda i: b[i] + 1.0, name="C")).text
    assert "nothing" in shown(a).text and "[n, 4]" in shown(a).text
    assert "float32" in shown(b * 2.0).text


def test_times_and_artifacts_are_short(exe: Executable) -> None:
    timing = exe.benchmark(np.zeros((3, 4), np.float32), seconds=0.01, max_runs=5)
    assert repr(timing) == str(timing) and len(repr(timing)) < 80
    assert repr(exe.artifact).startswith("<Artifact ") and len(repr(exe.artifact)) < 300
    assert repr(exe.artifact.program) == "<ExecutableProgram: 1 input, 1 output, 1 kernel>"
