"""Compiled functions, closures, algebraic data types and match, compared with the graph interpreter."""

from __future__ import annotations

import dataclasses
import gc
import threading

import numpy as np
import pytest
from function_programs import HIGHER_ORDER, LIST, MAP, TREE, agree, compiled, floats, length, list_of, tree

import weft
from weft.graph.interpret import run
from weft.graph.parser import parse
from weft.graph.text import to_text
from weft.graph.verify import verify
from weft.ops.catalogue import OPERATORS
from weft.runtime import _native
from weft.runtime.program import Allocate, Invoke
from weft.support.data import Data
from weft.support.errors import ArtifactError, InputError, ModelError, UserError


def test_a_recursion_over_trees():
    module, exe = compiled(TREE)
    for depth in (0, 1, 6):
        agree(module, exe, tree(depth), floats(4, 4))
    assert any(isinstance(i, Invoke) for i in exe.artifact.program.instructions)
    assert not any(
        isinstance(i, Allocate) for i in exe.artifact.program.instructions
    )  # what is local lies in the arena


def test_functions_as_arguments_capture_tensors_and_sizes():
    module, exe = compiled(HIGHER_ORDER)
    for n in (1, 5):
        for count in (0, 1, 7):
            agree(module, exe, list_of(*(floats(n, seed=i) for i in range(count))), floats(n, seed=99))


def test_a_parameter_that_only_an_inner_function_reads():
    module, exe = compiled(
        MAP
        + """
def @main<n>(%xs: List<f32[n]>, %w: f32[n], %v: f32[n]) -> List<f32[n]> {
  %0 = fn(%x: f32[n]) {
    %1 = fn(%y: f32[n]) {
      %2: f32[n] = mul(%y, %v)
      %3: f32[n] = add(%2, %w)
      return %3
    }
    %4: f32[n] = %1(%x)
    %5: List<f32[n]> = List<f32[n]>::Nil()
    %6: List<f32[n]> = List<f32[n]>::Cons(%4, %5)
    %7: List<f32[n]> = @map(%1, %6)
    %8: f32[n] = match %7 {
      Nil() => { return %x }
      Cons(%h: f32[n], _) => { return %h }
    }
    return %8
  }
  %9: List<f32[n]> = @map(%0, %xs)
  return %9
}
"""
    )
    agree(module, exe, list_of(floats(3), floats(3, seed=1)), floats(3, seed=2), floats(3, seed=3))


def test_inputs_keep_their_names_in_text():
    module = parse(
        HIGHER_ORDER.replace("@main<n>(%xs", "@main<n>(%f").replace("@map(%1, %xs)", "@map(%1, %f)"), OPERATORS
    )
    assert [p.name for p in parse(to_text(module), OPERATORS).main.params] == ["f", "c"]


def test_sizes_in_data_are_checked():
    _, exe = compiled(HIGHER_ORDER)
    with pytest.raises(InputError, match="dimension 0"):
        exe(list_of(floats(3), floats(4)), floats(3))


def test_a_call_in_tail_position_takes_no_room():
    module, exe = compiled(
        MAP
        + """
def @main<n>(%xs: List<f32[n]>, %c: f32[n]) -> f32[n] {
  %0 = fn(%a: f32[n], %b: f32[n]) {
    %1: f32[n] = add(%a, %b)
    return %1
  }
  %2: f32[n] = @foldl(%0, %c, %xs)
  return %2
}
"""
    )
    many = list_of(*[np.ones(2, np.float32)] * 300_000)
    np.testing.assert_array_equal(exe(many, np.zeros(2, np.float32)), [300_000] * 2)
    agree(module, exe, list_of(floats(2), floats(2, seed=1)), floats(2))


def test_deep_recursion_uses_no_stack_of_the_thread():
    _, exe = compiled(HIGHER_ORDER)
    made, _ = exe(list_of(*[np.ones(2, np.float32)] * 100_000), np.zeros(2, np.float32))
    assert length(made) == 100_000


ENDLESS = """
def @loop(%x: f32[4]) -> f32[4] {
  %0: f32[4] = exp(%x)
  %1: f32[4] = @loop(%0)
  %2: f32[4] = add(%1, %0)
  return %2
}
def @main(%x: f32[4]) -> f32[4] {
  %0: f32[4] = @loop(%x)
  return %0
}
"""


