"""Values that some paths through a program need and others do not: computed only where they are needed, at most once,
as in the interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.lowering.function_programs import compiled, same
from weft.graph import interpret
from weft.support.data import Data
from weft.support.errors import UserError

ENDLESS = """
def @endless(%x: f32[3]) -> f32[3] {
  %0: f32[3] = neg(%x)
  %1: f32[3] = @endless(%0)
  %2: f32[3] = add(%1, %0)
  return %2
}
"""

FRUIT = "type Fruit { Apple(); Pear(); Plum() }\n"


@pytest.fixture(autouse=True)
def shallow(monkeypatch):
    monkeypatch.setattr(interpret, "MAX_WAITING_VALUES", 5000)


def outcome(run):
    try:
        return run()
    except UserError as error:
        return error.code


def both(text, *runs):
    """Runs that agree with the interpreter's, errors included; returns what came out."""
    module, exe = compiled(text)
    found = []
    for inputs in runs:
        wanted, got = outcome(lambda i=inputs: interpret.run(module, i)), outcome(lambda i=inputs: exe(*i))
        if isinstance(wanted, str) or isinstance(got, str):
            assert got == wanted
        else:
            same(got, wanted)
        found.append(got)
    return found


X = np.array([0.5, -1.0, 2.0], np.float32)
YES, NO = np.array(True), np.array(False)
FRUITS = [(Data(name), X) for name in ("Apple", "Pear", "Plum")]


def shared_by_two(made, first, second):
    """A match with three clauses: two need the value ``made``, one does not."""
    return f"""
def @main(%f: Fruit, %x: f32[3]) -> f32[3] {{
  {made}
  %9: f32[3] = match %f {{
    Apple() => {{ {first} }}
    Pear() => {{ {second} }}
    Plum() => {{ return %x }}
  }}
  %10: f32[3] = tanh(%9)
  return %10
}}
"""


def test_a_clause_that_needs_no_value_does_not_wait_for_it():
    text = shared_by_two("%1: f32[3] = @endless(%x)", "return %1", "%2: f32[3] = exp(%1) return %2")
    assert [isinstance(f, str) for f in both(FRUIT + ENDLESS + text, *FRUITS)] == [True, True, False]


def test_kernels_and_data_wait_too():
    made = "%1: f32[3] = exp(%x) %3: f32[3] = @twice(%1) %4: f32[3] = mul(%3, %1)"
    text = shared_by_two(made, "return %4", "%2: f32[3] = add(%1, %4) return %2")
    twice = """
def @twice(%x: f32[3]) -> f32[3] {
  %0: f32[] = reduce_sum(%x, axes=(0,), keepdims=false)
  %1: bool[] = less(%0, 100.0f32)
  %2: f32[3] = if %1 {
    %3: f32[3] = add(%x, %x)
    %4: f32[3] = @twice(%3)
    return %4
  } else { return %x }
  return %2
}
"""
    assert not any(isinstance(f, str) for f in both(FRUIT + twice + text, *FRUITS))


def test_the_end_of_a_function_may_be_shared():
    text = """
def @count(%f: Fruit, %n: f32[], %x: f32[3]) -> f32[3] {
  %0: f32[] = sub(%n, 1.0f32)
  %1: f32[3] = add(%x, 1.0f32)
  %2: bool[] = less(%n, 1.0f32)
  %3: f32[3] = @count(%f, %0, %1)
  %4: f32[3] = if %2 { return %x } else {
    %5: f32[3] = match %f {
      Apple() => { return %3 }
      Pear() => { return %3 }
      Plum() => { return %1 }
    }
    return %5
  }
  return %4
}
def @main(%f: Fruit, %n: f32[], %x: f32[3]) -> f32[3] {
  %0: f32[3] = @count(%f, %n, %x)
  return %0
}
"""
    both(FRUIT + text, *[(f, np.float32(n), x) for (f, x), n in itertools.product(FRUITS, (0, 1, 30))])
    _, exe = compiled(FRUIT + text)  # a call in tail position takes no memory
    assert np.array_equal(exe(Data("Pear"), np.float32(300_000), X * 0), np.full(3, 300_000, np.float32))


ONE_AFTER_THE_OTHER = """
def @f(%n: f32[], %a: bool[], %b: bool[], %x: f32[3]) -> f32[3] {
  %0: f32[] = sub(%n, 1.0f32)
  %1: bool[] = less(%n, 1.0f32)
  %2: f32[3] = if %1 { return %x } else {
    %3: f32[3] = @f(%0, %a, %b, %x)
    %4: f32[3] = if %a { %5: f32[3] = mul(%3, 0.5f32) return %5 } else { return %x }
    %6: f32[3] = if %b { %7: f32[3] = add(%3, %4) return %7 } else { return %4 }
    return %6
  }
  return %2
}
def @main(%n: f32[], %a: bool[], %b: bool[], %x: f32[3]) -> f32[3] {
  %0: f32[3] = @f(%n, %a, %b, %x)
  return %0
}
"""


def test_branches_one_after_the_other_compute_it_once():
    """60 levels, each of which uses the next one twice. If a level were computed more than once, the program would take
    2⁶⁰ steps."""
    both(ONE_AFTER_THE_OTHER, *[(np.float32(60), a, b, X) for a in (YES, NO) for b in (YES, NO)])


