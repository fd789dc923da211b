"""The options of ``weft tune`` and ``weft tune-corpus`` that measure elsewhere than here: on boards, on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import click

from weft.support.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


def board_options(f: F) -> F:
    """``--board``, or ``--tracker``, ``--key`` and ``--boards``; ``--key-file``; ``--ray``."""
    options = (
        click.option("--board", metavar="HOST:PORT", help="Measure on the board whose weft-rpc-server listens there."),
        click.option("--tracker", metavar="HOST:PORT", help="Measure on boards that this tracker lends."),
        click.option("--key", metavar="NAME", help="What the tracker is asked for, such as pi4."),
        click.option("--boards", type=click.IntRange(1, 64), default=1, show_default=True, help="Boards at once."),
        click.option("--key-file", metavar="FILE", help="The key that all sides share. [default: WEFT_RPC_KEY]"),
        click.option("--tls-ca", metavar="FILE", help="Encrypt the links to tracker and boards; whom to trust (PEM)."),
        click.option(
            "--flush-caches",
            is_flag=True,
            help="Drive the data of a kernel out of the caches before each run of it.",
        ),
        click.option(
            "--ray", metavar="ADDRESS", help="Build and measure on this Ray cluster: HOST:PORT, auto, or local."
        ),
    )
    for option in reversed(options):
        f = option(f)
    return f


@contextlib.contextmanager
def measuring_where_asked(given: dict[str, Any], search: dict[str, Any]) -> Iterator[None]:
    """With boards or a cluster among the options, add them to the arguments of the tuner: a runner; of boards the
    target and their threads, too. Raises UsageError for options that do not go together, and the errors of
    :func:`weft.tune.measure.remote.runner_for` and :class:`~weft.tune.measure.ray_runner.RayRunner`."""
    if given["ray"] is not None and (given["board"] is not None or given["tracker"] is not None):
        raise click.UsageError("--ray is one place to measure, --board and --tracker are others")
    if given["board"] is None and given["tracker"] is None:
        for name in ("key", "key_file", "tls_ca"):
            if given[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} is for --board and --tracker")
        if given["boards"] != 1:
            raise click.UsageError("--boards is for --tracker")
        if given["ray"] is None:
            search["flush_caches"] = given["flush_caches"]
            yield
            return
        from weft.tune.measure.ray_runner import RayRunner
        from weft.tune.measure.timing import Limits, evicted_bytes

        limits = Limits(evict=evicted_bytes() if given["flush_caches"] else 0)
        with RayRunner(given["ray"], limits=limits) as search["runner"]:
            yield
        return
    from weft.runtime.threads import MAX_THREADS
    from weft.target import Target
    from weft.tune.measure.remote import LIMITS, runner_for
    from weft.tune.measure.timing import evicted_bytes

    with runner_for(
        board=given["board"],
        tracker=given["tracker"],
        key=given["key"],
        boards=given["boards"],
        secret=given["key_file"],
        limits=LIMITS,
        tls=given["tls_ca"],
    ) as runner:
        machine = runner.machine(_tell_why)
        if given["flush_caches"]:
            runner.limits = replace(LIMITS, evict=evicted_bytes(Target(machine.target()).cpu))
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