def blocks():
    gc.collect()
    return _native.allocated_blocks()


def test_recursion_without_end_is_an_error_that_costs_nothing():
    _, exe = compiled(ENDLESS)
    before = blocks()
    for _ in range(2):
        with pytest.raises(UserError, match="recursion of '@loop' goes too deep") as caught:
            exe(floats(4))
        assert caught.value.code == "I008"
    assert blocks() <= before + 1  # the arena


def test_a_program_frees_all_that_it_allocates():
    _, exe = compiled(HIGHER_ORDER)
    args = list_of(*(floats(3, seed=i) for i in range(20))), floats(3)
    exe(*args)
    before = blocks()
    for _ in range(5):
        made = exe(*args)
    assert blocks() > before  # the outputs are there
    del made
    assert blocks() == before
    bad = list_of(*(floats(3) for _ in range(5)), floats(4))
    for _ in range(3):
        with pytest.raises(InputError):
            exe(bad, floats(3))
    assert blocks() == before


def test_functions_call_each_other():
    module, exe = compiled(
        LIST
        + """
def @even(%xs: List<f32[2]>, %a: f32[2]) -> f32[2] {
  %0: f32[2] = match %xs {
    Nil() => { return %a }
    Cons(%x: f32[2], %rest: List<f32[2]>) => {
      %1: f32[2] = add(%a, %x)
      %2: f32[2] = @odd(%rest, %1)
      %3: f32[2] = exp(%1)
      %4: f32[2] = sub(%2, %3)
      return %4
    }
  }
  return %0
}
def @odd(%xs: List<f32[2]>, %a: f32[2]) -> f32[2] {
  %0: f32[2] = match %xs {
    Nil() => {
      %1: f32[2] = neg(%a)
      return %1
    }
    Cons(%x: f32[2], %rest: List<f32[2]>) => {
      %2: f32[2] = mul(%a, %x)
      %3: f32[2] = @even(%rest, %2)
      return %3
    }
  }
  return %0
}
def @main(%xs: List<f32[2]>, %a: f32[2]) -> f32[2] {
  %0: f32[2] = @even(%xs, %a)
  return %0
}
"""
    )
    for count in range(6):
        agree(module, exe, list_of(*(floats(2, seed=i) for i in range(count))), floats(2))


def test_functions_that_make_functions():
    module, exe = compiled(
        """
def @compose(%f: fn(f32[3]) -> f32[3], %g: fn(f32[3]) -> f32[3]) -> fn(f32[3]) -> f32[3] {
  %0 = fn(%x: f32[3]) {
    %1: f32[3] = %g(%x)
    %2: f32[3] = %f(%1)
    return %2
  }
  return %0
}
def @power(%f: fn(f32[3]) -> f32[3], %again: bool[]) -> fn(f32[3]) -> f32[3] {
  %0: fn(f32[3]) -> f32[3] = if %again {
    %1: fn(f32[3]) -> f32[3] = @compose(%f, %f)
    %2: fn(f32[3]) -> f32[3] = @power(%1, false)
    return %2
  } else {
    return %f
  }
  return %0
}
def @main(%x: f32[3], %c: bool[]) -> f32[3] {
  %0 = fn(%y: f32[3]) {
    %1: f32[3] = sin(%y)
    return %1
  }
  %2: fn(f32[3]) -> f32[3] = @power(%0, %c)
  %3: f32[3] = %2(%x)
  return %3
}
"""
    )
    for c in (True, False):
        agree(module, exe, floats(3), np.array(c))


