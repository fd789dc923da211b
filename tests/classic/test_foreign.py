"""Functions of other languages: compiled on both CPU back ends and interpreted they agree; the rest is refused."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.classic.stages import program_task
from weft.expr.added import added
from weft.graph.parser import parse as parse_graph
from weft.kernels.task import KernelTask
from weft.ops.catalogue import OPERATORS
from weft.schedule import Schedule
from weft.support.errors import ProgramError, UserError, WeftError
from weft.tir.foreign import pointers
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import Buffer, Program
from weft.tir.text import parse, to_text
from weft.tir.verify import verify
from weft.tir.visit import walk

TWICE_C = """static int32_t twice(float *out, const float *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + a[i];
    return n == 13 ? 7 : 0;
}"""
TWICE_LLVM = """define i32 @twice(ptr %out, ptr %a, i64 %n) {
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %each, label %done
each:
  %i = phi i64 [ 0, %entry ], [ %next, %each ]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, %x
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %each, label %done
done:
  %bad = icmp eq i64 %n, 13
  %status = select i1 %bad, i32 7, i32 0
  ret i32 %status
}"""
PRODUCTS_C = """static int32_t products(float *c, const float *a, const float *b, int64_t m, int64_t l, int64_t row) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < l; k++) c[i] += a[k] * b[i * row + k];
    return 0;
}"""


def _twice(out: Any, a: Any, n: int) -> None:
    out[:n] = 2 * a[:n]


def _products(c: Any, a: Any, b: Any, m: int, length: int, row: int) -> None:
    for i in range(m):
        c[i] += (a[:length] * b[i * row : i * row + length]).sum()


TWICE = te.extern_function("twice", c=TWICE_C, llvm=TWICE_LLVM, python=_twice)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(-4, 4, shape).astype(dtype)


def chain(middle: Callable[..., Any], shape: Any, dtype: str = "float32") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """A stage before and one after the stage that ``middle`` writes, which reads the first."""
    A = te.placeholder(shape, dtype, name="A")
    P = te.compute(A.shape, lambda *i: A(*i) + te.const(1, dtype), name="P")
    B = te.extern(A.shape, [P], middle, name="B")
    return A, P, te.compute(A.shape, lambda *i: B(*i) - te.const(1, dtype), name="C")


def copied(nbytes: int) -> Callable[..., Any]:
    return lambda i, o: te.call_extern("void", "memcpy", o[0].access_ptr("w"), i[0].access_ptr("r"), nbytes)


def doubled(n: te.Var) -> Any:
    return chain(
        lambda i, o: te.call_extern("int32", TWICE, o[0].access_ptr("w"), i[0].access_ptr("r"), i[0].shape[0]), (n,)
    )


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_a_stage_calls_a_function_in_c(n: int, target: str) -> None:
    A, _, C = doubled(te.var("n"))
    s = te.create_schedule(C.op)
    s[C].parallel(C.op.axis[0])
    a = numbers(n)
    np.testing.assert_allclose(weft.build(s, [A, C], target)(a), (a + 1) * 2 - 1, rtol=1e-6)
    program = weft.lower(s, [A, C]).program
    verify(program)
    assert to_text(parse(to_text(program))) == to_text(program)
    np.testing.assert_allclose(run(program, [a])[0], (a + 1) * 2 - 1, rtol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_text_of_a_task_has_the_source(target: str) -> None:
    """Other processes build from it."""
    A, _, C = doubled(te.var("n"))
    task = program_task(weft.lower(te.create_schedule(C.op), [A, C]).program, weft.Target(target))
    again = KernelTask.from_text(task.to_text())
    assert again == task and "twice" in task.to_text()
    body = TWICE_C if target == "c" else TWICE_LLVM
    assert all(dict(json.loads(s))["forms"]["int64"]["defines"] == body for s in again.scalars or ())


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_what_has_a_source_is_saved(tmp_path: Path, target: str) -> None:
    A, _, C = doubled(te.var("n"))
    built = weft.build(te.create_schedule(C.op), [A, C], target)
    built.save(tmp_path / "f.weft")
    loaded = weft.load_function(tmp_path / "f.weft")
    a = numbers(6)
    np.testing.assert_allclose(loaded(a), (a + 1) * 2 - 1, rtol=1e-6)
    for stage in ("scheduled", "kernel", target):
        assert "twice" in loaded.inspect(stage)
    with pytest.raises(UserError, match="reported an error") as error:
        loaded(numbers(13))
    assert error.value.code == "I038"


def _gemv(rows: int, length: int, target: str) -> Any:
    function = te.extern_function(
        "products",
        c=PRODUCTS_C if target == "c" else None,
        address=None if target == "c" else _products_by_address(),
        python=_products,
    )
    a, b = te.placeholder((length,), name="a"), te.placeholder((rows, length), name="b")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((rows,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    row = te.var("row")

    def call(ins: Any, out: Any) -> Any:
        operands = (out.access_ptr("rw"), ins[0].access_ptr("r"), ins[1].access_ptr("r"))
        return te.call_extern("int32", function, *operands, rows, length, ins[1].strides[0])

    return te.decl_tensor_intrin(c, call, "gemv", binds={b: te.decl_buffer((rows, length), strides=[row, 1])})


_kept: list[Any] = []


def _products_by_address() -> Any:
    float_p, int64 = ctypes.POINTER(ctypes.c_float), ctypes.c_int64

    def products(c: Any, a: Any, b: Any, m: int, length: int, row: int) -> int:
        for i in range(m):
            for k in range(length):
                c[i] += a[k] * b[i * row + k]
        return 0

    _kept.append(ctypes.CFUNCTYPE(ctypes.c_int32, float_p, float_p, float_p, int64, int64, int64)(products))
    return _kept[-1]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(("m", "n", "length", "tile", "wide"), [(3, 16, 5, 8, 5), (2, 4, 4, 4, 9), (1, 1, 1, 1, 1)])
def test_an_instruction_calls_a_function(m: int, n: int, length: int, tile: int, wide: int, target: str) -> None:
    """The rows of one operand are apart: the function gets the distance."""
    A, B = te.placeholder((m, length), name="A"), te.placeholder((n, wide), name="B")
    k = te.reduce_axis((0, length), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    outer, inner = s[C].split(j, factor=tile)
    s[C].reorder(i, outer, inner, k)
    s[C].tensorize(inner, _gemv(tile, length, target))
    s[C].parallel(i)
    a, b = numbers(m, length), numbers(n, wide)
    program = weft.lower(s, [A, B, C]).program
    verify(program)
    for got in (weft.build(s, [A, B, C], target)(a, b), run(program, [a, b], order="shuffled")[0]):
        np.testing.assert_allclose(got, a @ b[:, :length].T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tiles_are_copied_to_where_the_function_takes_them(target: str) -> None:
    x = te.placeholder((4, 8), name="x")
    y = te.compute((4, 8), lambda i, j: x[i, j], name="y")
    copy = te.decl_tensor_intrin(
        y, lambda i, o: te.call_extern("void", "memcpy", o.access_ptr("w"), i[0].access_ptr("r"), 128), "copy"
    )
    A = te.placeholder((8, 16), name="A")
    B = te.compute((8, 16), lambda i, j: A[i, j], name="B")
    a = numbers(8, 16)
    s = te.create_schedule(B.op)
    s[B].tensorize(s[B].tile(*B.op.axis, 4, 8)[2], copy)
    with pytest.raises(UserError) as error:  # rows of the tile are apart
        weft.build(s, [A, B], target)
    assert error.value.code == "S083"
    s = te.create_schedule(B.op)
    AA, BB = s.cache_read(A, "local", [B]), s.cache_write(B, "local")
    outer, at, *_ = s[B].tile(*B.op.axis, 4, 8)
    for copying in (BB, AA):
        s[copying].compute_at(s[B], at)
    s[B].parallel(outer)
    s[BB].tensorize(s[BB].op.axis[0], copy)
    np.testing.assert_array_equal(weft.build(s, [A, B], target)(a), a)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "bfloat16", "float64", "float8_e4m3fn"])
def test_functions_see_elements_as_they_are_stored(dtype: str, target: str) -> None:
    """Also those that kernels compute in another type."""
    wanted = te.placeholder((3, 7), dtype).dtype.numpy
    A, _, C = chain(copied(21 * wanted.itemsize), (3, 7), dtype)
    a = np.random.default_rng(0).integers(-3, 4, (3, 7)).astype(wanted)
    got = weft.build(te.create_schedule(C.op), [A, C], target)(a)
    np.testing.assert_array_equal(np.asarray(got).astype(np.float64), a.astype(np.float64))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_loop_around_a_call_is_not_a_vector(target: str) -> None:
    A = te.placeholder((8, 4), name="A")
    y = te.compute((4,), lambda j: te.placeholder((4,), name="x")[j], name="y")
    copy = te.decl_tensor_intrin(
        y, lambda i, o: te.call_extern("void", "memcpy", o.access_ptr("w"), i[0].access_ptr("r"), 16), "row"
    )
    B = te.compute((8, 4), lambda i, j: A[i, j], name="B")
    s = te.create_schedule(B.op)
    s[B].tensorize(B.op.axis[1], copy)
    s[B].vectorize(B.op.axis[0])
    np.testing.assert_array_equal(weft.build(s, [A, B], target)(numbers(8, 4)), numbers(8, 4))


# -- Python functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_stage_calls_a_python_function(n: int, target: str) -> None:
    def product(a: Any, w: Any, out: Any, scale: float, times: int) -> None:
        assert a.shape == (n, 3) and w.shape == (3, 5) and out.shape == (n, 5)
        out[:] = a @ w * scale * times

    size = te.var("n")
    A, W = te.placeholder((size, 3), name="A"), te.placeholder((3, 5), name="W")
    B = te.extern(
        (size, 5), [A, W], lambda i, o: te.call_packed(product, *i, o[0], te.const(0.5, "float32"), 3), name="B"
    )
    C = te.compute((size, 5), lambda i, j: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    a, w = numbers(n, 3), numbers(3, 5)
    program = weft.lower(s, [A, W, C]).program
    for got in (weft.build(s, [A, W, C], target)(a, w), run(program, [a, w])[0]):
        np.testing.assert_allclose(got, a @ w * 1.5 + 1, rtol=1e-5, atol=1e-5)


def test_several_results_and_dtypes() -> None:
    def sort(a: Any, values: Any, places: Any) -> None:
        places[:] = np.argsort(a, kind="stable")
        values[:] = np.sort(a)

    A = te.placeholder((9,), "bfloat16", name="A")
    V, P = te.extern(
        [(9,), (9,)], [A], lambda i, o: te.call_packed(sort, *i, *o), name="sorted", dtype=["bfloat16", "int64"]
    )
    a = numbers(9, dtype=A.dtype.numpy)
    got = weft.build(te.create_schedule(V.op), [A, V, P])(a)
    np.testing.assert_array_equal(np.asarray(got[0]).astype(np.float32), np.sort(a.astype(np.float32)))
    np.testing.assert_array_equal(got[1], np.argsort(a.astype(np.float32), kind="stable"))


def _packed(function: Callable[..., Any]) -> Any:
    A = te.placeholder((4,), name="A")
    B = te.extern((4,), [A], lambda i, o: te.call_packed(function, i[0], o[0]), name="B")
    return weft.build(te.create_schedule(B.op), [A, B])


def test_what_a_python_function_raises_comes_out_of_the_call() -> None:
    failing = True

    def function(a: Any, out: Any) -> None:
        if failing:
            raise KeyError("mine")
        out[:] = a

    built = _packed(function)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            built(numbers(4))
    with pytest.raises(WeftError):  # the runtime knows nothing of Python, but sees the status
        built.executable(numbers(4))
    failing = False
    np.testing.assert_array_equal(built(numbers(4)), numbers(4))


def test_addresses_leave_no_process(tmp_path: Path) -> None:
    built = _packed(lambda a, out: None)
    before = set(tmp_path.iterdir())
    saves: list[Callable[[], Any]] = [
        lambda: built.save(tmp_path / "f.weft"),
        lambda: built.save(tmp_path / "f.o"),
        lambda: built.export_library(tmp_path / "f.so"),
        lambda: built.artifact.save(tmp_path / "f.weft"),
        lambda: built.executable.save(tmp_path / "f.weft"),
    ]
    for save in saves:
        with pytest.raises(UserError, match="only this process has") as error:
            save()
        assert error.value.code == "A012"
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("source", [True, False])
def test_models_call_functions_with_source_only(source: bool, tmp_path: Path) -> None:
    """Kernels of models are cached and saved."""
    function = TWICE if source else te.extern_function("twice", address=_products_by_address())

    def compute(attributes: Any, result: Any, x: Any) -> Any:
        n = x.shape[0]
        return te.extern(
            (n,), [x], lambda i, o: te.call_extern("int32", function, o[0].access_ptr("w"), i[0].access_ptr("r"), n)
        )

    operator = replace(OPERATORS["relu"], name="twice", compute=compute)
    text = "def @main(%x: f32[6]) -> f32[6] {\n  %0: f32[6] = twice(%x)\n  return %0\n}"
    module = parse_graph(text, {**OPERATORS, "twice": operator})
    plugin = weft.Plugin("functions", "1", operators=(operator,))
    if not source:
        with pytest.raises(UserError, match="only this process has") as error:
            weft.compile(module, plugins=[plugin])
        assert error.value.code == "A012"
        return
    weft.compile(module, plugins=[plugin]).save(tmp_path / "m.weft")
    x = numbers(6)
    np.testing.assert_allclose(weft.load_executable(tmp_path / "m.weft")(x), x * 2, rtol=1e-6)


# -- refused -----------------------------------------------------------------------------------------------------------


def _chain_of_copies() -> Any:
    A, P, C = chain(copied(128), (8, 4))
    return A, P, C, te.create_schedule(C.op)


def _inlined() -> None:
    A, P, C, s = _chain_of_copies()
    s[P].compute_inline()
    weft.build(s, [A, C])


def _transposed() -> None:
    A, P, C, s = _chain_of_copies()
    s[P].transform_layout(lambda i, j: (j, i))
    weft.build(s, [A, C])


def _blocked() -> None:
    A, P, C, s = _chain_of_copies()
    s[P].transform_layout(lambda i, j: (j // 2, i, j % 2))
    weft.build(s, [A, C])


def _aligned() -> None:
    A, P, C, s = _chain_of_copies()
    s[P].storage_align(P.op.axis[0], 8, 1)
    weft.build(s, [A, C])


def _narrowed() -> None:
    A, _, C, s = _chain_of_copies()
    s.schedule.unsafe_set_dtype("P", 0, "float16")
    weft.build(s, [A, C])


def _interpreted() -> None:
    A, _, C, s = _chain_of_copies()
    run(weft.lower(s, [A, C]).program, [numbers(8, 4)])


def _extern(call: Callable[..., Any], target: str = "llvm") -> None:
    A = te.placeholder((8, 4), name="A")
    B = te.extern((8, 4), [A], call, name="B")
    weft.build(te.create_schedule(B.op), [A, B], target)


def _undefined(**source: Any) -> te.ExternFunction:
    return te.extern_function("missing", **source)


def _elsewhere(i: Any, o: Any) -> Any:
    return te.call_extern("void", "memcpy", o[0].access_ptr("w"), Buffer("other", (), "float32").access_ptr("r"), 4)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an inlined operand": (_inlined, "S083"),
    "a transposed operand": (_transposed, "S083"),
    "an operand in blocks": (_blocked, "S083"),
    "an operand whose rows are apart": (_aligned, "S083"),
    "an operand of another dtype": (_narrowed, "S083"),
    "no stand-in": (_interpreted, "V920"),
    "an unknown function": (lambda: te.call_extern("int32", "nonsense", 1), "E146"),
    "a function of the runtime itself": (lambda: te.extern_function("weft_parallel_for"), "E146"),
    "writing an input": (
        lambda: _extern(lambda i, o: te.call_extern("void", "memcpy", i[0].access_ptr("w"), o[0].access_ptr("r"), 8)),
        "E145",
    ),
    "a buffer of nobody": (lambda: _extern(_elsewhere), "E145"),
    "an unknown access": (lambda: _extern(lambda i, o: o[0].access_ptr("x")), "E145"),
    "a tensor": (lambda: te.call_extern("void", "memcpy", te.placeholder((3,))), "E145"),
    "a buffer without its access": (lambda: _extern(lambda i, o: te.call_extern("void", "memcpy", o[0])), "E145"),
    "a narrow scalar": (lambda: te.call_extern("void", "memcpy", te.const(1, "int8")), "E145"),
    "text": (lambda: te.call_extern("void", "memcpy", "text"), "E145"),
    "no arguments": (lambda: te.call_extern("void", "memcpy"), "E145"),
    "a result": (lambda: te.call_extern("float32", "memcpy", 1), "E145"),
    "a name of two words": (lambda: te.extern_function("two words"), "E145"),
    "text as an address": (lambda: te.extern_function("f", address="f"), "E145"),
    "no address": (lambda: te.extern_function("f", address=0), "E145"),
    "a Python function without a buffer": (lambda: te.call_packed(print, 1), "E145"),
    "no Python function": (lambda: te.call_packed(3, 1), "E145"),  # type: ignore[arg-type]  # the point
    "no source for the target": (
        lambda: _extern(lambda i, o: te.call_extern("int32", _undefined(c="x"), o[0].access_ptr("w"))),
        "G027",
    ),
    "source that is no LLVM": (
        lambda: _extern(lambda i, o: te.call_extern("int32", _undefined(llvm="define x"), o[0].access_ptr("w"))),
        "E147",
    ),
    "source that is no C": (
        lambda: _extern(lambda i, o: te.call_extern("int32", _undefined(c="int x(;"), o[0].access_ptr("w")), "c"),
        "E147",
    ),
    "LLVM that only declares": (
        lambda: _extern(
            lambda i, o: te.call_extern("int32", _undefined(llvm="declare i32 @missing(ptr)"), o[0].access_ptr("w"))
        ),
        "A008",
    ),
    "a call in an expression": (
        lambda: te.compute((3,), lambda i: te.call_extern("void", "memcpy", 1)),  # type: ignore[arg-type]  # the point
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    action, code = REFUSED[name]
    with pytest.raises(WeftError) as error:
        action()
    assert error.value.code == code or not code


def test_foreign_functions_are_no_intrinsics() -> None:
    doubled(te.var("n"))
    name = next(n for n in added() if n.startswith("twice_"))
    with pytest.raises(UserError) as error:
        te.call(name, te.const(1.0))
    assert error.value.code == "E020"


def _program(text: str) -> Program:
    return parse(f'program "p"(A: f32[4]) -> (B: f32[4]):\n{text}')


BLOCK = """  block "B"():
    reads A[0:+4]
    writes B[0:+{count}]
    body:
      evaluate f:i32({access}({buffer}[0], {buffer}[{last}]))
