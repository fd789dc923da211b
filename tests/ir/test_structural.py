"""Structural equality and hash."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from weft.expr.nodes import Const, Expr, Load, Var
from weft.graph import nodes as graph
from weft.graph.types import TensorType
from weft.ir.frozen import FrozenMap
from weft.ir.structural import structural_equal, structural_hash
from weft.tir.nodes import Buffer, For, Program, Store, seq


def program(
    loop: str = "i", buffer: str = "A", extent: int = 8, dtype: str = "float32", twice: bool = False, note: int = 1
) -> Program:
    i = Var(loop)
    a, b = Buffer(buffer, (Const(extent),), dtype), Buffer("B", (Const(extent),), dtype)
    store = Store(b, (i,), Load(a, (i,)) + Load(a, (i,)))
    again = store if twice else Store(b, (i,), Load(a, (i,)) + Load(a, (i,)))
    loop_ = For(i, Const(0), Const(extent), seq(store, again), annotations=FrozenMap(x=note))
    return Program("p", (a, b), loop_)


def test_names_of_variables_and_buffers_do_not_count() -> None:
    one, two = program(), program("k", "input")
    assert structural_equal(one, two)
    assert structural_hash(one) == structural_hash(two)
    assert not structural_equal(one, two, names=True)


def test_statements_that_are_one_object_equal_two_alike() -> None:
    assert structural_equal(program(twice=True), program())


@pytest.mark.parametrize("change", [{"extent": 9}, {"dtype": "float16"}, {"note": 2}])
def test_everything_else_counts(change: dict[str, object]) -> None:
    one, two = program(), program(**change)  # type: ignore[arg-type]
    assert not structural_equal(one, two)
    assert structural_hash(one) != structural_hash(two)


def test_variables_must_correspond_one_to_one() -> None:
    i, j = Var("i"), Var("j")
    assert structural_equal(i + j, j + i)
    assert not structural_equal(i + j, i + i)
    assert not structural_equal((i + j, i), (i + j, j))


def test_plain_values_keep_apart() -> None:
    values = [1, 1.0, True, "1", b"1", None, (1,), ((1,),), [], {}, np.float32(1), np.ones(1), 0.0, -0.0, "", {"a": 1}]
    hashes = [structural_hash(v) for v in values]
    assert len(set(hashes)) == len(values)


def test_arrays_compare_by_content_dtype_and_shape() -> None:
    a = np.arange(6, dtype=np.float32)
    assert structural_equal(a, a.copy())
    assert not structural_equal(a, a.reshape(2, 3))
    assert not structural_equal(a, a.astype(np.float64))
    assert structural_equal(a.reshape(2, 3).T, np.ascontiguousarray(a.reshape(2, 3).T))


def test_graph_nodes_share_and_their_origin_does_not_count() -> None:
    kind = TensorType.of((2,), "float32")
    x, y = graph.Var("x", kind), graph.Var("y", kind)
    assert structural_equal(graph.Function((x,), x), graph.Function((y,), graph.Var("y", kind))) is False
    assert structural_equal(graph.Function((x,), x), graph.Function((y,), y))
    one = graph.Constant(np.ones(2, np.float32), graph.Origin(("somewhere",)))
    assert structural_equal(one, graph.Constant(np.ones(2, np.float32)))


def test_deep_expressions() -> None:
    i, j = Var("i"), Var("j")
    a: Expr = i
    b: Expr = j
    for k in range(5000):
        a, b = a + k, b + k
    assert structural_equal(a, b)


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/ir'); from test_structural import program;"
        "from weft.ir.structural import structural_hash; print(structural_hash(program('other')))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == structural_hash(program())
