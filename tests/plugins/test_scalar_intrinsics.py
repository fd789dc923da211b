"""Scalar intrinsics of plugins: interpreted, printed, compiled by each back end and by workers, cached, refused."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

import weft
from weft import te
from weft.expr.added import added
from weft.expr.nodes import Var
from weft.expr.text import parse, to_text
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.kernels.cache import KernelCache
from weft.kernels.machine_code import lowered, machine_code, scheduled
from weft.kernels.task import KernelTask
from weft.kernels.workers import Workers
from weft.lowering.te_to_tir import te_to_tir
from weft.pipeline import Options, compile_module
from weft.plugins import Intrinsic, NativeCode, Registry, using
from weft.plugins.check import check_intrinsic, check_operator
from weft.support.cache import DiskCache
from weft.support.errors import TargetError, UserError
from weft.tensor_expr.text import parse as parse_te
from weft.tensor_expr.text import to_text as te_text
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import parse as parse_tir
from weft.tir.text import to_text as tir_text

sys.path.insert(0, str(Path(__file__).parent / "outside"))

from scalar_functions import (
    CLIPPED_CUBE,
    CUBIC_ROOT,
    IS_LARGE,
    OPERATORS,
    PLUGIN,
    SCALARS,
    SCALED_SUM,
    clipped_cube,
    same,
)

V3, V4 = weft.Target("x86-64-v3"), weft.Target("x86-64-v4")
GIVEN = np.linspace(-2, 2, 41, dtype=np.float32)
BY_NAME = {o.name: o for o in OPERATORS}
BY_ROW = {row.name: row for row in SCALARS}


def module(name: str, dtype: str = "float32", size: int = 41) -> Module:
    x = build.var("x", (size,), dtype)
    return Module.of(build.function([x], call(BY_NAME[name], [x])))


def reference(name: str, x: Any) -> Any:
    return BY_NAME[name].reference(None, x)


def program(name: str = "clipped_cube", dtype: str = "float32") -> Program:
    x = te.placeholder((16,), dtype, "x")
    return te_to_tir("applied", [x], [te.compute((16,), lambda i: te.call(name, x[i]), name="y")])


@pytest.mark.parametrize("target", ["cpu", "c", "c -vectors=none"])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_back_end_computes_them(name: str, target: str) -> None:
    made = weft.compile(module(name), target, plugins=[PLUGIN], cache=False)(GIVEN)
    np.testing.assert_allclose(made, reference(name, GIVEN), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_other_types_are_expanded(dtype: str, target: str) -> None:
    given = GIVEN.astype(dtype)
    made = weft.compile(module("keep_large", dtype), target, plugins=[PLUGIN], cache=False)(given)
    assert made.dtype == given.dtype and (np.asarray(made) == np.where(np.abs(given) > 1, given, 0)).all()


@pytest.mark.parametrize("op", OPERATORS, ids=lambda o: o.name)
def test_operators_and_intrinsics_pass_their_checks(op: Any) -> None:
    check_operator(op, SCALARS)
    with pytest.raises(UserError, match="there is no intrinsic"):
        check_operator(op)


@pytest.mark.parametrize("row", SCALARS, ids=lambda r: r.name)
def test_intrinsics_pass_their_check(row: Intrinsic) -> None:
    with using(PLUGIN):
        check_intrinsic(row)


def test_the_check_finds_differences() -> None:
    with pytest.raises(UserError, match=r"'expand' of 'scaled_sum' gives .* but 'evaluate'"):
        check_intrinsic(replace(SCALED_SUM, expand=lambda x, y: x * y - y))
    with pytest.raises(UserError, match=r"gives float64\[64\] for float32\[64\], but 'result' says float32"):
        check_intrinsic(replace(SCALED_SUM, evaluate=lambda x, y: (x * y + y).astype(np.float64)))


def emitted(name: str, kind: str, arity: int = 1) -> str:
    """The first text of the back end for a loop over 64 elements that calls the intrinsic."""
    target = weft.Target(f"{kind} -mcpu=x86-64-v3")
    with using(PLUGIN):
        x = te.placeholder((64,), "float32", "x")
        y = te.compute((64,), lambda i: te.call(name, *[x[i]] * arity), name="y")
        task = KernelTask(te_to_tir("applied", [x], [y]), target)
        return next(iter(task.maker.texts(lowered(task.program, target), target))).text


def test_vectors_are_used_where_the_text_has_them() -> None:
    assert "@llvm.fma.v8f32(<8 x float>" in emitted("scaled_sum", "llvm", 2)
    assert "EACH_LANE" not in emitted("scaled_sum", "c", 2)
    text = emitted("cubic_root", "llvm")
    calls = text.count("call float @cubic_root(float")
    assert calls > 0 and calls % 8 == 0 and text.count("declare float @cbrtf") == 1
    assert "EACH_LANE(8) r[l] = cubic_root_f32(a[l])" in emitted("cubic_root", "c")


def test_variables_do_not_hide_functions_of_native_code() -> None:
    x = build.var("cubic_root", (41,))
    made = Module.of(build.function([x], call(BY_NAME["take_cubic_root"], [x])))
    for target in ("c", "cpu"):
        found = weft.compile(made, target, plugins=[PLUGIN], cache=False)(GIVEN)
        np.testing.assert_allclose(found, np.cbrt(GIVEN), rtol=1e-5)


def test_all_texts_read_back_without_the_plugin() -> None:
    with using(PLUGIN):
        x = te.placeholder((4,), "float32", "x")
        y = te.compute((4,), lambda i: te.call("clipped_cube", x[i]), name="y")
        loops = te_to_tir("applied", [x], [y])
        assert parse("clipped_cube(v)", {"v": Var("v", "float32")}).dtype == "float32"  # written by hand
    text = te_text([y], [x])
    assert "clipped_cube:f32(x[" in text
    inputs, outputs = parse_te(text)
    assert te_text(outputs, inputs) == text
    assert tir_text(parse_tir(tir_text(loops))) == tir_text(loops)
    v = Var("v", "float32")
    assert to_text(parse("clipped_cube:f32(v)", {"v": v})) == "clipped_cube:f32(v)"


def test_interpreters_use_the_numpy_meaning() -> None:
    given = GIVEN[:16]
    with using(PLUGIN):
        loops = program()
        (made,) = run(loops, [given])
        (kernel,) = run(lowered(loops, V3), [given])
    np.testing.assert_allclose(made, np.minimum(given**3, 1), rtol=1e-6)
    np.testing.assert_allclose(kernel, made, rtol=1e-6)
    with pytest.raises(UserError, match="does not know the intrinsic 'clipped_cube'"):
        run(loops, [given])
    other = replace(CLIPPED_CUBE, evaluate=lambda x: -x)
    with using(weft.Plugin("other", "1", scalar_intrinsics=(other,))):  # another meaning under the same name
        (made,) = run(loops, [given])
    assert (made == -given).all()


def test_a_task_contains_all_that_a_process_without_the_plugin_needs() -> None:
    for name in ("clipped_cube", "cubic_root", "is_large"):
        for target in (V3, weft.Target("c -mcpu=x86-64-v3")):
            with using(PLUGIN):
                task = KernelTask(program(name), target)
                made = machine_code(task)
            assert not BY_ROW.keys() & added().keys()
            again = KernelTask.from_text(task.to_text())
            assert again == task and again.to_text() == task.to_text()
            assert machine_code(again) == made


def test_tasks_keep_their_intrinsics_under_other_schedules() -> None:
    for name in ("clipped_cube", "cubic_root"):
        with using(PLUGIN):
            task = KernelTask(program(name), V3)
        again = KernelTask.from_text(task.to_text())  # as a process that measures schedules has it
        changed = again.with_trace(task.maker.schedule(task.program, V3).trace)
        assert changed.scalars == task.scalars and changed.key != task.key
        assert machine_code(changed).code == machine_code(task).code
    with pytest.raises(UserError, match="has no code for 'cubic_root' of float32"):
        machine_code(replace(changed, target=weft.Target("c")))  # its text is LLVM IR


def test_the_classic_notation_uses_them() -> None:
    with using(PLUGIN):
        x = te.placeholder((41,), "float32", "x")
        y = te.compute((41,), lambda i: te.call("clipped_cube", x[i]), name="y")
        function = weft.build(te.create_schedule(y.op), [x, y])
    made = np.zeros(41, np.float32)
    function(GIVEN, made)
    np.testing.assert_allclose(made, reference("cube_at_most_1", GIVEN), rtol=1e-5, atol=1e-6)


def test_workers_build_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with using(PLUGIN):
        tasks = [KernelTask(program(name, "float32"), V4) for name in ("clipped_cube", "cubic_root", "is_large")]
        wanted = {t.key: machine_code(t) for t in tasks}

    def refused(task: KernelTask) -> Any:
        raise AssertionError(f"built here: {task.program.name}")

    def wait(workers: Workers) -> None:
        """This process takes no task, unless the worker has ended: then nobody would."""
        while workers._finished.empty():
            assert all(thread.is_alive() for thread in workers._threads), "the worker has ended"
            time.sleep(0.01)

    monkeypatch.setattr("weft.kernels.workers.machine_code", refused)
    monkeypatch.setattr(Workers, "_take", wait)
    with Workers(1) as workers:
        for task in tasks:
            workers.submit(task)
        made = {task.key: code for task, code in workers.results()}
    assert made == wanted


def test_the_key_covers_the_implementation(tmp_path: Path) -> None:
    def compiled(plugin: weft.Plugin, target: weft.Target = V3) -> tuple[bytes, Any]:
        cache = KernelCache(DiskCache(tmp_path, 1 << 30))
        registry = Registry((plugin,))
        artifact, report = compile_module(
            module("keep_large"), [target], cache=cache, options=Options(jobs=1), registry=registry
        )
        return artifact.codes[0].variants[0].data, report

    first, report = compiled(PLUGIN)
    assert report.built == 1
    same_code, report = compiled(replace(PLUGIN, version="9"))
    assert same_code == first and report.cached == 1  # nothing that decides the code is different
    other = tuple(r if r is not IS_LARGE else replace(r, codes=(), expand=lambda x: te.abs(x) > 2) for r in SCALARS)
    changed, report = compiled(replace(PLUGIN, scalar_intrinsics=other))
    assert changed != first and report.built == 1
    native = tuple(r if r is not IS_LARGE else replace(r, codes=r.codes[:1]) for r in SCALARS)
    _, report = compiled(replace(PLUGIN, scalar_intrinsics=native))
    assert report.built == 1


def test_scopes_end() -> None:
    with using(PLUGIN):
        assert "cubic_root" in added()
        with using():
            assert "cubic_root" in added()
    assert not BY_ROW.keys() & added().keys()
    with pytest.raises(UserError, match="there is no intrinsic 'cubic_root'"):
        te.call("cubic_root", 1.0)
    weft.compile(module("cube_at_most_1"), plugins=[PLUGIN])
    assert not BY_ROW.keys() & added().keys()


def test_a_back_end_without_code_is_named() -> None:
    only_llvm = replace(CUBIC_ROOT, codes=CUBIC_ROOT.codes[1:])
    plugin = weft.Plugin("roots", "1", operators=(BY_NAME["take_cubic_root"],), scalar_intrinsics=(only_llvm,))
    made = weft.compile(module("take_cubic_root"), plugins=[plugin], cache=False)(GIVEN)
    np.testing.assert_allclose(made, np.cbrt(GIVEN), rtol=1e-5)
    with pytest.raises(TargetError, match=r"'cubic_root' of a plugin has no code for float32 on the target 'c'") as why:
        weft.compile(module("take_cubic_root"), "c", plugins=[plugin], cache=False)
    assert why.value.code == "G027" and "llvm of float32" in str(why.value.hint)
    with pytest.raises(TargetError, match="no code for float64 on the target 'llvm'"):
        weft.compile(module("take_cubic_root", "float64"), plugins=[plugin], cache=False)


def test_wrong_expansions_are_named() -> None:
    def compiled(row: Intrinsic) -> None:
        plugin = weft.Plugin("wrong", "1", operators=(BY_NAME["cube_at_most_1"],), scalar_intrinsics=(row,))
        weft.compile(module("cube_at_most_1"), plugins=[plugin], cache=False)

    with pytest.raises(UserError, match="gives an expression of int32, but its result for float32 is float32"):
        compiled(replace(CLIPPED_CUBE, expand=lambda x: te.cast(x, "int32")))
    with pytest.raises(UserError, match="gives a float, but"):
        compiled(replace(CLIPPED_CUBE, expand=lambda x: 1.0))
    with pytest.raises(UserError, match="contains the intrinsic itself"):
        compiled(replace(CLIPPED_CUBE, expand=lambda x: te.call("clipped_cube", x) * x))
    with pytest.raises(UserError, match="gives 'real' for float32, which is no dtype"):
        compiled(replace(CLIPPED_CUBE, result=lambda dtypes: "real"))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_an_expansion_may_call_the_intrinsic_for_another_dtype(target: str) -> None:
    """float32 is computed as float64, which is arithmetic; but not as a dtype that is computed as float32."""

    def compiled(ends: bool) -> Any:
        def expand(x: Any) -> Any:
            if x.dtype == "float64" and ends:
                return clipped_cube(x)
            other = "float64" if x.dtype == "float32" else "float32"
            return te.cast(te.call("clipped_cube", te.cast(x, other)), x.dtype)

        row = replace(CLIPPED_CUBE, codes=(), expand=expand)
        plugin = weft.Plugin(
            "dtypes", "1", operators=(BY_NAME["cube_at_most_1"],), scalar_intrinsics=(row, BY_ROW["plus_product"])
        )
        return weft.compile(module("cube_at_most_1"), target, plugins=[plugin], cache=False)

    np.testing.assert_allclose(compiled(True)(GIVEN), reference("cube_at_most_1", GIVEN), rtol=1e-6)
    with pytest.raises(UserError, match="contains the intrinsic itself"):
        compiled(False)


def test_the_result_of_a_wrong_rule_is_an_error_of_the_operator() -> None:
    row = replace(CLIPPED_CUBE, result=lambda dtypes: "int32", expand=lambda x: te.cast(x, "int32"))
    plugin = weft.Plugin("wrong", "1", operators=(BY_NAME["cube_at_most_1"],), scalar_intrinsics=(row,))
    with pytest.raises(UserError, match="gives i32"):
        weft.compile(module("cube_at_most_1"), plugins=[plugin], cache=False)


def test_calls_are_checked() -> None:
    with using(PLUGIN):
        with pytest.raises(UserError, match="'scaled_sum' takes 2 arguments, not 1"):
            te.call("scaled_sum", 1.0)
        with pytest.raises(UserError, match="no intrinsic 'nothing'"):
            te.call("nothing", 1.0)
        assert te.call("scaled_sum", te.const(1, "int32"), te.const(2, "int32")).dtype == "float32"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "exp"}, "brings the scalar intrinsic 'exp', which Weft has already"),
        ({"name": "f32"}, "the name means something else"),
        ({"name": "my-cube"}, "the name means something else"),
        ({"name": "max"}, "the name means something else"),
        ({"arity": 0}, "0 arguments"),
        ({"arity": 2}, "'evaluate' is no function of 2 arguments"),
        ({"accepts": "real"}, "it cannot accept 'real'"),
        ({"result": "float32"}, "'result' is no function"),
        ({"pure": False}, "only pure functions"),
        ({"evaluate": None}, "'evaluate' is no function of 1 arguments"),
        ({"expand": lambda x, y: x}, "'expand' is no function of 1 arguments"),
        ({"expand": None}, "no back end can compute it"),
        ({"codes": (NativeCode("c", "real", "{0}"),)}, "'codes' are for 'real', which is no dtype"),
        ({"codes": (NativeCode("c", "f32", "{0}"),)}, "'codes' are for 'f32', which is no dtype"),
        ({"codes": (NativeCode("c", "float32", "{1}"),)}, "'{1}' has the argument 1"),
        ({"codes": (NativeCode("c", "float32", "{0}"),) * 2}, "one kind and one dtype"),
        ({"codes": ("{0}",)}, "'codes' must be a tuple of NativeCode"),
    ],
)
def test_wrong_declarations(change: dict[str, Any], text: str) -> None:
    row = replace(Intrinsic("cube", 1, "float", same, lambda x: x**3, "x³", expand=lambda x: x * x * x), **change)
    with pytest.raises(UserError, match=text.replace("{", r"\{")):
        Registry((weft.Plugin("wrong", "1", scalar_intrinsics=(row,)),))


def test_names_are_unique() -> None:
    other = weft.Plugin("other", "1", scalar_intrinsics=(CLIPPED_CUBE,))
    with pytest.raises(UserError, match=r"'clipped_cube', which 'scalar-functions .* has already"):
        Registry((PLUGIN, other))


SATURATED = Intrinsic(
    "saturated_sum",
    2,
    "integer",
    same,
    lambda a, b: np.clip(a.astype(np.int64) + b, -128, 127).astype(a.dtype)[()],
    "a + b within the limits of int8",
    codes=(
        NativeCode(
            "c",
            "int8",
            "saturated({0}, {1})",
            "static int8_t saturated(int a, int b) {\n    int c = a + b;\n"
            "    return (int8_t)(c > 127 ? 127 : c < -128 ? -128 : c);\n}",
        ),
        NativeCode("llvm", "int8", "call {type} @llvm.sadd.sat.{suffix}({type0} {0}, {type1} {1})", vectors=True),
    ),
)
BOTH = Intrinsic(
    "exactly_one",
    2,
    "any",
    same,
    np.logical_xor,
    "whether one of two conditions holds",
    codes=(NativeCode("c", "bool", "{0} != {1}", vectors=True), NativeCode("llvm", "bool", "xor {type} {0}, {1}")),
)


@pytest.mark.parametrize("target", ["cpu", "c", "c -vectors=none"])
def test_integers_and_conditions(target: str) -> None:
    a, b = np.random.default_rng(0).integers(-128, 128, (2, 67)).astype(np.int8)
    with using(weft.Plugin("others", "1", scalar_intrinsics=(SATURATED, BOTH))):
        x, y = te.placeholder((67,), "int8", "x"), te.placeholder((67,), "int8", "y")
        total = te.compute((67,), lambda i: te.call("saturated_sum", x[i], y[i]), name="total")
        one = te.compute(
            (67,), lambda i: te.if_then_else(te.call("exactly_one", x[i] > 0, y[i] > 3), x[i], y[i]), name="one"
        )
        for made, wanted in (
            (total, np.clip(a.astype(int) + b, -128, 127)),
            (one, np.where((a > 0) != (b > 3), a, b)),
        ):
            task = KernelTask(te_to_tir("applied", [x, y], [made]), weft.Target(target))
            (judged,) = run(task.program, [a, b])
            np.testing.assert_array_equal(judged, wanted)
            (found,) = run_program(scheduled(task.program, task.target).program, [a, b], target=task.target)
            np.testing.assert_array_equal(found, wanted)


def test_texts_of_tasks_are_checked() -> None:
    with using(PLUGIN):
        text = KernelTask(program(), V3).to_text()
    with pytest.raises(UserError, match="does not describe an intrinsic"):
        KernelTask.from_text(text.replace('"forms"', '"shapes"'))