def test_values_with_blocks_of_their_own_wait():
    """A pending value that contains a branch, and a pending tuple of which each user takes another field."""
    text = (
        FRUIT
        + """
def @pair(%c: bool[], %n: f32[], %x: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[] = sub(%n, 1.0f32)
  %1: bool[] = less(%n, 1.0f32)
  %2: (f32[3], f32[3]) = if %1 {
    %3: f32[3] = exp(%x)
    %4: (f32[3], f32[3]) = (%3, %x)
    return %4
  } else {
    %5: (f32[3], f32[3]) = @pair(%c, %0, %x)
    %6: f32[3] = %5[0]
    %7: f32[3] = add(%6, 1.0f32)
    %8: (f32[3], f32[3]) = (%7, %6)
    return %8
  }
  return %2
}
def @main(%f: Fruit, %c: bool[], %x: f32[3]) -> f32[3] {
  %0: (f32[3], f32[3]) = if %c {
    %1: (f32[3], f32[3]) = @pair(%c, 3.0f32, %x)
    return %1
  } else {
    %2: f32[3] = neg(%x)
    %3: (f32[3], f32[3]) = (%2, %x)
    return %3
  }
  %4: f32[3] = %0[0]
  %5: f32[3] = %0[1]
  %6: f32[3] = match %f { Apple() => { return %4 } Pear() => { return %5 } Plum() => { return %x } }
  %7: f32[3] = match %f { Apple() => { return %x } Pear() => { return %4 } Plum() => { return %5 } }
  %8: f32[3] = mul(%6, %7)
  return %8
}
"""
    )
    both(text, *[(f, c, x) for f, x in FRUITS for c in (YES, NO)])


def test_loops_of_no_iterations_need_nothing():
    """What does not change in a loop is computed before it, unless it may not end."""
    text = (
        ENDLESS
        + """
def @main<n, i>(%k: f32[n, 3], %c: bool[], %x: f32[3]) -> f32[3] {
  %2 = fn(%h: f32[3]) {
    %3: f32[3] = @endless(%x)
    %4: f32[3] = tanh(%x)
    %5: f32[3] = if %c { %6: f32[3] = add(%3, %h) return %6 } else { %7: f32[3] = mul(%4, %h) return %7 }
    %8: (f32[3],) = (%5,)
    return %8
  }
  %9: (f32[3],) = loop[index=i, trips=n, count=n](%x) do %2
  %10: f32[3] = %9[0]
  return %10
}
"""
    )
    found = both(text, *[(np.zeros((n, 3), np.float32), c, X) for n in (0, 1, 3) for c in (YES, NO)])
    assert [isinstance(f, str) for f in found] == [False, False, True, False, True, False]


def test_pending_functions_capture_pending_values():
    text = (
        FRUIT
        + ENDLESS
        + """
def @apply(%g: fn(f32[3]) -> f32[3], %n: f32[], %x: f32[3]) -> f32[3] {
  %0: f32[] = sub(%n, 1.0f32)
  %1: bool[] = less(%n, 1.0f32)
  %2: f32[3] = if %1 { return %x } else {
    %3: f32[3] = %g(%x)
    %4: f32[3] = @apply(%g, %0, %3)
    return %4
  }
  return %2
}
def @main(%f: Fruit, %c: bool[], %x: f32[3]) -> f32[3] {
  %0: f32[3] = if %c { %1: f32[3] = @endless(%x) return %1 } else { %2: f32[3] = exp(%x) return %2 }
  %3 = fn(%a: f32[3]) { %4: f32[3] = add(%a, %0) return %4 }
  %5: f32[3] = match %f {
    Apple() => { %6: f32[3] = @apply(%3, 2.0f32, %x) return %6 }
    Pear() => { %7: f32[3] = @apply(%3, 3.0f32, %0) return %7 }
    Plum() => { return %x }
  }
  return %5
}
"""
    )
    found = both(text, *[(f, c, x) for f, x in FRUITS for c in (YES, NO)])
    assert [isinstance(f, str) for f in found] == [True, False, True, False, False, False]


def test_sizes_bound_by_pending_values():
    text = (
        FRUIT
        + """
type List { Nil(); Cons(f32[2], List) }
def @rows<m, k>(%xs: List) -> f32[m, 2] {
  %0: f32[m, 2] = match %xs {
    Nil() => { %1: f32[0, 2] = broadcast_to(0.0f32, shape=(0, 2)) return %1 }
    Cons(%x: f32[2], %rest: List) => {
      %2: f32[k, 2] = @rows(%rest)
      %3: f32[1, 2] = reshape(%x, shape=(1, 2))
      %4: f32[1 + k, 2] = concat(%3, %2, axis=0)
      return %4
    }
  }
  return %0
}
def @main<a>(%f: Fruit, %c: bool[], %xs: List, %x: f32[2]) -> f32[2] {
  %0: f32[a, 2] = @rows(%xs)
  %1: f32[2] = match %f {
    Apple() => { %2: f32[2] = reduce_sum(%0, axes=(0,), keepdims=false) return %2 }
    Pear() => { return %x }
    Plum() => { return %x }
  }
  %3: f32[2] = if %c {
    %4: f32[a, 2] = mul(%0, %x)
    %5: f32[2] = reduce_max(%4, axes=(0,), keepdims=false)
    return %5
  } else { return %1 }
  %6: f32[2] = add(%1, %3)
  return %6
}
"""
    )
    lists = [Data("Cons", (np.float32([n, -n]), Data("Cons", (np.float32([2, 3]), Data("Nil"))))) for n in range(2)]
    runs = itertools.product(("Apple", "Pear"), (YES, NO), lists)
    both(text, *[(Data(name), c, xs, np.float32([1, 2])) for name, c, xs in runs])


def test_a_program_without_branches_has_no_registers_for_it():
    from weft.runtime.program import SetSize

    _, exe = compiled("def @main(%x: f32[3]) -> f32[3] { %0: f32[3] = exp(%x) return %0 }")
    assert not any(isinstance(i, SetSize) for i in exe.artifact.program.instructions)
