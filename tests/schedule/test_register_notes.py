"""Register buffers: the schedule says which of them are in memory, since a loop that indexes them is not unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.schedule.rules.cpu import default_schedule
from weft.support.errors import TargetError
from weft.target import Target


def chain(size: Any) -> tuple[Any, Any, Any]:
    a = te.placeholder((size,), name="A")
    b = te.compute((size,), lambda i: a[i] + 1, name="B")
    return a, b, te.compute((size,), lambda i: b[i] * 2, name="C")


@pytest.mark.parametrize("unrolled", [(), ("B",), ("C",), ("B", "C")])
@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
def test_each_loop_that_indexes_must_be_unrolled(unrolled: tuple[str, ...], kind: str) -> None:
    a, b, c = chain(8)
    s = te.create_schedule(c.op)
    s[b].set_scope("register")
    for t in (b, c):
        if t.name in unrolled:
            getattr(s[t], kind)(s[t].axis[0])
    noted = [n for n in s.notes if "'B' is in memory" in n]
    assert len(noted) == (0 if len(unrolled) == 2 else 1)
    if noted:
        assert any(f"around '{name}'" in noted[0] for name in {"B", "C"} - set(unrolled))
    f = weft.build(s, [a, c])
    assert list(f.notes) == noted and all(n.split("'")[0] in f._repr_html_() for n in noted)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(f(x), (x + 1) * 2)


def test_the_note_agrees_with_the_code() -> None:
    """Where there is no note, the kernel accesses each element of the buffer at a known index."""
    for tile in (1, 2, 8):
        for unroll in (False, True):
            a, b, c = chain(16)
            s = te.create_schedule(c.op)
            outer, inner = s[c].split(s[c].axis[0], tile)
            s[b].compute_at(s[c], outer)
            s[b].set_scope("register")
            if unroll:
                s[b].unroll(s[b].axis[0])
                s[c].unroll(inner)
            kernel = weft.lower(s, [a, c]).program
            made = weft.build(s, [a, c])
            text = made.inspect("kernel")
            moving = [line for line in text.splitlines() if "B[i" in line.replace("allocate", "")]
            assert bool(s.notes) == bool(moving), (tile, unroll, text, kernel)


def test_a_loop_of_the_buffer_around_all_its_uses_needs_no_unrolling() -> None:
    """One element, computed and used in each iteration."""
    _, b, c = chain(8)
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].axis[0])
    s[b].set_scope("register")
    assert s.notes == ()


def test_the_default_schedule_keeps_registers() -> None:
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    made = default_schedule(te_to_tir("main", [a, b], [c]), Target("llvm -mcpu=x86-64-v4"))
    assert isinstance(made, Schedule) and any(x.scope == "register" for x in made.program.allocs)
    assert not [n for n in made.notes if "in memory" in n]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_registers_have_a_constant_size(target: str) -> None:
    a, b, c = chain(te.var("n"))
    s = te.create_schedule(c.op)
    s[b].set_scope("register")
    with pytest.raises(TargetError, match="'B' has no constant size") as caught:
        weft.build(s, [a, c], target)
    assert caught.value.code == "G033"
