"""Every operator of ONNX with scalars, and with axes of size 0 and 1, of known and open sizes.

The operands of each operator's usual case are cut: to scalars, to single elements, to nothing along each axis. What a
reference implementation can compute must be computed alike; what none can must be refused by an error of Weft's own.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from apart import Apart
from schema_cases import Array, Case
from test_schemas import RECIPES, by_evaluator, difference, of_operator

from weft.frontends.onnx import backend
from weft.support.errors import InternalError, WeftError

Cut = Callable[[Array], Array]

CUTS: dict[str, Cut] = {
    "scalar": lambda x: x.reshape(-1)[0].reshape(()) if x.size else x,
    "one": lambda x: x[(slice(1),) * x.ndim],
    "one first": lambda x: x[:1] if x.ndim else x,
    "one last": lambda x: x[..., :1] if x.ndim else x,
    "none": lambda x: x[(slice(0),) * x.ndim],
    "none first": lambda x: x[:0] if x.ndim else x,
    "none second": lambda x: x[:, :0] if x.ndim > 1 else x,
    "none last": lambda x: x[..., :0] if x.ndim else x,
}
"""What is done to the first operand, or to all that are as large."""


def variants(case: Case) -> Iterator[Case]:
    """The case with other operands: the first one, or all operands of its shape, cut."""
    first = case.operands[0] if case.operands else None
    if first is None or not isinstance(first, np.ndarray):
        return
    seen: set[Any] = set()
    for name, cut in CUTS.items():
        for which in ("first", "alike", "all"):
            made = tuple(
                cut(v) if v is not None and (i == 0 or (which == "alike" and v.shape == first.shape) or which == "all")
                else v for i, v in enumerate(case.operands)
            )  # fmt: skip
            key = tuple(v.shape if v is not None else None for v in made)
            if key not in seen and made[0].shape != first.shape:
                seen.add(key)
                yield replace(case, label=f"{case.label} {name} of {which}", operands=made)


def opened(case: Case) -> Any:
    """The model with open sizes."""
    model = case.model()
    for i in model.graph.input:
        for k, d in enumerate(i.type.tensor_type.shape.dim):
            d.dim_param = f"{i.name}_{k}"
    return model


EXPLAINED: dict[str, str] = {
    r"(LSTM|GRU|RNN)-.* none first of first": "the last state of a sequence without steps: the first one, or zeros",
    r"(AveragePool|LpPool|MaxPool)-.* one .*": "a window that is larger than the data and its pads",
    r"(AveragePool|LpPool|MaxPool)-.* none .*": "the same, of nothing",
    r"GroupNormalization-.* one .*": "judges broadcast scale and bias of one element to all channels",
    r"PRelu-.* one of first": "judges broadcast the data to the slope",
    r"Attention-.* none first of first": "judges broadcast batches of queries and keys",
    r"DynamicQuantizeLinear-.* none .*": "docs/semantics.md: the scale of nothing",
}
"""Variants on which no judge is right, or the specification says nothing."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Apart]:
    """onnxruntime, which some of these models end."""
    made = Apart()
    yield made
    made.close()


def verdict(case: Case, how: str, engine: Apart) -> str:
    """What is wrong; empty where nothing is. Of open sizes (``how``), some must be known, as they decide code."""
    model = case.model() if how == "known" else opened(case)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        refusal, made = None, []
        try:
            made = [np.asarray(v) for v in backend.prepare(model, threads=1).run(list(case.feeds().values()))]
        except InternalError as why:
            return f"{why}"
        except WeftError as why:
            refusal = why
        except Exception as why:
            return f"{type(why).__name__}: {why}"
        judges: dict[str, Callable[[], Any]] = {
            "the evaluator": lambda: by_evaluator(case),
            "onnxruntime": lambda: engine.run(case.model().SerializeToString(), case.feeds()),
        }
        found: dict[str, Any] = {}
        for judge, result in judges.items():
            with suppress(Exception):  # a judge that does not know the operator, or refuses the operands
                found[judge] = result()
        if any(re.fullmatch(p, case.label) for p in EXPLAINED):
            return ""
        if refusal is not None:  # NumPy's operators take what the specification does not allow
            agreed = how == "known" and len(found) == 2 and not difference(*found.values())
            return f"refused, although both judges agree: {refusal}" if agreed else ""
        wrong = {judge: difference(made, expected) for judge, expected in found.items()}
        return "; ".join(f"{judge}: {d}" for judge, d in wrong.items()) if wrong and all(wrong.values()) else ""


def check(name: str, engine: Apart, chosen: Callable[[Case], bool]) -> None:
    usual = of_operator(name)[-1].schema
    cases = [c for c in of_operator(name) if c.schema is usual]
    base = [c for c in cases if c.label.split("(")[1] == cases[0].label.split("(")[1]]
    wrong = {}
    for case in (v for b in base[:2] for v in variants(b) if chosen(v)):
        for how in ("known", "open"):
            if text := verdict(case, how, engine):
                wrong[f"{case.label}, {how}"] = text
    assert not wrong, "\n".join(f"{label}: {text}" for label, text in wrong.items())


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_some_shapes(name: str, engine: Apart) -> None:
    check(name, engine, lambda c: zlib.crc32(c.label.encode()) % 24 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_all_shapes(name: str, engine: Apart) -> None:
    check(name, engine, lambda c: True)
