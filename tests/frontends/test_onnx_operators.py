"""The node cases of the ONNX specification, through the importer and the graph interpreter.

A case is refused, with an error, or computes what the specification says; there is nothing in between. Operands other
than the first are given as constants where the importer needs to know them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.frontends import onnx as frontend
from weft.graph import interpret
from weft.graph.nodes import Module
from weft.support.errors import InputError, ModelError

IMPORTED = 1600
"""At least so many of the cases are imported; count up when operators are added."""

# Cases whose results are drawn by another generator; the specification leaves it open.
DRAWN = re.compile(r"test_(bernoulli|training_dropout(?!.*zero_ratio)).*")


@cache
def cases() -> tuple[Any, ...]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(collect_testcases(None))


def to_array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def with_constants(model: Any, operands: list[Any]) -> Any:
    """The model with all operands but the first made weights."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for info, value in list(zip(model.graph.input, operands, strict=False))[1:]:
        if isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).dtype != object:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
    return made


def run(model: Any, operands: list[Any]) -> tuple[Any, ...]:
    try:
        return interpreted(frontend.load(model), model, operands)
    except (ModelError, InputError):  # which values make sense is checked while it runs, if they are not known before
        return interpreted(frontend.load(with_constants(model, operands)), model, operands)


def interpreted(module: Module, model: Any, operands: list[Any]) -> tuple[Any, ...]:
    by_name = {i.name: v for i, v in zip(model.graph.input, operands, strict=False)}
    made = interpret.run(module, [np.asarray(by_name[p.name]) for p in module.main.params])
    return made if isinstance(made, tuple) else (made,)


def fits(made: Any, expected: Any, rtol: float) -> bool:
    expected = np.asarray(to_array(expected))
    if made.shape != expected.shape or made.dtype != expected.dtype:
        return False
    if made.dtype == object:  # strings
        return bool((made == expected).all())
    wide = (np.complex128 if np.iscomplexobj(a) else np.float64 for a in (made, expected))
    pair = [a.astype(w) for a, w in zip((made, expected), wide, strict=True)]
    if made.dtype.itemsize <= 2 and made.dtype.kind not in "iub":
        rtol = max(rtol, 2e-2)  # chains of operators that round to half precision at different places
    return bool(np.allclose(*pair, rtol=max(rtol, 1e-3), atol=1e-5, equal_nan=True))


def test_specification() -> None:
    imported, wrong = 0, []
    missing: Counter[str] = Counter()
    for case in cases():
        for operands, expected in case.data_sets:
            try:
                made = run(case.model, [to_array(v) for v in operands])
            except frontend.ModelProblems as why:
                missing.update(n.rpartition(".")[2] for n in why.unsupported)
                break
            imported += 1
            # A sequence of known length comes as its elements, one after another (``Module.attrs["structure"]``).
            expected = [v for e in expected for v in (e if isinstance(e, list) else (e,))]
            if DRAWN.fullmatch(case.name):
                assert [m.shape for m in made] == [np.shape(to_array(e)) for e in expected]
                continue
            if len(made) != len(expected) or not all(map(fits, made, expected, [case.rtol] * len(made))):
                wrong.append(case.name)
    assert not wrong
    assert imported >= IMPORTED, f"only {imported}; missing: {missing.most_common()}"
