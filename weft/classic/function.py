"""Compiled functions: call, time, save, load."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.classic.callbacks import raising_failures
from weft.runtime import Artifact, Executable
from weft.runtime.arguments import bind_symbols
from weft.runtime.devices import Device
from weft.runtime.display import model_html
from weft.runtime.sizes import evaluate
from weft.support.clock import repeated
from weft.support.errors import ArtifactError, InputError, UserError
from weft.support.files import existing_file, replaced_file
from weft.support.html import escape, html_table, preformatted
from weft.support.words import counted

_FOOTER = b"WEFTEND\x01"
"""The end of a shared library that contains an artifact: its length in 8 bytes (little-endian) and this mark."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds for one call, for each repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean seconds for one call."""
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        """Median seconds for one call."""
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        """Seconds for one call in the fastest repetition."""
        return min(self.results)

    def _repr_html_(self) -> str:
        times = {"fastest": self.min, "median": self.median, "mean": self.mean, "slowest": max(self.results)}
        rows = [[name, f"{seconds * 1e6:.3f} µs"] for name, seconds in times.items()]
        return html_table(["one call", f"in {counted(len(self.results), 'repetition')}"], rows, (1,))


class CompiledFunction:
    """A compiled schedule. Call it with the arguments of ``build`` in their order; outputs are written in place.

    If called with the inputs only, it returns the outputs. Arguments may be ``weft.nd`` tensors, NumPy arrays, or
    objects with ``__dlpack__``.
    """

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        self.executable = Executable(artifact, threads)
        function = artifact.metadata["function"]
        self._order = [(str(kind), at) for kind, at in function["order"]]
        self._sizes = [(str(name), known, bool(passed)) for name, known, passed in function["sizes"]]
        self._passed_count = sum(passed for _, _, passed in self._sizes)

    @property
    def name(self) -> str:
        """The name given to ``build``."""
        return str(self.artifact.metadata["model"])

    entry_name = name

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the schedule: register buffers that are in memory, since a loop that indexes them is not unrolled,
        and vectorized loops whose elements are far apart in memory."""
        return tuple(map(str, self.artifact.metadata["function"].get("notes", ())))

    @property
    def artifact(self) -> Artifact:
        """The artifact that :meth:`save` writes: program, code and constants."""
        return self.executable.artifact

    @property
    def loops(self) -> str:
        """The text of the scheduled program."""
        return str(self.artifact.metadata["function"]["loops"])

    def inspect(self, stage: str = "assembly") -> str:
        """The text of one stage: ``scheduled`` (the same as :attr:`loops`), ``kernel`` (flat buffers and vectors),
        ``llvm`` or ``c`` (the input of the code generator, by the target's back end), ``assembly``.

        The loops are lowered again for it, also if the function was loaded from a file. Raises UserError B012 for other
        stages.
        """
        from weft.classic.stages import function_task, stage_text

        return stage_text(function_task(self.artifact), stage)

    def __call__(self, *args: Any) -> Any:
        """Run the function. Raises InputError if an argument does not fit, UserError I037 if a function that it calls
        reports an error, and what a Python function that it calls raises."""
        inputs = [kind for kind, _ in self._order if kind != "output"]
        with raising_failures():
            if len(args) == len(inputs) != len(self._order):
                given, _, sizes = self._sorted(args, inputs)
                return self.executable(*given, *self._passed(given, sizes))
            given, outputs, sizes = self._sorted(args, [kind for kind, _ in self._order])
            self.executable(*given, *self._passed(given, sizes), out=outputs)
        return None

    def _sorted(self, args: Sequence[Any], kinds: Sequence[str]) -> tuple[list[Any], list[Any], list[Any]]:
        """Inputs, outputs and sizes among the arguments of a call."""
        if len(args) != len(kinds):
            raise InputError(
                f"'{self.name}' takes {len(self._order)} arguments, not {len(args)}",
                code="I001",
                hint="pass the arguments of build in their order; outputs that are left out are returned",
            )
        groups: dict[str, list[Any]] = {"input": [], "output": [], "size": []}
        for kind, value in zip(kinds, args, strict=True):
            groups[kind].append(value)
        return groups["input"], groups["output"], groups["size"]

    def _passed(self, given: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """The sizes that the executable takes as inputs; the others are compared with the shapes of the inputs."""
        if not sizes:
            return []
        symbols = bind_symbols(self.artifact.program, [*map(np.shape, given), *((),) * self._passed_count])
        for (name, known, _), value in zip(self._sizes, sizes, strict=True):
            wanted = None if known is None else evaluate(tuple(known), symbols)
            if wanted is not None and wanted != value:
                raise InputError(f"the size {name} is {value} but the inputs have {wanted}", code="I003")
        return [value for (_, _, passed), value in zip(self._sizes, sizes, strict=True) if passed]

    def time_evaluator(
        self, name: str | None = None, device: Device | None = None, number: int = 10, repeat: int = 1
    ) -> Callable[..., Measurement]:
        """A function that warms up, runs this function ``number`` times in each of ``repeat`` repetitions and returns a
        :class:`Measurement`."""

        def evaluate(*args: Any) -> Measurement:
            def calls() -> None:
                for _ in range(number):
                    self(*args)

            self(*args)
            return Measurement(tuple(s / number for s in repeated(calls, repeat)))

        return evaluate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the function to a file for :func:`load_function`; if the name ends in ``.o``, only the object code. An
        existing file is replaced as a whole. Raises UserError A003 if the file cannot be written."""
        if os.fspath(path).endswith(".o"):
            _write(path, self._object())
        else:
            self.artifact.save(path)

    def _object(self) -> bytes:
        self.artifact.check_portable()
        return self.artifact.codes[0].variants[0].data

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write a shared library that exports the kernel as a C function; :func:`load_function` reads it too.

        The C interface is ``int32_t name(void *const *buffers, const int64_t *sizes)``, inputs before outputs. Linking
        needs a C compiler driver (``CC``, default ``cc``); without one UserError X010 is raised. An existing file is
        replaced as a whole. Raises UserError A003 if the file cannot be written.
        """
        driver = os.environ.get("CC", "cc")
        with tempfile.TemporaryDirectory() as folder:
            obj, carried, linked = (Path(folder, name) for name in ("kernel.o", "function.weft", "linked.so"))
            obj.write_bytes(self._object())
            self.artifact.save(carried)
            try:
                command = [driver, "-shared", "-o", str(linked), str(obj), "-lm"]
                subprocess.run(command, check=True, capture_output=True, text=True)
            except OSError as error:  # there is none, or it may not be run
                raise UserError(
                    f"linking a shared library needs '{driver}'", code="X010", hint="install one, or use save()"
                ) from error
            except subprocess.CalledProcessError as error:
                raise ArtifactError(f"'{driver}' could not link '{path}': {error.stderr}", code="A020") from error
            data = carried.read_bytes()
            library = linked.read_bytes()
        _write(path, library + data + len(data).to_bytes(8, "little") + _FOOTER)

    def __repr__(self) -> str:
        return f"<CompiledFunction {self.name}({', '.join(kind for kind, _ in self._order)})>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return model_html(self.name, self.artifact.program, self.artifact.facts) + notes + preformatted(self.loops)


def _write(path: str | os.PathLike[str], content: bytes) -> None:
    try:
        with replaced_file(path) as file:
            file.write(content)
    except OSError as error:
        raise UserError(f"cannot write '{os.fspath(path)}': {error.strerror or error}", code="A003") from error


def load_function(path: str | os.PathLike[str], threads: int | None = None) -> CompiledFunction:
    """Load a file written by :meth:`CompiledFunction.save` or :meth:`CompiledFunction.export_library`.

    Raises InputError if there is no such file, ArtifactError if it is not a function.
    """
    carried = _carried(existing_file(path))
    if carried is None:
        artifact = Artifact.load(path)
    else:
        with tempfile.NamedTemporaryFile(suffix=".weft") as file:
            file.write(carried)
            file.flush()
            artifact = Artifact.load(file.name)
    if "function" not in artifact.metadata:
        raise ArtifactError(f"'{os.fspath(path)}' is a model", code="A021", hint="use weft.load_executable")
    return CompiledFunction(artifact, threads)


def _carried(path: Path) -> bytes | None:
    """The artifact at the end of a shared library, or None if the file is not a shared library."""
    end = 8 + len(_FOOTER)
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - end))
        tail = file.read(end)
        length = int.from_bytes(tail[:8], "little")
        if not tail.endswith(_FOOTER) or length > size - end:
            raise ArtifactError(
                f"'{path}' contains no function",
                code="A022",
                hint="load a file written by export_library, or a .weft file",
            )
        file.seek(size - end - length)
        return file.read(length)
