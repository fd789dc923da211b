"""Executables with separate programs for some sizes: given in advance, or detected because they occur often."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from weft.lowering.merge_sizes import merge_sizes
from weft.runtime import Artifact, Executable
from weft.support.errors import InputError, UserError
from weft.support.words import did_you_mean

Hot = Mapping[str, "int | Sequence[int]"]
"""Sizes by the name of the symbolic dimension: ``{"batch": [1, 8]}``."""

Build = Callable[[Mapping[str, int]], Artifact]
"""Compiles the model for the given sizes only."""

MAX_SPECIALIZATIONS = 16
"""Largest number of combinations of sizes that are compiled separately for one executable."""


def combinations(hot: Hot) -> list[dict[str, int]]:
    """Every combination of the sizes. Raises InputError I033 for sizes that are not positive, or too many
    combinations."""
    values = {n: list(v) if isinstance(v, Sequence) and not isinstance(v, str) else [v] for n, v in hot.items()}
    for name, sizes in values.items():
        if not sizes or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in sizes):
            raise InputError(f"'{name}' cannot be specialized to {sizes}", code="I033", hint="give positive sizes")
    found = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())] if values else []
    if len(found) > MAX_SPECIALIZATIONS:
        raise InputError(
            f"{len(found)} combinations of sizes are too many", code="I033", hint=f"at most {MAX_SPECIALIZATIONS}"
        )
    return found


def specialized(general: Artifact, hot: Hot, build: Build) -> Artifact:
    """``general`` with a program for each combination of the sizes. Raises UserError T020 for unknown names."""
    symbols = general.program.symbols
    unknown = [n for n in hot if n not in symbols]
    if unknown:
        raise UserError(
            f"the model has no open size '{unknown[0]}'",
            code="T020",
            hint=did_you_mean(unknown[0], symbols, f"there are: {', '.join(symbols) or 'none'}"),
        )
    return merge_sizes(general, [(sizes, build(sizes)) for sizes in combinations(hot)])


class SpecializingExecutable(Executable):
    """An executable that compiles itself for sizes with which it has run ``after`` times.

    At most :data:`MAX_SPECIALIZATIONS` times. The next run with these sizes includes the compilation. A model that
    cannot be specialized keeps its general program.
    """

    def __init__(self, artifact: Artifact, threads: int | None, after: int, build: Build) -> None:
        if after < 1:
            raise InputError(f"specialize_after must be at least 1, not {after}", code="I033")
        super().__init__(artifact, threads)
        self._general, self._after, self._build = artifact, after, build
        self._special: list[tuple[Mapping[str, int], Artifact]] = []
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()
        self._places = _places_of_symbols(artifact)
        if self._places:
            self._run = self._counted

    def _counted(self, inputs: tuple[Any, ...], *rest: Any) -> Any:
        """Count the sizes of this run, and compile for them if they have occurred often enough."""
        sizes = self._sizes(inputs)
        if sizes is not None:
            with self._lock:
                self._seen[sizes] += 1
                if self._seen[sizes] == self._after + 1 and len(self._special) < MAX_SPECIALIZATIONS:
                    self._specialize(sizes)
        return self._execute(inputs, *rest)

    def _sizes(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        try:
            return tuple(_shape(inputs[i])[axis] for i, axis in self._places.values())
        except (IndexError, ValueError, TypeError):
            return None  # the run raises the error

    def _specialize(self, sizes: tuple[int, ...]) -> None:
        fixed = dict(zip(self._places, sizes, strict=True))
        if min(sizes) < 1:
            return
        try:
            special = [*self._special, (fixed, self._build(fixed))]
            merged = merge_sizes(self._general, special)
        except UserError:
            self._run = self._execute  # stop counting: specialization is impossible
            return
        self._special = special
        self._load(merged, self.threads, self.memory_limit)
        self._run = self._counted


def _places_of_symbols(artifact: Artifact) -> dict[str, tuple[int, int]]:
    """The input and axis from which each symbol is read."""
    found: dict[str, tuple[int, int]] = {}
    for i, t in enumerate(artifact.program.inputs):
        for axis, d in enumerate(t.shape):
            if len(d) == 1 and d[0] in artifact.program.symbols:
                found.setdefault(str(d[0]), (i, axis))
    return found


def _shape(value: Any) -> Sequence[int]:
    shape: Sequence[int] | None = getattr(value, "shape", None)
    return shape if shape is not None else np.shape(value)
