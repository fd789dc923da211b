"""Every operator of ONNX, in every version, with every dtype that its schema allows, against reference implementations.

The judges are the specification's evaluator, onnxruntime, and the evaluator on the model converted to a newer operator
set; one that agrees is enough, since all three have errors of their own. Where none is right, or they disagree about
what the specification leaves open, its wording decides alone (``schema_judges``). By default one case in twenty-four
is interpreted and one operator in twelve compiled; ``--slow`` runs all both ways.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import version_converter
from onnx.reference import ReferenceEvaluator
from schema_cases import Array, Case, cases, schemas
from schema_elementwise import ELEMENTWISE
from schema_judges import bounds
from schema_layers import LAYERS
from schema_movement import MOVEMENT

from weft.frontends import onnx as frontend
from weft.frontends.common.problems import ModelProblems
from weft.frontends.onnx import backend
from weft.graph import interpret

RECIPES = {**ELEMENTWISE, **MOVEMENT, **LAYERS}
TOLERANCE = {"float64": 1e-6, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}

EXPLAINED: dict[str, str] = {
    r"AffineGrid-20.*|Det-22.*bfloat16.*": "the evaluator's result has another dtype than its operand",
    r"(BatchNormalization-1[45]\.1|LayerNormalization-17\.1).*": "the evaluator gives statistics in the wrong dtype",
    r"BatchNormalization-(1|6|7|9)\.0.*": "the evaluator computes the statistics anew",
    r"(GRU|LSTM|RNN)-\d+\.[34]\((float64|bfloat16).*": "the evaluator knows no clip and no lengths",
    r"LSTM-\d+\.3\(.*": "the evaluator knows no clip, onnxruntime does not clip the state before its activation",
    r"GridSample-\d+\..\(u?int\d+.*": "the evaluator truncates coordinates to the dtype of whole-number pictures",
    r"LRN-\d+.*(float16|float64).*": "the evaluator knows only the middle channels",
    r"ReduceSumSquare-\d+.*uint32.*": "the evaluator's result is wider than its operand",
}
"""Where both judges that run the case break the specification, or differ from each other where it says nothing."""

UNREACHED = {
    *("Bernoulli", "ImageDecoder", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"),
    *("RandomUniformLike", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    *("ConcatFromSequence", "If", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement", "Scan"),
    *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
    *("SequenceMap", "SplitToSequence"),
}
"""Random values, pictures and text; sequences and control flow have tests of their own (tests/e2e_control)."""


def by_interpreter(case: Case) -> Sequence[Any]:
    model, feeds = case.model(), case.feeds()
    known: dict[str, Any] = {}
    while True:
        try:
            module = frontend.load(model, known=known)
            break
        except ModelProblems as why:
            if why.needs <= set(known):
                raise
            known |= {name: feeds[name] for name in why.needs}
    made = interpret.run(module, [feeds[p.name] for p in module.main.params])
    return made if isinstance(made, (tuple, list)) else (made,)


def by_compiler(case: Case) -> Sequence[Any]:
    return backend.prepare(case.model()).run(list(case.feeds().values()))


def by_evaluator(case: Case) -> Sequence[Any]:
    return ReferenceEvaluator(case.model()).run(None, case.feeds())


def by_onnxruntime(case: Case) -> Sequence[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = case.model().SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: Sequence[Any] = session.run(None, case.feeds())
    return found


def by_newer(case: Case) -> Sequence[Any]:
    """The evaluator on the model converted to a newer version, for which it needs no legacy rules."""
    model = version_converter.convert_version(case.model(), 13)
    return ReferenceEvaluator(model).run(None, case.feeds())


JUDGES: tuple[Callable[[Case], Sequence[Any]], ...] = (by_evaluator, by_onnxruntime, by_newer)


def difference(made: Sequence[Any], expected: Sequence[Any]) -> str:
    """What is wrong; empty where nothing is."""
    if len(made) != len(expected):
        return f"{len(made)} outputs, not {len(expected)}"
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(made, expected, strict=True)]
    return next((f"output {i}: {d}" for i, (a, b) in enumerate(pairs) if (d := _differs(a, b))), "")


def _differs(a: Array, b: Array) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
    wide = a.dtype.name not in TOLERANCE and a.dtype.kind in "iub"
    x, y = (a, b) if wide else (a.astype(np.float64), b.astype(np.float64))
    if a.dtype.name in TOLERANCE:
        scale = float(np.max(np.abs(y), where=np.isfinite(y), initial=1.0))
        t = TOLERANCE[a.dtype.name]
        same = np.allclose(x, y, rtol=t, atol=t * min(scale, 100.0), equal_nan=True)
    else:
        same = np.array_equal(x, y, equal_nan=not wide)
    return "" if same else f"{x.reshape(-1)[:12]}, not {y.reshape(-1)[:12]}"


def outside(made: Sequence[Any], low: Array, high: Array) -> str:
    """What is wrong with the only result; empty where it lies between the bounds."""
    wrong = difference(made, [low])
    if not wrong or made[0].dtype != low.dtype or made[0].shape != low.shape or low.dtype.kind == "f":
        return wrong
    return "" if np.all((made[0] >= low) & (made[0] <= high)) else wrong


def matches(table: dict[str, str], case: Case) -> bool:
    return any(re.fullmatch(p, case.label) for p in table)


def verdict(case: Case, run: Callable[[Case], Sequence[Any]]) -> str:
    """What is wrong with a case; empty where a judge agrees, none can tell, or the difference is explained."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            made = run(case)
        except Exception as why:
            return f"{type(why).__name__}: {why}"
        if (by_hand := bounds(case)) is not None:
            return outside(made, *by_hand)
        found = []
        for judge in JUDGES:
            try:
                wrong = difference(made, judge(case))
            except Exception:  # a judge that does not know the operator, the version or the dtype
                continue
            if not wrong:
                return ""
            found.append(f"{judge.__name__}: {wrong}")
        return "" if matches(EXPLAINED, case) else "; ".join(found)