def test_constructors_and_functions_of_the_module_are_values():
    module, exe = compiled(
        LIST
        + """
def @twice(%x: f32[2]) -> f32[2] {
  %0: f32[2] = add(%x, %x)
  return %0
}
def @apply(%f: fn(f32[2]) -> f32[2], %n: i64[], %x: f32[2]) -> f32[2] {
  %0: bool[] = less(%n, 1i64)
  %1: f32[2] = if %0 {
    return %x
  } else {
    %2: i64[] = sub(%n, 1i64)
    %3: f32[2] = %f(%x)
    %4: f32[2] = @apply(%f, %2, %3)
    return %4
  }
  return %1
}
def @make(%c: fn(f32[2], List<f32[2]>) -> List<f32[2]>, %n: i64[], %x: f32[2]) -> List<f32[2]> {
  %0: bool[] = less(%n, 1i64)
  %1: List<f32[2]> = if %0 {
    %2: List<f32[2]> = List<f32[2]>::Nil()
    return %2
  } else {
    %3: i64[] = sub(%n, 1i64)
    %4: List<f32[2]> = @make(%c, %3, %x)
    %5: List<f32[2]> = %c(%x, %4)
    return %5
  }
  return %1
}
def @main(%n: i64[], %x: f32[2]) -> (f32[2], List<f32[2]>) {
  %0: f32[2] = @apply(@twice, %n, %x)
  %1: List<f32[2]> = @make(List<f32[2]>::Cons, %n, %0)
  %2: (f32[2], List<f32[2]>) = (%0, %1)
  return %2
}
"""
    )
    for n in (0, 1, 4):
        agree(module, exe, np.array(n), floats(2))


def test_nested_patterns_tuples_and_whole_values():
    module, exe = compiled(
        """
type Pair { Pair((f32[2], f32[2]), Maybe) }
type Maybe { None_(); Some(Pair) }
def @go(%p: Pair) -> f32[2] {
  %0: f32[2] = match %p {
    Pair(%t: (f32[2], f32[2]), Some(%inner: Pair = Pair(%u: (f32[2], f32[2]), None_()))) => {
      %1: f32[2] = %t[0]
      %2: f32[2] = %u[1]
      %3: f32[2] = sub(%1, %2)
      %4: f32[2] = @go(%inner)
      %5: f32[2] = mul(%3, %4)
      return %5
    }
    Pair(%v: (f32[2], f32[2]), Some(%next: Pair)) => {
      %6: f32[2] = @go(%next)
      %7: f32[2] = %v[1]
      %8: f32[2] = add(%6, %7)
      return %8
    }
    Pair(%w: (f32[2], f32[2]), _) => {
      %9: f32[2] = %w[0]
      return %9
    }
  }
  return %0
}
def @main(%p: Pair) -> (f32[2], Pair) {
  %0: f32[2] = @go(%p)
  %1: (f32[2], Pair) = (%0, %p)
  return %1
}
"""
    )
    value = Data("None_")
    for i in range(5):
        pair = Data("Pair", ((floats(2, seed=i), floats(2, seed=10 + i)), value))
        agree(module, exe, pair)
        value = Data("Some", (pair,))


FILTER = (
    LIST
    + """
def @join<n>(%xs: List<f32[n]>) -> f32[m] {
  %0: f32[m] = match %xs {
    Nil() => {
      %1: f32[0] = f32[0]("empty")
      return %1
    }
    Cons(%x: f32[k], %rest: List<f32[n]>) => {
      let %tail: f32[r] = @join(%rest)
      %2: f32[k + r] = concat(%x, %tail, axis=0)
      return %2
    }
  }
  return %0
}
def @main<n, m, k, r>(%xs: List<f32[n]>) -> f32[n] {
  let %whole: f32[m] = @join(%xs)
  %0: f32[m] = add(%whole, 1.0f32)
  return %0
}
"""
)


@pytest.mark.filterwarnings("ignore:.*made up")
def test_results_of_a_size_that_only_the_run_tells():
    text = FILTER.replace("def @join<n>", "def @join<n, m, k, r>")
    module = parse(text, OPERATORS)
    verify(module)
    exe = weft.compile(module, threads=1)
    for sizes in ((), (3,), (2, 0, 5), (1, 1, 1, 4)):
        items = list_of(*(floats(s, seed=i) for i, s in enumerate(sizes)))
        got = exe(items)
        whole = np.concatenate([np.zeros(0, np.float32), *(floats(s, seed=i) for i, s in enumerate(sizes))])
        np.testing.assert_allclose(got, whole + 1, rtol=1e-6)


