"""Measures a row with Weft and its peers in turns, and compares the results."""

from __future__ import annotations

import statistics
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
    """What one case took, in milliseconds by engine. ``problem`` says why Weft has no time or why results differ;
    ``left_out`` names the peers that were not measured, with the reason."""

    name: str
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

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


def median(rows: Sequence[Row]) -> Row:
    """One row of several measurements of a case: the median of each engine's times, and any problem that was seen."""
    names = dict.fromkeys(k for r in rows for k in r.milliseconds)
    middle = {k: statistics.median(r.milliseconds[k] for r in rows if k in r.milliseconds) for k in names}
    problem = next((r.problem for r in rows if r.problem), "")
    return Row(rows[0].name, middle, problem, {k: v for r in rows for k, v in r.left_out.items()})


def compiled(case: Case) -> None:
    """Compile a case, so that its kernels are in the cache; failures are told when it is measured."""
    import weft

    made = case.made()
    built = None if made is None else model(made, case.place, case.opened)
    if built is not None:
        try:
            weft.compile(built[0], threads=1)
        except Exception as why:  # `measured` makes a row of it
            print(f"{case.name}: {type(why).__name__}")


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
    tolerance = _tolerance(*given, *results)
    outs = [np.empty_like(r) for r in results]
    target: Any = outs if len(outs) > 1 else outs[0]
    runs: dict[str, Callable[[], Any]] = {"weft": lambda: exe(*given, out=target)}
    problem, left_out = "", dict[str, str]()
    if "onnxruntime" in peers:
        theirs = [np.empty_like(r) for r in results]
        run = onnxruntime_run(proto, 1, inputs, theirs)
        if run is not None:
            run()
            problem = differs(results, theirs, tolerance)
            runs["onnxruntime"] = run
        else:
            left_out["onnxruntime"] = "does not run the model"
    if "torch" in peers and case.place == "alone":
        torch, why = torch_run(proto, given, results, tolerance)
        if torch is None:
            left_out["torch"] = why
        else:
            runs["torch"] = torch
    return Row(case.name, best_of(runs, seconds), problem, left_out)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _tolerance(*arrays: Array) -> float:
    """That of the least precise dtype of operands and results: engines cast float64 to float16 in one or two steps."""
    return max((TOLERANCES.get(v.dtype.name, 0.0) for v in arrays), default=0.0) or TOLERANCES["float32"]


def differs(ours: Sequence[Array], theirs: Sequence[Array], tolerance: float) -> str:
    """How the results differ, or nothing. Integers must be equal, and so must numbers that are not finite."""
    for a, b in zip(ours, theirs, strict=True):
        if a.dtype.kind in "biuOUS":
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
        if gap > tolerance * max(most, 1e-30):
            return f"differs by {gap:.3g} where the largest number is {most:.3g}"
    return ""


def torch_run(
    proto: Any, inputs: Sequence[Array], results: Sequence[Array], tolerance: float
) -> tuple[Callable[[], Any] | None, str]:
    """Eager PyTorch's run of the nodes, or None and why there is none: it has no such operator, or computes something
    else. A function that can write into given memory does so, as the other engines do."""
    try:
        import torch

        from weft.frontends.onnx.in_torch import torch_module
    except ImportError as why:
        return None, str(why)
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
        except Exception as why:  # torch has no such operator, or not for these operands
            return None, f"{type(why).__name__}: {' '.join(str(why).split())[:160]}"
    theirs = [t.numpy() for t in found]
    if [t.shape for t in theirs] != [r.shape for r in results]:
        return None, f"its shapes are {[list(t.shape) for t in theirs]}"
    if wrong := differs(results, theirs, tolerance):
        return None, f"its result {wrong}"
    taken = {t.untyped_storage().data_ptr() for t in tensors}

    def run() -> Any:
        with torch.inference_mode():
            return [_own(torch, t, taken) for t in _several(module(*tensors))]

    return _into_memory(torch, module, tensors, results) or run, ""


def _own(torch: Any, result: Any, taken: set[int]) -> Any:
    """The result in memory of its own, in row-major order: a view of an operand is copied, as all other engines do."""
    shares = result.untyped_storage().data_ptr() in taken
    return result.clone(memory_format=torch.contiguous_format) if shares else result.contiguous()


def _into_memory(torch: Any, module: Any, tensors: Sequence[Any], results: Sequence[Array]) -> Callable[[], Any] | None:
    """The run of a module that is one call of one function of PyTorch with ``out=``; None of any other module."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    class Seen(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]  # torch has no stubs here
        def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = called(*args, **(kwargs or {}))
            if any(isinstance(m, torch.Tensor) for m in _several(made)):
                calls.append((called, args, kwargs or {}, made))
            return made

    with torch.inference_mode(), Seen():
        made = module(*tensors)
    if len(calls) != 1 or len(results) != 1 or calls[0][3] is not made:
        return None
    called, args, kwargs, _ = calls[0]
    function = getattr(torch, called.__name__.strip("_"), None)
    memory = torch.empty(made.shape, dtype=made.dtype)

    def run() -> Any:
        with torch.inference_mode():
            return function(*args, **kwargs, out=memory)

    try:
        run()
    except (TypeError, RuntimeError):  # not a function of torch, or one without out=
        return None
    return run if torch.equal(memory, made) or _nan_equal(torch, memory, made) else None


def _nan_equal(torch: Any, a: Any, b: Any) -> bool:
    return bool(a.is_floating_point() and torch.equal(a.nan_to_num(), b.nan_to_num()))
