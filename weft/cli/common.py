"""Functions that several commands use: options, loading a model or an artifact, printing tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.support.errors import UserError
from weft.support.files import existing_file
from weft.support.words import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


def target_option(f: F) -> F:
    return click.option(
        "--target", default="cpu", show_default=True, help="The machine to compile for; see 'weft targets'."
    )(f)


def threads_option(f: F) -> F:
    return click.option(
        "--threads",
        type=click.IntRange(1),
        default=None,
        help="Threads to run on. [default: all cores, or WEFT_NUM_THREADS]",
    )(f)


def precision_option(f: F) -> F:
    return click.option(
        "--precision",
        type=click.Choice(["f32", "bf16"]),
        default="f32",
        show_default=True,
        help="bf16: matrix products and convolutions use bfloat16 operands if the machine has instructions for them.",
    )(f)


WINOGRAD: dict[str, bool | int] = {"on": True, "off": False, "2": 2, "4": 4}
"""Words on the command line for the values of ``weft.Options(winograd=…)``."""


def winograd_option(f: F) -> F:
    return click.option(
        "--winograd",
        type=click.Choice(list(WINOGRAD)),
        default="on",
        show_default=True,
        callback=lambda context, parameter, word: WINOGRAD[word],
        help="Use Winograd's algorithm for 3×3 convolutions where it is faster; 2: only tiles of 2×2, as exact as off.",
    )(f)


def _seed(context: click.Context, parameter: click.Parameter, word: str) -> int | str:
    if word == "input":
        return word
    try:
        return int(word)
    except ValueError:
        raise click.BadParameter(f"'{word}' is neither an integer nor 'input'") from None


def random_seed_option(f: F) -> F:
    return click.option(
        "--random-seed",
        default="0",
        show_default=True,
        metavar="N|input",
        callback=_seed,
        help="Seed of the random numbers that the model draws; input: the model gets one more input, 'seed'.",
    )(f)


def jobs_option(f: F) -> F:
    return click.option(
        "--jobs",
        type=click.IntRange(1),
        default=None,
        help="Number of processes that build kernels. [default: all cores, or WEFT_JOBS]",
    )(f)


def tuning_option(f: F) -> F:
    return click.option(
        "--tuning-db",
        default=None,
        metavar="FILE",
        help="Use the schedules of this tuning database; see 'weft db'. [default: WEFT_TUNING_DB, or none]",
    )(f)


def shape_option(f: F) -> F:
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=SIZES",
        help="Fix a dimension or a whole input: --shape batch=8, --shape x=1,3,224,224. May be repeated.",
    )(f)


def parse_shapes(
    words: Sequence[str],
    option: str = "--shape",
    hint: str = "NAME=SIZE or NAME=SIZE,SIZE,… with positive sizes",
    given: Collection[str] = (),
) -> dict[str, int | tuple[int, ...]]:
    """``("batch=8", "x=1,3,8,8")`` → ``{"batch": 8, "x": (1, 3, 8, 8)}``. Raises UserError I020, with the ``hint``, for
    other words, and for names that are ``given`` already."""
    out: dict[str, int | tuple[int, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            sizes = tuple(int(p) for p in text.split(","))
        except ValueError:
            sizes = ()
        if not equals or not sizes or min(sizes) < 1 or name in out or name in given:
            raise UserError(
                f"{option} {name} is given twice"
                if name in out or name in given
                else f"{option} {word} is not understood",
                code="I020",
                hint=hint,
            )
        out[name] = sizes[0] if len(sizes) == 1 else sizes
    return out


def is_artifact(path: str) -> bool:
    """Whether the file is a compiled artifact, according to its name or its first bytes."""
    from weft.runtime.artifact import MAGIC

    if path.endswith(".weft"):
        return True
    try:
        if not Path(path).is_file():  # opening a pipe waits for whoever writes to it
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def task_text(path: str) -> str | None:
    """The text of the file if it is a kernel task; None for other files and if the file does not exist."""
    try:
        if not Path(path).is_file():
            return None
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    return Path(path).read_text(encoding="utf-8") if line.startswith("task ") else None
    except (OSError, UnicodeDecodeError):
        return None
    return None


def load_artifact(path: str, verify: bool = False) -> Any:
    """The artifact in a file. Raises InputError if there is no such file, ArtifactError if it is damaged."""
    from weft.runtime.artifact import Artifact

    return Artifact.load(existing_file(path), verify=verify)


def executable(
    path: str,
    target: str,
    threads: int | None,
    shapes: Sequence[str],
    tuning_db: str | None = None,
    **options: Any,
) -> Any:
    """The executable of a model file (compiled now, with progress) or of an artifact.

    ``shapes`` fixes sizes of a model; the open sizes of an artifact follow from its inputs. ``options`` are fields of
    ``weft.Options``; an artifact has those, and the schedules, that it was compiled with.
    """
    import weft

    chosen = weft.Options(**options)
    if is_artifact(path):
        if target != "cpu" or chosen != weft.Options() or tuning_db is not None:
            raise UserError(
                f"'{path}' is already compiled: {_and('target', *map(_flag, options), 'tuning-db')} have no effect",
                code="I020",
                hint="pass them to weft compile",
            )
        loaded = weft.load_executable(path, threads=threads)
        _check_names(path, loaded.inputs, parse_shapes(shapes))
        return loaded
    fixed = parse_shapes(shapes)
    return weft.compile(
        path, target=target, threads=threads, shapes=fixed, options=chosen, tuning_db=tuning_db, progress=True
    )


def _check_names(path: str, specs: Sequence[Any], given: Iterable[str]) -> None:
    """Check that an artifact has every input and open size that ``--shape`` names. Raises UserError."""
    sizes = {d[0] for spec in specs for d in spec.shape if len(d) == 1 and isinstance(d[0], str)}
    there = sorted(sizes) + [spec.name for spec in specs]
    for name in given:
        if name not in there:
            listed = f"there are: {', '.join(there) or 'none'}"
            hint = did_you_mean(name, there, listed)
            raise UserError(f"'{path}' has no open size or input '{name}'", code="T020", hint=hint)


def _flag(field: str) -> str:
    """The option of the command line that sets a field of ``weft.Options``."""
    return "random-seed" if field == "seed" else field


def _and(*names: str) -> str:
    """``--a, --b and --c``."""
    *first, last = (f"--{name}" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def input_shapes(specs: Sequence[Any], words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shape of each input; open dimensions come from ``--shape`` words, or are 1."""
    from weft.measure.random_inputs import shapes_with

    return shapes_with(specs, parse_shapes(words))


def console() -> Any:
    """The rich console for tables and trees."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False)


MAX_WHOLE_CHARACTERS = 24
"""Names of at most so many characters in a table's first column are never broken."""


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Any:
    """A rich table; columns numbered in ``right`` are right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for i, name in enumerate(columns):
        short = i == 0 and all(len(row[0]) <= MAX_WHOLE_CHARACTERS for row in rows)
        made.add_column(name, justify="right" if i in right else "left", overflow="fold", no_wrap=short)
    for row in rows:
        made.add_row(*row)
    return made