def test_the_entry_may_call_itself():
    module, exe = compiled(
        """
def @main(%x: f32[4], %n: i64[]) -> f32[4] {
  %0: bool[] = less(%n, 1i64)
  %1: f32[4] = if %0 {
    return %x
  } else {
    %2: i64[] = sub(%n, 1i64)
    %3: f32[4] = cos(%x)
    %4: f32[4] = @main(%3, %2)
    %5: f32[4] = sub(%4, %x)
    return %5
  }
  return %1
}
"""
    )
    for n in (0, 1, 5):
        agree(module, exe, floats(4), np.array(n))


def test_requirements_of_operators_are_checked_in_functions():
    _, exe = compiled(
        LIST
        + """
def @sum<n, k>(%xs: List<f32[n]>, %a: f32[k]) -> f32[k] {
  %0: f32[k] = match %xs {
    Nil() => { return %a }
    Cons(%x: f32[n], %rest: List<f32[n]>) => {
      %1: f32[k] = add(%a, %x)
      %2: f32[k] = @sum(%rest, %1)
      return %2
    }
  }
  return %0
}
def @main<n, k>(%xs: List<f32[n]>, %a: f32[k]) -> f32[k] {
  %0: f32[k] = @sum(%xs, %a)
  return %0
}
"""
    )
    np.testing.assert_allclose(exe(list_of(floats(3), floats(3)), floats(3)), 3 * floats(3), rtol=1e-6)
    with pytest.raises(InputError):
        exe(list_of(floats(3)), floats(4))


def test_data_in_the_state_of_a_loop():
    module, exe = compiled(
        LIST
        + """
def @main<i>(%n: i64[1], %x: f32[2]) -> List<f32[2]> {
  %nil: List<f32[2]> = List<f32[2]>::Nil()
  %1 = fn(%s: List<f32[2]>, %y: f32[2]) {
    %2: f32[2] = sin(%y)
    %3: List<f32[2]> = List<f32[2]>::Cons(%2, %s)
    %4: (List<f32[2]>, f32[2]) = (%3, %2)
    return %4
  }
  %5: (List<f32[2]>, f32[2]) = loop[index=i, trips=5, count=5](%nil, %x) do %1
  %6: List<f32[2]> = %5[0]
  return %6
}
""".replace("%n: i64[1], ", "")
    )
    assert length(agree(module, exe, floats(2))) == 5


def test_shared_values_are_not_copied():
    _, exe = compiled(
        """
type Tree { Leaf(f32[1]); Node(Tree, Tree) }
def @double(%t: Tree, %n: i64[]) -> Tree {
  %0: bool[] = less(%n, 1i64)
  %1: Tree = if %0 {
    return %t
  } else {
    %2: i64[] = sub(%n, 1i64)
    %3: Tree = Tree::Node(%t, %t)
    %4: Tree = @double(%3, %2)
    return %4
  }
  return %1
}
def @main(%t: Tree, %n: i64[]) -> Tree {
  %0: Tree = @double(%t, %n)
  return %0
}
"""
    )
    made = exe(Data("Leaf", (floats(1),)), np.array(200))  # 2**200 leaves, written out
    depth = 0
    while made.constructor == "Node":
        assert made.fields[0] is made.fields[1]
        made, depth = made.fields[0], depth + 1
    assert depth == 200
    again = exe(exe(Data("Leaf", (floats(1),)), np.array(100)), np.array(100))
    assert again.fields[0] is again.fields[1]


def test_a_saved_program_runs_the_same(tmp_path):
    module, exe = compiled(HIGHER_ORDER)
    exe.save(tmp_path / "list.weft")
    loaded = weft.load_executable(tmp_path / "list.weft")
    assert loaded.artifact.program == exe.artifact.program
    agree(module, loaded, list_of(floats(2), floats(2, seed=1)), floats(2))