@cache
def of_operator(name: str) -> tuple[Case, ...]:
    return tuple(c for s in schemas() if s.name == name and not s.domain for c in cases(s, RECIPES[name]))


def check(name: str, run: Callable[[Case], Sequence[Any]], chosen: Callable[[Case], bool]) -> None:
    wrong = {c.label: text for c in of_operator(name) if chosen(c) and (text := verdict(c, run))}
    assert not wrong, "\n".join(f"{label}: {text}" for label, text in wrong.items())


def usual(case: Case) -> bool:
    """The first case of a version."""
    return ".0(" in case.label and case.label.split("(")[1] == next(
        c.label.split("(")[1] for c in of_operator(case.schema.name) if c.schema is case.schema
    )


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_interpreted(name: str) -> None:
    check(name, by_interpreter, lambda c: zlib.crc32(c.label.encode()) % 24 == 0)


@pytest.mark.parametrize(
    "name",
    [n if zlib.crc32(n.encode()) % 12 == 0 else pytest.param(n, marks=pytest.mark.slow) for n in sorted(RECIPES)],
)
def test_newest_compiled(name: str) -> None:
    last = of_operator(name)[-1].schema
    check(name, by_compiler, lambda c: c.schema is last and usual(c))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_all_interpreted(name: str) -> None:
    check(name, by_interpreter, lambda c: True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_all_compiled(name: str) -> None:
    check(name, by_compiler, lambda c: True)


def test_every_operator_has_recipes() -> None:
    names = {s.name for s in schemas() if not s.domain}
    assert names == set(RECIPES) | UNREACHED and not set(RECIPES) & UNREACHED
    for schema in schemas():
        if not schema.domain and schema.name in RECIPES:
            assert next(cases(schema, RECIPES[schema.name]), None), f"{schema.name}-{schema.since_version} has no case"


@pytest.mark.parametrize("pattern", EXPLAINED)
def test_exceptions_are_of_use(pattern: str) -> None:
    assert any(re.fullmatch(pattern, c.label) for name in RECIPES for c in of_operator(name))


def test_nodes_are_valid() -> None:
    """The generator makes what the specification allows."""
    context = onnx.checker.DEFAULT_CONTEXT
    context.ir_version = 10
    for name in sorted(RECIPES):
        for case in of_operator(name)[::40]:
            context.opset_imports = {"": case.schema.since_version}
            onnx.checker.check_node(case.model().graph.node[0], context)