"""


def test_the_verifier_knows_what_functions_write() -> None:
    verify(_program(BLOCK.format(count=4, access="pointer_w", buffer="B", last=3)))
    for wrong, code in (
        ({"access": "pointer_r", "buffer": "B", "last": 3, "count": 4}, "V031"),
        ({"access": "pointer_w", "buffer": "A", "last": 3, "count": 4}, "V015"),
        ({"access": "pointer_w", "buffer": "B", "last": 3, "count": 2}, "V024"),
    ):
        with pytest.raises(ProgramError) as error:
            verify(_program(BLOCK.format(**wrong)))
        assert error.value.code == code


def test_the_interpreter_finds_accesses_outside_and_races() -> None:
    def fill(out: Any) -> None:
        out[:] = 1.0

    A = te.placeholder((4,), name="A")
    B = te.extern((4,), [A], lambda i, o: te.call_packed(fill, o[0]), name="B")
    program = weft.lower(te.create_schedule(B.op), [A, B]).program
    np.testing.assert_array_equal(run(program, [numbers(4)])[0], np.ones(4))
    (name,) = {e.name for e in _calls(program)}
    text = f"  for i in parallel(0, 2):\n    evaluate {name}:i32(pointer_rw(B[{{}}], B[{{}}]), 4)\n"
    outside = _program(text.format("i * 4", "i * 4 + 3"))
    with pytest.raises(ProgramError) as error:
        run(outside, [numbers(4)])
    assert error.value.code in ("V910", "V911")
    racing = _program(text.format("0", "3"))
    with pytest.raises(ProgramError) as error:
        Interpreter(racing, races=True).run([numbers(4)])
    assert error.value.code == "V917"


def _calls(program: Program) -> list[Any]:
    from weft.tir.foreign import foreign_call

    return [e for s in walk(program.body) if (e := foreign_call(s)) is not None]


def test_schedules_rename_and_move_what_functions_get() -> None:
    A, P, C, s = _chain_of_copies()
    s.cache_read(A, "global", [P])
    s[P].set_scope("local")
    found = [p for x in walk(weft.lower(s, [A, C]).program.body) for p in pointers(x)]
    assert [(p.buffer.name, p.reads, p.writes) for p in found] == [("B", False, True), ("P", True, False)]
    np.testing.assert_allclose(weft.build(s, [A, C])(numbers(8, 4)), numbers(8, 4), rtol=1e-6, atol=1e-6)
    assert isinstance(s.schedule, Schedule)
