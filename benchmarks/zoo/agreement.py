"""Whether Weft and onnxruntime compute the same, measured by what the inputs change.

A difference counts relative to the *spread* of an output: the root mean square of how much it differs between two
unrelated inputs. A large constant part, which any model with a bias has, does not hide an error then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.zoo.entry import Array, Entry

TOLERANCE = 2e-3
"""Largest difference to onnxruntime, as a share of the output's spread."""


@dataclass(frozen=True)
class Gap:
    """The largest difference of one output over its spread; infinite if shapes, types or NaNs differ."""

    output: str
    error: float
    note: str = ""

    @property
    def agrees(self) -> bool:
        return self.error <= TOLERANCE


def gaps(path: Path, entry: Entry, threads: int = 2) -> list[Gap]:
    """Each output's largest difference for two seeded inputs. Raises what compiling or running raises."""
    import onnxruntime

    import weft

    exe = weft.compile(path, threads=threads)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = [entry.feed(seed) for seed in (0, 1)]
    theirs = [dict(zip(names, session.run(None, f), strict=True)) for f in feeds]
    ours = [dict(exe.run(f)) for f in feeds]
    if any(list(o) != names for o in ours):
        return [Gap(", ".join(names), float("inf"), f"other outputs: {', '.join(ours[0])}")]
    return [_gap(n, [o[n] for o in ours], [t[n] for t in theirs]) for n in names]


def _gap(name: str, ours: list[Array], theirs: list[Array]) -> Gap:
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return Gap(name, float("inf"), f"{a.dtype}{a.shape} for {b.dtype}{b.shape}")
        if not np.isfinite(b.astype(np.float64)).all():
            return Gap(name, float("inf"), "onnxruntime's own result is not finite")
        if not np.isfinite(a.astype(np.float64)).all():
            return Gap(name, float("inf"), "not finite")
    wide = [[v.astype(np.float64) for v in side] for side in (ours, theirs)]
    largest = max(float(np.abs(a - b).max(initial=0)) for a, b in zip(*wide, strict=True))
    same_shape = wide[1][0].shape == wide[1][1].shape
    spread = float(np.sqrt(np.mean((wide[1][0] - wide[1][1]) ** 2))) if same_shape and wide[1][0].size else 1.0
    return Gap(name, 0.0 if largest == 0 else largest / spread if spread else float("inf"))
