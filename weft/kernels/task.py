"""A kernel to be built, as one value: a program, the machine, the schedule and the intrinsics that the schedule names.

Everything that handles kernels by name handles tasks: the cache, the processes that build, dumps, reports of errors. A
task has one text, which reads back as an equal task:

    task 1
    target "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 …"
    trace {"version": 1, "instructions": […]}
    scalar {"name": "cube", "arity": 1, "forms": {"float32": "x0 * x0 * x0"}}
    intrinsic "dot_bytes"
    program "dot_bytes"(A: u8[4], B: i8[4]) -> (C: i32[1]):
      …
    program "dot_bytes"(A: u8[4], B: i8[4]) -> (C: i32[1]):
      …
    program "dense_relu"[n](x: f32[n, 64]) -> (out: f32[n, 64]):
      …

Without a ``trace`` the default rules decide. Each ``scalar`` is a plugin's intrinsic that the programs call
(:mod:`weft.kernels.scalars`). Each ``intrinsic`` (with ``includes_init`` after its name if it
initializes its result) is followed by its description and its implementation. The last program is the kernel's,
unscheduled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Backend
from weft.expr.added import adding
from weft.ir.structural import structural_hash
from weft.ir.text import NEWLINE, TokenStream, quote
from weft.kernels.scalars import called_scalars, scalar_of
from weft.schedule.dispatch import Dispatch, RecordedSchedule, Version, schedule_from_json
from weft.schedule.intrinsic import TensorIntrinsic
from weft.support.errors import InternalError, ScheduleError, UserError
from weft.support.fingerprint import compiler_fingerprint
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.parser import parse_program
from weft.tir.text import to_text

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, eq=False)
class KernelTask:
    """What decides the machine code of one kernel, besides the compiler itself.

    ``program`` is unscheduled; ``trace`` is its schedule, None for the default rules; where it depends on open sizes, a
    :class:`~weft.schedule.dispatch.Dispatch`. ``intrinsics`` are those that the
    trace names and that are not Weft's own. ``backend`` is that of a plugin, None for the package's own. The text
    contains only the kind of the target, so only a process that knows the plugin can build from it. ``scalars`` are
    texts of the plugins' scalar intrinsics that the programs call (None: as they are in use where the task is made).
    Tasks are equal if their keys are equal.
    """

    program: Program
    target: Target
    trace: RecordedSchedule | None = None
    intrinsics: tuple[TensorIntrinsic, ...] = ()
    backend: Backend | None = None
    scalars: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        by_name = {i.name: i for i in self.intrinsics}
        if len(by_name) != len(self.intrinsics):
            raise ScheduleError("two intrinsics of a kernel share a name", code="S082", hint="give each its own")
        object.__setattr__(self, "intrinsics", tuple(by_name[name] for name in sorted(by_name)))
        if self.scalars is None:
            inner = (p for i in self.intrinsics for p in (i.description, i.implementation))
            object.__setattr__(self, "scalars", called_scalars((self.program, *inner), self.target))

    def with_trace(self, trace: RecordedSchedule, known: Iterable[TensorIntrinsic] = ()) -> KernelTask:
        """The task under another schedule, with those of the ``known`` intrinsics that the schedule names."""
        needed = trace.intrinsics
        with self.scope():  # implementations of tensor intrinsics may call other scalar ones than the program
            return replace(self, trace=trace, intrinsics=tuple(i for i in known if i.name in needed), scalars=None)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Inside of the ``with`` statement, the names of the task's scalar intrinsics mean what its texts say."""
        with adding(scalar_of(text) for text in self.scalars or ()):
            yield

    @property
    def maker(self) -> Backend:
        """The back end that builds the kernel."""
        return self.backend or backend_of(self.target)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The schedules of the kernel: one, or those of its dispatch."""
        return tuple(self.trace.versions()) if isinstance(self.trace, Dispatch) else (Version(self.trace),)

    def condition(self, version: Version) -> str:
        """For which sizes a version is chosen, for people; empty if it is the only one."""
        return version.condition([v.name for v in self.program.sizes])

    @cached_property
    def structure(self) -> str:
        """The structural hash of the program, its name included."""
        return structural_hash(self.program)

    @cached_property
    def identity(self) -> str:
        """A hash of the computation and the machine, independent of the schedule, the program's name and the state of
        the compiler: measurements of this kernel are stored under it."""
        return _digest("task", structural_hash(replace(self.program, name="")), str(self.target))

    @cached_property
    def key(self) -> str:
        """The address of the machine code. Raises ScheduleError (S006) for a trace that JSON cannot hold."""
        parts = ["kernel", self.structure, str(self.target), *tools(self.target, self.maker)]
        if self.trace is not None:  # traces refer to buffers by name
            parts += ["trace", self.trace.to_json(), *(b.name for b in (*self.program.params, *self.program.allocs))]
        parts += [part for text in self.scalars or () for part in ("scalar", text)]
        for i in self.intrinsics:
            parts += ["intrinsic", i.name, structural_hash((i.description, i.implementation, i.includes_init))]
        return _digest(*parts)

    @property
    def symbol(self) -> str:
        """The name of the kernel in machine code: unique in an artifact, whatever the target."""
        return f"{self.program.name}_{self.structure[:10]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelTask) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def to_text(self) -> str:
        """The text of the task; :meth:`from_text` reads it back."""
        lines = [f"task {FORMAT_VERSION}\n", f"target {quote(str(self.target))}\n"]
        if self.trace is not None:
            lines.append(f"trace {self.trace.to_json()}\n")
        lines += [f"scalar {text}\n" for text in self.scalars or ()]
        for i in self.intrinsics:
            lines.append(f"intrinsic {quote(i.name)}{' includes_init' if i.includes_init else ''}\n")
            lines += [to_text(i.description), to_text(i.implementation)]
        return "".join((*lines, to_text(self.program)))

    @classmethod
    def from_text(
        cls, text: str, file: str | None = None, target_of: Callable[[str], Target] | None = None
    ) -> KernelTask:
        """The task that ``text`` describes. ``target_of`` reads its target (default: one of Weft's own kinds). Raises
        ParseError, TargetError or ScheduleError with the location."""
        tokens = TokenStream(text, layout=True, file=file)
        tokens.expect("task")
        version = tokens.current
        if tokens.integer() != FORMAT_VERSION:
            tokens.fail(f"tasks of version {version.text} are not known", version, hint=f"this is {FORMAT_VERSION}")
        tokens.expect_kind(NEWLINE)
        tokens.expect("target")
        with _at(tokens):
            target = (target_of or _target)(tokens.string())
        tokens.expect_kind(NEWLINE)
        trace = None
        if tokens.accept("trace"):
            with _at(tokens):
                trace = schedule_from_json(tokens.line())
        scalars = []
        while tokens.accept("scalar"):
            with _at(tokens):
                scalars.append(tokens.line())
                scalar_of(scalars[-1])
        intrinsics = []
        while tokens.accept("intrinsic"):
            with _at(tokens):
                intrinsics.append(_intrinsic(tokens))
        program = parse_program(tokens)
        tokens.finish()
        return cls(program, target, trace, tuple(intrinsics), scalars=tuple(scalars))

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Turn errors that are the compiler's own mistake into InternalErrors whose reproducer is this task."""
        try:
            yield
        except (UserError, MemoryError):
            raise
        except Exception as error:  # whatever building a kernel trips over is the compiler's mistake
            what = error.message if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
            code = error.code if isinstance(error, InternalError) else None
            reproducer = f"# kernel '{self.program.name}': {what.splitlines()[0] if what else ''}\n{self._printed()}"
            raise InternalError(
                f"kernel '{self.program.name}' cannot be built: {what}", code=code, reproducer=reproducer
            ) from error

    def _printed(self) -> str:
        try:
            return self.to_text()
        except Exception as second:  # an invalid program may trip the printer anywhere
            return f"# the task cannot be printed: {type(second).__name__}: {second}\n"


def tools(target: Target, backend: Backend) -> tuple[str, ...]:
    """Everything that decides the code besides the program: state of the compiler, tools of the back end, plugins."""
    return compiler_fingerprint(), backend.version(target), backend.origin


@lru_cache(maxsize=16)
def _target(text: str) -> Target:
    """The target that ``text`` describes; cached, because a worker reads the same target many times."""
    return Target(text)


def _intrinsic(tokens: TokenStream) -> TensorIntrinsic:
    name = tokens.string()
    includes_init = tokens.accept("includes_init") is not None
    tokens.expect_kind(NEWLINE)
    return TensorIntrinsic(name, parse_program(tokens), parse_program(tokens), includes_init)


@contextmanager
def _at(tokens: TokenStream) -> Iterator[None]:
    """Give errors raised inside of the ``with`` block the location where the text that is read here begins."""
    place = tokens.place()
    try:
        yield
    except UserError as error:
        raise error.at(place) from error.__cause__


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()
