"""Intrinsics that say how their operands lie in memory: strides, offsets, alignment, scope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.expr.nodes import Load, Var
from weft.kernels.task import KernelTask
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import For, Stmt, Store, seq
from weft.tir.parser import parse
from weft.tir.text import to_text

ROWS, LANES = 4, 8


def tile(rows: int = ROWS, lanes: int = LANES, **declared: Any) -> Any:
    """An instruction that adds 1 to a tile and notes the declared variables in it: ``o = x + 1 + noted``."""
    noted = declared.pop("noted", te.const(0, "int64"))
    binds_of = declared.pop("binds_of", ("x",))
    default = declared.pop("default", None)
    x = te.placeholder((rows, lanes), name="x")
    bias = te.var("bias", "float32")
    o = te.compute((rows, lanes), lambda i, j: x[i, j] + bias, name="o")

    def lowering(inputs: Any, output: Any) -> Stmt:
        source = next(b for b in inputs if b.shape)
        scalar = next(b for b in inputs if not b.shape)
        i, j = Var("i", "int64"), Var("j", "int64")
        value = Load(source, (i, j)) + Load(scalar, ()) + te.cast(noted, "float32")
        inner = For(j, te.const(0, "int64"), te.const(lanes, "int64"), Store(output, (i, j), value))
        return For(i, te.const(0, "int64"), te.const(rows, "int64"), inner)

    tensors = {"x": x, "o": o}
    binds = {tensors[n]: te.decl_buffer((rows, lanes), "float32", n, **declared) for n in binds_of}
    return te.decl_tensor_intrin(o, lowering, "tile", binds=binds, default_buffer_params=default)


class Case:
    """``B = A + 2`` over n x m, in tiles."""

    def __init__(self, n: Any = 12, m: Any = 24, rows: int = ROWS, lanes: int = LANES) -> None:
        self.a = te.placeholder((n, m), name="A")
        self.b = te.compute((n, m), lambda i, j: self.a[i, j] + te.const(2.0), name="B")
        self.s = te.create_schedule(self.b.op)
        self.shape = rows, lanes

    def tensorize(self, intrinsic: Any, cached: str | None = None, scope: str = "global") -> None:
        s, (i, j) = self.s, self.b.op.axis
        source = s.cache_read(self.a, scope, [self.b]) if cached else None
        _io, jo, ii, _ji = s[self.b].tile(i, j, *self.shape)
        if source is not None:
            s[source].compute_at(s[self.b], jo)
        s[self.b].tensorize(ii, intrinsic)

    def check(self, extra: Any = 0) -> None:
        f = weft.build(self.s, [self.a, self.b])
        n, m = (int(e.value) for e in self.a.shape)
        x = np.random.default_rng(3).integers(-9, 9, (n, m)).astype(np.float32)
        np.testing.assert_array_equal(f(x), x + 2 + extra)


def test_the_stride_of_a_parameter_is_known() -> None:
    s = te.var("s")
    case = Case()
    case.tensorize(tile(strides=[s, 1], noted=s))
    case.check(24)
    program = case.s.schedule.program
    assert to_text(parse(to_text(program))) == to_text(program)
    x = np.zeros((12, 24), np.float32)
    np.testing.assert_array_equal(run(program, [x])[0], 26)


def test_the_offset_of_a_parameter_is_known() -> None:
    o, s = te.var("o"), te.var("s")
    case = Case()
    case.tensorize(tile(strides=[s, 1], elem_offset=o, offset_factor=8, noted=o))
    i, j = np.indices((12, 24))
    case.check(24 * (i // ROWS * ROWS) + j // LANES * LANES)


def test_strides_of_tiles_and_of_padded_tiles() -> None:
    """What a cached tile has is known when memory is laid out: 8, or what ``storage_align`` asks for."""
    for padded in (False, True):
        s = te.var("s")
        case = Case()
        case.tensorize(tile(strides=[s, 1], noted=s), cached="A")
        if padded:
            name = next(b.name for b in case.s.schedule.program.allocs)
            block = next(b for b in case.s.schedule.state.tree.blocks.values() if b.writes[0].buffer.name == name)
            case.s.schedule.storage_align(block.name, 0, 0, 16, 5)
        case.check(21 if padded else 8)


def test_a_compact_operand_is_copied_first() -> None:
    with pytest.raises(ScheduleError, match="does not lie as the operand 'x'") as caught:
        Case().tensorize(tile())
    assert caught.value.code == "S083"
    case = Case()
    case.tensorize(tile(data_alignment=32, offset_factor=8), cached="A")
    case.check()


def test_padding_that_an_instruction_does_not_take_is_refused() -> None:
    case = Case()
    case.tensorize(tile(), cached="A")
    name = next(b.name for b in case.s.schedule.program.allocs)
    block = next(b for b in case.s.schedule.state.tree.blocks.values() if b.writes[0].buffer.name == name)
    case.s.schedule.storage_align(block.name, 0, 0, 16, 5)
    with pytest.raises(ScheduleError, match="S083"):
        weft.build(case.s, [case.a, case.b])


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_sizes_of_tiles(rows: int, lanes: int) -> None:
    """The stride of a dimension of one element is 0, whatever the buffer."""
    s = te.var("s")
    case = Case(3 * rows, 3 * lanes, rows, lanes)
    case.tensorize(tile(rows, lanes, strides=[s, 1], noted=s))
    case.check(3 * lanes if rows > 1 else 0)


def test_a_stride_that_is_wrong_is_refused() -> None:
    Case(12, 24).tensorize(tile(strides=[24, 1]))
    for strides in ([16, 1], [24, 2]):
        with pytest.raises(ScheduleError, match="S083"):
            Case(12, 24).tensorize(tile(strides=strides))


def test_open_sizes() -> None:
    """A stride that is a size is passed on; what cannot be proved of it is refused."""
    n, m, s = te.var("n"), te.var("m"), te.var("s")
    a = te.placeholder((n, ROWS, m), name="A")
    b = te.compute((n, ROWS, LANES), lambda k, i, j: a[k, i, j] + te.const(2.0), name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].tensorize(b.op.axis[1], tile(strides=[s, 1], noted=s))
    f = weft.build(schedule, [a, b])
    for shape in ((3, ROWS, 9), (1, ROWS, 8), (0, ROWS, 11)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(f(x), (x[..., :LANES] + 2) + np.float32(shape[2]))
    for wrong in (tile(strides=[8, 1]), tile(strides=[s, 1], offset_factor=8)):
        again = te.create_schedule(b.op)
        with pytest.raises(ScheduleError, match="not proved"):
            again[b].tensorize(b.op.axis[1], wrong)


def test_one_variable_for_two_operands() -> None:
    """Source and destination must have the same stride."""
    s = te.var("s")
    case = Case()
    case.tensorize(tile(strides=[s, 1], binds_of=("x", "o"), noted=s))
    case.check(24)
    with pytest.raises(ScheduleError, match="S083"):
        other = Case()
        other.tensorize(tile(strides=[s, 1], binds_of=("x", "o")), cached="A")
        weft.build(other.s, [other.a, other.b])


def test_offsets_and_alignment_that_are_not_proved() -> None:
    s = te.var("s")
    for case, given in (
        (Case(12, 21, 4, 7), {"offset_factor": 4}),
        (Case(), {"data_alignment": 32}),
        (Case(), {"elem_offset": 0}),
        (Case(), {"scope": "local"}),
    ):
        with pytest.raises(ScheduleError, match="S083"):
            case.tensorize(tile(*case.shape, strides=[s, 1], **given))


def test_scopes_stay() -> None:
    case = Case()
    case.tensorize(tile(scope="local"), cached="A", scope="local")
    name = next(b.name for b in case.s.schedule.program.allocs)
    block = next(b for b in case.s.schedule.state.tree.blocks.values() if b.writes[0].buffer.name == name)
    with pytest.raises(ScheduleError, match="from local"):
        case.s.schedule.set_scope(block.name, 0, "global")
    case.check()


def test_another_layout_after_tensorize() -> None:
    """A buffer whose rows are stored in parts has no stride."""
    for map_, fits in ((lambda i, j: (i, j // 3, j % 3), True), (lambda i, j: (j // 4, i, j % 4), False)):
        case = Case()
        source = case.s.cache_read(case.a, "global", [case.b])
        i, j = case.b.op.axis
        ii = case.s[case.b].tile(i, j, *case.shape)[2]
        s = te.var("s")
        case.s[case.b].tensorize(ii, tile(strides=[s, 1]))
        case.s[source].transform_layout(map_)
        if fits:
            case.check()
        else:
            with pytest.raises(ScheduleError, match="S083"):
                weft.build(case.s, [case.a, case.b])


def test_defaults_for_all_operands() -> None:
    s = te.var("s")
    case = Case(12, LANES)
    case.tensorize(tile(binds_of=(), default={"offset_factor": 8}))
    case.check()
    with pytest.raises(ScheduleError, match="S083"):  # the output is not compact
        Case().tensorize(tile(strides=[s, 1], default={}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"strides": [1]},
        {"data_alignment": 3},
        {"data_alignment": 128},
        {"data_alignment": 2},
        {"strides": [te.var("t") * 2, 1]},
        {"strides": [te.const(1.0), 1]},
    ],
)
def test_declarations_that_nothing_fulfils(wrong: dict[str, Any]) -> None:
    with pytest.raises(weft.WeftError):
        tile(**wrong)


def test_declarations_of_other_tensors_are_refused() -> None:
    x, other = te.placeholder((4,), name="x"), te.placeholder((4,), name="other")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")

    def lowering(inputs: Any, output: Any) -> Stmt:
        return seq()

    for binds in ({other: te.decl_buffer((4,))}, {x: te.decl_buffer((5,))}, {x: te.decl_buffer((4,), "int32")}):
        with pytest.raises(ScheduleError, match="S082"):
            te.decl_tensor_intrin(y, lowering, "i", binds=binds)
    with pytest.raises(ScheduleError, match="S082"):
        te.decl_buffer(())
    with pytest.raises(ScheduleError, match="S082"):
        te.decl_buffer((te.var("n"),))


def test_declarations_are_part_of_keys_and_texts() -> None:
    """Two intrinsics that differ in a declaration are different; tasks keep it."""
    s = te.var("s")
    first, second = tile(strides=[s, 1]), tile(strides=[s, 1], offset_factor=8)
    assert not first.computes_like(second)
    case = Case()
    case.tensorize(first)
    with pytest.raises(ScheduleError, match="S082"):
        case.s.schedule.state.declare(second)
    tasks = [KernelTask(case.s.schedule.program, Target("llvm"), None, (i,)) for i in (first, second)]
    assert tasks[0].key != tasks[1].key
    again = KernelTask.from_text(tasks[1].to_text())
    assert again.to_text() == tasks[1].to_text()
    assert again.intrinsics[0].computes_like(second)


def copy_at(case: Case, at: int, change: Any = None, **declared: Any) -> None:
    """Tensorize with a copy of the input at a loop of the tile nest (None: all of it beforehand)."""
    schedule, b = case.s, case.b
    source = schedule.cache_read(case.a, "global", [b])
    loops = schedule[b].tile(*b.op.axis, *case.shape)
    schedule[source].compute_at(schedule[b], loops[at])
    if change is not None:
        change(schedule, source, loops)
    step = te.var("step")
    schedule[b].tensorize(loops[2], tile(strides=[step, 1], noted=step, **declared))


@pytest.mark.parametrize("how", ["tile", "rows", "virtual threads", "two copies", "threads"])
def test_what_lowering_does_to_copies(how: str) -> None:
    """Copies shrink to what the loop needs, and are repeated for threads and stages; strides are those in the end."""
    case = Case()
    changes: dict[str, Any] = {
        "virtual threads": lambda s, p, x: s[case.b].bind(x[0], te.thread_axis("vthread")),
        "two copies": lambda s, p, x: s[p].double_buffer(),
        "threads": lambda s, p, x: s[case.b].parallel(x[0]),
    }
    at = 0 if how in ("rows", "threads") else 1
    copy_at(case, at, changes.get(how), offset_factor=8, data_alignment=32)
    case.check(24 if at == 0 else 8)


def test_a_result_in_a_tile() -> None:
    case, step = Case(), te.var("step")
    s = case.s
    made = s.cache_write(case.b, "global")
    loops = s[case.b].tile(*case.b.op.axis, *case.shape)
    s[made].compute_at(s[case.b], loops[1])
    s[made].tensorize(made.op.axis[0], tile(binds_of=("o",), strides=[step, 1], noted=step, data_alignment=64))
    case.check(8)


def test_a_reduction_with_declared_operands() -> None:
    x, k = te.placeholder((4, 8), name="x"), te.reduce_axis((0, 8), "k")
    o = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="o")

    def lowering(inputs: Any, output: Any) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        value = Load(output, (i,)) + Load(inputs[0], (i, j))
        inner = For(j, te.const(0, "int64"), te.const(8, "int64"), Store(output, (i,), value))
        return For(i, te.const(0, "int64"), te.const(4, "int64"), inner)

    binds = {x: te.decl_buffer((4, 8), strides=[te.var("s"), 1]), o: te.decl_buffer((4,), offset_factor=4)}
    sums = te.decl_tensor_intrin(o, lowering, "sums", binds=binds)
    a, kk = te.placeholder((8, 16), name="A"), te.reduce_axis((0, 16), "kk")
    c = te.compute((8,), lambda i: te.sum(a[i, kk], axis=kk), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 4)
    high, low = s[c].split(kk, 8)
    s[c].reorder(outer, high, inner, low)
    s[c].tensorize(inner, sums)
    given = np.random.default_rng(0).integers(0, 9, (8, 16)).astype(np.float32)
    np.testing.assert_array_equal(weft.build(s, [a, c])(given), given.sum(1))


@pytest.mark.parametrize("seed", seeds(8))
def test_random_tiles(seed: int) -> None:
    """Offsets and strides of random tiles, in parameters and in copies of rows, against what NumPy says."""
    rng = np.random.default_rng(seed)
    rows, lanes = (int(v) for v in rng.integers(1, 6, 2))
    case = Case(rows * int(rng.integers(1, 4)), lanes * int(rng.integers(1, 4)), rows, lanes)
    s, o = te.var("s"), te.var("o")
    n, m = (int(e.value) for e in case.a.shape)
    case.tensorize(tile(rows, lanes, strides=[s, 1], elem_offset=o, noted=s * 1000 + o))
    i, j = np.indices((n, m))
    case.check((m if rows > 1 else 0) * 1000 + i // rows * rows * m + j // lanes * lanes)


def test_places_are_no_values_of_tensor_expressions() -> None:
    a = te.placeholder((4,), name="A")
    for made in (te.call("offset_of", a[0]), te.call("apart", a[0], a[1]), te.call("require", a[0] > 0.0)):
        b = te.compute((4,), lambda i, made=made: te.cast(made, "float32"), name="B")
        with pytest.raises(weft.WeftError, match="E205"):
            te.create_schedule(b.op)


def test_an_operand_that_is_inlined_is_refused() -> None:
    """A tile of an inlined stage is nowhere in memory."""
    a = te.placeholder((12, 24), name="A")
    p = te.compute((12, 24), lambda i, j: a[i, j] * 2.0, name="P")
    b = te.compute((12, 24), lambda i, j: p[i, j] + te.const(2.0), name="B")
    for inline in (False, True):
        s = te.create_schedule(b.op)
        ii = s[b].tile(*b.op.axis, ROWS, LANES)[2]
        s[b].tensorize(ii, tile(strides=[te.var("s"), 1]))
        if not inline:
            x = np.ones((12, 24), np.float32)
            np.testing.assert_array_equal(weft.build(s, [a, b])(x), 2 * x + 2)
            continue
        with pytest.raises(ScheduleError):
            s[p].compute_inline()
            weft.build(s, [a, b])
