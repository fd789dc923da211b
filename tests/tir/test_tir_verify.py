"""Every invariant of tensor programs, broken once. The messages are golden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.expr.nodes import Binary, Const, Load, Ramp, Var, const
from weft.support.errors import ProgramError
from weft.tir.nodes import Allocate, Block, Buffer, For, IterVar, Let, Program, Region, Seq, Store
from weft.tir.text import parse
from weft.tir.verify import Form, verify

A, B = Buffer("A", (const(8),), "float32"), Buffer("B", (const(8),), "float32")
FLAT = "for i in serial(0, 8):\n    B[i] = A[i]"


def text(body: str, head: str = "") -> Program:
    indented = "\n".join("  " + line for line in body.split("\n"))
    return parse(f'program "p"(A: f32[8]) -> (B: f32[8]):\n{head}{indented}\n')


def block(
    inside: str = "B[x] = A[x]",
    reads: str = "A[x]",
    writes: str = "B[x]",
    iters: str = "x: spatial 8 = i",
    loop: str = "serial(0, 8)",
    extra: str = "",
) -> Program:
    lines = [f"for i in {loop}:", f'  block "C"({iters}):']
    lines += [f"    reads {reads}"] if reads else []
    lines += [f"    writes {writes}"] if writes else []
    lines += [f"    {extra}"] if extra else []
    lines += ["    body:", *("      " + line for line in inside.split("\n"))]
    return text("\n".join(lines))


def program(body: Callable[[Var], object], *, outputs: int = 1, allocs: tuple[Buffer, ...] = ()) -> Program:
    i = Var("i")
    made = body(i)
    return Program("p", (A, B), For(i, const(0), const(8), made), outputs, allocs=allocs)  # type: ignore[arg-type]


def copy(i: Var) -> Store:
    return Store(B, (i,), Load(A, (i,)))


def twins() -> Program:
    return text(
        'for i in serial(0, 8):\n  block "C"(x: spatial 8 = i):\n    writes B[x]\n    body:\n      B[x] = 0.0\n'
        'for i in serial(0, 8):\n  block "C"(x: spatial 8 = i):\n    writes B[x]\n    body:\n      B[x] = 0.0'
    )


def strange_loop() -> Program:
    i = Var("i")
    return Program("p", (A, B), For(i, const(0), Const(8, "int32"), copy(i)))


def unbound_value() -> Program:
    i, x = Var("i"), Var("x")
    made = Block("C", (IterVar(x, const(8)),), (), (), (Region(B, ((x, const(1)),)),), Store(B, (x,), const(0.0)))
    return Program("p", (A, B), For(i, const(0), const(8), made))


CASES: dict[str, tuple[Callable[[], Program], Form]] = {
    "V001 two buffers are called 'A'": (lambda: Program("p", (A, Buffer("A", (), "float32")), Seq(())), "scheduled"),
    "V002 two blocks are called 'C'": (twins, "scheduled"),
    "V003 the variable 'i' is defined again inside its own scope": (
        lambda: program(lambda i: For(i, const(0), const(2), copy(i))),
        "scheduled",
    ),
    "V010 the variable 'j' is used where it is not defined": (
        lambda: program(lambda i: Store(B, (i,), Load(A, (Var("j"),)))),
        "scheduled",
    ),
    "V011 'T' is loaded where it does not exist": (
        lambda: program(lambda i: Store(B, (i,), Load(Buffer("T", (const(8),), "float32"), (i,)))),
        "scheduled",
    ),
    "V012 'B' has 1 dimensions but 2 indices are given": (
        lambda: program(lambda i: Store(B, (i, i), Load(A, (i,)))),
        "scheduled",
    ),
    "V013 the index 'i32(i)' of 'B' is int32, not int64": (
        lambda: program(lambda i: Store(B, (i.astype("int32"),), Load(A, (i,)))),
        "scheduled",
    ),
    "V014 a value of int64 is stored to 'B' of float32": (
        lambda: program(lambda i: Store(B, (i,), i)),
        "scheduled",
    ),
    "V015 the input 'A' is stored to": (lambda: program(lambda i: Store(A, (i,), const(0.0))), "scheduled"),
    "V016 an access to 'B' has lanes 8 for 1": (
        lambda: program(lambda i: Store(B, (Ramp(i, const(1), 8),), const(0.0))),
        "kernel",
    ),
    "V017 the mask of 'B' is int64 of 1 lanes, not bool of 1": (
        lambda: program(lambda i: Store(B, (i,), Load(A, (i,)), i)),
        "scheduled",
    ),
    "V018 the operands of 'A[i] + i' are float32 and int64": (
        lambda: program(lambda i: Store(B, (i,), Binary("add", Load(A, (i,)), i))),
        "scheduled",
    ),
    "V018 'v' is int64 but its value is float32": (
        lambda: program(lambda i: Let(Var("v"), Load(A, (i,)), copy(i))),
        "scheduled",
    ),
    "V019 the extent of a loop is int32, not a scalar of int64: '8i32'": (strange_loop, "scheduled"),
    "V020 a thread loop does not name a thread axis": (
        lambda: text("for i in thread(0, 8):\n  B[i] = A[i]"),
        "scheduled",
    ),
    "V021 block 'C' binds 0 values to 1 variables": (unbound_value, "scheduled"),
    "V022 'x' of block 'C' takes values 0..9, outside 0..7": (lambda: block(loop="serial(0, 10)"), "scheduled"),
    "V023 the loop variable 'i' is used inside block 'C'": (lambda: block("B[x] = A[i]"), "scheduled"),
    "V024 block 'C' does not say that it writes B[x]": (lambda: block(writes="B[x + 1]"), "scheduled"),
    "V024 block 'C' does not say that it reads A[x + 3]": (
        lambda: block("B[x] = A[x + 3]", reads="A[x:+3]"),
        "scheduled",
    ),
    "V025 the reduce variable 'r' depends on the parallel loop 'i'": (
        lambda: block("B[0] = B[0] + A[r]", "A[r]", "B[0]", "r: reduce 8 = i", "parallel(0, 8)"),
        "scheduled",
    ),
    "V030 the program has 2 parameters but 3 outputs": (lambda: program(copy, outputs=3), "scheduled"),
    "V031 nothing stores the output 'B'": (lambda: text("pass"), "scheduled"),
    "V040 all iterations of the parallel loop 'i' store to one element of 'B'": (
        lambda: text("for i in parallel(0, 8):\n  B[0] = A[i]"),
        "kernel",
    ),
    "V050 'T' is allocated by a statement, which scheduled form does not allow": (
        lambda: program(lambda i: Allocate(Buffer("T", (), "float32"), copy(i))),
        "scheduled",
    ),
    "V051 the allocation 'T' is never used": (
        lambda: program(copy, allocs=(Buffer("T", (), "float32"),)),
        "scheduled",
    ),
    "V060 the block 'C' is not allowed in kernel form": (block, "kernel"),
    "V060 in kernel form the program may not list 'T': statements allocate": (
        lambda: program(copy, allocs=(Buffer("T", (const(1),), "float32"),)),
        "kernel",
    ),
    "V061 'T' has 0 dimensions in kernel form, not one": (
        lambda: program(lambda i: Allocate(Buffer("T", (), "float32"), copy(i))),
        "kernel",
    ),
}


@pytest.mark.parametrize("message", CASES)
def test_refuses(message: str) -> None:
    build, form = CASES[message]
    with pytest.raises(ProgramError) as caught:
        verify(build(), form)
    assert f"{caught.value.code} {caught.value.message}" == message


def test_the_error_points_at_the_statement() -> None:
    with pytest.raises(ProgramError) as caught:
        verify(block(writes="B[x + 1]"))
    assert str(caught.value) == (
        "error[V024] block 'C' does not say that it writes B[x]\n --> node C\n | B[x] = A[x]\n | ^^^^^^^^^^^"
    )


@pytest.mark.parametrize("form", ["scheduled", "kernel"])
def test_accepts_plain_loops_in_both_forms(form: Form) -> None:
    verify(text("for i in parallel(0, 8):\n  B[i] = A[i]"), form)


def test_accepts_guards_and_read_modify_write() -> None:
    verify(block(iters="x: spatial 8 = i", loop="serial(0, 10)", extra="where i < 8"))
    verify(block("B[x] = B[x] + A[x]"))
    verify(block("for j in serial(0, 2):\n  B[x + j] = A[x - j + 1]", "A[x:+2]", "B[x:+2]", loop="serial(0, 7)"))
