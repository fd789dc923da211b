"""Features of lowered kernels: they see what they claim, whatever things are called, and are finite everywhere."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import representative
from operator_cases import CASES, operands

from weft import tensor_expr as te
from weft.backends.catalogue import backend_of
from weft.cost.assumed import EXTENT
from weft.graph.types import TensorType
from weft.kernels.machine_code import lowered, scheduled
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import compute
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.trace import Trace
from weft.support.dtypes import DType
from weft.support.errors import UserError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import parse
from weft.tir.visit import stores
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.model import DraftModel
from weft.tune.draft.rows import NEST_COLUMNS
from weft.tune.model.candidate import Candidate
from weft.tune.model.features import GROUPS, MAX_ROWS, NAMES, features
from weft.tune.model.footprint import Stride, footprint, strides_between
from weft.tune.model.sets import FEATURE_SETS, beside_default, feature_set, summary
from weft.tune.sketches import space_of

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from random_programs import random_program  # helpers of the schedule tests

TARGET = Target("x86-64-v3")


def rows(text: str, target: Target = TARGET) -> list[dict[str, float]]:
    """The rows of a kernel's features by name, as counts; those of the machine stay logarithms."""
    made = features(parse(text), target)
    logarithms = set(GROUPS["hardware"])
    return [
        {n: float(v) if n in logarithms else float(np.exp2(v) - 1) for n, v in zip(NAMES, r, strict=True)}
        for r in made.astype(np.float64)
    ]


def row(body: str, params: str = "x: f32[4096], y: f32[4096]", target: Target = TARGET) -> dict[str, float]:
    """The first row of a kernel with this body."""
    return rows(f'program "f"({params}) -> (z: f32[65536]):\n{body}', target)[0]


def product(tile: int) -> str:
    """Sums of ``tile`` rows in registers."""
    sums = [(f"a[ramp({8 * i}, 1, 8)]", f"broadcast(x[k + {64 * i}], 8)") for i in range(tile)]
    lines = [f"    {a} = {a} + {x} * y[ramp(k * 8, 1, 8)]" for a, x in sums]
    return "\n".join([f"  allocate a: f32[{8 * tile}] register", "  for k in serial(0, 64):", *lines]) + "\n"


def test_copies_of_a_tile_are_one_row_that_knows_their_number() -> None:
    small, large = rows_of(product(4)), rows_of(product(8))
    assert len(small) == len(large) == 1
    one, two = small[0], large[0]
    doubled = {"copies": 4, "float_multiply_add_whole": 4 * 64, "allocated_register": 4 * 32, "register_share": 0.25}
    for name, count in doubled.items():
        assert (one[name], two[name]) == pytest.approx((count, 2 * count)), name
    same = {"iterations": 64, "chained": 64, "inner_0": 64, "statements": 1}
    for name, count in same.items():  # each sum waits for the one before, which are 64 whatever the tile
        assert one[name] == two[name] == pytest.approx(count), name


def rows_of(body: str) -> list[dict[str, float]]:
    return rows(f'program "f"(x: f32[4096], y: f32[4096]) -> (z: f32[65536]):\n{body}')


def buffer(r: dict[str, float], **wanted: float) -> dict[str, float]:
    """The columns of the first buffer of a row that has these values."""
    for n in range(5):
        found = {k.removeprefix(f"buffer_{n}_"): v for k, v in r.items() if k.startswith(f"buffer_{n}_")}
        if all(found[k] == pytest.approx(v) for k, v in wanted.items()):
            return found
    raise AssertionError(f"no buffer with {wanted}")


