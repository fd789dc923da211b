"""``weft bench``: engines measured alternately, each in its own warmed process, with their outputs compared."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from weft.cli.common import (
    console,
    input_shapes,
    input_specs,
    parse_shapes,
    shape_option,
    table,
    target_option,
    write_file,
)
from weft.cli.engines import ENGINES
from weft.cli.inputs import random_inputs, read_inputs
from weft.support.errors import UserError

TURN_MS = 60
"""A turn of one engine takes at least so long."""
REST_S = 0.1
"""Between turns all engines rest so long: threads of the one before may still be spinning."""


@dataclass(frozen=True, slots=True)
class Record:
    """One engine on one model. Times in milliseconds; differences are against the first engine (Weft)."""

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
    """A running engine process."""

    def __init__(self, name: str, request: Path, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.times: list[float] = []
        self.log = (folder / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft.cli.engines", name, str(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        reply = self.reply()
        self.error: str | None = reply.get("error")
        self.version: str = reply.get("version", "")

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.reply()

    def reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            tail = (self.folder / f"{self.name}.log").read_text()[-500:]
            return {"error": f"the process ended with status {self.process.wait()}: {tail}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        path = self.folder / f"{self.name}.npz"
        self.ask(save=str(path))
        with np.load(path) as archive:
            return [archive[k] for k in archive.files]

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()


def measure(
    model: str,
    peers: list[str],
    threads: int,
    *,
    runs: int = 20,
    rounds: int = 5,
    target: str = "cpu",
    precision: str = "f32",
    inputs: dict[str, np.ndarray[Any, Any]],
) -> tuple[list[Record], dict[str, str]]:
    """Records of Weft and the peers, and why peers are missing.

    Each of ``rounds`` rounds runs every engine at least ``runs / rounds`` times in turn, for at least TURN_MS and after
    a rest, so that drift of the machine meets all alike. A peer that cannot be loaded is left out with its reason.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type]
        request = folder / "request.json"
        request.write_text(
            json.dumps(
                {
                    "model": model,
                    "inputs": str(folder / "inputs.npz"),
                    "threads": threads,
                    "target": target,
                    "precision": precision,
                }
            )
        )
        engines = [Engine(name, request, folder) for name in ["weft", *peers]]
        missing = {e.name: e.error for e in engines if e.error}
        try:
            if "weft" in missing:
                raise UserError(missing["weft"] or "", code="B002")
            alive = [e for e in engines if not e.error]
            fewest = max(1, runs // rounds)
            turns = {e.name: max(fewest, int(TURN_MS / min(e.ask(runs=fewest)["times"]))) for e in alive}
            for _ in range(rounds):
                for e in alive:
                    time.sleep(REST_S)
                    e.times += e.ask(runs=turns[e.name])["times"]
            outputs = {e.name: e.outputs() for e in alive}
        finally:
            for e in engines:
                e.close()
    records = []
    for e in alive:
        worst, relative = _difference(outputs["weft"], outputs[e.name])
        median = statistics.median(e.times)
        kind = "bf16" if precision == "bf16" and e.name == "openvino" else _precision(inputs)
        records.append(
            Record(
                Path(model).stem, e.name, e.version, kind, threads, median, min(e.times), len(e.times), worst, relative
            )
        )
    return records, {k: v or "" for k, v in missing.items()}


def _precision(inputs: dict[str, np.ndarray[Any, Any]]) -> str:
    """The float type that the model works in, told from its inputs; f32 where they are whole numbers."""
    kinds = [v.dtype for v in inputs.values() if v.dtype.kind == "f"]
    return f"f{kinds[0].itemsize * 8}" if kinds else "f32"


def _difference(ours: list[np.ndarray[Any, Any]], theirs: list[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """Largest absolute difference, and largest difference relative to the largest magnitude of that output."""
    worst = relative = 0.0
    if len(ours) != len(theirs):
        return float("inf"), float("inf")
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return float("inf"), float("inf")
        if a.size == 0:
            continue
        gap = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
        worst = max(worst, gap)
        relative = max(relative, gap / max(1e-12, float(np.max(np.abs(b.astype(np.float64))))))
    return worst, relative


@click.command("bench")
@click.argument("models", nargs=-1, required=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads for every engine.")
@click.option(
    "--peers",
    default="onnxruntime",
    show_default=True,
    help=f"Comma-separated: {', '.join(list(ENGINES)[1:])}, or none.",
)
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True, help="Least runs of each engine.")
@click.option("-i", "--input", "files", multiple=True, metavar="[NAME=]FILE", help="Inputs. [default: random]")
@click.option("--json", "json_path", default=None, help="Write the records to this file.")
@click.option("--precision", type=click.Choice(["f32", "bf16"]), default="f32", help="OpenVINO's precision hint.")
@target_option
@shape_option
def command(
    models: tuple[str, ...],
    threads: int,
    peers: str,
    runs: int,
    files: tuple[str, ...],
    json_path: str | None,
    precision: str,
    target: str,
    shapes: tuple[str, ...],
) -> None:
    """Measure MODELS with Weft and with other engines, alternately, and compare the outputs.

    \b
    weft bench resnet.onnx
    weft bench *.onnx --threads 2 --peers onnxruntime,openvino --json results.json

    Every engine runs in its own process with its best settings and the same number of threads. Keep the machine quiet.
    """
    import weft

    wanted = [p for p in peers.split(",") if p and p != "none"]
    unknown = [p for p in wanted if p not in ENGINES or p == "weft"]
    if unknown:
        raise UserError(f"there is no peer '{unknown[0]}'", code="B001", hint="peers: " + ", ".join(list(ENGINES)[1:]))
    records: list[Record] = []
    for model in models:
        module = weft.load(model, shapes=parse_shapes(shapes))
        specs = input_specs(module)
        inputs = {**random_inputs(specs, 0, input_shapes(specs, shapes)), **read_inputs(files, specs)}
        found, missing = measure(model, wanted, threads, runs=runs, target=target, precision=precision, inputs=inputs)
        _show(found, missing, threads)
        records += found
    if json_path:
        text = json.dumps([asdict(r) for r in records], indent=1) + "\n"
        write_file(json_path, lambda: Path(json_path).write_text(text))
        click.echo(f"wrote {json_path}")


def _show(records: list[Record], missing: dict[str, str], threads: int) -> None:
    ours = records[0].median_ms
    longest = max(r.median_ms for r in records)
    rows = []
    for r in records:
        bar = "█" * max(1, round(24 * r.median_ms / longest))
        ratio = "" if r.engine == "weft" else f"{ours / r.median_ms:.2f}×"
        rows.append([r.engine, r.version, f"{r.median_ms:.2f}", f"{r.min_ms:.2f}", ratio, f"{r.max_abs_diff:.2g}", bar])
    title = f"{records[0].model}, {threads} thread{'s' if threads > 1 else ''}"
    columns = ["engine", "version", "median ms", "min ms", "weft takes", "max |diff|", ""]
    screen = console()
    screen.print(table(title, columns, rows, right=(2, 3, 4, 5)))
    for name, reason in missing.items():
        package = ENGINES[name][0]
        hint = f" (pip install {package})" if "No module named" in reason else ""
        screen.print(f"{name} was left out: {reason}{hint}")
