"""The reference interpreter: results and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.support.errors import InputError, ProgramError
from weft.tir.interpret import Interpreter, execute, run
from weft.tir.text import parse

X8 = np.arange(8, dtype=np.float32)


def wrapped(body: str, declarations: str = "", out: str = "f32[8]", inputs: str = "A: f32[8]") -> str:
    lines = [f'program "p"({inputs}) -> (B: {out}):']
    lines += ["  " + line for line in declarations.splitlines() if line]
    lines += ["  " + line for line in body.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def judge(body: str, *arrays: Any, **how: Any) -> Any:
    return run(parse(wrapped(body, **how)), list(arrays) or [X8])[0]


def refused(body: str, **how: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        judge(body, **how)
    return str(caught.value)


def test_serial_copy() -> None:
    np.testing.assert_array_equal(judge("for i in serial(0, 8):\n  B[i] = A[7 - i]"), X8[::-1])


def test_vectors_masks_and_shuffles() -> None:
    body = """
for i in serial(0, 2):
  B[ramp(i * 4, 1, 4)] = A[ramp(i * 4 + 3, -1, 4)] + broadcast(1.0, 4)
B[ramp(0, 2, 4); ramp(0, 1, 4) < broadcast(2, 4)] = shuffle(A[ramp(0, 1, 4)], A[ramp(4, 1, 4)], [7, 0, 1, 2])
"""
    want = np.array([7, 3, 0, 1, 8, 7, 6, 5], np.float32)
    np.testing.assert_array_equal(judge(body), want)


def test_masked_loads_give_zero_and_do_not_touch_memory() -> None:
    body = "B[ramp(0, 1, 8)] = A[ramp(4, 1, 8); ramp(4, 1, 8) < broadcast(8, 8)]"
    np.testing.assert_array_equal(judge(body), np.r_[X8[4:], np.zeros(4, np.float32)])


def test_select_guards_each_lane() -> None:
    body = "B[ramp(0, 1, 8)] = select(ramp(0, 1, 8) < broadcast(4, 8), A[ramp(4, 1, 8)], broadcast(-1.0, 8))"
    np.testing.assert_array_equal(judge(body), np.r_[X8[4:], -np.ones(4, np.float32)])


def test_lets_allocations_and_branches() -> None:
    body = """
allocate T: f32[8] register
for i in serial(0, 8):
  let x = A[i] * 2.0
  if i < 3:
    T[i] = x
  else:
    T[i] = 0.0 - x
for i in serial(0, 8):
  B[i] = T[i]
"""
    np.testing.assert_array_equal(judge(body), np.where(np.arange(8) < 3, X8 * 2, -X8 * 2))


def test_threads_meet_at_barriers() -> None:
    """Each thread reads what another has written before the barrier."""
    body = """
for b in thread("blockIdx.x", 0, 2):
  for t in thread("threadIdx.x", 0, 4):
    S[t] = A[b * 4 + t]
    barrier shared
    for k in serial(0, 2):
      let x = S[(t + 1) % 4]
      barrier shared
      S[t] = x
      barrier shared
    B[b * 4 + t] = S[t]
"""
    got = judge(body, declarations="alloc S: f32[4] shared")
    np.testing.assert_array_equal(got, np.r_[np.roll(X8[:4], -2), np.roll(X8[4:], -2)])


def test_barriers_in_two_thread_axes() -> None:
    body = """
for x in thread("threadIdx.x", 0, 2):
  for y in thread("threadIdx.y", 0, 4):
    S[x * 4 + y] = A[x * 4 + y]
    barrier shared
    B[x * 4 + y] = S[7 - (x * 4 + y)]
"""
    np.testing.assert_array_equal(judge(body, declarations="alloc S: f32[8] shared"), X8[::-1])


def test_threads_that_miss_a_barrier() -> None:
    body = 'for t in thread("threadIdx.x", 0, 8):\n  if t < 3:\n    barrier shared\n  B[t] = A[t]'
    assert "V915" in refused(body) and "3 of 8" in refused(body)


def test_local_memory_is_private_to_threads() -> None:
    body = """
