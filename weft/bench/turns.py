"""Measures engines alternately, each in its own warmed process, and compares their outputs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.support.arrays import save_arrays
from weft.support.errors import UserError

Array = np.ndarray[Any, Any]

LOWERED = ("weft", "openvino")
"""Engines that compute a float32 model in another precision when asked."""

MIN_TURN_MS = 60
"""Least duration of one engine's turn, in milliseconds."""

REST_SECONDS = 0.1
"""Pause between turns, in seconds, in which the threads of the previous engine stop spinning."""

MAX_TURN_SECONDS = 2.0
"""A turn ends after so many seconds; it has at least one run."""

MAX_TIMES_OURS = 10
"""An engine that takes more than so many times as long as Weft has only one turn."""

MAX_LOADING_SECONDS = 300.0
"""Time limit in seconds for an engine to load a model, compile it and warm up."""


@dataclass(frozen=True, slots=True)
class Record:
    """One engine on one model. Times are in milliseconds; differences are to the first engine (Weft)."""

    model: str
    engine: str
    version: str
    precision: str
    threads: int
    median_ms: float
    min_ms: float
    runs: int
    max_abs_diff: float
    max_rel_diff: float


class Engine:
    """A running engine process; ``error`` says why it does not run."""

    def __init__(self, name: str, request: Path, folder: Path) -> None:
        """Start the engine and wait until it is ready."""
        self.name, self.folder = name, folder
        self.times: list[float] = []
        self.version = ""
        self.error: str | None = None
        self.log = (folder / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft.bench.engines", name, str(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        patience = threading.Timer(MAX_LOADING_SECONDS, self.process.kill)
        try:
            patience.start()
        except RuntimeError as problem:  # the system gives no more threads; without a limit, a hang would be one here
            self.error = f"no time limit can be set: {problem}"
            return
        self.version = self._reply().get("version", "")
        if not patience.is_alive():
            self.error = f"not ready within {MAX_LOADING_SECONDS:.0f} s"
        patience.cancel()

    def run(self, count: int) -> list[float]:
        """The times of a turn of ``count`` runs, or of fewer if the time limit ends it."""
        times: list[float] = self._ask(runs=count, seconds=MAX_TURN_SECONDS).get("times", [])
        return times

    def outputs(self) -> list[Array]:
        """The outputs of one run."""
        path = self.folder / f"{self.name}.npz"
        if not self._ask(save=str(path)).get("saved"):
            return []
        with np.load(path) as archive:
            return [archive[k] for k in archive.files]

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def _ask(self, **order: Any) -> dict[str, Any]:
        if self.error is not None:
            return {}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            self.error = answer.get("error")
            return answer
        tail = (self.folder / f"{self.name}.log").read_text()[-500:]
        self.error = f"the process ended with status {self.process.wait()}: {tail}"
        return {}


def measure(
    model: str,
    peers: list[str],
    threads: int,
    *,
    runs: int = 20,
    rounds: int = 5,
    target: str = "cpu",
    precision: str = "f32",
    winograd: bool | int = True,
    inputs: dict[str, Array],
    torch: str | None = None,
    tuning_db: str | None = None,
) -> tuple[list[Record], dict[str, str]]:
    """Records of Weft and its peers, and the reasons why peers are missing.

    In each of ``rounds`` rounds, the engines have one turn each, so that changes of the machine's speed affect all
    alike. A turn has at least ``runs / rounds`` runs and takes at least MIN_TURN_MS and at most MAX_TURN_SECONDS; a
    pause precedes it. A peer that fails is left out and its reason is returned. A peer that takes MAX_TIMES_OURS times
    as long as Weft has one turn. ``torch`` (``FILE.py:FUNCTION[,WORD…]``) makes the module that the model was exported
    from. Weft uses the schedules of the tuning database ``tuning_db``.

    Raises UserError if Weft itself fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_arrays(folder / "inputs.npz", inputs)
        request = folder / "request.json"
        about = {"model": model, "threads": threads, "target": target, "precision": precision, "winograd": winograd}
        request.write_text(
            json.dumps({**about, "torch": torch, "tuning_db": tuning_db, "inputs": str(folder / "inputs.npz")})
        )
        engines: list[Engine] = []
        try:
            for name in ["weft", *peers]:  # one after the other, so that no engine compiles while another warms up
                engines.append(Engine(name, request, folder))
                if engines[0].error is not None:
                    raise UserError(engines[0].error, code="B002")
            _take_turns(engines, max(1, runs // rounds), rounds)
            outputs = {e.name: e.outputs() for e in engines}
        finally:
            for e in engines:
                e.close()
    records = []
    for e in engines:
        if e.error is None:
            worst, relative = difference(outputs["weft"], outputs[e.name])
            kind = "bf16" if precision == "bf16" and e.name in LOWERED else _precision(inputs)
            median, best = statistics.median(e.times), min(e.times)
            name = Path(model).stem
            records.append(Record(name, e.name, e.version, kind, threads, median, best, len(e.times), worst, relative))
    return records, {e.name: e.error for e in engines if e.error is not None}


def _take_turns(engines: list[Engine], fewest: int, rounds: int) -> None:
    """Fill in the times of ``engines``; the first is Weft."""
    first = {e.name: e.run(fewest) for e in engines}
    ours = min(first[engines[0].name], default=float("inf"))
    turns = {}
    for e in engines:
        best = min(first[e.name], default=0.0)
        if best > MAX_TIMES_OURS * ours:
            e.times += first[e.name]
        elif best:
            turns[e.name] = max(fewest, int(MIN_TURN_MS / best))
    for _ in range(rounds):
        for e in engines:
            if e.name in turns:
                time.sleep(REST_SECONDS)
                e.times += e.run(turns[e.name])


def _precision(inputs: dict[str, Array]) -> str:
    """The float type of the model, taken from its inputs; f32 if they are integers."""
    kinds = [v.dtype for v in inputs.values() if v.dtype.kind == "f"]
    return f"f{kinds[0].itemsize * 8}" if kinds else "f32"


def difference(ours: list[Array], theirs: list[Array]) -> tuple[float, float]:
    """Largest absolute difference, and largest difference relative to how far the numbers of that output lie apart (if
    all are equal, to their magnitude): a large constant part hides nothing. Both are infinite if the outputs do not
    correspond, have NaN or infinities in different places, or have no other number to compare."""
    worst = relative = 0.0
    if len(ours) != len(theirs):
        return float("inf"), float("inf")
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return float("inf"), float("inf")
        if a.size == 0:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        same = np.array_equal(x[~finite], y[~finite], equal_nan=True) and np.isfinite(x[finite]).all()
        if not same or not finite.any():
            return float("inf"), float("inf")
        low, high = float(y[finite].min()), float(y[finite].max())
        gap = float(np.max(np.abs(x[finite] - y[finite])))
        worst = max(worst, gap)
        relative = max(relative, gap / max(1e-12, high - low if low < high else abs(high)))
    return worst, relative
