"""Random graphs of many operators: imported and interpreted, and compiled, against the specification's evaluator.

100 graphs are compiled by default; with ``--slow`` 2,000 more, and as many again are interpreted.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_layers
import fuzz_structures
import numpy as np
import pytest
from fuzz_graphs import FLOATS, KNOWN, Array, Graph, Tensor, Unfit
from fuzz_operators import MAKERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import seeds

import weft
from weft.frontends import onnx as frontend
from weft.graph import interpret

NODES = 8
TRIES = 40
OPERATORS = sorted(MAKERS)
QUIET = settings(suppress_health_check=list(HealthCheck))


def grown(pick: random.Random) -> Graph:
    """A graph of up to NODES nodes."""
    g, wanted = Graph(pick), pick.randint(1, NODES)
    for _ in range(TRIES):
        if len(g.nodes) >= wanted:
            break
        before = len(g.inputs), len(g.weights), len(g.tensors)
        try:
            MAKERS[OPERATORS[pick.randrange(len(OPERATORS))]](g)
        except Unfit:
            del g.inputs[before[0] :], g.weights[before[1] :], g.tensors[before[2] :]
    return g


def difference(made: Array, expected: Tensor) -> str:
    """What is wrong with a result; empty where it is right."""
    if made.shape != expected.shape or made.dtype != expected.value.dtype:
        return f"{made.dtype}{list(made.shape)}, not {expected.dtype}{list(expected.shape)}"
    if expected.dtype not in FLOATS:
        return "" if np.array_equal(made, expected.value) else f"{made}, not {expected.value}"
    a, b = made.astype(np.float64), expected.value.astype(np.float64)
    if expected.exact:
        return "" if np.array_equal(a, b, equal_nan=True) else f"{a}, not {b}"
    worst = float(np.max(np.abs(a - b), initial=0.0))
    return "" if worst <= expected.tolerance else f"{a}, not {b}: by {worst}, more than {expected.tolerance}"


def interpreted(model: Any, feeds: dict[str, Array]) -> Any:
    module = frontend.load(model)
    return interpret.run(module, [feeds[p.name] for p in module.main.params])


def compiled(model: Any, feeds: dict[str, Array]) -> Any:
    return weft.compile(model)(*feeds.values())


def check(pick: random.Random, run: Callable[[Any, dict[str, Array]], Any]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        g = grown(pick)
        if not g.nodes:
            return
        results = g.results()
        model = g.model(results)
        made = run(model, {t.name: t.value for t in g.inputs})
    made = made if isinstance(made, tuple) else (made,)
    assert len(made) == len(results)
    for value, expected in zip(made, results, strict=True):
        wrong = difference(np.asarray(value), expected)
        assert not wrong, f"{expected.name}: {wrong}\n{model.graph}"


@settings(QUIET, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_compiled(pick: random.Random) -> None:
    check(pick, compiled)


@settings(QUIET, max_examples=400)
@given(st.randoms(use_true_random=False))
def test_interpreted(pick: random.Random) -> None:
    check(pick, interpreted)


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("Sigmoid", (0, 7, 0), {}),
        ("Neg", (4, 2, 0), {}),
        ("Not", (2, 5, 0, 0), {}),
        ("ArgMin", (4, 2, 2, 0), {"axis": -2, "keepdims": 0}),
    ],
)
def test_axes_without_elements(op: str, shape: tuple[int, ...], attrs: dict[str, int]) -> None:
    g = Graph(random.Random(1))
    g.add(op, [g.fresh(np.zeros(shape, bool if op == "Not" else np.float32))], exact=True, **attrs)
    results = g.results()
    made = compiled(g.model(results), {t.name: t.value for t in g.inputs})
    assert not difference(np.asarray(made), results[0])


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(2000)[::100])
def test_many_compiled(first: int) -> None:
    for seed in range(first, first + 100):
        check(random.Random(seed), compiled)


@pytest.mark.slow
def test_many_interpreted() -> None:
    for seed in seeds(4000, 2000):
        check(random.Random(seed), interpreted)


def test_graphs_hold_every_operator() -> None:
    """The generator uses all its operators, in graphs of several nodes, with every dtype."""
    graphs = [grown(random.Random(seed)) for seed in seeds(300)]
    assert {n.op_type for g in graphs for n in g.nodes} == set(MAKERS)
    assert sum(len(g.nodes) for g in graphs) > 900
    assert {t.dtype for g in graphs for t in g.tensors} >= {*FLOATS, "bool", "int8", "uint64"}
    assert any(0 in t.shape for g in graphs for t in g.tensors)


def test_errors_of_the_evaluator_are_still_there() -> None:
    """Each entry of KNOWN is used by an operator of the generator."""
    text = "".join(Path(m.__file__).read_text(encoding="utf-8") for m in (fuzz_layers, fuzz_structures))
    assert all(f'"{key}"' in text for key in KNOWN)
