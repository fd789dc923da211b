"""The pass framework and its instruments, on programs that are plain strings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from weft.ir.passes import Dump, FunctionPass, Timing, Verify, run_passes
from weft.support.errors import InternalError, ModelError


@dataclass(frozen=True)
class Append:
    suffix: str
    name: str = "append"

    def run(self, program: str) -> str:
        return program + self.suffix


def _refuse_b(program: str) -> None:
    if "b" in program:
        raise ValueError("there is a b")


def test_passes_run_in_order_and_are_timed() -> None:
    timing: Timing[str] = Timing()
    assert run_passes((Append("a"), Append("b"), Append("c", "last")), "", (timing,)) == "abc"
    assert [name for name, _ in timing.rows] == ["append", "append", "last"]
    assert set(timing.totals()) == {"append", "last"}


def test_verify_names_the_pass_and_keeps_the_program_before() -> None:
    with pytest.raises(InternalError, match="'append' gave an invalid program: ValueError: there is a b") as caught:
        run_passes((Append("a"), Append("b")), "x", (Verify(_refuse_b, str),))
    assert caught.value.reproducer == "xa"


def test_a_failing_pass_is_blamed_and_users_errors_pass_through() -> None:
    def fail(program: str) -> str:
        raise KeyError(program)

    with pytest.raises(InternalError, match="'broken' failed: KeyError") as caught:
        run_passes((Append("a"), FunctionPass("broken", fail)), "x", to_text=str)
    assert caught.value.reproducer == "xa"

    def refuse(program: str) -> str:
        raise ModelError("no")

    with pytest.raises(ModelError):
        run_passes((FunctionPass("refuse", refuse),), "x")


def test_dump_numbers_the_stages(tmp_path: Path) -> None:
    dump: Dump[str] = Dump(tmp_path, str)
    dump.write("start", "x")
    run_passes((Append("a"), Append("", "idle"), Append("b", "odd name/")), "x", (dump,))
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["00-start.txt", "01-append.txt", "02-odd_name_.txt"]
    assert (tmp_path / files[2]).read_text() == "xab"
