"""The options of ``weft tune`` that measure on boards instead of on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from weft.support.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


def board_options(f: F) -> F:
    """``--board``, or ``--tracker``, ``--key`` and ``--boards``; ``--key-file``."""
    options = (
        click.option("--board", metavar="HOST:PORT", help="Measure on the board whose weft-rpc-server listens there."),
        click.option("--tracker", metavar="HOST:PORT", help="Measure on boards that this tracker lends."),
        click.option("--key", metavar="NAME", help="What the tracker is asked for, such as pi4."),
        click.option("--boards", type=click.IntRange(1, 64), default=1, show_default=True, help="Boards at once."),
        click.option("--key-file", metavar="FILE", help="The key that all sides share. [default: WEFT_RPC_KEY]"),
    )
    for option in reversed(options):
        f = option(f)
    return f


@contextlib.contextmanager
def measuring_where_asked(given: dict[str, Any], search: dict[str, Any]) -> Iterator[None]:
    """With boards among the options, add them to the arguments of the tuner: a runner, the target, and the threads that
    a board has. Raises UsageError for options without a board, and the errors of
    :func:`weft.tune.measure.remote.runner_for`."""
    if given["board"] is None and given["tracker"] is None:
        for name in ("key", "key_file"):
            if given[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} is for --board and --tracker")
        if given["boards"] != 1:
            raise click.UsageError("--boards is for --tracker")
        yield
        return
    from weft.runtime.threads import MAX_THREADS
    from weft.tune.measure.remote import runner_for

    with runner_for(
        board=given["board"],
        tracker=given["tracker"],
        key=given["key"],
        boards=given["boards"],
        secret=given["key_file"],
    ) as runner:
        machine = runner.machine(_tell_why)
        click.echo(f"measuring on {machine.name} ({machine.architecture}, {machine.cores} cores)", err=True)
        search["runner"] = runner
        if search["target"] == "cpu":
            search["target"] = machine.target()
        if search["threads"] is None:
            search["threads"] = min(machine.cores, MAX_THREADS)
        yield


def _tell_why(reason: UserError) -> None:
    hint = f"\n  = {reason.hint}" if reason.hint else ""
    click.echo(f"there is no board yet, waiting: {reason.message}{hint}", err=True)
