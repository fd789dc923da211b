"""The sweep of operators covers what is imported, and its engines compute the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import movement
from benchmarks.operators import measure
from benchmarks.operators.__main__ import table
from benchmarks.operators.cases import WITHOUT_RECIPE, Case, cases, chosen, quick, recipes
from benchmarks.operators.notation import SIZES
from benchmarks.operators.surroundings import PLACES, model
from weft.frontends.onnx.converters.table import all_converters
from weft.frontends.onnx.in_torch_functions import FUNCTIONS

OPS = sorted({r.op for r in recipes()})
SMALL = next(s for s in SIZES if s.name == "registers")


def first(op: str) -> Case:
    return replace(next(c for c in quick() if c.recipe.op == op), size=SMALL)


def test_every_imported_operator_has_a_recipe_or_a_reason() -> None:
    imported = {name for domain, name in all_converters() if not domain}
    assert imported - set(OPS) == set(WITHOUT_RECIPE)


def test_thousands_of_rows_with_names_of_their_own() -> None:
    rows = list(cases())
    assert len(rows) > 10_000 and len({c.name for c in rows}) == len(rows)
    some = rows[::100]
    assert chosen(some, (), 50, 1) == chosen(some, (), 50, 1) != chosen(some, (), 50, 2)
    found = chosen(rows, ("Tan", "L1", "open"), None, 0)
    assert found and {(c.recipe.op, c.size.name, c.opened) for c in found} == {("Tan", "L1", True)}


@pytest.mark.parametrize("op", sorted(set(FUNCTIONS) & set(OPS)))
def test_functions_of_pytorch_agree(op: str) -> None:
    """``torch_run`` leaves out what computes something else, so every function must be there for some recipe."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    agreeing = 0
    for case in (replace(c, size=SMALL) for c in quick() if c.recipe.op == op):
        if (made := case.made()) is None or (built := model(made)) is None:
            continue
        proto, inputs = built
        results = by_reference(proto, inputs)
        run, _ = measure.torch_run(proto, list(inputs.values()), results, measure.TOLERANCES["float16"])
        agreeing += run is not None
    assert agreeing


def by_reference(proto: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    return [np.asarray(r) for r in ReferenceEvaluator(proto).run(None, inputs)]


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_surroundings_are_measured_and_agree(place: str, opened: bool) -> None:
    pytest.importorskip("onnxruntime")
    row = measure.measured(replace(first("Softmax"), place=place, opened=opened), 0.0, ("onnxruntime", "torch"))
    assert row is not None and not row.problem and {"weft", "onnxruntime"} <= set(row.milliseconds)


def test_the_body_of_a_loop_hides_no_operand() -> None:
    """Indices that MaxUnpool reads were hidden by the number of the iteration."""
    found = 0
    for case in (replace(c, place="in a loop") for c in quick()):
        if (made := case.made()) is None or (built := model(made, case.place)) is None:
            continue
        (loop,) = built[0].graph.node
        body = loop.attribute[0].g
        own = {i.name for i in body.input} | {o for n in body.node for o in n.output}
        results = {o for n in made.nodes for o in n.outputs}
        assert not (own - results) & (set(built[1]) | set(made.weights)), case.name
        found += 1
    assert found > len(OPS) / 2


def test_wrong_results_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.differs([np.float32([1, 2])], [np.float32([1, 2.1])], 2e-3)
    assert measure.differs([np.float32([1, np.nan])], [np.float32([1, 2])], 2e-3)
    assert measure.differs([np.array([True])], [np.array([False])], 2e-3)
    assert measure.differs([np.int8([100, 2])], [np.int8([101, 2])], 2e-2), "integers are equal"
    assert not measure.differs([np.float32([1, np.inf])], [np.float32([1, np.inf])], 2e-3)
    monkeypatch.setattr("weft.compile", lambda *a, **k: 1 / 0)
    row = measure.measured(first("Relu"), 0.0, ())
    assert row is not None and row.problem.startswith("ZeroDivisionError")


def test_the_worst_row_comes_first() -> None:
    rows = [measure.Row(str(t), {"weft": t, "onnxruntime": 1.0}) for t in (0.5, 3.0, 1.1)]
    made = table(
        [*rows, measure.Row("short", {"weft": 0.004, "onnxruntime": 0.001}), measure.Row("alone", {"weft": 1.0})]
    )
    assert [r[0] for r in made.rows] == ["short", "3.0", "1.1", "0.5"]
    assert "at most 1.2: 66.7 %" in made.note and "above 1.5: 1 " in made.note


def test_rows_that_fail_are_counted_and_named() -> None:
    rows = [measure.Row(str(t), {"weft": t, "onnxruntime": 1.0}) for t in (0.5, 0.6, 0.7)]
    broken = measure.Row("broken", problem="ZeroDivisionError: no")
    wrong = measure.Row("wrong", {"weft": 0.1, "onnxruntime": 1.0}, "differs", {"torch": "has no such operator"})
    note = table([*rows, broken, wrong]).note
    assert "2 rows fail or differ: broken; wrong." in note and "1 rows without torch." in note
    assert "at most 1.2: 60.0 %" in note and "Of 3 whose peer" in note


def test_the_first_call_of_an_engine_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It allocates the pages of a large result: an engine whose first call took long got no further turn."""
    calls: list[str] = []
    monkeypatch.setattr(movement, "turn", lambda run: (run(), (1.0, 1.0))[1])
    movement.best_of({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 0.0)
    assert calls == ["a", "b"] * 4


def test_repeated_rows_are_medians_of_each_engine() -> None:
    """The luckiest ratio is 0.1 / 9: its time and the peer's are from different moments."""
    times = [(4.0, 1.0), (0.1, 9.0), (2.0, 1.0)]
    rows = [measure.Row("r", {"weft": w, "onnxruntime": o}) for w, o in times]
    assert measure.median(rows).milliseconds == {"weft": 2.0, "onnxruntime": 1.0}
    failed = measure.median([rows[0], measure.Row("r", problem="differs")])
    assert failed.problem == "differs" and failed.ratio == 4.0


def test_pytorch_writes_into_memory_where_it_can_and_copies_views() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 5)
    own = measure._own(torch, x.t(), {x.untyped_storage().data_ptr()})
    assert own.is_contiguous() and own.data_ptr() != x.data_ptr()
    a, b = torch.randn(4), torch.randn(4)

    class Module:
        def __init__(self, call: Any) -> None:
            self.call = call

        def __call__(self, *tensors: Any) -> Any:
            return self.call(*tensors)

    def run(call: Any) -> Any:
        return measure._into_memory(torch, Module(call), [a, b], [np.empty(4, np.float32)])

    made = run(torch.add)
    assert made is not None and made() is made() and torch.equal(made(), a + b)
    assert run(lambda a, b: a * b) is not None, "operators are functions too"
    assert run(lambda a, b: torch.add(a, b).relu()) is None, "two calls"
    assert run(lambda a, b: torch.nn.functional.softplus(a)) is None, "no out="