@pytest.mark.parametrize(
    ("index", "kind", "stride", "touched", "lines"),
    [
        ("ramp(i * 8, 1, 8)", "contiguous", 4, 2048, 32),
        ("ramp(i * 16, 2, 8)", "strided", 8, 2048, 64),
        ("broadcast(i, 8)", "broadcast", 0, 256, 4),
        ("i64(j[ramp(i * 8, 1, 8)])", "gather", 0, 2048, 512),
    ],
)
def test_addresses_are_told_apart(index: str, kind: str, stride: float, touched: float, lines: float) -> None:
    r = row(f"  for i in serial(0, 64):\n    z[ramp(i * 8, 1, 8)] = x[{index}]\n", "x: f32[65536], j: i32[512]")
    read = buffer(r, buffer_bytes=4 * 65536, reads=1)
    assert {k: read[k] for k in ("contiguous", "strided", "broadcast", "gather")} == pytest.approx(
        {k: float(k == kind) for k in ("contiguous", "strided", "broadcast", "gather")}
    )
    assert read["stride"] == pytest.approx(stride, rel=1e-4)
    assert read["touched_bytes"] == pytest.approx(touched, rel=1e-4)
    assert read["touched_lines"] == pytest.approx(lines, rel=1e-4)
    assert (r["gathered"] > 0) == (kind in ("gather", "strided"))


def test_quotients_and_remainders_of_one_loop_are_two_strides() -> None:
    joined = row("  for f in serial(0, 32):\n    z[f] = x[f // 4 * 100 + f % 4 * 10]\n")
    apart = row("  for i in serial(0, 8):\n    for j in serial(0, 4):\n      z[i * 4 + j] = x[i * 100 + j * 10]\n")
    assert buffer(joined, buffer_bytes=4 * 4096, reads=1)["touched_bytes"] == pytest.approx(128, rel=1e-4)
    assert buffer(joined, reads=1)["touched_lines"] == pytest.approx(buffer(apart, reads=1)["touched_lines"])


def test_parallel_loops_and_their_pieces() -> None:
    def kernel(kind: str, turns: int) -> dict[str, float]:
        inner = "    for j in serial(0, 16):\n      z[i * 16 + j] = x[i * 16 + j]\n"
        return row(f"  for i in {kind}(0, {turns}) {{grain = 1}}:\n{inner}")

    serial, even, uneven = kernel("serial", 64), kernel("parallel", 64), kernel("parallel", 65)
    assert serial["parallel"] == serial["parallel_balance"] == 0
    assert even["parallel"] == pytest.approx(64) and even["parallel_balance"] == pytest.approx(1)
    assert 0.9 < uneven["parallel_balance"] < 1
    assert (even["outer_0"], even["outer_1"], even["inner_0"]) == pytest.approx((64, 16, 16))


def test_scopes_are_told_apart() -> None:
    def scope(where: str, size: int = 64) -> str:
        r = row(f"  allocate a: f32[{size}] {where}\n  for i in serial(0, 64):\n    a[i] = x[i]\n")
        found = buffer(r, writes=1)
        return next(s for s in ("register", "stack", "scratch", "workspace", "parameter") if found[s])

    assert scope("register") == "register"
    assert scope("local") == "stack"
    assert scope("local", 1 << 16) == "scratch"
    assert scope("global") == "workspace"
    assert buffer(row("  for i in serial(0, 64):\n    z[i] = x[i]\n"), writes=1)["parameter"] == 1


def test_reuse_is_found_in_loops_and_between_statements() -> None:
    nest = "  for i in serial(0, 32):\n    for j in serial(0, 64):\n      for k in serial(0, 16):\n"
    r = row(f"{nest}        z[i * 64 + j] = z[i * 64 + j] + x[i * 16 + k] * y[k * 64 + j]\n")
    left = buffer(r, touched_bytes=4 * 32 * 16)
    assert left["reused_by_loop"] == 1
    assert left["reuse_times"] == pytest.approx(64) and left["reuse_iterations"] == pytest.approx(16)
    assert left["reuse_bytes"] == pytest.approx(4 * (1 + 16 + 16), rel=1e-4), "one turn of j"
    result = buffer(r, touched_bytes=4 * 32 * 64)
    assert result["reuse_iterations"] == pytest.approx(1), "of k"
    two = "  allocate a: f32[512] local\n  for i in serial(0, 512):\n    a[i] = x[i]\n"
    first = rows_of(f"{two}  for i in serial(0, 512):\n    z[i] = a[i]\n")[0]
    again = buffer(first, stack=1)
    assert again["reused_by_statement"] == 1 and again["reuse_iterations"] == pytest.approx(512)
    assert again["reuse_bytes"] == pytest.approx(3 * 2048, rel=1e-4), "of both loops"


