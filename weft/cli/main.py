"""The command line: ``weft COMMAND``. Each command is a separate module, imported when it is called."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

from weft import __version__
from weft.support.errors import InternalError, WeftError
from weft.support.words import did_you_mean

COMMANDS = {
    "compile": "Compile a model to one file that runs without the compiler.",
    "run": "Run a model or a compiled artifact on given or random inputs.",
    "bench": "Measure a model with Weft and with other engines, and compare the outputs.",
    "inspect": "Show a model at one stage: graph, groups, loops, kernels, assembly.",
    "blame": "Find the stage and the kernel that cause a wrong result.",
    "opt": "Run passes on the text of a program.",
    "tune": "Search faster schedules for the kernels of a model, by measuring them.",
    "tune-corpus": "Measure many kernels, for the cost model that all searches begin with.",
    "db": "Show, merge and prune databases of tuned schedules.",
    "cache": "Show or clear the kernel cache.",
    "targets": "List the machines to compile for.",
    "rpc-tracker": "Hand out remote boards to those who ask for them.",
    "rpc-status": "Show the boards of a tracker, who has them, and who waits.",
    "rpc-server": "Let other machines run and measure code here, or build the server for a board.",
}


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(click.Group):
    """A group of commands that imports each command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"weft.cli.{name.replace('-', '_')}_command")
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS, f"commands: {', '.join(COMMANDS)}")
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="weft")
def cli() -> None:
    """Weft compiles deep-learning models to fast machine code.

    \b
    weft run model.onnx                  run a model on random inputs
    weft compile model.onnx -o m.weft    compile it to a file
    weft bench model.onnx                compare its speed with onnxruntime

    `weft COMMAND --help` explains each command with examples.
    """


def main(argv: list[str] | None = None) -> Any:
    """Entry point. Exit status: 0 success, 1 a user error, 2 an invalid command line, 70 a bug in Weft (a reproducer or
    a traceback is written to the working directory), 130 interrupted."""
    _prepare_streams()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(f"note: {message}", err=True)
            return cli.main(args=argv, prog_name="weft", standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except InternalError as problem:
        click.echo(
            f"{_printable(str(problem))}\nThis is a bug in Weft; please report it with the text above.", err=True
        )
        if problem.reproducer:
            _leave(problem.reproducer, "reproducer.txt", "A reproducer (for weft opt, weft inspect --stage assembly)")
        else:
            _leave_traceback(problem)
        sys.exit(70)
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        reason = problem.strerror or str(problem)
        click.echo(f"error[I031] {_place(problem)}{reason}", err=True)
        sys.exit(1)
    except WeftError as problem:
        click.echo(_printable(str(problem)), err=True)
        sys.exit(1)
    except MemoryError:
        click.echo("error[I032] there is not enough memory", err=True)
        sys.exit(1)
    except Exception as problem:  # the outermost level: no other code handles it
        _unexpected(problem)
        sys.exit(70)


def _prepare_streams() -> None:
    """Streams that the caller has closed lead nowhere, so that no file that is opened later gets their numbers; what
    the terminal's encoding lacks is printed as a question mark."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
            stream.reconfigure(errors="replace")


def _printable(text: str) -> str:
    """``text`` without the control characters that a name in a model may hold, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _place(problem: OSError) -> str:
    """The file of an error of the system, or the standard output, whose errors name no file."""
    if problem.filename:
        return f"'{os.fsdecode(problem.filename)}': "
    return "the output cannot be written: " if problem.errno in _UNWRITABLE else ""


def _unexpected(problem: Exception) -> None:
    """Report an error that Weft does not raise on purpose, without showing the user its traceback."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    click.echo(
        f"internal error[W000] {type(problem).__name__}: {problem} ({os.path.basename(last.filename)}, "
        f"line {last.lineno})\nThis is a bug in Weft; please report it with the text above.",
        err=True,
    )
    _leave_traceback(problem)


def _leave_traceback(problem: Exception) -> None:
    _leave("".join(traceback.format_exception(problem)), "traceback.txt", "The traceback")


def _leave(text: str, name: str, what: str) -> None:
    path = f"weft-{name}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # a link that somebody left there is not followed
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return
    click.echo(f"{what} is in {path}.", err=True)


if __name__ == "__main__":
    main()
