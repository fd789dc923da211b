"""Whatever is printed parses back to the same program; malformed text is refused with a pointer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Var, const
from weft.ir.frozen import FrozenMap
from weft.ir.structural import structural_equal
from weft.support.dtypes import FLOAT16, DType
from weft.support.errors import ParseError
from weft.tir.nodes import (
    Allocate,
    Barrier,
    Block,
    Buffer,
    Evaluate,
    For,
    If,
    Let,
    Program,
    Region,
    Seq,
    Stmt,
    Store,
)
from weft.tir.text import parse, to_text

EVERYTHING = """\
program "all things"[n, m](A: f32[n, 64], I: i64[m]) -> (C: f32[n, 64], D: bf16[m] strides [2] align 16):
  attrs {count = 3, flag = true, list = [1, 2.5, "x"], map = {a = none}, size = (n * 4), what = f16}
  alloc T: f32[n, 64] shared strides [80, 1] align 128
  alloc U: f32[] vta.acc
  for i in parallel(0, n) {grain = 4}:
    for j in thread("threadIdx.x", 0, 64):
      block "C"(x: spatial n = i, k: reduce 8 from 2 = j, t: thread "threadIdx.x" 64 = j):
        reads A[x, 0:+64], T[x - 1:+3, k]
        writes C[x, k]
        where i < n - 1 and j != 3
        annotations {note = "a \\"quoted\\" text"}
        init:
          C[x, k] = 0.0
        body:
          if A[x, k] > 0.0:
            C[x, k] = C[x, k] + A[x, k]
          else:
            pass
  barrier shared
  for i in serial(2, m):
    let x = I[i] + 1
    allocate V: f32[16] register
    let y = select(x < 4, A[x, 0], inf)
    V[ramp(x, 1, 8); ramp(x, 1, 8) < broadcast(n, 8)] = broadcast(y, 8)
    evaluate prefetch(A[x, 0])
    seq:
      D[i] = bf16(V[x])
    let z = 1.0:
      V[0] = z
    pass