def test_curves_grow_with_what_is_touched() -> None:
    r = row("  for i in serial(0, 4096):\n    z[i] = x[i]\n")
    assert [r[f"buffer_0_curve_{n}"] for n in (1, 64, 4096, 32768)] == pytest.approx(
        [4 * n for n in (1, 64, 4096, 4096)], rel=1e-4
    )
    still = row("  for i in serial(0, 4096):\n    z[i] = x[0]\n")
    read = buffer(still, reads=1)
    assert read["curve_1"] == read["curve_32768"] == pytest.approx(4)


def test_lines_are_brought_in_again_where_they_do_not_stay() -> None:
    """Two passes over data that the second-level cache holds and the first-level one does not."""
    kernel = "  for t in serial(0, 2):\n    for i in serial(0, {n}):\n      z[i] = x[i] + z[i]\n"
    params = "x: f32[1000000]"
    small, large = (row(kernel.format(n=n), params) for n in (512, 16 * 1024))
    cpu = TARGET.cpu
    assert cpu.l1 < 4 * 16 * 1024 * 2 <= cpu.l2, "the sizes of this test"
    assert small["lines_into_l1"] == pytest.approx(2 * 512 / 16, rel=1e-3)
    assert large["lines_into_l1"] == pytest.approx(2 * 2 * 1024, rel=1e-3)
    assert large["lines_into_l2"] == pytest.approx(2 * 1024, rel=1e-3)


def test_arithmetic_is_counted_by_kind_and_width() -> None:
    body = "  for i in serial(0, 10):\n    z[ramp(i * 8, 1, 8)] = {}\n"
    v = "x[ramp(i * 8, 1, 8)]"
    assert row(body.format(f"{v} * {v} + {v}"))["float_multiply_add_whole"] == pytest.approx(10)
    without = row(body.format(f"{v} * {v} + {v}"), target=Target("llvm -mcpu=x86-64"))
    assert without["float_multiply_add_whole"] == 0
    assert without["float_multiply_whole"] == without["float_add_whole"] == pytest.approx(20), "two registers each"
    assert row(body.format(f"sqrt({v}) / {v}"))["float_divide_whole"] == pytest.approx(20)
    assert row(body.format(f"tanh({v})"))["float_special_whole"] == pytest.approx(10)
    assert row(body.format(f"select({v} < broadcast(0.0, 8), {v}, broadcast(1.0, 8))"))["choose_whole"] > 9
    narrow = row("  for i in serial(0, 10):\n    z[ramp(i * 4, 1, 4)] = x[ramp(i * 4, 1, 4)] + broadcast(1.0, 4)\n")
    assert narrow["float_add_narrow"] == pytest.approx(10) and narrow["float_add_whole"] == 0
    scalar = row("  for i in serial(0, 10):\n    z[i] = x[i] + 1.0\n")
    assert scalar["float_add_scalar"] == pytest.approx(10)


def test_matrix_tiles_count_as_such() -> None:
    text = """  for k in serial(0, 5):
    for i in serial(0, 16) {matrix_tile = "bf16"}:
      for j in serial(0, 16):
        for e in serial(0, 2):
          z[i * 16 + j] = z[i * 16 + j] + f32(a[i * 32 + e]) * f32(b[j * 2 + e])
"""
    r = row(text, "a: bf16[512], b: bf16[512]", Target("sapphire-rapids"))
    assert r["matrix_tile_scalar"] == pytest.approx(5 * 512) and r["convert_scalar"] == 0


