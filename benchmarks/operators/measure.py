"""Measures a row with Weft and its peers in turns, and compares the results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movement import best_of, onnxruntime_run
from benchmarks.operators.cases import Case
from benchmarks.operators.notation import Array
from benchmarks.operators.surroundings import model

TOLERANCES = {"float64": 1e-6, "float32": 2e-3, "float16": 2e-2}
"""Largest difference by dtype, relative to the largest number of the result, that counts as agreement."""
SHORT_MS = 0.02
"""Rows whose best peer takes less (in milliseconds) measure calls, not operators: they count for no limit."""


@dataclass(frozen=True)
class Row:
    """What one case took, in milliseconds by engine. ``problem`` says why Weft has no time or why results differ."""

    name: str
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """Weft's time by that of the best peer; None without one of them."""
        others = [v for k, v in self.milliseconds.items() if k != "weft"]
        return self.milliseconds["weft"] / min(others) if others and "weft" in self.milliseconds else None

    @property
    def counts(self) -> bool:
        """Whether the row counts for the limits."""
        others = [v for k, v in self.milliseconds.items() if k != "weft"]
        return self.ratio is not None and min(others) >= SHORT_MS


def measured(case: Case, seconds: float, peers: Sequence[str]) -> Row | None:
    """The row of a case; None if it has no form or onnxruntime does not run it and it is left to others."""
    import weft

    made = case.made()
    built = None if made is None else model(made, case.place, case.opened)
    if built is None:
        return None
    proto, inputs = built
    inputs = {k: np.ascontiguousarray(v).reshape(v.shape) for k, v in inputs.items()}
    given = list(inputs.values())
    try:
        exe = weft.compile(proto, threads=1)
        results = [np.array(r) for r in _several(exe(*given))]
    except Exception as why:  # a crash is a row of the table, whatever raised it
        return Row(case.name, problem=f"{type(why).__name__}: {' '.join(str(why).split())[:160]}")
    outs = [np.empty_like(r) for r in results]
    target: Any = outs if len(outs) > 1 else outs[0]
    runs: dict[str, Callable[[], Any]] = {"weft": lambda: exe(*given, out=target)}
    problem = ""
    if "onnxruntime" in peers:
        theirs = [np.empty_like(r) for r in results]
        run = onnxruntime_run(proto, 1, inputs, theirs)
        if run is not None:
            run()
            problem = differs(results, theirs, _tolerance(inputs))
            runs["onnxruntime"] = run
    if "torch" in peers and case.place == "alone" and (torch := torch_run(proto, given, results)) is not None:
        runs["torch"] = torch
    return Row(case.name, best_of(runs, seconds), problem)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _tolerance(inputs: Mapping[str, Array]) -> float:
    return max((TOLERANCES.get(v.dtype.name, 0.0) for v in inputs.values()), default=0.0) or TOLERANCES["float32"]


def differs(ours: Sequence[Array], theirs: Sequence[Array], tolerance: float) -> str:
    """How the results differ, or nothing. Numbers that are not finite must be the same ones."""
    for a, b in zip(ours, theirs, strict=True):
        if a.dtype.kind not in "fiu":
            wrong = int((a != b).sum())
            if wrong:
                return f"{wrong} of {a.size} elements differ"
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return "infinities or NaN differ"
        most = float(np.abs(y[finite]).max(initial=0.0))
        gap = float(np.abs(x[finite] - y[finite]).max(initial=0.0))
        if gap > tolerance * max(most, 1e-30) and gap > (0 if a.dtype.kind == "f" else 1):
            return f"differs by {gap:.3g} where the largest number is {most:.3g}"
    return ""


def torch_run(proto: Any, inputs: Sequence[Array], results: Sequence[Array]) -> Callable[[], Any] | None:
    """Eager PyTorch's run of the nodes, or None if it has no such operator or computes something else."""
    try:
        import torch

        from weft.frontends.onnx.in_torch import torch_module
    except ImportError:
        return None
    import onnx

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        onnx.save(proto, path)
        try:
            module = torch_module(path)
            tensors = [torch.from_numpy(np.ascontiguousarray(v)) for v in inputs]
            with torch.inference_mode():
                found = _several(module(*tensors))
        except Exception:  # torch has no such operator, or not for these operands
            return None
    theirs = [t.numpy() for t in found]
    if [t.shape for t in theirs] != [r.shape for r in results] or differs(results, theirs, TOLERANCES["float16"]):
        return None

    def run() -> Any:
        with torch.inference_mode():
            return [_own(t, taken) for t in _several(module(*tensors))]

    taken = {t.untyped_storage().data_ptr() for t in tensors}
    return run


def _own(result: Any, taken: set[int]) -> Any:
    """The result in memory of its own: a view of an operand is copied, as all other engines do."""
    return result.clone() if result.untyped_storage().data_ptr() in taken else result.contiguous()
