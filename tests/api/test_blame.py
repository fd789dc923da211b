"""Blame names the stage and the kernel in which a mistake was planted, and finds nothing if there is no mistake."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft import te
from weft.backends.catalogue import backend_of
from weft.graph.nodes import Module
from weft.graph.parser import parse
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.text import to_text
from weft.lowering import graph_to_te, group_to_tir
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import OpDef
from weft.pipeline import Options
from weft.pipeline import blame as room
from weft.pipeline.blame import blame
from weft.pipeline.blame_stages import difference
from weft.plugins.registry import Registry
from weft.target import Target
from weft.tir.nodes import Program, Stmt, Store
from weft.tir.visit import transform

CPU = Target("cpu")
Plant = Callable[[str, str], None]
TEXT = """
def @main(%x: f32[6, 16], %w: f32[16, 24], %b: f32[24]) -> (f32[6, 24], i64[6]) {
  %0: f32[6, 24] = matmul(%x, %w)
  %1: f32[6, 24] = add(%0, %b)
  %2: f32[6, 24] = softmax(%1, axis=1)
  %3: i64[6] = argmax(%2, axis=1, keepdims=false, select_last=false)
  return (%2, %3)
}"""
LARGE = """
def @main(%x: f32[256, 64], %w: f32[64, 256]) -> f32[256, 256] {
  %0: f32[256, 256] = matmul(%x, %w)
  return %0
}"""
OPEN = """
def @main<n>(%x: f32[n, 16], %w: f32[16, 24]) -> f32[n, 24] {
  %0: f32[n, 24] = matmul(%x, %w)
  %1: f32[n, 24] = tanh(%0)
  return %1
}"""


def inputs(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


GIVEN = inputs((6, 16), (16, 24), (24,))


def spoilt(program: Program, part: str) -> Program:
    """A program that computes twice the right results, if ``part`` is in its name."""

    def double(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in program.params[-program.outputs :]:
            return dataclasses.replace(s, value=s.value + s.value)
        return None

    return dataclasses.replace(program, body=transform(program.body, double)) if part in program.name else program


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """``plant(stage, part)`` puts a mistake into one stage of the kernels with ``part`` in their names. It replaces the
    back end in the catalogue, which is restored at the end."""
    backend = backend_of(CPU)
    right = dataclasses.replace(backend)
    monkeypatch.setattr(Registry, "backend_of", lambda self, target: backend)

    def plant(stage: str, part: str) -> None:
        def schedule(program: Program, target: Target, *rest: Any) -> Any:
            made = right.schedule(program, target, *rest)
            return SimpleNamespace(program=spoilt(made.program, part), trace=made.trace)

        def lower(program: Program, target: Target, *rest: Any) -> Program:
            return spoilt(right.lower(program, target, *rest), part)

        def emit(kernel: Program, target: Target) -> Any:
            return right.emit(spoilt(kernel, part), target)

        name, wrong = {
            "scheduled": ("schedule", schedule),
            "kernel": ("lower", lower),
            "machine code": ("emit", emit),
        }[stage]
        object.__setattr__(backend, name, wrong)

    yield plant
    for name in ("schedule", "lower", "emit"):
        object.__setattr__(backend, name, getattr(right, name))


@pytest.mark.parametrize("text", [TEXT, OPEN])
def test_right_results_are_blamed_on_nothing(text: str) -> None:
    given = GIVEN if text == TEXT else inputs((5, 16), (16, 24))
    found = blame(parse(text, OPERATORS), CPU, given)
    assert found.stage == "" and found.error < 1e-5


@pytest.mark.parametrize("part", ["matmul", "argmax"])
@pytest.mark.parametrize("stage", ["scheduled", "kernel", "machine code"])
def test_mistakes_in_kernels(plant: Plant, stage: str, part: str) -> None:
    plant(stage, part)
    found = blame(parse(TEXT, OPERATORS), CPU, GIVEN, Options(jobs=1))
    assert found.stage == stage and part in found.name
    assert found.error > 0.1 and found.program is not None and len(found.wanted) == 1


def test_a_mistake_in_a_kernel_of_open_sizes(plant: Plant) -> None:
    plant("kernel", "tanh")
    found = blame(parse(OPEN, OPERATORS), CPU, inputs((5, 16), (16, 24)), Options(jobs=1))
    assert found.stage == "kernel" and "tanh" in found.name


def test_a_mistake_in_the_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    right = group_to_tir.te_to_tir
    monkeypatch.setattr(group_to_tir, "te_to_tir", lambda *args: spoilt(right(*args), "matmul"))
    found = blame(parse(TEXT, OPERATORS), CPU, GIVEN, Options(jobs=1))
    assert found.stage == "tir" and "matmul" in found.name


@pytest.mark.parametrize("name", ["tanh", "matmul", "argmax"])
def test_a_mistake_in_tensor_expressions(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right = graph_to_te.compute

    def wrong(op: OpDef, attrs: Any, result: Any, operands: Any) -> tuple[te.Tensor, ...]:
        made = right(op, attrs, result, operands)
        return tuple(te.compute(t.shape, lambda *i, t=t: t[i] + t[i] + 1) for t in made) if op.name == name else made

    monkeypatch.setattr(graph_to_te, "compute", wrong)
    text, given = (OPEN, inputs((5, 16), (16, 24))) if name == "tanh" else (TEXT, GIVEN)
    found = blame(parse(text, OPERATORS), CPU, given, Options(jobs=1))
    assert found.stage == "te" and name in found.name and found.error > 0.1


def test_a_mistake_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: CommonSubexpressions, module: Module) -> Module:
        return parse(to_text(module).replace(" = add(", " = mul("), OPERATORS)

    monkeypatch.setattr(CommonSubexpressions, "run", wrong)
    found = blame(parse(TEXT, OPERATORS), CPU, GIVEN)
    assert (found.stage, found.name) == ("graph", CommonSubexpressions().name)
    assert found.before is not None and "add(" in to_text(found.before)


def test_a_mistake_of_the_program_around_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    right = room._Search.compiled
    monkeypatch.setattr(room._Search, "compiled", lambda *args: tuple(a * 2 for a in right(*args)))
    assert blame(parse(TEXT, OPERATORS), CPU, GIVEN).stage == "program"


@pytest.mark.parametrize("stage", ["tir", "scheduled", "kernel", "machine code"])
def test_of_large_kernels_a_sample_is_interpreted(monkeypatch: pytest.MonkeyPatch, plant: Plant, stage: str) -> None:
    monkeypatch.setattr(room, "MAX_INTERPRETED_FLOPS", 2_000_000)
    if stage == "tir":
        right = group_to_tir.te_to_tir
        monkeypatch.setattr(group_to_tir, "te_to_tir", lambda *args: spoilt(right(*args), "matmul"))
    else:
        plant(stage, "matmul")
    found = blame(parse(LARGE, OPERATORS), CPU, inputs((256, 64), (64, 256)), Options(jobs=1))
    assert found.stage == stage and "matmul" in found.name
    if stage == "machine code":
        assert "te: 64 of 65536 elements were evaluated" in found.text
        assert re.search(r"tir: 1 of \d+ iterations were interpreted", found.text)
    else:
        assert "iterations were interpreted" in found.text


def test_a_kernel_without_a_sample_is_still_named(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    monkeypatch.setattr(room, "MAX_INTERPRETED_FLOPS", 10)
    plant("machine code", "matmul")
    found = blame(parse(TEXT, OPERATORS), CPU, GIVEN, Options(jobs=1))
    assert found.stage == room.TOO_LARGE and "matmul" in found.name and "too few independent" in found.text


def test_differences_are_parts_of_the_largest_number() -> None:
    a = np.array([1000.0, 1.0, np.nan, np.inf], np.float32)
    assert difference([a], [a]) == 0
    assert difference([a + np.float32(1)], [a]) == pytest.approx(1e-3)
    assert difference([np.array([1000.0, 1, 0, np.inf], np.float32)], [a]) == np.inf
    assert difference([np.array([1, 2])], [np.array([1, 3])]) == np.inf
    assert difference([np.zeros(3, np.float32)], [np.zeros(3, np.float32)]) == 0
    assert difference([a], [a, a]) == np.inf
