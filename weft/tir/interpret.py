"""The reference interpreter: it runs a tensor program, in scheduled or in kernel form, exactly as its text says.

Compiled code and all other interpreters must agree with it. It raises a ProgramError if a program reads or writes out
of bounds (V910, V911), reads memory that was never written (V912), runs a block instance outside its domain (V913),
divides an integer by zero (V914), has threads that do not reach a barrier (V915) or leaves an output unwritten (V916).
On request it also raises an error if two iterations of a parallel loop access the same element and one of them writes
it (V917). Use this for kernel form only, where each buffer is allocated inside the loop that it is private to.

Iterations of parallel, vectorized, thread and virtual loops run one after another in the requested order. A correct
program gives the same result for every order. The threads of a block of threads run one after another up to each
barrier. Memory whose scope is private to a thread becomes undefined in each iteration of the innermost parallel or
thread loop around all its uses. A loop of threads inside a loop of the same axis is shared by them; see
:mod:`weft.tir.threads`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Const, Expr, Var
from weft.expr.visit import free_vars
from weft.support.errors import InputError, Location, ProgramError
from weft.tir import values
from weft.tir.empty_reductions import initialize_empty
from weft.tir.nodes import Buffer, Program
from weft.tir.python_code import Site, Writer
from weft.tir.spans import Span

Array = np.ndarray[Any, Any]
Order = Literal["forward", "backward", "shuffled"]


@dataclass
class Execution:
    """The outputs of a run and, if requested, how often each block instance ran, by block name and values of the
    iteration variables. ``written``: for each output which elements the program wrote (bool); others are 0."""

    outputs: tuple[Array, ...]
    counts: dict[str, dict[tuple[int, ...], int]]
    written: tuple[Array, ...]


@dataclass
class _Support:
    """Functions that the generated code calls."""

    sites: list[Site]
    order: Callable[[Iterable[int]], Iterable[int]]
    counts: dict[str, dict[tuple[int, ...], int]] = field(default_factory=dict)
    touched: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    iteration: int | None = None

    def enter(self, iteration: int) -> None:
        """An iteration of an outermost parallel loop begins."""
        self.iteration = iteration

    def leave(self) -> None:
        """An outermost parallel loop ends: later statements see all its stores."""
        self.iteration = None
        self.touched.clear()

    def touch(self, memory: list[Any], at: int, site: int, writes: bool) -> None:
        """Record an access of the current iteration to memory that exists outside of the parallel loop.

        For each element the iteration that wrote it and the one that read it are kept (-2: several, -1: none)."""
        if self.iteration is None:
            return
        seen = self.touched.setdefault((id(memory), at), [-1, -1])
        others = seen if writes else seen[:1]
        if any(n not in (-1, self.iteration) for n in others):
            raise _failure(self.sites[site], (at,), race=True)
        if seen[not writes] == -1:
            seen[not writes] = self.iteration
        elif seen[not writes] != self.iteration:
            seen[not writes] = -2

    def span(self, *of: Any) -> Span:
        """Elements that a function gets."""
        return Span(self, *of)

    def call(self, function: Callable[..., Any], operands: Sequence[Any]) -> None:
        """Run the stand-in of a function; what it returns says nothing."""
        for x in operands:
            if isinstance(x, Span):
                x.check()
        function(*(x.array if isinstance(x, Span) else x for x in operands))
        for x in operands:
            if isinstance(x, Span):
                x.write_back()

    def fail(self, site: int, *where: Any) -> NoReturn:
        raise _failure(self.sites[site], where)

    def in_step(self, threads: list[Generator[None, None, None]], site: int) -> Generator[None, None, None]:
        """Run threads from barrier to barrier; all must reach each barrier."""
        while threads:
            going = [t for t in threads if next(t, "done") is None]
            if going and len(going) != len(threads):
                self.fail(site, len(going), len(threads))
            threads = going
            if threads:
                yield


def _failure(site: Site, where: tuple[Any, ...], race: bool = False) -> ProgramError:
    place = Location(node=f"block {site.block}") if site.block else None
    at = ", ".join(str(w) for w in where)
    if race:
        name = "" if site.buffer is None else site.buffer.name
        return ProgramError(f"parallel iterations meet at element {at} of '{name}'", code="V917", place=place)
    if site.what == "domain":
        message = f"iteration variable '{where[0]}' is {where[1]}, outside its domain"
        return ProgramError(message, code="V913", place=place)
    if site.what == "barrier":
        return ProgramError(f"{where[0]} of {where[1]} threads wait at a barrier", code="V915", place=place)
    assert site.buffer is not None
    name = site.buffer.name
    if site.what == "undefined":
        return ProgramError(f"{name}[{at}] is read but was never written", code="V912", place=place)
    code, verb = ("V910", "read") if site.what == "load" else ("V911", "written")
    shape = ", ".join(str(e) for e in site.buffer.shape)
    return ProgramError(f"{name}[{at}] is {verb} out of bounds; the shape is [{shape}]", code=code, place=place)


class Interpreter:
    """A program prepared to run any number of times. ``count`` counts the instances of blocks; ``races`` finds
    parallel iterations that access the same memory."""

    def __init__(self, program: Program, count: bool = False, races: bool = False) -> None:
        self.program = program
        made = Writer(initialize_empty(program), count, races).generate()
        self.source, self.sites = made.source, made.sites
        scope: dict[str, Any] = dict(made.constants)
        exec(compile(made.source, f"<{program.name}>", "exec"), scope)
        self._run = scope["run"]

    def run(
        self,
        inputs: Sequence[Array],
        sizes: Mapping[str, int] | None = None,
        order: Order = "forward",
        seed: int = 0,
        partial: bool = False,
    ) -> Execution:
        """Run on NumPy arrays as inputs. The flat buffers of kernel form accept arrays of any shape with the right
        number of elements. ``sizes`` gives symbolic sizes that do not follow from the input shapes. ``partial``: the
        program may leave elements of its outputs unwritten."""
        program = self.program
        given = program.params[: len(program.params) - program.outputs]
        if len(inputs) != len(given):
            raise InputError(f"'{program.name}' takes {len(given)} inputs, not {len(inputs)}", code="I010")
        known = infer_sizes(program, [np.shape(a) for a in inputs], sizes)
        memory: dict[str, list[Any]] = {}
        for buffer, array in zip(given, inputs, strict=True):
            memory[buffer.name] = _checked_input(buffer, np.asarray(array), known)
        for buffer in (*program.params[len(given) :], *program.allocs):
            shape = _maybe_shape(buffer, known)
            if shape is not None:
                memory[buffer.name] = [None] * int(np.prod(shape, dtype=np.int64))
        support = _Support(self.sites, _order(order, seed))
        with np.errstate(all="ignore"):
            try:
                threads = self._run(memory, {v.name: known[v] for v in program.sizes}, support)
                for _ in threads or ():
                    pass
            except ZeroDivisionError as error:
                raise ProgramError(f"'{program.name}' divides an integer by zero", code="V914") from error
        results = [(b, memory[b.name]) for b in program.params[len(given) :]]
        written = tuple(np.array([v is not None for v in m], bool).reshape(_shape(b, known)) for b, m in results)
        if partial:
            for _, m in results:
                m[:] = [0 if v is None else v for v in m]
        return Execution(tuple(_output(b, m, known) for b, m in results), support.counts, written)


def run(
    program: Program,
    inputs: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    order: Order = "forward",
    seed: int = 0,
) -> tuple[Array, ...]:
    """The outputs of ``program`` on ``inputs``; see :meth:`Interpreter.run`."""
    return Interpreter(program).run(inputs, sizes, order, seed).outputs


def execute(program: Program, inputs: Sequence[Array], sizes: Mapping[str, int] | None = None) -> Execution:
    """Run ``program`` and count how often each block instance ran."""
    return Interpreter(program, count=True).run(inputs, sizes)


def _order(order: Order, seed: int) -> Callable[[Iterable[int]], Iterable[int]]:
    if order == "forward":
        return lambda r: r
    if order == "backward":
        return lambda r: list(r)[::-1]
    source = random.Random(seed)

    def shuffled(r: Iterable[int]) -> Iterable[int]:
        values = list(r)
        source.shuffle(values)
        return values

    return shuffled


def infer_sizes(
    program: Program, shapes: Sequence[tuple[int, ...]], sizes: Mapping[str, int] | None = None
) -> dict[Var, int]:
    """The values of the symbolic sizes, from the shapes of the inputs and from ``sizes`` by name."""
    named = dict(sizes or {})
    known: dict[Var, int] = {v: int(named.pop(v.name)) for v in program.sizes if v.name in named}
    if named:
        raise InputError(f"'{program.name}' has no size called '{next(iter(named))}'", code="I011")
    for buffer, shape in zip(program.params, shapes, strict=False):
        for e, n in zip(buffer.shape, shape, strict=False):
            if isinstance(e, Var):
                known.setdefault(e, int(n))
    for v in program.sizes:
        if v not in known:
            raise InputError(f"the size '{v.name}' of '{program.name}' is not known from the inputs", code="I011")
    return known


def _evaluate(root: Expr, known: Mapping[Var, int]) -> int:
    """The value of an index expression of sizes."""
    if isinstance(root, Const):
        return int(root.value)
    return int(evaluate(root, {v: known[v] for v in free_vars(root)}))


def _shape(buffer: Buffer, known: Mapping[Var, int]) -> tuple[int, ...]:
    return tuple(max(0, _evaluate(e, known)) for e in buffer.shape)


def _maybe_shape(buffer: Buffer, known: Mapping[Var, int]) -> tuple[int, ...] | None:
    """The shape, or None if it depends on loop variables (the generated code allocates such memory itself)."""
    try:
        return _shape(buffer, known)
    except KeyError:
        return None


def _checked_input(buffer: Buffer, array: Array, known: Mapping[Var, int]) -> list[Any]:
    if array.dtype != buffer.dtype.numpy:
        raise InputError(f"input '{buffer.name}' is {buffer.dtype}, not {array.dtype}", code="I012")
    shape = _shape(buffer, known)
    flat = len(shape) == 1 and array.size == shape[0]  # kernel form takes the elements in row-major order
    if array.shape != shape and not flat:
        raise InputError(f"input '{buffer.name}' has the shape {list(shape)}, not {list(array.shape)}", code="I013")
    return values.to_list(array, buffer.dtype)


def _output(buffer: Buffer, memory: list[Any], known: Mapping[Var, int]) -> Array:
    shape = _shape(buffer, known)
    missing = next((i for i, v in enumerate(memory) if v is None), None)
    if missing is not None:
        at = ", ".join(str(i) for i in np.unravel_index(missing, shape))
        raise ProgramError(f"the output {buffer.name}[{at}] was never written", code="V916")
    made = np.empty(len(memory), buffer.dtype.numpy)
    if memory:
        made[:] = np.array(memory, buffer.dtype.numpy)
    return made.reshape(shape)
