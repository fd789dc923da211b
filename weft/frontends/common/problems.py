"""The problems of a model, collected over the whole file and reported together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from weft.support.errors import Location, ModelError, TypeRelationError

MAX_SHOWN_PROBLEMS = 20
"""Problems printed in a message; :attr:`ModelProblems.problems` holds all of them."""


class Malformed(ModelError):
    """A part of the model violates the specification of its format. The importer adds the place to the message."""

    default_code = "M003"


class Unsupported(ModelError):
    """The model is valid, but uses a feature that Weft lacks. The importer adds the place to the message."""

    default_code = "M004"


class TooLarge(Unsupported):
    """An expression of sizes is too large to calculate with during import."""


class NeedsValue(Unsupported):
    """A value must be known when the model is compiled, but the model computes it from its inputs.

    ``inputs`` names the inputs it depends on: with their values (``shape``: their shapes), the model can be imported.
    """

    def __init__(self, message: str, inputs: Iterable[str] = (), *, shape: bool = False) -> None:
        super().__init__(message)
        self.inputs = frozenset(inputs)
        self.shape = shape


class Noted(ModelError):
    """A node in a subgraph or function failed; its problem is already recorded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a model cannot be imported.

    ``node`` is the node's name (or ``OpType_index``), empty for problems of the whole file. ``op_type`` is its
    operator, with its domain unless that is the standard one. ``needs`` names inputs whose values would solve
    the problem, ``needs_shape`` inputs whose shapes would.
    """

    text: str
    node: str = ""
    op_type: str = ""
    code: str = "M001"
    hint: str | None = None
    needs: frozenset[str] = frozenset()
    needs_shape: frozenset[str] = frozenset()

    def __str__(self) -> str:
        place = f"{self.op_type} '{self.node}': " if self.node else ""
        return f"[{self.code}] {place}{self.text}" + (f" ({self.hint})" if self.hint else "")


class ModelProblems(ModelError):
    """All problems of one model. ``problems`` lists them in the order of the file; ``unsupported`` counts the
    operators that are missing; ``needs`` names inputs that would have to be known (see ``known`` of ``load``)."""

    default_code = "M010"

    def __init__(self, file: str, problems: tuple[Problem, ...], unsupported: Counter[str]) -> None:
        self.problems = problems
        self.unsupported = unsupported
        self.needs = frozenset(n for p in problems for n in p.needs)
        self.needs_shape = frozenset(n for p in problems for n in p.needs_shape)
        count = len(problems)
        lines = [f"the model cannot be imported: {count} problem{'s' if count != 1 else ''}"]
        lines += [f"  {problem}" for problem in problems[:MAX_SHOWN_PROBLEMS]]
        if count > MAX_SHOWN_PROBLEMS:
            lines.append(f"  … and {count - MAX_SHOWN_PROBLEMS} more")
        if unsupported:
            names = ", ".join(f"{name} ×{times}" for name, times in sorted(unsupported.items()))
            lines.append(f"  operators that Weft does not have: {names}")
        super().__init__("\n".join(lines), place=Location(file=file))


@dataclass(slots=True)
class Attempt:
    """Whether an attempt failed, and why."""

    reason: str = ""


@dataclass(slots=True)
class Problems:
    """Collects problems while a model is being imported."""

    file: str
    found: list[Problem] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, problem: Problem) -> None:
        self.found.append(problem)

    def add_missing(self, op_type: str, node: str) -> None:
        """Record an operator without a converter: it is counted each time and listed once."""
        if op_type not in self.missing:
            self.add(Problem("this operator is not supported", node, op_type, "M004"))
        self.missing[op_type] += 1

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Import nodes that may be invalid for the current shapes. Their problems are then dropped, and the attempt
        has the first reason. Missing operators and values remain problems and raise Noted, as do problems that were
        noted before: a branch reads a value that could not be imported."""
        made, noted = Attempt(), False
        before, missing = len(self.found), self.missing.total()
        try:
            yield made
        except Noted:
            noted = True
        except (Malformed, Unsupported, TypeRelationError) as why:
            if isinstance(why, NeedsValue):
                raise
            made.reason = why.message
        new = self.found[before:]
        if self.missing.total() > missing or any(p.needs for p in new) or (noted and not new):
            raise Noted("a branch could not be imported")
        if new:
            made.reason = f"{new[0].op_type} '{new[0].node}': {new[0].text}"
            del self.found[before:]

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.found)

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_if_any(self) -> None:
        """Raise :class:`ModelProblems` if anything was found."""
        if self.found:
            raise ModelProblems(self.file, tuple(self.found), self.missing)
