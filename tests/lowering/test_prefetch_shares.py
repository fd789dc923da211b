"""Prefetching the data that the next iteration copies, one share in each iteration of an inner loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import te
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Call, Const, Load, Var
from weft.ir.frozen import FrozenMap
from weft.lowering.kernel.cpu.prefetch import insert_prefetches
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.dtypes import FLOAT32
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, Evaluate, For, If, Let, Program, Stmt, Store
from weft.tir.visit import children, loops_around, postorder, walk

ZEN = Target("zen4")


def product(rows: int, columns: int, depth: int) -> Program:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te_to_tir("product", [a, b], [c])


def shared(rows: int, columns: int, depth: int, panel: int, distance: int = 1) -> Schedule:
    """Panels of ``B`` are copied, then multiplied with all rows; the next one is fetched meanwhile."""
    s = Schedule(product(rows, columns, depth))
    copy = s.cache_read("C", 1, "local")
    i, j, k = s.get_loops("C")
    outer, inner = s.split(j, factors=(None, panel))
    s.reorder(outer, i, inner, k)
    s.compute_at(copy, outer)
    s.vectorize(s.get_loops(copy)[-1])
    s.prefetch(outer, "B", distance, within=s.get_loops("C")[2])
    return s


def asked(program: Program) -> dict[int, list[int]]:
    """The places of ``B`` asked for, by the number of the outermost iteration."""
    kernel = tir_to_kernel(program, ZEN)
    (wish,) = (e for e in walk(kernel.body) if isinstance(e, Evaluate))
    around = loops_around(kernel.body, wish)
    found: dict[int, list[int]] = {}
    for at in np.ndindex(*(int(loop.extent.value) for loop in around)):  # type: ignore[attr-defined]
        values = dict(zip((loop.var for loop in around), map(int, at), strict=True))
        place = evaluate(wish.value.args[0].indices[0], values)  # type: ignore[attr-defined]
        found.setdefault(at[0], []).append(int(place))
    return found


@pytest.mark.parametrize("rows, columns, depth, panel", [(4, 64, 12, 16), (3, 48, 7, 16), (8, 32, 5, 16)])
def test_every_line_of_the_next_panel_is_asked_for(rows: int, columns: int, depth: int, panel: int) -> None:
    for panel_number, places in asked(shared(rows, columns, depth, panel).program).items():
        following = min(panel_number + 1, columns // panel - 1)
        assert set(places) == {k * columns + following * panel for k in range(depth)}
        assert len(places) == rows * panel, "one wish in each iteration"
        assert places == sorted(places)


@pytest.mark.parametrize("rows, columns, depth", [(0, 32, 4), (2, 0, 4)])
def test_nothing_to_ask_for(rows: int, columns: int, depth: int) -> None:
    s = Schedule(product(rows, columns, depth))
    i, _, k = s.get_loops("C")
    s.prefetch(i, "B", within=k)
    assert not tir_to_kernel(s.program, ZEN).attrs.get("workspace")


def test_schedules_with_shares_mean_the_same_and_replay() -> None:
    s = shared(4, 64, 12, 16, distance=2)
    rng = np.random.default_rng(0)
    inputs = [rng.random(shape, dtype=np.float32) for shape in ((4, 12), (12, 64))]
    np.testing.assert_allclose(run(s.program, inputs)[0], inputs[0] @ inputs[1], rtol=1e-5)
    again = Schedule(product(4, 64, 12)).replay(Trace.from_json(s.trace.to_json()))
    assert asked(again.program) == asked(s.program)


def test_loops_that_cannot_share() -> None:
    s = Schedule(product(4, 64, 12))
    i, j, _ = s.get_loops("C")
    with pytest.raises(ScheduleError, match="S040"):
        s.prefetch(j, "B", within=i)
    with pytest.raises(ScheduleError, match="S040"):
        s.prefetch(i, "B", within=i)


def read_directly(rows: Any, columns: int, depth: int, height: int, width: int) -> Schedule:
    """Tiles of ``height`` rows and ``width`` columns: all tiles of rows are multiplied with the columns of ``B`` before
    the next columns are. Each step of a reduction fetches its part of those."""
    s = Schedule(product(rows, columns, depth))
    i, j, k = s.get_loops("C")
    outer, inner = s.split(j, factors=(None, width))
    tiles, row = s.split(i, factors=(None, height))
    s.reorder(outer, tiles, k, row, inner)
    s.prefetch(outer, "B", within=k)
    return s


def asked_by(program: Program, sizes: dict[Var, int]) -> dict[int, set[int]]:
    """The places of ``B`` asked for, by the number of the panel that is multiplied meanwhile."""
    found: dict[int, set[int]] = {}

    def visit(s: Stmt, values: dict[Var, int]) -> None:
        if isinstance(s, Evaluate) and isinstance(s.value, Call):
            assert s.value.name == "prefetch_l2"
            load = s.value.args[0]
            assert isinstance(load, Load)
            panel = next((n for v, n in values.items() if v.name == "j_0"), 0)
            found.setdefault(panel, set()).add(int(evaluate(load.indices[0], values)))
        elif isinstance(s, For):
            start, extent = (int(evaluate(e, values)) for e in (s.start, s.extent))
            for n in range(start, start + extent):
                visit(s.body, {**values, s.var: n})
        elif isinstance(s, Let):
            visit(s.body, {**values, s.var: int(evaluate(s.value, values))})
        elif isinstance(s, If) and s.otherwise is None:
            if evaluate(s.condition, values):
                visit(s.then, values)
        else:
            for child in children(s):
                visit(child, values)

    visit(tir_to_kernel(program, ZEN).body, dict(sizes))
    return found


@pytest.mark.parametrize("rows, height", [(12, 4), (13, 4), (40, 4), (9, 3)])
@pytest.mark.parametrize("columns, width", [(12, 3), (10, 3), (6, 1), (12, 2)])
@pytest.mark.parametrize("is_open", [False, True])
def test_panels_that_are_read_directly(rows: int, height: int, columns: int, width: int, is_open: bool) -> None:
    """Each step of a reduction fetches what the same step reads from the next panel. If the number of rows is open, the
    first tiles fetch one column each."""
    depth, n = 5, te.var("n")
    schedule = read_directly(n if is_open else rows, columns, depth, height, width)
    found = asked_by(schedule.program, {n: rows})
    panels = -(-columns // width)
    for panel in range(panels - 1):
        following = range((panel + 1) * width, min((panel + 2) * width, columns))
        assert {k * columns + c for k in range(depth) for c in following} <= found[panel]
    inputs = [np.ones((rows, depth), np.float32), np.ones((depth, columns), np.float32)]
    np.testing.assert_array_equal(run(schedule.program, inputs)[0], inputs[0] @ inputs[1])


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_few_tiles_of_rows_fetch_several_columns_in_a_step(rows: int) -> None:
    found = asked_by(read_directly(rows, 12, 5, 4, 3).program, {})
    assert found[1] == {k * 12 + c for k in range(5) for c in range(6, 9)}


@pytest.mark.parametrize("columns, fetched", [(768, False), (8192, True)])
@pytest.mark.parametrize("rows", [64, 197, "n"])
def test_weights_beyond_the_caches_are_fetched_a_panel_ahead(rows: Any, columns: int, fetched: bool) -> None:
    """They are packed when the model is compiled: 16 columns of a row are adjacent."""
    n = te.var("n") if rows == "n" else rows
    a, b = te.placeholder((n, 256), name="A"), te.placeholder((columns // 16, 256, 16), name="B")
    k = te.reduce_axis((0, 256), "k")
    c = te.compute((n, columns), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="C")
    kernel = tir_to_kernel(default_schedule(te_to_tir("product", [a, b], [c]), ZEN).program, ZEN)
    wishes = [e for e in walk(kernel.body) if isinstance(e, Evaluate)]
    assert bool(wishes) == fetched


@pytest.mark.parametrize(
    "rows, columns, depth, fetched",
    [(128, 3072, 768, True), (128, 1536, 768, True), (128, 768, 768, False), (128, 96, 96, False)],
)
def test_large_operands_are_fetched_a_panel_ahead(rows: int, columns: int, depth: int, fetched: bool) -> None:
    """The rows of 768 columns lie in the second-level cache side by side: no panel of them is copied, and none is
    fetched. Of 1536 columns too many fall into the same sets."""
    kernel = tir_to_kernel(default_schedule(product(rows, columns, depth), ZEN).program, ZEN)
    wishes = [e for e in walk(kernel.body) if isinstance(e, Evaluate)]
    assert bool(wishes) == fetched
    if fetched:
        inner = [s for s in walk(kernel.body) if isinstance(s, For)]
        assert loops_around(kernel.body, wishes[0])[-1] is inner[-1], "in the reduction"


def twice() -> tuple[Schedule, Var, Var]:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    return Schedule(te_to_tir("twice", [a], [te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")])), n, m


@pytest.mark.parametrize("columns, ahead", [(3, 64), (16, 64), (18, 16), (100, 4), (256, 4), (300, 1), (5000, 1)])
def test_rows_of_open_length_are_fetched_some_bytes_ahead(columns: int, ahead: int) -> None:
    """A number of rows is too near for short ones."""
    s, n, m = twice()
    i, j = s.get_loops("B")
    s.prefetch(i, "A", 4096, within=j, unit="bytes")
    again = Schedule(twice()[0].program).replay(Trace.from_json(s.trace.to_json()))
    assert again.trace.to_json() == s.trace.to_json()
    kernel = tir_to_kernel(s.program, ZEN)
    (wish,) = {e for e in walk(kernel.body) if isinstance(e, Evaluate)}  # also in the version that does not ask
    values = {n: 1000, m: columns, **{loop.var: 2 for loop in loops_around(kernel.body, wish)}}
    place = evaluate(wish.value.args[0].indices[0], values)  # type: ignore[attr-defined]
    assert place == (2 + ahead) * columns + 2
    last = evaluate(wish.value.args[0].indices[0], {**values, n: 3})  # type: ignore[attr-defined]
    assert last == 2 * columns + 2, "not past the end"


def test_distances_in_other_units() -> None:
    s, _, _ = twice()
    i, j = s.get_loops("B")
    for wrong in ({"unit": "rows", "within": j}, {"unit": "bytes"}):
        with pytest.raises(ScheduleError, match="S004"):
            s.prefetch(i, "A", 4096, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("along_rows", [True, False])
def test_addresses_that_depend_on_data_are_not_asked_for(along_rows: bool) -> None:
    """The rest of the last tile is past the end of the rows' numbers, which the kernel would really read."""
    table, ids = te.placeholder((50, 64), name="A"), te.placeholder((21, 64)[: 2 - along_rows], "int64", name="ids")
    at = (lambda i, j: ids[i]) if along_rows else (lambda i, j: ids[i, j])
    s = Schedule(te_to_tir("rows", [table, ids], [te.compute((21, 64), lambda i, j: table[at(i, j), j], name="B")]))
    i, j = s.get_loops("B")
    tile, _ = s.split(i, factors=(None, 4))
    for name in ("A", "ids", "B"):
        s.prefetch(tile, name, 1, within=j)
    wishes = [e.value.args[0] for e in walk(tir_to_kernel(s.program, ZEN).body) if isinstance(e, Evaluate)]  # type: ignore[attr-defined]
    assert {e.source.name for e in wishes} == {"ids", "B"}
    assert not any(isinstance(x, Load) for e in wishes for x in postorder(*e.indices))


def test_names_that_are_bound_later_are_what_they_stand_for() -> None:
    """The address of what is read is a named value, which the prefetch comes before."""
    a, b = Buffer("A", (Const(64),), FLOAT32), Buffer("B", (Const(64),), FLOAT32)
    i, j, place = Var("i"), Var("j"), Var("place")
    inner = For(
        *(j, Const(0), Const(4)),
        Let(place, i * 4 + j, Store(b, (place,), Load(a, (place,)))),
        annotations=FrozenMap({"prefetch_share": ("A",)}),
    )
    outer = For(i, Const(0), Const(16), inner, annotations=FrozenMap({"prefetch_shares": (("A", 2),)}))
    found = insert_prefetches(Program("named", (a, b), outer))
    (wish,) = (e.value.args[0] for e in walk(found.body) if isinstance(e, Evaluate))  # type: ignore[attr-defined]
    assert [evaluate(wish.indices[0], {i: n, j: 3}) for n in (0, 13, 14)] == [11, 63, 63]
