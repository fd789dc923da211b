"""Whether Weft and onnxruntime compute the same for an entry of the zoo, by the rule of ``tests/agreement.py``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.zoo.entry import Array, Entry

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))
import agreement


@dataclass(frozen=True)
class Gap:
    """How one output differs; nothing if it agrees."""

    output: str
    wrong: str

    @property
    def agrees(self) -> bool:
        return not self.wrong


def gaps(path: Path, entry: Entry, threads: int = 2, target: str = "cpu") -> list[Gap]:
    """How each output differs for two seeded inputs. Raises what compiling or running raises."""
    import onnxruntime

    import weft

    exe = weft.compile(path, target, threads=threads)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = [entry.feed(seed) for seed in (0, 1)]
    theirs = [dict(zip(names, session.run(None, f), strict=True)) for f in feeds]
    ours = [dict(exe.run(f)) for f in feeds]
    if any(list(o) != names for o in ours):
        return [Gap(", ".join(names), f"other outputs: {', '.join(ours[0])}")]
    return [gap(n, [o[n] for o in ours], [t[n] for t in theirs]) for n in names]


def gap(name: str, ours: list[Array], theirs: list[Array]) -> Gap:
    if any(b.dtype.kind == "f" and not np.isfinite(b).all() for b in theirs):
        return Gap(name, "onnxruntime's own result is not finite")
    return Gap(name, agreement.differences(ours, theirs))