"""


def test_everything_round_trips() -> None:
    program = parse(EVERYTHING)
    assert to_text(program) == EVERYTHING
    assert structural_equal(program, parse(to_text(program)), names=True)
    assert program.outputs == 2 and [v.name for v in program.sizes] == ["n", "m"]
    assert program.attrs["what"] is FLOAT16 and program.attrs["list"] == (1, 2.5, "x")
    assert program.params[3].strides is not None and program.allocs[0].align == 128


def test_clashing_names_are_numbered() -> None:
    a, b = Buffer("A", (const(4),), "float32"), Buffer("A", (const(4),), "float32")
    i, j = Var("i"), Var("i")
    body = For(i, const(0), const(2), For(j, const(0), const(2), Store(b, (i * 2 + j,), Load(a, (j,)))))
    text = to_text(Program("p", (a, b), body))
    assert "A_1[i * 2 + i_1] = A[i_1]" in text
    assert to_text(parse(text)) == text


def test_block_variables_may_take_the_names_of_loops() -> None:
    b = Buffer("B", (const(4),), "float32")
    i, x = Var("i"), Var("i")
    block = Block("C", (IterVar(x, const(4)),), (i,), (), (), Store(b, (x,), const(1.0)), where=i < 3)
    text = to_text(Program("p", (b,), For(i, const(0), const(4), block)))
    assert 'block "C"(i: spatial 4 = i)' in text and "where i < 3" in text
    again = parse(text)
    assert to_text(again) == text
    loop = again.body
    assert isinstance(loop, For) and isinstance(loop.body, Block)
    assert loop.body.values == (loop.var,) and loop.body.iters[0].var is not loop.var


@pytest.mark.parametrize(
    ("old", "new", "message", "marked"),
    [
        ("C[x, k] = 0.0", "C[x] = 0.0", "'C' has 2 dimensions, not 1", "C"),
        ("for i in parallel", "for i in sideways", "expected 'serial' or", "sideways"),
        ("A: f32[n, 64]", "A: f33[n, 64]", "unknown dtype 'f33'", "f33"),
        ("let x = I[i] + 1", "let x = I[q] + 1", "unknown name 'q'", "q"),
        ("barrier shared", "barrier shared shared", "expected the end of the line, found 'shared'", "shared"),
        ("D[i] = bf16(V[x])", "D[i]", "expected '='", ""),
        ("writes C[x, k]", "writes C[x]", "'C' has 2 dimensions, not 1", "C"),
        ("[n, m](", "[n, n](", "'n' is defined already", "n"),
    ],
)
def test_malformed_text_is_refused(old: str, new: str, message: str, marked: str) -> None:
    assert EVERYTHING.count(old) >= 1
    with pytest.raises(ParseError) as caught:
        parse(EVERYTHING.replace(old, new, 1))
    assert message in caught.value.message
    place = caught.value.place
    assert place is not None and place.text is not None
    assert place.text[place.column :].startswith(marked)


@settings(max_examples=100)
@given(st.integers(0, len(EVERYTHING) - 1), st.sampled_from(["", "(", "]", ":", " ", "\n", "x", "0", '"', "=", ","]))
def test_damaged_text_never_crashes(position: int, inserted: str) -> None:
    for damaged in (
        EVERYTHING[:position] + inserted + EVERYTHING[position:],
        EVERYTHING[:position] + inserted + EVERYTHING[position + 1 :],
        EVERYTHING[:position],
    ):
        try:
            to_text(parse(damaged))
        except ParseError:
            continue


# -- generated programs ----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["i", "j", "A", "T", "for", "if", "let", "x.y", "block", "where", "strange name", "0", "n"])
KINDS = st.sampled_from(["serial", "parallel", "vectorized", "unrolled", "thread", "virtual"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=4), inner, max_size=2).map(FrozenMap)
    ),
    max_leaves=4,
)


class Maker:
    """Draws programs that print and parse; they need not make sense."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.sizes = tuple(Var(draw(NAMES)) for _ in range(draw(st.integers(0, 2))))
        self.allocs = tuple(self.buffer(self.sizes) for _ in range(draw(st.integers(0, 2))))
        self.params = tuple(self.buffer(self.sizes) for _ in range(draw(st.integers(1, 3))))

    def buffer(self, scope: tuple[Var, ...]) -> Buffer:
        draw = self.draw
        shape = tuple(self.index(scope) for _ in range(draw(st.integers(0, 2))))
        strides = tuple(self.index(scope) for _ in shape) if draw(st.booleans()) else None
        kind = draw(st.sampled_from(["float32", "int8", "bfloat16", "bool", "int64", "float8_e4m3fn"]))
        where = draw(st.sampled_from(["global", "shared", "vta.acc"]))
        return Buffer(draw(NAMES), shape, kind, where, strides, draw(st.sampled_from([64, 16])))

    def index(self, scope: tuple[Var, ...]) -> Expr:
        draw = self.draw
        e: Expr = draw(st.sampled_from([*scope, const(3), const(-2)]))
        for _ in range(draw(st.integers(0, 2))):
            other = draw(st.sampled_from([*scope, const(5)]))
            op = draw(st.sampled_from(["add", "sub", "mul", "floordiv"]))
            e = {"add": e + other, "sub": e - other, "mul": e * other, "floordiv": e // other}[op]
        return e

    def value(self, b: Buffer, scope: tuple[Var, ...]) -> Expr:
        draw = self.draw
        if b.dtype == DType("bool"):
            return self.index(scope) < 2
        constant = Const(draw(st.integers(-3, 3)), b.dtype)
        loaded = Load(b, tuple(self.index(scope) for _ in b.shape))
        return draw(st.sampled_from([constant, loaded, loaded + constant, self.index(scope).astype(b.dtype)]))

    def store(self, scope: tuple[Var, ...], buffers: tuple[Buffer, ...]) -> Stmt:
        b = self.draw(st.sampled_from(buffers))
        indices = [self.index(scope) for _ in b.shape]
        if indices and self.draw(st.booleans()):
            indices[-1] = Ramp(indices[-1], const(1), 4)
            mask = indices[-1] < 7 if self.draw(st.booleans()) else None
            return Store(b, tuple(indices), Broadcast(self.value(b, scope), 4), mask)
        return Store(b, tuple(indices), self.value(b, scope))

    def notes(self) -> FrozenMap:
        return FrozenMap(self.draw(st.dictionaries(st.text(max_size=4), VALUES, max_size=2)))

    def stmt(self, scope: tuple[Var, ...], buffers: tuple[Buffer, ...], depth: int) -> Stmt:
        draw = self.draw
        choice = draw(st.integers(0, 9)) if depth else 0
        inner = depth - 1
        if choice == 1:
            return Seq(tuple(self.stmt(scope, buffers, inner) for _ in range(draw(st.integers(0, 3)))))
        if choice == 2:
            v = Var(draw(NAMES))
            kind = draw(KINDS)
            thread = "threadIdx.x" if kind in ("thread", "virtual") else ""
            body = self.stmt((*scope, v), buffers, inner)
            return For(v, self.index(scope), self.index(scope), body, kind, thread, self.notes())
        if choice == 3:
            return self.block(scope, buffers, inner)
        if choice == 4:
            b = self.buffer(scope or self.sizes)
            return Allocate(b, self.stmt(scope, (*buffers, b), inner))
        if choice == 5:
            other = self.stmt(scope, buffers, inner) if draw(st.booleans()) else None
            return If(self.index(scope) < 4, self.stmt(scope, buffers, inner), other)
        if choice == 6:
            v = Var(draw(NAMES))
            return Let(v, self.index(scope), self.stmt((*scope, v), buffers, inner))
        if choice == 7:
            return Evaluate(self.index(scope))
        if choice == 8:
            return Barrier(draw(st.sampled_from(["shared", "vta.acc"])))
        return self.store(scope, buffers)

    def block(self, scope: tuple[Var, ...], buffers: tuple[Buffer, ...], depth: int) -> Stmt:
        draw = self.draw
        kinds = draw(st.lists(st.sampled_from(["spatial", "reduce", "ordered"]), max_size=2))
        iters = tuple(IterVar(Var(draw(NAMES)), self.index(scope), k, self.index(scope)) for k in kinds)
        inside = (*self.sizes, *(it.var for it in iters))
        regions = tuple(
            Region(b, tuple((self.index(inside), self.index(inside)) for _ in b.shape))
            for b in draw(st.lists(st.sampled_from((*self.params, *self.allocs)), max_size=2))
        )
        init = self.stmt(inside, buffers, 0) if draw(st.booleans()) else None
        where = self.index(scope) < 4 if draw(st.booleans()) else const(True)
        return Block(
            draw(NAMES),
            iters,
            tuple(self.index(scope) for _ in iters),
            regions,
            regions[:1],
            self.stmt(inside, buffers, depth),
            init,
            where,
            self.notes(),
        )


@st.composite
def programs(draw: Any) -> Program:
    maker = Maker(draw)
    buffers = (*maker.params, *maker.allocs)
    outputs = draw(st.integers(0, len(maker.params)))
    body = maker.stmt(maker.sizes, buffers, 4)
    return Program(draw(NAMES), maker.params, body, outputs, maker.sizes, maker.allocs, maker.notes())


@settings(max_examples=100)
@given(programs())
def test_generated_programs_round_trip(program: Program) -> None:
    text = to_text(program)
    again = parse(text)
    assert to_text(again) == text
    assert structural_equal(program, again)
