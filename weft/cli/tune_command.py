"""``weft tune``."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from weft.cli.common import (
    console,
    parse_shapes,
    precision_option,
    shape_option,
    table,
    target_option,
    threads_option,
    winograd_option,
)
from weft.cli.tune_boards import board_options, measuring_where_asked
from weft.support import settings
from weft.support.words import counted

if TYPE_CHECKING:
    from weft.tune.results import KernelResult, TuningResult

_RIGHT = (1, 2, 3, 4, 5)
"""Columns of numbers in the table of kernels."""
_OFTEN_ALIKE = (1, 5)
"""Columns that are left out where all kernels are called once, or no bound is known."""

_RANGE: Final = re.compile(r"(?P<name>[^=]+)=(?P<first>[0-9]{1,18})\.\.(?P<last>[0-9]{1,18})")
_OF_MODELS: Final = ("layouts", "shapes", "files", "no_check", "policy", "precision", "winograd")
"""Parameters that say something about whole models."""


@click.command("tune")
@click.argument("model", required=False)
@click.option(
    "--kernel",
    default=None,
    metavar="FILE.py[:TEMPLATE]",
    help="Tune the kernel that program() in this file returns, with the template of that name.",
)
@click.option(
    "--db",
    default=None,
    metavar="FILE",
    help="Keep what is measured in this tuning database, which is made if there is none. [default: WEFT_TUNING_DB]",
)
@click.option("--trials", type=click.IntRange(1), default=None, help="Schedules to try, of all kernels together.")
@click.option("--minutes", type=float, default=None, help="Time to search.")
@click.option(
    "--effort",
    default="medium",
    show_default=True,
    metavar="low|medium|high",
    help="Without --trials and --minutes: 16, 64 or 256 trials for each kernel.",
)
@click.option("--report", default=None, metavar="FILE.html", help="Write what was found to this file.")
@click.option("--strategy", default="refine", show_default=True, help="How to choose what is tried next.")
@click.option(
    "--policy",
    default="gain",
    show_default=True,
    metavar="gain|round-robin",
    help="Which kernel is next: the one that promises most, or each in turn.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--features",
    default="nests",
    show_default=True,
    metavar="nests|knobs|stores|relations|none",
    help="What the cost model learns from that corrects the predictions.",
)
@click.option("--no-check", is_flag=True, help="Do not check in the model what was found.")
@click.option("--layouts", is_flag=True, help="Search the layouts of the model, too, by measuring kernels of several.")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N[,N…]",
    help="Tune an open size for these values, or for a range: --size batch=1,8 --size length=1..512. [default: 1]",
)
@click.option(
    "-i", "--input", "files", multiple=True, metavar="[NAME=]FILE", help="Inputs for the check. [default: random]"
)
@board_options
@precision_option
@winograd_option
@target_option
@threads_option
@shape_option
def command(model: str | None, kernel: str | None, db: str | None, **given: Any) -> None:
    """Search faster schedules for the kernels of MODEL, or for one kernel, by measuring them on this machine, on
    boards, or on a cluster.

    \b
    weft tune resnet.onnx --db tuned.db                      then: weft run resnet.onnx --tuning-db tuned.db
    weft tune resnet.onnx --db tuned.db --minutes 30 --report tuned.html
    weft tune resnet.onnx --db tuned.db --layouts            search the layouts of the model, too
    weft tune bert.onnx --db tuned.db --shape batch=1 --size sequence=1..512
    weft tune --kernel product.py --db tuned.db --trials 200
    weft tune resnet.onnx --db tuned.db --board localhost:9190
    weft tune resnet.onnx --db tuned.db --tracker HOST:9180 --key pi4 --boards 3
    weft tune resnet.onnx --db tuned.db --ray HOST:6379 --threads 1

    Everything that is measured is kept in the database at once. Ctrl-C ends the search at any time; the same command
    goes on from there. At the end the model runs with and without what was found, and schedules that are not faster
    there are not used. Keep the machine quiet.
    """
    if (model is None) == (kernel is None):
        raise click.UsageError("name a model, or a file with --kernel")
    found = db or settings.tuning_database()
    if found is None:
        raise click.UsageError("say where to keep what is measured: --db FILE")
    search = {name: given[name] for name in ("trials", "minutes", "effort", "report", "strategy", "seed", "target")}
    search |= {"threads": given["threads"], "features": given["features"], "sizes": _sizes(given["sizes"])}
    search |= {"database": str(found), "progress": True}
    if kernel is not None:
        _refuse_options_of_models()
    with measuring_where_asked(given, search):
        if kernel is not None:
            _tune_kernel(kernel, search)
        else:
            _tune_model(str(model), search, given)


def _sizes(words: Sequence[str]) -> dict[str, Any]:
    """``("batch=1,8", "length=1..512")`` → ``{"batch": (1, 8), "length": range(1, 513)}``."""
    ranges, others = dict[str, range](), list[str]()
    for word in words:
        found = _RANGE.fullmatch(word)
        if found is None or found["name"] in ranges or not 0 < int(found["first"]) <= int(found["last"]):
            others.append(word)  # where it is refused
        else:
            ranges[found["name"]] = range(int(found["first"]), int(found["last"]) + 1)
    made = parse_shapes(others, "--size", "NAME=SIZE, NAME=SIZE,SIZE,… or NAME=FIRST..LAST with positive sizes", ranges)
    return {**made, **ranges}


def _refuse_options_of_models() -> None:
    """Raise UsageError for options that mean nothing for one kernel."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _OF_MODELS and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{parameter.opts[-1]} is for models, not for --kernel")


