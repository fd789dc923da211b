"""``weft db``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.common import console, table
from weft.support.errors import InputError, ScheduleError, UserError
from weft.support.files import check_writable, existing_file, replace_text, write_file
from weft.support.words import counted, did_you_mean

if TYPE_CHECKING:
    from weft.tune.database import Added, Database, StoredKernel, StoredLayouts, StoredTrial


@click.group("db")
def command() -> None:
    """Show, merge and prune databases of tuned schedules.

    A tuning database is one file. It holds the schedules that were tried for kernels, and how long each took.
    Compilations use the best one of each kernel, if it is faster than the default schedule.

    \b
    weft db show tuned.db                      kernels, their best times and speedups
    weft db show tuned.db conv                 the trials of kernels with 'conv' in their name
    weft compile resnet.onnx --tuning-db tuned.db
    weft db merge all.db laptop.db server.db   collect what several machines measured
    weft db prune all.db --keep 20 --failed    make the file smaller; no answer changes
    weft db export all.db -o all.jsonl         as lines of JSON, to keep or to read with other programs
    weft db import other.db all.jsonl
    weft db pack all.db --machine raspberry-pi-4     for the package: every compilation for that machine uses it

    WEFT_TUNING_DB=tuned.db makes every compilation use the database. `weft db COMMAND --help` explains each command.
    """


@command.command(short_help="Show the kernels, or the trials of one.")
@click.argument("file")
@click.argument("kernel", required=False)
def show(file: str, kernel: str | None) -> None:
    """Show the kernels in FILE, or the trials of those whose name contains KERNEL.

    \b
    weft db show tuned.db
    weft db show tuned.db conv

    The speedup is the time of the default schedule divided by that of the best one, both in the same state of the
    machine where that is known. The trials of a kernel are followed by the best schedule, as Python.
    """
    from weft.tune.database import Database

    with Database(file) as database:
        if kernel is None:
            _show_kernels(database)
            _show_layouts(database)
        else:
            for found in _named(database, kernel):
                _show_trials(database, found)


@command.command(short_help="Add databases to another one.")
@click.argument("output")
@click.argument("inputs", nargs=-1, required=True)
def merge(output: str, inputs: tuple[str, ...]) -> None:
    """Add everything in the databases INPUTS to OUTPUT, which is made if there is none.

    \b
    weft db merge all.db laptop.db server.db

    What OUTPUT has already is not added again.
    """
    from weft.tune.database import Database

    for name in inputs:
        Database(name).close()  # all can be read before anything is written
    with Database(output, create=True) as database:
        for name in inputs:
            click.echo(f"{name}: {_added(database.merge(name))}")


@command.command(short_help="Remove trials that no answer depends on.")
@click.argument("file")
@click.option(
    "--keep", type=click.IntRange(0), default=None, metavar="N", help="Keep the N fastest trials of each kernel."
)
@click.option("--failed", is_flag=True, help="Remove the trials that did not succeed.")
def prune(file: str, keep: int | None, failed: bool) -> None:
    """Remove trials from FILE on which no answer depends.

    \b
    weft db prune tuned.db --failed
    weft db prune tuned.db --keep 20 --failed

    The best schedules, those they are compared with, and trials that a model accepted or refused stay.
    """
    from weft.tune.database import Database

    if keep is None and not failed:
        raise click.UsageError("say what to remove: --keep N, --failed or both")
    with Database(file) as database:
        click.echo(f"removed {counted(database.prune(keep, failed), 'trial')}")


@command.command("export", short_help="Write the content as lines of JSON.")
@click.argument("file")
@click.option("-o", "--output", default=None, help="Where to write. [default: the standard output]")
def export_lines(file: str, output: str | None) -> None:
    """Write the content of FILE as lines of JSON.

    \b
    weft db export tuned.db -o tuned.jsonl
    weft db export tuned.db | grep -c '"trial"'
    """
    from weft.tune.database import Database

    with Database(file) as database:
        lines = database.export_json()
    text = "".join(f"{line}\n" for line in lines)
    if output is None:
        click.echo(text, nl=False)
    else:
        check_writable(output)
        write_file(output, lambda: replace_text(output, text))
        click.echo(f"wrote {counted(len(lines), 'line')} to {output}")


@command.command("import", short_help="Add what lines of JSON say.")
@click.argument("file")
@click.argument("lines")
def import_lines(file: str, lines: str) -> None:
    """Add what the file LINES says, which weft db export wrote, to FILE, which is made if there is none.

    \b
    weft db import tuned.db tuned.jsonl
    ssh server weft db export tuned.db | weft db import tuned.db -

    LINES may be - for the standard input. If a line is malformed, nothing is imported.
    """
    from weft.tune.database import Database, check_lines

    found = _read(lines).splitlines()
    check_lines(found, lines)  # before the database is made
    with Database(file, create=True) as database:
        click.echo(f"{lines}: {_added(database.import_json(found, lines))}")


@command.command("pack", short_help="Write the best schedules of a machine for the package.")
@click.argument("file")
@click.option("--machine", required=True, metavar="NAME", help="A named machine; 'weft targets' lists them.")
@click.option("-o", "--output", default=None, metavar="FILE", help="Where to write. [default: the package's data]")
def pack_machine(file: str, machine: str, output: str | None) -> None:
    """Write the best schedules and layouts that FILE has for a named machine to a small file in the package.

    \b
    weft db pack tuned.db --machine raspberry-pi-4

    Compilations for that machine use it, if they are given no database and WEFT_TUNING_DB names none;
    WEFT_PACKED_SCHEDULES=0 turns that off. What was measured on a machine with the same cores counts, whatever their
    number. A packed file that is there is replaced.
    """
    from weft.target import MACHINES
    from weft.target.packed import FOLDER, SUFFIX
    from weft.tune.database import Database
    from weft.tune.database.packed import pack

    if machine not in MACHINES:
        hint = did_you_mean(machine, MACHINES, f"one of {', '.join(MACHINES)}")
        raise UserError(f"there is no machine '{machine}'", code="U060", hint=hint)
    path = Path(output) if output is not None else FOLDER / f"{machine}{SUFFIX}"
    check_writable(str(path))
    with Database(file) as database:
        made = pack(database, machine, path)
    layouts = f" and the layouts of {counted(made.layouts, 'function')}" if made.layouts else ""
    click.echo(f"packed {counted(made.schedules, 'schedule')}{layouts}: {made.nbytes} bytes in {path}")


def _read(path: str) -> str:
    """The text of a file, or of the standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        return existing_file(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"'{path}' cannot be read: {reason}", code="I025") from problem


