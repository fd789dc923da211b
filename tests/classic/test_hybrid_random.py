"""Random hybrid functions: Python itself, running them on NumPy arrays, is the judge."""

from __future__ import annotations

import linecache
import random
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.tir.interpret import run

ROWS, COLUMNS, K = 4, 6, 3


class Writer:
    """Writes the text of a function of ``a`` (int32 [4, 6]), ``b`` (int32 [6]) and the scalar ``k``.

    Every index is in range, every element of the results is assigned first, and integers stay small by ``% 97``.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.alone = False
        """Whether iterations may run at the same time, so that they may not read the results of others."""

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def index(self, indices: dict[str, int], extent: int) -> str:
        """An index below ``extent`` from loop variables (with their limits) and numbers."""
        fitting = [v for v, limit in indices.items() if limit <= extent]
        kind = self.rng.randrange(4)
        if kind == 0 or not indices:
            return str(self.rng.randrange(extent))
        if kind == 1 and fitting:
            return self.rng.choice(fitting)
        v = self.rng.choice(list(indices))
        if kind == 2:
            return f"({v} * {self.rng.randint(1, 3)} + {self.rng.randrange(5)}) % {extent}"
        return f"min({v} // {self.rng.randint(1, 2)}, {extent - 1})"

    def element(self, indices: dict[str, int]) -> str:
        if not self.alone and self.rng.random() < 0.2:
            return self.place(indices)
        if self.rng.random() < 0.6:
            return f"a[{self.index(indices, ROWS)}, {self.index(indices, COLUMNS)}]"
        return f"b[{self.index(indices, COLUMNS)}]"

    def place(self, indices: dict[str, int]) -> str:
        """An element of the result."""
        return f"c[{self.index(indices, ROWS)}, {self.index(indices, COLUMNS)}]"

    def value(self, indices: dict[str, int], names: list[str], depth: int = 2) -> str:
        kind = self.rng.randrange(7)
        if depth == 0 or kind == 0:
            leaf = [self.element(indices), str(self.rng.randint(-3, 9)), "k", *names]
            return self.rng.choice(leaf)
        x, y = (self.value(indices, names, depth - 1) for _ in range(2))
        if kind < 4:
            return f"(({x}) {self.rng.choice('+-*')} ({y})) % 97"
        if kind == 4:
            return f"{self.rng.choice(['min', 'max'])}({x}, {y})"
        return f"({x} if {self.condition(indices, names)} else {y})"

    def condition(self, indices: dict[str, int], names: list[str]) -> str:
        x, y = self.value(indices, names, 1), self.value(indices, names, 1)
        made = f"{x} {self.rng.choice(['<', '<=', '>', '>=', '==', '!='])} {y}"
        if self.rng.random() < 0.3:
            made = f"not ({made}) {self.rng.choice(['and', 'or'])} {self.element(indices)} > 0"
        return made

    def loop(self, indices: dict[str, int]) -> tuple[str, str, int]:
        """A loop, its variable and a limit of the variable."""
        v, limit = self.fresh("i"), self.rng.choice([1, 2, 4, 5])
        kind = self.rng.randrange(8)
        if kind == 5:
            return f"for {v} in range(k):", v, K
        if kind == 6:
            return f"for {v} in range({self.place(indices)} % 4):", v, 4
        if kind == 7:
            return f"for {v} in range({self.place(indices)} % 4, -1, -1):", v, 4
        if kind == 0:
            return f"for {v} in range({limit - 1}, -1, -1):", v, limit
        if kind == 1:
            return f"for {v} in range(1, {limit + 1}, 2):", v, limit + 1
        if kind == 2:
            return f"for {v} in const_range({limit}):", v, limit
        if kind == 3:
            return f"for {v} in unroll({limit}):", v, limit
        return f"for {v} in range(a.shape[0]):", v, ROWS

    def block(self, depth: int, indices: dict[str, int], names: list[str], mutable: list[str], left: int) -> None:
        names, mutable = list(names), list(mutable)
        for _ in range(self.rng.randint(1, 3)):
            kind = self.rng.randrange(10)
            if kind == 0:
                name = self.fresh("x")
                self.line(depth, f"{name} = {self.value(indices, names)}")
                names.append(name)
            elif kind == 1 and mutable:
                self.line(depth, f"{self.rng.choice(mutable)} = int32({self.value(indices, names)})")
            elif kind == 2 and left:
                text, v, limit = self.loop(indices)
                self.line(depth, text)
                self.block(depth + 1, {**indices, v: limit}, names, mutable, left - 1)
            elif kind == 3 and left:
                self.line(depth, f"if {self.condition(indices, names)}:")
                self.block(depth + 1, indices, names, mutable, left - 1)
                if self.rng.random() < 0.5:
                    self.line(depth, "else:")
                    self.block(depth + 1, indices, names, mutable, left - 1)
            elif kind == 4:
                self.exchange(depth, indices)
            elif kind == 5:
                self.kept(depth, indices, names)
            elif kind == 6:
                self.at_once(depth, indices, names)
            else:
                place = self.place(indices)
                old = f"{place} + " if self.rng.random() < 0.5 else ""
                self.line(depth, f"{place} = int32(({old}{self.value(indices, names)}) % 97)")

    def exchange(self, depth: int, indices: dict[str, int]) -> None:
        """Two elements of the result change places, or get one value."""
        p, q, name = self.place(indices), self.place(indices), self.fresh("x")
        kind = self.rng.randrange(4)
        if kind == 0:
            lines = [f"{name} = {p}", f"{p} = {q}", f"{q} = {name}"]
        elif kind == 1:
            lines = [f"{p}, {q} = {q}, {p}"]
        elif kind == 2:
            lines = [f"{name} = ({p}, {q})", f"{p} = {name}[1]", f"{q} = {name}[0]"]
        else:
            lines = [f"{p} = k", f"{name} = k", f"{q} = {name}"]
        for text in lines:
            self.line(depth, text)

    def kept(self, depth: int, indices: dict[str, int], names: list[str]) -> None:
        """A name for an element that changes then."""
        name, place = self.fresh("x"), self.place(indices)
        self.line(depth, f"{name} = {place}")
        self.line(depth, f"{place} = int32({self.value(indices, names)})")
        names.append(name)

    def at_once(self, depth: int, indices: dict[str, int], names: list[str]) -> None:
        """Rows in parallel, with scratch memory that lanes fill."""
        row, lane, column, memory = (self.fresh(stem) for stem in "pqrw")
        self.alone = True
        self.line(depth, f"for {row} in parallel({ROWS}):")
        self.line(depth + 1, f"{memory} = allocate(({COLUMNS},), 'int32')")
        self.line(depth + 1, f"for {lane} in vectorize({COLUMNS}):")
        value = self.value({**indices, row: ROWS, lane: COLUMNS}, names)
        self.line(depth + 2, f"{memory}[{lane}] = int32({value})")
        self.line(depth + 1, f"for {column} in range({COLUMNS}):")
        more = f"{memory}[{COLUMNS - 1} - {column}]"
        self.line(depth + 2, f"c[{row}, {column}] = int32((c[{row}, {column}] + {more}) % 97)")
        self.alone = False

    def text(self) -> str:
        self.line(0, "def made(a, b, k):")
        self.line(1, "c = output_tensor((4, 6), 'int32')")
        self.line(1, "for r in range(4):")
        self.line(2, "for s in range(6):")
        self.line(3, "c[r, s] = int32(r * 7 - s)")
        self.line(1, "t = int32(1)")
        self.line(1, "t = int32(t + b[0])")
        self.block(1, {}, ["t"], ["t"], 3)
        self.line(1, "c[0, 0] = int32((c[0, 0] + t) % 97)")
        self.line(1, "return c")
        return "\n".join(self.lines) + "\n"


def by_python(text: str, arrays: list[Any]) -> Any:
    """What Python computes; numbers are those of Python, so that nothing overflows."""

    def memory(shape: Any, dtype: str) -> Any:
        return np.zeros(shape, object)

    loops = dict.fromkeys(("const_range", "unroll", "parallel", "vectorize"), range)
    known: dict[str, Any] = {"output_tensor": memory, "allocate": memory, "int32": int, **loops}
    exec(text, known)
    given = [x.astype(object) if isinstance(x, np.ndarray) else x for x in arrays]
    return known["made"](*given).astype(np.int32)


@pytest.mark.parametrize("seed", seeds(40))
def test_python_agrees(seed: int) -> None:
    text = Writer(seed).text()
    name = f"<hybrid {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    known: dict[str, Any] = {}
    exec(compile(text, name, "exec"), known)
    fn = te.hybrid.script(known["made"])
    rng = np.random.default_rng(seed)
    x, y, k = rng.integers(-9, 10, (ROWS, COLUMNS), np.int32), rng.integers(-9, 10, COLUMNS, np.int32), K
    wanted = by_python(text, [x, y, k])
    a = te.placeholder((te.var("n"), COLUMNS), "int32", name="a")
    b, scalar = te.placeholder((COLUMNS,), "int32", name="b"), te.var("k", "int32")
    c = fn(a, b, scalar)
    s = te.create_schedule(c.op)
    program = weft.lower(s, [a, b, scalar, c]).program
    np.testing.assert_array_equal(run(program, [x, y, np.array(k, np.int32)])[0], wanted, text)
    np.testing.assert_array_equal(weft.build(s, [a, b, scalar, c])(x, y, k), wanted, text)
