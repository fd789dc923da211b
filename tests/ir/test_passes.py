"""The pass framework and its instruments, on programs that are plain strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from weft.ir.passes import Verify, run_passes
from weft.support.errors import InternalError, ModelError


@dataclass(frozen=True)
class Append:
    suffix: str
    name: str = "append"

    def run(self, program: str) -> str:
        return program + self.suffix


@dataclass(frozen=True)
class Calls:
    """A plain function as a pass."""

    name: str
    run: Callable[[str], str]


def _refuse_b(program: str) -> None:
    if "b" in program:
        raise ValueError("there is a b")


class _Names:
    """An instrument that notes which passes ran."""

    def __init__(self) -> None:
        self.before_each: list[str] = []
        self.after_each: list[tuple[str, str]] = []

    def before(self, step: Append, program: str) -> None:
        self.before_each.append(step.name)

    def after(self, step: Append, before: str, after: str) -> None:
        self.after_each.append((before, after))


def test_passes_run_in_order_and_instruments_look_on() -> None:
    seen = _Names()
    assert run_passes((Append("a"), Append("b"), Append("c", "last")), "", (seen,)) == "abc"
    assert seen.before_each == ["append", "append", "last"]
    assert seen.after_each == [("", "a"), ("a", "ab"), ("ab", "abc")]


def test_verify_names_the_pass_and_keeps_the_program_before() -> None:
    with pytest.raises(InternalError, match="'append' gave an invalid program: ValueError: there is a b") as caught:
        run_passes((Append("a"), Append("b")), "x", (Verify(_refuse_b, str),))
    assert caught.value.reproducer == "xa"


def test_a_failing_pass_is_blamed_and_users_errors_pass_through() -> None:
    def fail(program: str) -> str:
        raise KeyError(program)

    with pytest.raises(InternalError, match="'broken' failed: KeyError") as caught:
        run_passes((Append("a"), Calls("broken", fail)), "x", to_text=str)
    assert caught.value.reproducer == "xa"

    def refuse(program: str) -> str:
        raise ModelError("no")

    with pytest.raises(ModelError):
        run_passes((Calls("refuse", refuse),), "x")


def test_too_little_memory_is_no_bug_of_the_compiler() -> None:
    """Neither in a pass nor in the verifier behind it."""

    def run_out(program: str) -> str:
        raise MemoryError

    with pytest.raises(MemoryError):
        run_passes((Append("a"), Calls("large", run_out)), "x", to_text=str)
    with pytest.raises(MemoryError):
        run_passes((Append("a"),), "x", (Verify(run_out, str),))
