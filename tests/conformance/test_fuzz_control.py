"""Random models of control flow and sequences, against the wording of the specification and onnxruntime."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from control_judge import RULES
from fuzz_bodies import grown
from fuzz_control import by_onnxruntime, by_specification, tidy
from fuzz_graphs import Unfit
from seeds import seeds

from weft.frontends.onnx import backend
from weft.support.errors import InternalError, WeftError

SAMPLE = 60
"""Models that are made by default; ``--slow`` makes 1,000 more."""


def difference(made: Any, expected: Any) -> str:
    """What is wrong with a value; empty where it is right."""
    if isinstance(made, list) and isinstance(expected, list):
        if len(made) != len(expected):
            return f"{len(made)} items, not {len(expected)}"
        return next((d for a, b in zip(made, expected, strict=True) if (d := difference(a, b))), "")
    if made is None or expected is None or isinstance(made, list) or isinstance(expected, list):
        return "" if made is None and expected is None else f"{made!r}, not {expected!r}"
    if _is_without_rows(made, expected):
        return ""
    if made.dtype != expected.dtype or made.shape != expected.shape:
        return f"{made.dtype}{list(made.shape)}, not {expected.dtype}{list(expected.shape)}"
    return "" if np.array_equal(made, expected) else f"{made.tolist()}, not {expected.tolist()}"


def _is_without_rows(made: Any, expected: Any) -> bool:
    """Whether both have no rows, and sizes that only a row would decide are 0 (docs/semantics.md)."""
    alike = made.dtype == expected.dtype and made.ndim == expected.ndim and expected.size == made.size == 0
    return alike and all(a in (0, b) for a, b in zip(made.shape, expected.shape, strict=True))


def differences(made: list[Any], expected: list[Any]) -> str:
    found = (difference(a, b) for a, b in zip(made, expected, strict=True))
    return next((f"output {k}: {d}" for k, d in enumerate(found) if d), "")


REFUSED = (
    r"loops over sequences or strings need a known number of iterations",
    r"loops over sequences or strings that stop on a computed condition",
    r"loops that carry or collect strings need a known number of iterations",
    r"a dimension of unknown size is split into a sequence",
    r"indices point into is empty",
    r"of different rank or dtype",
)
"""Limits that docs/design.md and docs/semantics.md describe."""


def run(prepared: backend.Prepared, feeds: dict[str, Any]) -> list[Any] | WeftError:
    try:
        return [tidy(v) for v in prepared.run(feeds)]
    except InternalError:
        raise
    except WeftError as why:
        return why


def check(seed: int) -> Counter[str]:
    """Judge one model; the wording of the specification decides. Where it says nothing, results of onnxruntime count,
    but not for loops: there it hands out memory that it has overwritten."""
    cases = grown(random.Random(seed))
    told: Counter[str] = Counter()
    refusal: WeftError | None = None
    try:
        prepared = backend.prepare(cases.model, threads=1)
    except InternalError:
        raise
    except WeftError as why:
        refusal = why
    for feeds in cases.feeds:
        made = refusal or run(prepared, feeds)
        found: dict[str, list[Any]] = {}
        for judge in (by_specification, by_onnxruntime):
            with suppress(Unfit):
                found[judge.__name__] = judge(cases.model, feeds)
        if by_specification.__name__ not in found and "Loop" in str(cases.model.graph):
            found = {}
        if isinstance(made, WeftError):
            known = any(re.search(p, str(made)) for p in REFUSED)
            assert known or not found, f"seed {seed}: refused, although {', '.join(found)} can: {made}"
            told["refused" if found else "refused by all"] += 1
            continue
        told["judged" if found else "run"] += 1
        for name, expected in list(found.items())[:1]:
            wrong = differences(made, expected)
            assert not wrong, f"seed {seed}: {wrong}, says {name}\n{feeds}\n{cases.model.graph}"
        told["alike" if len(found) == 2 and not differences(*found.values()) else "differ"] += len(found) == 2
    return told


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def test_models_of_control_flow() -> None:
    """Most models run, most results are judged, and the judges mostly agree."""
    told: Counter[str] = Counter()
    for seed in seeds(SAMPLE):
        told += check(seed)
    assert told["judged"] > 2 * SAMPLE and told["refused"] < SAMPLE / 10 and told["differ"] < told["alike"]


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(1000, 60)[::50])
def test_many_models_of_control_flow(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


def test_models_hold_every_structure() -> None:
    """The generator makes all structures, nested, with bodies that read what is outside, and open sizes."""
    held: Counter[str] = Counter()
    nested = opened = 0
    for seed in seeds(SAMPLE):
        graph = grown(random.Random(seed)).model.graph
        opened += any(d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim)
        for depth, node in _nodes(graph):
            held[node.op_type] += 1
            nested += depth > 1
    wanted = {n for n in RULES if n not in ("Optional", "OptionalGetElement", "OptionalHasElement")}
    assert wanted <= set(held), wanted - set(held)
    assert nested > SAMPLE and opened > SAMPLE / 4


def _nodes(graph: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    for node in graph.node:
        yield depth, node
        for a in node.attribute:
            if a.HasField("g"):
                yield from _nodes(a.g, depth + 1)
