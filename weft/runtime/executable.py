"""Executables: a loaded artifact that runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime import _native
from weft.runtime.arguments import Arguments
from weft.runtime.artifact import ABI_VERSION, Artifact, CodeObject, Variant
from weft.runtime.devices import Device, opened
from weft.runtime.display import model_html
from weft.runtime.elements import numpy_dtype
from weft.runtime.encode import VERSION, constant_count, encode
from weft.runtime.host import HostOperators
from weft.runtime.profile import Profile, make_profile
from weft.runtime.program import TensorSpec
from weft.runtime.threads import SYSTEM_FEATURES, checked_threads, cpu_features
from weft.support.arguments import FLAG, MAPPING, NUMBER, PATH, WHOLE, checked, shown
from weft.support.clock import repeated, seconds_of, warmed_up
from weft.support.errors import ArtifactError, InputError, UserError
from weft.support.files import existing_file
from weft.support.memory import compact
from weft.support.words import counted

_MAX_SECONDS = 4e9
"""Longer times are as good as no limit; these, in nanoseconds, fit 63 bits."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Latency of whole runs: ``times``, ``median`` and ``min`` are milliseconds."""

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the times, in milliseconds per run."""
        return float(np.median(self.times))

    @property
    def min(self) -> float:
        """The shortest of the times, in milliseconds per run."""
        return min(self.times)

    def __str__(self) -> str:
        return f"median {self.median:.3f} ms, best {self.min:.3f} ms of {len(self.times)} runs"

    __repr__ = __str__


class Executable:
    """A compiled model, ready to run.

    ``exe(x, …)`` takes inputs in order, or by name (``exe(x, mask=m)``), and returns an array, or a tuple of arrays if
    the model has several outputs; ``exe.run({name: x})`` takes and returns them by name. Inputs may be NumPy arrays,
    anything with ``__dlpack__`` (shared, not copied, if compact), or nested lists; values of algebraic data types are
    ``weft.Data``. Tensors on other devices (``weft.nd.array(x, device)``) are used in place if the program expects them
    there, else copied. Several threads may run one executable at once.
    """

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        """Load the code of ``artifact``. Raises ArtifactError if it does not fit this machine or is malformed."""
        self._load(artifact, checked_threads(threads), None)

    def _load(self, artifact: Artifact, threads: int, memory_limit: int | None) -> None:
        """Load the code of ``artifact``, also in place of what was loaded before."""
        program = artifact.program
        if (built := getattr(_native, "PROGRAM_VERSION", 2)) != VERSION:
            raise ArtifactError(
                f"the C runtime was built from other sources: it runs programs of version {built}, these are {VERSION}",
                code="A007",
                hint="build it again: pip install -e .",
            )
        if artifact.abi_version != ABI_VERSION or _native.ABI_VERSION != ABI_VERSION:
            raise ArtifactError(
                f"the artifact needs version {artifact.abi_version} of the runtime, this is {_native.ABI_VERSION}",
                code="A007",
                hint="compile the model again",
            )
        if constant_count(program) > len(artifact.constants):
            raise ArtifactError("the artifact lacks constants that its program uses", code="A010")
        self._artifact = artifact
        self._arguments = Arguments(program)
        self._single = len(program.outputs) == 1
        devices = tuple(opened(Device(d.kind, d.index)) for d in program.devices)
        constants = tuple(_aligned(c) for c in artifact.constants[: constant_count(program)])
        try:
            self._native = _native.Executable(
                encode(program),
                _loadable(artifact, devices),
                tuple((k.code, k.name) for k in program.kernels),
                constants,
                tuple(None if t.is_value else str(t.dtype) for t in program.inputs),
                tuple(None if t.is_value else str(t.dtype) for t in program.outputs),
                (*map(_input_dtype, program.inputs), *(numpy_dtype(t.dtype) for t in program.outputs)),
                threads,
                np.ndarray,
                self._arguments.convert,
                self._arguments.convert_output,
                self._arguments.fail,
                HostOperators(program.hosts).run,
                devices,
            )
        except ValueError as error:
            raise ArtifactError(f"the artifact cannot be loaded: {error}", code="A008") from error
        self._native.memory_limit = memory_limit or 0
        gives_values = any(t.is_value for t in program.outputs)
        self._execute: Callable[..., tuple[Any, ...]] = self._run_values if gives_values else self._native.run
        self._run = self._execute

    @property
    def artifact(self) -> Artifact:
        """The artifact that :meth:`save` writes: program, code and constants."""
        return self._artifact

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs."""
        return self._artifact.program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the outputs."""
        return self._artifact.program.outputs

    @property
    def threads(self) -> int:
        """Threads that one run uses."""
        return self._native.threads

    @threads.setter
    def threads(self, count: int | None) -> None:
        self._native.threads = checked_threads(count)

    @property
    def arena_bytes(self) -> int:
        """Bytes currently held for intermediate results, on all devices: 0 before the first run. Memory of one run is
        kept for the next ones; :meth:`trim` frees it."""
        return self._native.held_bytes

    @property
    def memory_limit(self) -> int | None:
        """Most bytes that all runs together may hold for intermediate results; None: no limit.

        A run that needs more is refused with a UserError (I036). Inputs, outputs, constants and values do not count.
        """
        return self._native.memory_limit or None

    @memory_limit.setter
    def memory_limit(self, nbytes: int | None) -> None:
        if nbytes is not None and (not WHOLE.accepts(nbytes) or not 0 < nbytes < 1 << 63):
            raise InputError(
                f"memory_limit must be a number of bytes from 1 on, or None, not {shown(nbytes)}", code="I029"
            )
        self._native.memory_limit = nbytes or 0

    def trim(self) -> int:
        """Free the memory that is kept for later runs, by whichever thread, that of large results that are gone, and
        idle worker threads. Returns the bytes of intermediate results among it.

        Runs under way keep theirs. The next run allocates its memory again.
        """
        return self._native.trim()

    def __call__(self, *inputs: Any, out: Any = None, timeout: float | None = None, **named: Any) -> Any:
        """Run on inputs in the model's order, the rest by name; an array, or a tuple of arrays.

        Inputs that are called ``out`` or ``timeout`` are given in order, or to :meth:`run`.

        ``out`` gives the memory for the results: an array, or a sequence of arrays (writable, compact, not overlapping
        the inputs), which are returned; a tensor on a device is written there. Other results are arrays in main memory.
        A run that takes longer than ``timeout`` seconds is stopped and raises a UserError (I035); so does
        KeyboardInterrupt in the main thread stop a run. What ``out`` holds then is not defined.
        Raises InputError if something does not fit.
        """
        if named:
            inputs = self._arguments.completed(inputs, named)
        outs = None
        if out is not None:
            outs = (out,) if self._single and not isinstance(out, (tuple, list)) else tuple(out)
        if timeout is None:
            results = self._run(inputs) if outs is None else self._run(inputs, outs)
        else:
            results = self._run(inputs, outs, None, _nanoseconds(timeout))
        return results[0] if self._single else results

    def _run_values(self, *arguments: Any) -> tuple[Any, ...]:
        return self._arguments.results(self._native.run(*arguments))

    def run(
        self, inputs: Mapping[str, Any] | None = None, /, *, timeout: float | None = None, **named: Any
    ) -> dict[str, Any]:
        """Run on inputs by name; the outputs by name. ``timeout`` as for a call, in seconds; an input of that name is
        given in the mapping. Raises InputError if something does not fit."""
        if inputs is not None and not MAPPING.accepts(inputs):
            raise InputError(f"run: 'inputs' must be {MAPPING.says}, not {type(inputs).__name__}", code="I029")
        order = self._arguments.order(self._arguments.merged(inputs or {}, named))
        results = self._run(order) if timeout is None else self._run(order, None, None, _nanoseconds(timeout))
        return {spec.name: value for spec, value in zip(self.outputs, results, strict=True)}

    @checked("I029", InputError, path=PATH)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file for :func:`load_executable`."""
        self._artifact.save(path)

    @checked("I029", InputError, runs=WHOLE)
    def profile(self, *inputs: Any, runs: int = 10) -> Profile:
        """Time every kernel over ``runs`` runs, after one warm-up run. Inputs as for a call, or one mapping by name."""
        given = self._given(inputs)
        if runs < 1:
            raise InputError(f"{runs} runs cannot be timed", code="I010", hint="at least 1")
        program, execute = self._artifact.program, self._execute  # these runs change no program
        times = np.zeros((runs, 2, len(program.instructions)), dtype=np.int64)
        totals: list[float] = []
        execute(given)
        for row in times:
            totals.append(seconds_of(partial(execute, given, None, row)) * 1e3)
        return make_profile(program, times, totals, self._arguments.symbols(given), self.threads)

    @checked("I029", InputError, seconds=NUMBER, warmup=NUMBER, max_runs=WHOLE)
    def benchmark(self, *inputs: Any, seconds: float = 1.0, warmup: float = 0.1, max_runs: int = 10_000) -> Timing:
        """Latency of whole runs, repeated for about ``seconds`` after ``warmup`` seconds, ``max_runs`` times at most.

        Inputs as for a call, or one mapping by name.
        """
        given = self._given(inputs)
        run = partial(self._run, given)
        warmed_up(run, _limited(warmup))
        return Timing(tuple(s * 1e3 for s in repeated(run, max_runs, _limited(seconds))))

    def sizes(self, *inputs: Any) -> dict[str, int]:
        """The values of the open sizes for these inputs, which are given as for a call, or as one mapping by name."""
        return self._arguments.symbols(self._given(inputs))

    def _given(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return self._arguments.order(inputs[0])
        return tuple(inputs)

    def __repr__(self) -> str:
        name = self._artifact.name
        kernels, megabytes = len(self._artifact.program.kernels), self._artifact.constant_bytes / 1e6
        parts = counted(kernels, "kernel"), f"{megabytes:.1f} MB of constants", counted(self.threads, "thread")
        return f"<Executable {name}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        facts = (*self._artifact.facts, counted(self.threads, "thread"))
        return model_html(self._artifact.name, self._artifact.program, facts)


@checked("I029", InputError, path=PATH, verify=FLAG, mapped=FLAG)
def load_executable(
    path: str | os.PathLike[str], threads: int | None = None, *, verify: bool = False, mapped: bool = True
) -> Executable:
    """Load a file written by :meth:`Executable.save`; the compiler is not needed.

    The file holds machine code: load only files that you trust as you trust programs. Its constants are mapped, so it
    must not be changed in place while it is used (replace it by renaming, or load it with ``mapped=False``).
    ``verify`` checks every byte of the constants. Raises ArtifactError for files that are damaged or do not fit this
    machine, InputError if there is no such file.
    """
    return Executable(Artifact.load(existing_file(path), verify, mapped), threads)


def _nanoseconds(timeout: float) -> int:
    if not NUMBER.accepts(timeout) or not timeout >= 0:
        raise InputError(f"timeout must be a number of seconds from 0 on, or None, not {shown(timeout)}", code="I029")
    return int(_limited(timeout) * 1e9)


def _limited(seconds: float) -> float:
    """``seconds``, or what stands for longer times: any number from Python or NumPy fits a float then."""
    try:
        return min(float(seconds), _MAX_SECONDS)
    except OverflowError:  # an integer
        return _MAX_SECONDS if seconds > 0 else 0.0


def _input_dtype(spec: TensorSpec) -> np.dtype[Any] | None:
    """NumPy's name of the element type of an input; None if NumPy lacks it, so that inputs must be tensors."""
    try:
        return numpy_dtype(spec.dtype)
    except UserError:
        return None


def _loadable(
    artifact: Artifact, devices: Sequence[_native.Device]
) -> tuple[_native.Code | tuple[str, bytes] | None, ...]:
    """Each code object in the form for its device: loaded, for the CPU, or format and bytes (None: unknown device)."""
    formats = [d.info()[1].split(",") for d in devices]
    users = {k.code: k.device for k in artifact.program.kernels}
    found: list[_native.Code | tuple[str, bytes] | None] = []
    for i, code in enumerate(artifact.codes):
        number = users.get(i, 0)
        if not number:
            found.append(_native.Code(_pick(code).data))
        elif 0 < number <= len(devices):
            variant = _pick_format(code, formats[number - 1], artifact.program.devices[number - 1].kind)
            found.append((variant.format, variant.data))
        else:
            found.append(None)
    return tuple(found)


def _pick_format(code: CodeObject, formats: Sequence[str], kind: str) -> Variant:
    """The variant in the first format that a device lists."""
    fitting = [v for f in formats for v in code.variants if v.format == f]
    if fitting:
        return fitting[0]
    has = ", ".join(sorted({v.format for v in code.variants})) or "nothing"
    raise ArtifactError(
        f"the artifact has no code that devices of kind '{kind}' load: it has {has}, they take {', '.join(formats)}",
        code="A009",
        hint="compile the model again",
    )


def _pick(code: CodeObject) -> Variant:
    """The variant that uses the most features of this CPU."""
    have = cpu_features() | SYSTEM_FEATURES
    loadable = [v for v in code.variants if v.format == "elf"]
    fitting = [v for v in loadable if v.features <= have]
    if fitting:
        return max(fitting, key=lambda v: len(v.features))
    if any(v.format == "c" for v in code.variants):
        raise ArtifactError(
            "the artifact holds C sources, not code",
            code="A009",
            hint="compile without the target's option -code=source",
        )
    lacking = min((sorted(v.features - have) for v in loadable), key=len, default=[])
    raise ArtifactError(
        "the artifact has no code for this CPU" + (f", which lacks {', '.join(lacking)}" if lacking else ""),
        code="A009",
        hint="compile for this machine, or add code for it with --also",
    )


def _aligned(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array, at an address that is a multiple of 64; copied if they are elsewhere."""
    return compact(array).reshape(-1).view(np.uint8)
