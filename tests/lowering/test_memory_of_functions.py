"""Programs with functions and data free all memory that they allocate: ten thousand runs, also with errors."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.lowering.function_programs import compiled, list_of
from weft.runtime import _native
from weft.support.errors import InputError

RUNS = 10_000

SUMS = """
type List { Nil(); Cons(f32[2], List) }
type Pick { None(); Once(); Twice() }
def @sums<n>(%xs: List, %w: f32[n], %p: Pick) -> (f32[2], List) {
  %0: (f32[2], List) = match %xs {
    Nil() => {
      %1: List = List::Nil()
      %2: (f32[2], List) = (f32[2](0.0, 0.0), %1)
      return %2
    }
    Cons(%x: f32[2], %rest: List) => {
      %3: f32[2] = exp(%x)
      %4: (f32[2], List) = @sums(%rest, %w, %p)
      %5: f32[2] = %4[0]
      %6: f32[2] = add(%5, %3)
      %7: f32[2] = match %p {
        None() => { return %6 }
        Once() => { return %3 }
        Twice() => { %8: f32[2] = mul(%6, %3) return %8 }
      }
      %9: List = %4[1]
      %10: List = List::Cons(%7, %9)
      %11: (f32[2], List) = (%7, %10)
      return %11
    }
  }
  return %0
}
def @main<n>(%xs: List, %w: f32[n], %p: Pick) -> (f32[2], List) {
  %0: (f32[2], List) = @sums(%xs, %w, %p)
  return %0
}
"""

ROWS = """
type List { Nil(); Cons(f32[2], List) }
def @rows<m, k, n>(%xs: List, %w: f32[n, 2]) -> f32[m, 2] {
  %0: f32[m, 2] = match %xs {
    Nil() => { %1: f32[m, 2] = slice(%w, begin=(0,), end=(2,), axes=(0,)) return %1 }
    Cons(%x: f32[2], %rest: List) => {
      %2: f32[k, 2] = @rows(%rest, %w)
      %3: f32[k, 2] = exp(%2)
      %4: f32[n, 2] = add(%3, %w)
      return %4
    }
  }
  return %0
}
def @main<n, a>(%xs: List, %w: f32[n, 2]) -> f32[a, 2] {
  %0: f32[a, 2] = @rows(%xs, %w)
  return %0
}
"""


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def kept(once):
    """Blocks and bytes that runs leave behind."""
    for _ in range(200):
        once()
    gc.collect()
    blocks, size = _native.allocated_blocks(), resident()
    for _ in range(RUNS):
        once()
    gc.collect()
    return _native.allocated_blocks() - blocks, resident() - size


def test_ten_thousand_runs_of_a_recursion():
    from weft.support.data import Data

    _, exe = compiled(SUMS)
    xs, w = list_of(*(np.full(2, i / 8, np.float32) for i in range(6))), np.zeros(3, np.float32)
    picks = [Data(name) for name in ("None", "Once", "Twice")]

    def once():
        for p in picks:
            exe(xs, w, p)

    blocks, size = kept(once)
    assert blocks == 0
    assert size < 4 << 20


def test_ten_thousand_errors_in_the_middle_of_a_recursion():
    """The innermost call returns two rows, but its caller needs as many rows as the weights have. The check fails while
    several calls wait and the results of others are alive."""
    _, exe = compiled(ROWS)
    xs, good, bad = list_of(*[np.zeros(2, np.float32)] * 6), np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32)
    assert exe(xs, good).shape == (2, 2)

    def once():
        with pytest.raises(InputError):
            exe(xs, bad)
        exe(xs, good)

    blocks, size = kept(once)
    assert blocks == 0
    assert size < 4 << 20