for t in thread("threadIdx.x", 0, 8):
  T[0] = A[t]
  barrier shared
  B[t] = T[0]
"""
    np.testing.assert_array_equal(judge(body, declarations="alloc T: f32[1] local"), X8)


def test_local_memory_is_undefined_again_in_each_parallel_iteration() -> None:
    body = "for t in parallel(0, 8):\n  if t == 0:\n    T[0] = 1.0\n  B[t] = T[0]"
    assert "V912" in refused(body, declarations="alloc T: f32[1] local")


def test_more_loops_than_one_python_function_can_hold() -> None:
    lines, indent = [], ""
    for i in range(30):
        lines.append(f"{indent}for i{i} in serial(0, 1):")
        indent += "  "
    lines.append(f"{indent}for j in serial(0, 8):")
    lines.append(f"{indent}  B[j + i29] = A[j + i0]")
    np.testing.assert_array_equal(judge("\n".join(lines)), X8)


def test_shared_parts_of_expressions_are_computed_once() -> None:
    lines = ["for i in serial(0, 8):", "  let x0 = A[i]"]
    for k in range(1, 40):
        lines.append(f"  let x{k} = x{k - 1} + x{k - 1}")
    lines.append("  B[i] = x39")
    np.testing.assert_array_equal(judge("\n".join(lines)), X8 * 2.0**39)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("for i in serial(0, 9):\n  B[i] = 1.0", "V911", "B[8] is written out of bounds; the shape is [8]"),
        ("for i in serial(0, 8):\n  B[i] = A[i - 1]", "V910", "A[-1] is read out of bounds; the shape is [8]"),
        ("for i in serial(0, 7):\n  B[i] = 1.0", "V916", "the output B[7] was never written"),
        ("for i in serial(0, 8):\n  B[i] = B[7 - i]", "V912", "B[7] is read but was never written"),
        ("for i in serial(0, 8):\n  B[i % (i - i)] = 1.0", "V914", "'p' divides an integer by zero"),
    ],
)
def test_refuses(body: str, code: str, message: str) -> None:
    text = refused(body)
    assert text.startswith(f"error[{code}] {message}")


def test_a_block_outside_its_domain() -> None:
    body = 'for i in serial(0, 9):\n  block "C"(x: spatial 8 = i):\n    writes B[x]\n    body:\n      B[x] = 1.0'
    text = refused(body)
    assert text == "error[V913] iteration variable 'x' is 8, outside its domain\n --> node block C"


def test_guard_keeps_a_block_inside() -> None:
    body = (
        "for i in serial(0, 3):\n  for j in serial(0, 3):\n"
        '    block "C"(x: spatial 8 = i * 3 + j):\n      where i * 3 + j < 8\n      body:\n        B[x] = A[x]'
    )
    np.testing.assert_array_equal(judge(body), X8)


REDUCE = """
for i in serial(0, 8):
  for k in serial(0, 4):
    block "C"(x: spatial 8 = i, r: reduce 4 from 1 = k + 1):
      init:
        B[x] = 0.0
      body:
        B[x] = B[x] + A[x] * f32(r)
