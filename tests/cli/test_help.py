"""Every command explains itself."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from weft.cli.main import COMMANDS, cli


def test_help_names_every_command() -> None:
    answer = CliRunner().invoke(cli, ["--help"])
    assert answer.exit_code == 0
    for name, doc in COMMANDS.items():
        assert name in answer.output and " ".join(doc.split()) in " ".join(answer.output.split())
    assert "0." in CliRunner().invoke(cli, ["--version"]).output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_describes_its_options(name: str) -> None:
    answer = CliRunner().invoke(cli, [name, "--help"])
    assert answer.exit_code == 0 and answer.output.startswith("Usage:")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert all(p.help and max(p.opts, key=len) in answer.output for p in options)