def _show_kernels(database: Database) -> None:
    kernels, rows = database.workloads(), []
    short = _short_targets({k.target for k in kernels})
    for kernel in kernels:
        trials = Counter(t.threads for t in database.trials(kernel))
        for threads, count in sorted(trials.items()):
            shown = [kernel.name, short[kernel.target], str(threads), str(count)]
            rows.append([*shown, *_comparison(database, kernel, threads)])
    columns = ["kernel", "target", "threads", "trials", "best", "baseline", "speedup"]
    console().print(table(None, columns, rows, right=(2, 3, 4, 5, 6)))


def _show_layouts(database: Database) -> None:
    """The models whose layouts were searched, where there are any."""
    found = database.layouts()
    if not found:
        return
    short = _short_targets({d.target for d in found})
    rows = [
        [d.name, short[d.target], str(d.threads), _layouts(d), _time(d.before or None), _time(d.after or None)]
        for d in found
    ]
    columns = ["model", "target", "threads", "layouts", "estimated", "with these"]
    console().print(table("layouts", columns, rows, right=(2, 4, 5)))


def _layouts(layouts: StoredLayouts) -> str:
    return "estimated" if layouts.choice is None else f"measured, {counted(len(layouts.choice), 'call')}"


def _comparison(database: Database, kernel: StoredKernel, threads: int) -> list[str]:
    """The time of the best trial, that of the default schedule, and the quotient."""
    if threads not in database.thread_counts(kernel):
        return ["-", "-", "-"]
    found = database.best(kernel, threads), database.baseline(kernel, threads)
    speedup = database.speedup(kernel, threads)
    return [*(_time(t.steady if t is not None else None) for t in found), f"{speedup:.2f}×" if speedup else "-"]


def _show_trials(database: Database, kernel: StoredKernel) -> None:
    screen = console()
    rows = []
    for t in database.trials(kernel):
        schedule = "default" if t.trace_text is None else t.sketch or "-"
        relative = "-" if t.relative is None else f"{t.relative:.3f}"
        said = [f"{'accepted' if v.accepted else 'refused'} in {v.model}" for v in t.verdicts]
        notes = "; ".join([*said, *t.message.splitlines()[:1]])
        rows.append([str(t.number), t.run, schedule, str(t.outcome), str(t.threads), _time(t.seconds), relative, notes])
    columns = ["trial", "run", "schedule", "outcome", "threads", "time", "relative", "notes"]
    screen.print(table(f"{kernel.name}, {_short(kernel.target, cores=True)}", columns, rows, right=(0, 4, 5, 6)))
    for threads in database.thread_counts(kernel):
        best = database.best(kernel, threads)
        if best is not None:
            screen.print(f"# the best with {counted(threads, 'thread')}: trial {best.number}\n{_python(best)}\n")


def _python(trial: StoredTrial) -> str:
    """The schedule of a trial as Python, or why there is none."""
    try:
        trace = trial.trace
    except ScheduleError as error:
        return f"# {error.message}"
    return "# the default schedule" if trace is None else trace.to_python()


def _named(database: Database, word: str) -> list[StoredKernel]:
    """The kernels whose names contain ``word``. Raises UserError U012 if there are none."""
    kernels = database.workloads()
    found = [k for k in kernels if word in k.name]
    if not found:
        names = sorted({k.name for k in kernels})
        hint = did_you_mean(word, names, f"'weft db show {database.path}' lists {counted(len(names), 'kernel')}")
        raise UserError(f"no kernel in '{database.path}' has '{word}' in its name", code="U012", hint=hint)
    return found


def _short_targets(targets: set[str]) -> dict[str, str]:
    """Short names of targets, with the number of cores where the names would be equal without it."""
    times = Counter(_short(t) for t in targets)
    return {t: _short(t, cores=times[_short(t)] > 1) for t in targets}


def _short(target: str, cores: bool = False) -> str:
    """The back end and the processor of a target's text, and the number of cores if asked for."""
    kind, *words = target.split() or [""]
    given: dict[str, Any] = dict(w.lstrip("-").split("=", 1) for w in words if w.startswith("-") and "=" in w)
    count = given.get("num-cores", "")
    shown = f", {counted(int(count), 'core')}" if cores and count.isdigit() else ""
    return f"{kind} {given.get('mcpu', '')}{shown}".strip()


def _time(seconds: float | None) -> str:
    """A time in microseconds."""
    return "-" if seconds is None else f"{seconds * 1e6:.4g} µs"


def _added(added: Added) -> str:
    from weft.tune.database import Added

    if added == Added():
        return "nothing new"
    parts = [counted(added.workloads, "kernel"), counted(added.trials, "trial"), counted(added.verdicts, "verdict")]
    parts += [f"{added.layouts} layouts"] if added.layouts else []
    return f"added {', '.join(parts)}"