def test_prefetches_conditions_and_open_sizes() -> None:
    plain = "  for i in serial(0, 64):\n    z[i] = x[i]\n"
    assert row(plain)["prefetches"] == 0
    asked = row("  for i in serial(0, 64):\n    evaluate prefetch(x[i + 8])\n    z[i] = x[i]\n")
    assert asked["prefetches"] == pytest.approx(64)
    guarded = row("  for i in serial(0, 64):\n    if i < 32:\n      z[i] = x[i]\n")
    assert guarded["conditions"] == 1 and guarded["iterations"] < row(plain)["iterations"]
    text = 'program "f"[n](x: f32[n * 4]) -> (z: f32[n * 4]):\n  for i in serial(0, n * 4):\n    z[i] = x[i]\n'
    assert rows(text)[0]["iterations"] == pytest.approx(EXTENT * 4)
    inner = row("  for i in serial(0, 64):\n    for j in serial(0, i + 1):\n      z[j] = x[i]\n")
    assert 30 <= inner["outer_1"] <= 34, "the average of a triangle"


def test_names_stand_for_what_they_name() -> None:
    plain = row("  for i in serial(0, 64):\n    z[i * 4 + 2] = x[i * 8]\n")
    named = row("  for i in serial(0, 64):\n    let k = i * 4\n    z[k + 2] = x[k * 2]\n")
    assert named == plain
    text = "  for i in serial(0, 64):\n    let k = j[i]\n    z[i] = x[k]\n"
    name, loaded = rows(f'program "f"(x: f32[4096], j: i64[64]) -> (z: f32[4096]):\n{text}')
    assert buffer(name, buffer_bytes=8 * 64)["contiguous"] == 1
    assert buffer(loaded, buffer_bytes=4 * 4096, reads=1)["gather"] == 1


def test_names_of_buffers_and_variables_do_not_matter() -> None:
    for name, program in representative.programs(TARGET):
        kernel = lowered(program, TARGET)
        text = str(kernel)
        for p in kernel.params:  # names are words; no other word begins with an underscore and a digit
            text = text.replace(p.name, f"_9{p.name[::-1]}") if len(p.name) > 3 else text
        other = parse(text.replace("i0", "zz").replace("i1", "aa"))
        assert np.array_equal(features(kernel, TARGET), features(other, TARGET)), name


def test_rows_are_few_and_the_heaviest_first() -> None:
    parts = [f"  for i in serial(0, {n}):\n    z[i] = x[i] * {n}.0\n" for n in range(1, 20)]
    found = rows_of("".join(parts))
    assert len(found) == MAX_ROWS
    assert [r["iterations"] for r in found] == pytest.approx(list(range(19, 19 - MAX_ROWS, -1)))
    assert found[0]["statements"] == pytest.approx(19)
    assert features(parse('program "f"() -> (z: f32[4]):\n  z[0] = 1.0\n'), TARGET, rows=0).shape == (0, len(NAMES))


def test_the_machine_is_part_of_the_features() -> None:
    body = "  for i in serial(0, 64):\n    z[i] = x[i]\n"
    one, other = row(body), row(body, target=Target("sapphire-rapids"))
    differ = {n for n in NAMES if one[n] != other[n]}
    assert {"machine_l2", "machine_vector_bits", "machine_peak_tiled_products"} <= differ
    assert differ <= {*GROUPS["hardware"], "register_share"}


def test_scheduled_programs_are_refused() -> None:
    _, program = next(representative.programs(TARGET))
    with pytest.raises(UserError, match="kernel form") as error:
        features(program, TARGET)
    assert error.value.code == "U050"


