"""docs/cli.md names every command and every option."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from weft.cli.main import COMMANDS, cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and f"`weft {name}" in PAGE
    options = [max(p.opts, key=len) for p in command.params if isinstance(p, click.Option)]
    assert [o for o in options if o not in PAGE] == []