def test_several_threads_at_once():
    module, exe = compiled(TREE)
    inputs = [(tree(5, seed), floats(4, 4, seed=seed)) for seed in range(4)]
    wanted = [run(module, given) for given in inputs]
    wrong = []

    def work(which):
        for _ in range(20):
            if not np.allclose(exe(*inputs[which]), wanted[which], rtol=1e-5, atol=1e-5):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize(
    "value, message",
    [
        (3.0, "must be Tree, not a float"),
        (Data("Twig"), "must be Tree, not a Twig"),
        (Data("Leaf", (floats(1, 4), floats(1))), "Leaf takes 1 fields, not 2"),
        (Data("Leaf", (floats(1, 5),)), r"must be float32\[1, 4\], not float32\[1, 5\]"),
        (Data("Leaf", (floats(1, 4).astype(np.float64),)), "not float64"),
        (Data("Leaf", (Data("Leaf", (floats(1, 4),)),)), "must be float32"),
        (Data("Node", (Data("Leaf", (floats(1, 4),)), None)), "not a NoneType"),
    ],
)
def test_values_that_do_not_fit(value, message):
    _, exe = compiled(TREE)
    with pytest.raises(InputError, match=message):
        exe(value, floats(4, 4))


def test_no_memory_is_given_for_data():
    _, exe = compiled(HIGHER_ORDER)
    with pytest.raises(InputError, match="takes no memory"):
        exe(list_of(), floats(2), out=(np.zeros(2), np.zeros(2, np.float32)))


def test_functions_do_not_cross_the_border():
    text = """
def @main(%f: fn(f32[2]) -> f32[2], %x: f32[2]) -> f32[2] {
  %0: f32[2] = %f(%x)
  return %0
}
"""
    with pytest.raises(ModelError, match="takes the input 'f'") as caught:
        weft.compile(parse(text, OPERATORS))
    assert caught.value.code == "M020"


TYPES = [
    {},
    {"Tree": {}},
    {"Tree": []},
    {"Tree": {"Leaf": [["tensor", "float32", [1, 4]]], "Node": [["data", "Bush"], ["data", "Tree"]]}},
    {"Tree": {"Leaf": [["tensor", "float33", [1, 4]]], "Node": []}},
    {"Tree": {"Leaf": [["tensor", "float32", ["n", 4]]], "Node": []}},
    {"Tree": {"Leaf": [["tensor", "float32"]], "Node": []}},
    {"Tree": {"Leaf": [[]], "Node": [["data"]]}},
    {"Tree": {"Leaf": "tensor", "Node": 3}},
    {"Tree": {"Leaf": [["tuple", [["tuple", 3]]]], "Node": []}},
    {"Tree": {"Leaf": [["nothing"]], "Node": []}},
    {"Tree": None},
]


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_types_of_a_changed_file_are_checked_when_it_is_loaded(types):
    _, exe = compiled(TREE)
    assert weft.Executable(exe.artifact)(tree(2), floats(4, 4)) is not None
    artifact = dataclasses.replace(exe.artifact, program=dataclasses.replace(exe.artifact.program, types=types))
    if types == {"Tree": {}}:  # a type without constructors has no values
        with pytest.raises(InputError, match="must be Tree"):
            weft.Executable(artifact)(tree(2), floats(4, 4))
    else:
        with pytest.raises(ArtifactError) as refusal:
            weft.Executable(artifact)
        assert refusal.value.code == "A010"


def test_deep_tuples_of_a_changed_file_are_refused():
    field = ["tensor", "float32", [1, 4]]
    for _ in range(500):
        field = ["tuple", [field]]
    _, exe = compiled(TREE)
    program = dataclasses.replace(exe.artifact.program, types={"Tree": {"Leaf": [field], "Node": []}})
    with pytest.raises(ArtifactError):
        weft.Executable(dataclasses.replace(exe.artifact, program=program))


def test_results_of_a_changed_file_that_are_not_of_their_type():
    _, exe = compiled(MAP + "def @main<n>(%xs: List<f32[n]>, %w: f32[n]) -> List<f32[n]> {\n  return %xs\n}\n")
    given, (name,) = list_of(floats(3), floats(3, seed=1)), exe.artifact.program.types
    cons = exe.artifact.program.types[name]["Cons"]
    for constructors in ({"Nil": [], "Cons": []}, {"Nil": []}, {"Nil": [], "Cons": [*cons, *cons]}):
        program = dataclasses.replace(exe.artifact.program, types={name: constructors})
        changed = weft.Executable(dataclasses.replace(exe.artifact, program=program))
        with pytest.raises((ArtifactError, InputError)):
            changed(given, floats(3))
        value = exe._arguments.convert(0, given)  # what was packed by the right types
        with pytest.raises(ArtifactError, match="not of its type"):
            changed._arguments.results((value,))
