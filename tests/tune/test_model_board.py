"""The board on which whole models run: what is held against it when its session ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.rpc.errors import LinkError
from weft.support.errors import UserError
from weft.tune.measure.model_board import ModelBoard


class Boards:
    """Gives boards that are told apart by nothing; ``refusals`` are what connecting to the first ones meets."""

    def __init__(self, *refusals: LinkError) -> None:
        self.name = "desk"
        self.blames: list[str] = []
        self._refusals = list(refusals)

    def take(self, seconds: float) -> Boards:
        return self

    def connect(self, code_seconds: float | None) -> Any:
        if self._refusals:
            raise self._refusals.pop(0)
        return SimpleNamespace(lost=None)

    def give_back(self, blame: str) -> None:
        self.blames.append(blame)


@pytest.mark.parametrize(
    ("code", "blame"),
    [("N005", "it ended"), ("N006", "it ended"), ("N007", "it ended"), ("N008", ""), ("N014", ""), ("N033", "")],
)
def test_only_the_fault_of_the_board_is_held_against_it(code: str, blame: str) -> None:
    """Neither that others use it, nor that code of a client crashes, nor that a lease is over."""
    boards = Boards()
    model_board = ModelBoard(boards, 10.0)
    session: Any = model_board.session()
    assert model_board.session() is session and not boards.blames
    session.lost = LinkError("it ended", code=code)
    assert model_board.session() is not session
    assert boards.blames == [blame]


@pytest.mark.parametrize(("code", "blame"), [("N005", "no answer"), ("N008", ""), ("N033", "")])
def test_a_board_that_cannot_be_reached(code: str, blame: str) -> None:
    boards = Boards(LinkError("no answer", code=code))
    model_board = ModelBoard(boards, 10.0)
    assert model_board.session().lost is None
    assert boards.blames == [blame]
    model_board.close()
    assert boards.blames == [blame, ""]


def test_who_waits_is_told_why() -> None:
    boards = Boards(*(LinkError("no answer", code=code) for code in ("N005", "N005", "N008")))
    told: list[UserError] = []
    ModelBoard(boards, 10.0).session(told.append)
    assert [error.code for error in told] == ["N005", "N008"]


def test_a_key_that_is_refused_is_said_at_once() -> None:
    boards = Boards(LinkError("the key is refused", code="N004"))
    with pytest.raises(LinkError, match="the key is refused"):
        ModelBoard(boards, 10.0).session()
    assert boards.blames == [""]