def test_another_decision_is_another_vector() -> None:
    program = dict(representative.programs(TARGET))["matmul_bias_gelu_0"]
    trace = scheduled(program, TARGET).trace
    tile = trace.decisions[0]
    assert tile.values[tile.decision] == 6
    halved = trace.with_decision(tile.position, tile.values.index(3))
    at = NAMES.index("copies")
    before, after = (features(lowered(program, TARGET, t), TARGET)[0, at] for t in (trace, halved))
    assert 2 ** float(before) - 1 == pytest.approx(12) and 2 ** float(after) - 1 == pytest.approx(6)


# -- everything is finite ----------------------------------------------------------------------------------------------


def check(kernel: Program, target: Target) -> None:
    made = features(kernel, target)
    assert made.dtype == np.float32 and made.shape[1] == len(NAMES) and len(made) <= MAX_ROWS
    assert len(made) or not stores(kernel.body)
    assert np.isfinite(made).all() and (made >= 0).all()
    for s in (FEATURE_SETS["stores"], FEATURE_SETS["relations"]):
        vector = summary(made, s.columns)
        assert vector.shape == (len(s.columns),) and vector.dtype == np.float32 and np.isfinite(vector).all()


@cache
def of_operators() -> list[tuple[str, Any]]:
    """Every seventh case of the operators that have loops."""
    found = []
    for parameter in CASES[::7]:
        op, case = parameter.values
        if op.host or op.checks or op.compute is None:
            continue
        attrs, arrays = op.complete(case.attrs), operands(case)
        types = [TensorType.of(a.shape, DType(a.dtype)) for a in arrays]
        inputs = [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(types)]
        program = te_to_tir(op.name, inputs, compute(op, attrs, op.infer(attrs, *types), inputs))
        found.append((parameter.id, program))
    return found


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["x86-64-v3", "sapphire-rapids", "graviton3"])
def test_representative_groups_have_finite_features(name: str) -> None:
    target = Target(name)
    for _, program in representative.programs(target):
        check(lowered(program, target), target)


def test_operators_have_finite_features() -> None:
    assert len(of_operators()) > 80
    for _, program in of_operators():
        check(lowered(program, TARGET), TARGET)


def test_random_programs_have_finite_features() -> None:
    for seed in range(24):
        check(lowered(random_program(random.Random(seed), symbolic=seed % 2 == 0), TARGET), TARGET)


def test_other_back_ends_have_features() -> None:
    target = Target("c -mcpu=x86-64-v3")
    _, program = next(representative.programs(TARGET))
    check(backend_of(target).lower(scheduled(program, target).program, target), target)


# -- footprints --------------------------------------------------------------------------------------------------------


