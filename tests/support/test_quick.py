"""Every folder of tests has quick tests."""

from __future__ import annotations

import quick


def test_every_folder_has_quick_tests() -> None:
    files = list(quick.TESTS.glob("*/test_*.py"))
    folders = {p.parent.name for p in files} - set(quick.WITHOUT)
    assert {p.parent.name for p in files if quick.is_quick(p)} == folders
    assert not any(quick.is_quick(p) for p in files if p.parent.name in quick.WITHOUT)


def test_the_files_exist() -> None:
    assert [p for p in quick.FILES if not p.exists()] == []
