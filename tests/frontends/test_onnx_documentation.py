"""The page of operators is up to date and agrees with what the importer accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.frontends.onnx.documentation import NOTES, operators_page
from weft.ops.catalogue import OPERATORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bless"):
        PAGE.write_text(operators_page())
    assert PAGE.read_text() == operators_page(), "run pytest --bless and review docs/operators.md"


def test_every_operator_is_described() -> None:
    assert not [name for name, entry in OPERATORS.items() if not entry.doc]


def test_every_operator_without_support_has_a_note() -> None:
    absent = [line.split("|")[1].strip() for line in operators_page().splitlines() if "| no |" in line]
    assert not [name for name in absent if name not in NOTES]
