"""Numbers of Python become elements with the same value, or an error: nothing wraps around, overflows or is cut off."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_artifacts import vector_program

import weft
from weft.runtime.arguments import Arguments
from weft.runtime.elements import EXTENDED, STANDARD, numpy_dtype
from weft.runtime.numbers import NotHeld, Unfit, number_array
from weft.runtime.values import pack
from weft.support.errors import InputError

EDGES = [
    s * (1 << b) + d
    for b in (0, 1, 3, 4, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 300)
    for d in (-1, 0, 1)
    for s in (1, -1)
]
NUMBERS = st.one_of(st.booleans(), st.sampled_from(EDGES), st.integers(), st.floats(), st.floats(width=16))
LISTS = st.one_of(
    NUMBERS, st.lists(NUMBERS, max_size=3), st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=2)
)


def flat(value: Any) -> list[Any]:
    return [x for item in value for x in flat(item)] if isinstance(value, list) else [value]


def is_integer(name: str) -> bool:
    return name.startswith(("int", "uint"))


@given(value=LISTS, name=st.sampled_from(sorted(STANDARD | EXTENDED)))
def test_values_are_kept_or_refused(value: Any, name: str) -> None:
    try:
        made = number_array(value, numpy_dtype(name), name)
    except Unfit:
        return
    if made.dtype != numpy_dtype(name):  # left to the caller, who refuses it
        return
    for x, y in zip(flat(value), made.reshape(-1), strict=True):
        if is_integer(name):
            assert int(x) == x == int(y)
        elif isinstance(x, int) and all(isinstance(other, int) for other in flat(value)):
            assert float(y) == x
        else:
            assert math.isfinite(x) == math.isfinite(float(y))


@pytest.mark.parametrize("name", sorted(STANDARD - {"bool"}))
def test_all_that_a_dtype_holds_is_accepted(name: str) -> None:
    limits: Any = np.iinfo(name) if is_integer(name) else np.finfo(name)
    for limit in (limits.min, limits.max):
        held = int(limit) if is_integer(name) else float(limit)
        assert number_array([held], np.dtype(name), name).tolist() == [held]
    if is_integer(name):
        for beyond in (int(limits.min) - 1, int(limits.max) + 1):
            with pytest.raises(NotHeld):
                number_array(beyond, np.dtype(name), name)


class Raises:
    def __repr__(self) -> str:  # names a test, and must be the same in all processes
        return "Raises"

    def __array__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("not today")


UNFIT: list[Any] = [Raises(), [[1], [1, 2]], "a", None, {}, {1}, [None], [Raises()], 1j]


def as_input(value: Any) -> Any:
    program = vector_program("f")
    spec = replace(program.inputs[0], dtype="int32")
    return Arguments(replace(program, inputs=(spec,))).convert(0, value)


def as_part_of_data(value: Any) -> Any:
    return pack(value, ("tensor", "int32", [-1]), {}, "x")


def as_tensor(value: Any) -> Any:
    return weft.nd.array(value, dtype="int32")


@pytest.mark.parametrize("call", [as_input, as_part_of_data, as_tensor])
@pytest.mark.parametrize("value", [*UNFIT, [1 << 63], [-(1 << 63) - 1], [1 << 31], 10**400, math.nan], ids=repr)
def test_wrong_values_are_errors_of_the_input(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InputError):
        call(value)


@pytest.mark.parametrize("value", [Raises(), [["a"], ["b", "c"]], [3]])
def test_wrong_strings_are_errors_of_the_input(value: Any) -> None:
    with pytest.raises(InputError):
        pack(value, ("tensor", "string", [-1]), {}, "x")