"""


def test_init_runs_at_the_start_of_the_reduction() -> None:
    np.testing.assert_array_equal(judge(REDUCE), X8 * 10)


def test_counts_block_instances() -> None:
    counts = execute(parse(wrapped(REDUCE)), [X8]).counts["C"]
    assert len(counts) == 32 and set(counts.values()) == {1}


@pytest.mark.parametrize("order", ["backward", "shuffled"])
def test_order_shows_races(order: Any) -> None:
    racy = parse(wrapped("for i in parallel(0, 8):\n  B[0] = A[i]\nfor i in serial(1, 7):\n  B[i] = 0.0"))
    assert run(racy, [X8])[0][0] == 7 != run(racy, [X8], order=order)[0][0]


@pytest.mark.parametrize(
    ("body", "meet"),
    [
        ("for i in parallel(0, 8):\n  B[i] = A[i]", None),
        ("for i in parallel(0, 8):\n  allocate T: f32[1]\n  T[0] = A[i]\n  B[i] = T[0]", None),
        ("for j in serial(0, 2):\n  for i in parallel(0, 8):\n    B[(i + j) % 8] = A[i]", None),
        ("allocate T: f32[1]\nfor i in parallel(0, 8):\n  T[0] = A[i]\n  B[i] = T[0]", "element 0 of 'T'"),
        ("B[7] = 0.0\nfor i in parallel(0, 7):\n  B[i] = B[7] + A[i]", None),
        ("B[7] = 0.0\nfor i in parallel(0, 8):\n  B[i] = B[7] + A[i]", "element 7 of 'B'"),
        ("for i in parallel(0, 8):\n  B[i // 2 + 4] = A[i]\n  B[i // 2] = A[i]", "element 4 of 'B'"),
    ],
)
def test_races_are_found(body: str, meet: str | None) -> None:
    machine = Interpreter(parse(wrapped(body)), races=True)
    if meet is None:
        machine.run([X8])
        return
    with pytest.raises(ProgramError, match=meet) as caught:
        machine.run([X8])
    assert caught.value.code == "V917"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint64", "int64", "int4"])
def test_integers_wrap_around(dtype: str) -> None:
    short = np.dtype(dtype).name.replace("uint", "u").replace("int", "i")
    rng = np.random.default_rng(3)
    x = rng.integers(-(2**62), 2**62, 8).astype(dtype)
    with np.errstate(over="ignore"):
        want = np.array([a * b for a, b in zip(x, x[::-1], strict=True)]).astype(dtype)
    made = {"out": f"{short}[8]", "inputs": f"A: {short}[8]"}
    np.testing.assert_array_equal(judge("for i in serial(0, 8):\n  B[i] = A[i] * A[7 - i]", x, **made), want)


def test_division_rounds_as_documented() -> None:
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    made = {"out": "i32[4, 4]", "inputs": "A: i32[4], D: i32[4]"}
    body = """
for i in serial(0, 4):
  B[0, i] = A[i] // D[i]
  B[1, i] = A[i] % D[i]
  B[2, i] = truncdiv(A[i], D[i])
  B[3, i] = truncmod(A[i], D[i])
"""
    got = judge(body, a, b, **made)
    np.testing.assert_array_equal(got, [[3, -4, -4, 3], [1, 1, -1, -1], [3, -3, -3, 3], [1, -1, 1, -1]])


def test_not_a_number_wins_minimum_and_maximum() -> None:
    nan = np.float32("nan")
    x = np.array([nan, 1, nan, 2], np.float32)
    made = {"out": "f32[2, 4]", "inputs": "A: f32[4]"}
    got = judge("for i in serial(0, 4):\n  B[0, i] = min(A[i], 1.5)\n  B[1, i] = max(1.5, A[i])", x, **made)
    np.testing.assert_array_equal(got, [[nan, 1, nan, 1.5], [nan, 1.5, nan, 2]])


def test_sizes_come_from_shapes_or_by_name() -> None:
    program = parse(
        'program "p"[n, m](A: f32[n, 2]) -> (B: f32[m]):\n  for i in serial(0, m):\n    B[i] = A[i % n, 1]\n'
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(run(program, [x], {"m": 4})[0], [1, 3, 5, 1])
    with pytest.raises(InputError, match="the size 'm'"):
        run(program, [x])
    with pytest.raises(InputError, match="no size called 'q'"):
        run(program, [x], {"q": 1})


def test_inputs_must_fit() -> None:
    ready = Interpreter(parse(wrapped("for i in serial(0, 8):\n  B[i] = A[i]")))
    with pytest.raises(InputError, match="is float32, not float64"):
        ready.run([X8.astype(np.float64)])
    with pytest.raises(InputError, match=r"has the shape \[8\], not \[7\]"):
        ready.run([X8[:7]])
    with pytest.raises(InputError, match="takes 1 inputs, not 0"):
        ready.run([])
