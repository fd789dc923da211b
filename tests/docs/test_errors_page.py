"""docs/errors.md lists every code; ``pytest --bless`` renews the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from error_codes import codes, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"
HEAD = "## Codes\n\n"


def test_every_code_is_listed(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--bless"):
        text = text[: text.index(HEAD)] + HEAD + table(ROOT / "weft")
        PAGE.write_text(text, encoding="utf-8")
    listed = re.findall(r"^\| ([A-Z]\d{3}) \|", text, re.MULTILINE)
    assert listed == list(codes(ROOT / "weft")), "run pytest --bless and review docs/errors.md"


def test_messages_are_found() -> None:
    found = codes(ROOT / "weft")
    assert "there is no input '…'" in found["I004"] and found["I032"] == ["there is not enough memory"]
    assert sum(not m for m in found.values()) < len(found) // 20