def brute(width: int, strides: list[Stride]) -> tuple[int, int]:
    """Bytes and lines that are touched, one by one."""
    places = {0}
    for s in strides:
        places = {p + n * s.step for p in places for n in range(s.places)}
    touched = {p + n for p in places for n in range(width)}
    return len(touched), len({b // 64 for b in touched})


@pytest.mark.parametrize(
    "strides",
    [
        [],
        [Stride(4, 64)],
        [Stride(64, 16)],
        [Stride(256, 8), Stride(4, 16)],
        [Stride(256, 8), Stride(256, 3), Stride(4, 16)],
        [Stride(1024, 4), Stride(8, 5)],
        [Stride(0, 9)],
    ],
)
def test_footprints_are_those_of_all_places(strides: list[Stride]) -> None:
    found = footprint(4, strides)
    assert (found.nbytes, found.lines) == brute(4, strides)


def test_footprints_of_scattered_places_and_small_buffers() -> None:
    assert footprint(4, [], scattered=100.0) == (400, 100)
    assert footprint(4, [Stride(4, 1000)], limit=256) == (256, 4)


@pytest.mark.parametrize(
    ("offsets", "strides"),
    [
        ([5], []),
        ([0, 4, 8], [Stride(4, 3)]),
        ([0, 32, 256, 288, 512, 544], [Stride(32, 2), Stride(256, 3)]),
        ([0, 4, 100], [Stride(50, 3)]),
    ],
)
def test_offsets_are_the_strides_of_the_loops_that_made_them(offsets: list[int], strides: list[Stride]) -> None:
    assert strides_between(offsets) == strides


# -- sets --------------------------------------------------------------------------------------------------------------


def test_sets_are_found_by_name() -> None:
    assert set(FEATURE_SETS) == {"nests", "stores", "relations"}
    assert set(FEATURE_SETS["relations"].columns) < set(FEATURE_SETS["stores"].columns)
    assert not any(c.startswith("machine_") for c in FEATURE_SETS["relations"].columns)
    with pytest.raises(UserError, match="no set of features 'store'") as error:
        feature_set("store")
    assert error.value.code == "U056" and "stores" in str(error.value)


def test_sets_describe_a_schedule_beside_the_default_one() -> None:
    task = KernelTask(dict(representative.programs(TARGET))["matmul_bias_gelu_0"], TARGET)
    default, tiled = Candidate.of(task, None), Candidate.of(task, Trace())
    for s in FEATURE_SETS.values():
        rows = np.stack([s.of(c) for c in (default, tiled)])
        made = beside_default(rows, rows[0])
        assert made.shape == (2, len(s.model_columns)) == (2, 2 * len(s.columns)) and np.isfinite(made).all()
        assert not made[0, len(s.columns) :].any() and made[1, len(s.columns) :].any()
        assert np.array_equal(rows[1], s.of(Candidate.of(task, Trace()))), "the same for the same schedule"
    assert tiled.draft_seconds > default.draft_seconds > 0


# Not a convolution: the numbers of its padded strips are no products of powers, so its draft is near, but not equal.
@pytest.mark.parametrize("name", ["matmul_bias_gelu_0", "softmax_0", "transpose_0", "gather_0"])
def test_nests_are_estimated_as_by_the_draft_model(name: str) -> None:
    """A row of one scheduled program is what the draft model says of the same point."""
    task = KernelTask(dict(representative.programs(TARGET))[name], TARGET)
    space = space_of(task)
    draft = DraftModel(space, task.program, DraftMachine.of(TARGET, 1))
    draft.most_probes = 500
    points = [space.default(), *(space.near_default(random.Random(n), space.default()) for n in range(2))]
    rows, seconds = draft.rows(points)
    assert seconds == pytest.approx(draft.seconds(points))
    for point, row, time in zip(points, rows, seconds, strict=True):
        candidate = Candidate.of(task, space.trace(point))
        assert candidate.draft_seconds == pytest.approx(time, rel=1e-6)
        assert candidate.nest_row == pytest.approx(row, abs=1e-3)
    named = dict(zip(NEST_COLUMNS, rows[0].tolist(), strict=True))
    assert 2 ** named["seconds_e9"] - 1 == pytest.approx(1e9 * seconds[0], rel=1e-3)
    assert 0 < named["main_busy_share"] <= 1 and named["main_instructions_share"] <= 1 + 1e-6


def test_a_summary_adds_what_adds_up() -> None:
    made = features(parse('program "f"(x: f32[64]) -> (z: f32[64]):\n' + "".join(loops_of(64, 64))), TARGET)
    assert len(made) == 2
    vector = dict(zip(NAMES, summary(made).tolist(), strict=True))
    rows_of_it = dict(zip(NAMES, made.T.tolist(), strict=True))
    assert vector["float_add_scalar"] == pytest.approx(log2(1 + 2 * 64), abs=1e-4)
    assert vector["outer_0"] == pytest.approx(rows_of_it["outer_0"][0]), "a mean of equal numbers"
    assert not summary(made[:0]).any() and summary(made[:0]).shape == (len(NAMES),)


def loops_of(*extents: int) -> Iterator[str]:
    for n, extent in enumerate(extents):
        yield f"  for i in serial(0, {extent}):\n    z[i] = x[i] + {n + 1}.0\n"