def _tune_model(model: str, search: dict[str, Any], given: dict[str, Any]) -> None:
    import weft
    from weft.cli.inputs import read_inputs
    from weft.measure.random_inputs import input_specs
    from weft.tune import TuningStopped, tune_model

    module = weft.load(model, shapes=parse_shapes(given["shapes"]))
    options = weft.Options(precision=given["precision"], winograd=given["winograd"])
    try:
        result = tune_model(
            module,
            options=options,
            inputs=read_inputs(given["files"], input_specs(module)),
            policy=given["policy"],
            in_model=not given["no_check"],
            layouts=given["layouts"],
            **search,
        )
    except TuningStopped as stopped:
        _stop(stopped.result, search["report"])
    _show(result.kernels, result)
    console().print(result.summary())
    if result.schedules.traces or (result.layouts is not None and result.layouts.accepted):
        console().print(f"\nto use it: {_use(model, search, given)}")
    else:
        console().print("no schedule was found that is faster than the default ones")
    _tell_report(search["report"])


def _tune_kernel(word: str, search: dict[str, Any]) -> None:
    from weft.cli.kernel_files import read_kernel
    from weft.tune import TuningStopped, tune_kernel

    program, template, name = read_kernel(word)
    try:
        kernel = tune_kernel(program, template, name=name, **search)
    except TuningStopped as stopped:
        _stop(stopped.result, search["report"])
    _show([kernel], None)
    print_schedule(kernel, search["database"])
    _tell_report(search["report"])


def print_schedule(kernel: KernelResult, database: str) -> None:
    """The best schedule as Python, and the command that lists all trials."""
    if kernel.trace is None:
        click.echo("the default schedule is the best that was found")
    else:
        click.echo(f"the best schedule:\n{kernel.schedule}\n")
    click.echo(f"all trials: weft db show {shlex.join([database, kernel.workload.task.program.name])}")


def _show(kernels: Sequence[KernelResult], result: TuningResult | None) -> None:
    from weft.tune.results import COLUMNS, by_time, reasons

    screen = console()
    rows = [k.row() for k in by_time(kernels)]
    told = [i for i in range(len(COLUMNS)) if i not in _OFTEN_ALIKE or {r[i] for r in rows} - {"1", "-"}]
    right = [place for place, i in enumerate(told) if i in _RIGHT]
    screen.print(table(None, [COLUMNS[i] for i in told], [[r[i] for i in told] for r in rows], right=right))
    for line in reasons(kernels):
        screen.print(line)
    if result is not None:
        for line in result.told_of_layouts():
            screen.print(line)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
        earlier = result.trials - result.new_trials
        more = f", after {earlier} in earlier runs" if earlier else ""
        screen.print(f"{counted(result.new_trials, 'trial')}{more}; ended because: {result.ended}")


def _stop(result: TuningResult, report: str | None) -> None:
    """Show what was found until Ctrl-C, say how to go on, and exit with status 130."""
    _show(result.kernels, result)
    console().print(result.summary())
    _tell_report(report)
    click.echo(
        f"stopped: {counted(result.new_trials, 'trial')} of this run are kept in {result.database}; the same command "
        "goes on from there",
        err=True,
    )
    sys.exit(130)


def _tell_report(report: str | None) -> None:
    if report is not None:
        click.echo(f"wrote {report}")


def _on_boards(given: dict[str, Any]) -> bool:
    return given["board"] is not None or given["tracker"] is not None


def _use(model: str, search: dict[str, Any], given: dict[str, Any]) -> str:
    """The command that runs the model with what was found; of boards, that compiles it for them."""
    words = ["weft", "compile" if _on_boards(given) else "run", model, "--tuning-db", search["database"]]
    words += ["--target", search["target"]] if search["target"] != "cpu" else []
    threads = None if _on_boards(given) else search["threads"]
    words += ["--threads", str(threads)] if threads is not None else []
    words += ["--precision", given["precision"]] if given["precision"] != "f32" else []
    winograd = {True: None, False: "off"}.get(given["winograd"], str(given["winograd"]))
    words += ["--winograd", winograd] if winograd is not None else []
    words += [word for shape in given["shapes"] for word in ("--shape", shape)]
    return shlex.join(words)
