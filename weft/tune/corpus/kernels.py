"""The kernels of the corpus, each with the family of operators that it is of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft.api import load
from weft.ops.workloads import workloads
from weft.target import Target
from weft.tune.measure.runner import Workload
from weft.tune.workloads import kernels_of_model

MAX_BESIDE: Final = 6
"""Most kernels of one name that only come beside others, such as changes of layout."""


@dataclass(frozen=True)
class CorpusKernel:
    """A kernel of the corpus. What is measured of a ``family`` is left out as a whole when it is asked how well a model
    does on operators that it has not seen."""

    name: str
    family: str
    workload: Workload


def corpus_kernels(target: Target, threads: int = 1, models: Sequence[Any] = ()) -> list[CorpusKernel]:
    """The different kernels of the workloads of the catalogue, then those of ``models`` (anything that
    :func:`weft.load` takes). Raises what loading a model raises."""
    found: dict[str, CorpusKernel] = {}
    for kernel in (*_of_catalogue(target, threads), *_of_models(target, threads, models)):
        found.setdefault(kernel.workload.task.identity, kernel)
    return list(found.values())


def _of_catalogue(target: Target, threads: int) -> Iterator[CorpusKernel]:
    beside: dict[str, set[str]] = defaultdict(set)
    for made in workloads():
        operators = {operator for operator, _, _ in made.steps}
        for k in kernels_of_model(made.module(), target, threads):
            # a change of layout beside a product is a kernel of its own kind
            if any(operator in k.name for operator in operators):
                yield CorpusKernel(k.name, made.family, k.workload)
                continue
            beside[k.name].add(k.workload.task.identity)
            if len(beside[k.name]) <= MAX_BESIDE:
                yield CorpusKernel(k.name, k.name, k.workload)


def _of_models(target: Target, threads: int, models: Sequence[Any]) -> Iterator[CorpusKernel]:
    for model in models:
        for k in kernels_of_model(load(model), target, threads):
            yield CorpusKernel(k.name, k.name, k.workload)
