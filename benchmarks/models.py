"""Latency of whole models. Weft and other engines run alternately, each in its own process.

python -m benchmarks.models [--quick] [--threads 1,2] [--batch 1,8] [--groups images,sequences] [--models NAME,…]
                            [--peers onnxruntime,openvino,…] [--precision bf16] [--markdown] [--json FILE] [--kernels N]

"best" is the fastest of all peers whose results agree. Operations are those of the model as written (a Winograd
convolution does fewer, so it may exceed the peak); the roofline is the sum of the lower bounds of all kernels' times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Table, geometric_mean
from benchmarks.suite import GROUPS, SUITE, Entry, available
from weft.bench.turns import Record, measure
from weft.cli.common import input_shapes, parse_shapes
from weft.measure.random_inputs import input_specs, random_inputs
from weft.measure.roofline import Peaks, beside_bounds, bounds, kernel_bounds
from weft.runtime.profile import Profile
from weft.runtime.program import ExecutableProgram

PEERS = ("onnxruntime", "openvino", "torch", "torch-compile")
TITLES = {"openvino": "OpenVINO", "torch-compile": "torch.compile", "tvm": "Apache TVM"}
WHAT = {"images": "Images, batch 1", "images8": "Images, batch 8", "sequences": "Sequences"}
BF16_MODELS = ("ResNet-50", "MobileNetV2", "BERT-base 128", "GPT-2 prefill 64", "ViT-B/16")
"""Models measured with ``--precision bf16``, against peers that have such an option."""
BF16_PEERS = ("openvino",)
TOLERANCE = {"f32": 1e-3, "bf16": 1e-1}
"""Largest difference of an output, relative to how far its numbers lie apart, for two engines to agree."""


@dataclass(frozen=True)
class Measured:
    """One model: records of the engines that ran (Weft's first), why others did not, and the lower bound of its time.

    ``flops`` are those of the model as written; ``peak_gflops`` is the measured peak, ``bound_ms`` the sum of the
    kernels' bounds.
    """

    model: str
    group: str
    threads: int
    precision: str
    records: tuple[Record, ...]
    missing: Mapping[str, str]
    flops: int
    bound_ms: float
    peak_gflops: float

    @property
    def ours(self) -> float:
        return self.records[0].median_ms

    @property
    def peers(self) -> dict[str, Record]:
        return {r.engine: r for r in self.records[1:]}

    @property
    def disagree(self) -> list[str]:
        """Peers whose outputs differ from Weft's by more than the tolerance."""
        return [r.engine for r in self.records[1:] if not r.max_rel_diff <= TOLERANCE[self.precision]]

    @property
    def above_roofline(self) -> bool:
        """Whether it took less than the least time, so that the measured peaks are not those of the machine."""
        return self.bound_ms > self.ours

    @property
    def ratio(self) -> float | None:
        """Weft's time over that of the best peer that agrees; None without one."""
        others = [r.median_ms for n, r in self.peers.items() if n not in self.disagree]
        return self.ours / min(others) if others else None


def select(
    groups: Sequence[str] = GROUPS, names: Sequence[str] = (), batches: Sequence[int] = (1, 8), precision: str = "f32"
) -> list[Entry]:
    """Entries of the suite in these groups whose name contains one of ``names``, of these batch sizes."""
    return [
        e
        for e in SUITE
        if e.group in groups
        and (8 if e.group == "images8" else 1) in batches
        and (not names or any(n.lower() in e.name.lower() for n in names))
        and (precision != "bf16" or e.name in BF16_MODELS)
    ]


def measured(
    entries: Iterable[tuple[Entry, Path]],
    threads: int,
    peers: tuple[str, ...] = PEERS,
    runs: int = 20,
    precision: str = "f32",
    kernels: int = 0,
) -> list[Measured]:
    """Weft and the peers on each model, and the roofline; prints the ``kernels`` of each model that lose most time."""
    import weft
    from weft.measure.peaks import measure_peaks

    peaks = measure_peaks(threads)
    kinds = ("bfloat16",) if precision == "bf16" else ()
    found: list[Measured] = []
    leasts: list[Callable[[Peaks], float]] = []
    for entry, path in entries:
        module = weft.load(path, shapes=parse_shapes(entry.shapes))
        specs = input_specs(module)
        inputs = random_inputs(specs, 0, input_shapes(specs, entry.shapes))
        if entry.pictures:
            inputs = {name: pixels(noise) for name, noise in inputs.items()}
        made, missing = measure(
            str(path), list(peers), threads, runs=runs, inputs=inputs, precision=precision, torch=entry.torch_source
        )
        peaks = better(peaks, measure_peaks(threads))
        exe = weft.compile(path, threads=threads, shapes={k: v.shape for k, v in inputs.items()}, precision=precision)
        profile = exe.profile(inputs, runs=3)  # runs it, since loops decide how often a kernel is called
        least = partial(least_ms, exe.artifact.program, exe.sizes(inputs), profile)
        peaks = undisturbed(peaks, least, made[0].median_ms, lambda: measure_peaks(threads))
        leasts.append(least)
        roof = beside_bounds(profile, kernel_bounds(exe, inputs, peaks=peaks), peaks)
        records = tuple(Record(**{**asdict(r), "model": entry.name}) for r in made)
        flops = model_flops(path, inputs) or roof.flops
        row = Measured(
            entry.name, entry.group, threads, precision, records, missing, flops, roof.bound_ms, peaks.arithmetic(kinds)
        )
        found.append(row)
        say(row)
        if kernels:
            print(roof.table(kernels))
    # Other work on the machine makes peaks lower, never higher: all rows stand beside the best ones of the run.
    return [
        replace(row, bound_ms=least(peaks), peak_gflops=peaks.arithmetic(kinds))
        for row, least in zip(found, leasts, strict=True)
    ]


def least_ms(program: ExecutableProgram, sizes: Mapping[str, int], profile: Profile, peaks: Peaks) -> float:
    """The least milliseconds of the run that ``profile`` tells of."""
    return beside_bounds(profile, bounds(program, sizes, peaks), peaks).bound_ms


PEAK_ATTEMPTS, PEAK_PAUSE = 4, 2.0
"""How often peaks are measured again that a model exceeds, and the seconds in between."""


def undisturbed(
    peaks: Peaks, least: Callable[[Peaks], float], ms: float, again: Callable[[], Peaks], pause: float = PEAK_PAUSE
) -> Peaks:
    """``peaks``, measured again while a model takes less than the least time that they allow."""
    for _ in range(PEAK_ATTEMPTS):
        if least(peaks) <= ms:
            break
        time.sleep(pause)
        peaks = better(peaks, again())
    return peaks


def pixels(noise: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Normal ``noise`` as integers from 0 to 255, of the same shape and dtype."""
    return np.clip(np.rint(noise * 64 + 128), 0, 255).astype(noise.dtype)


def better(a: Peaks, b: Peaks) -> Peaks:
    """The better value of each of the two."""
    levels = tuple(max(x, y, key=lambda v: v.gigabytes) for x, y in zip(a.levels, b.levels, strict=True))
    dots = {d: max(rate, b.dots.get(d, 0.0)) for d, rate in a.dots.items()}
    return Peaks(a.threads, max(a.gflops, b.gflops), levels, dots)


def model_flops(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """Floating-point operations of the model as written: plain layouts, direct convolutions. 0 for a model with
    control flow, where the number depends on the run."""
    import weft
    from weft.graph.nodes import Call, Function
    from weft.graph.passes.memory import is_straight
    from weft.graph.visit import post_order
    from weft.pipeline import Options, optimize, unscheduled
    from weft.target import Target

    module = weft.load(path, shapes={k: v.shape for k, v in inputs.items()})
    fused = optimize(module, Target("cpu"), Options(layouts=False, winograd=False))
    if not is_straight(fused.main):
        return 0
    calls = (e for e in post_order(fused.main, into_functions=False) if isinstance(e, Call))
    return sum(int(unscheduled(c.target)[1].flops) for c in calls if isinstance(c.target, Function))


def say(row: Measured) -> None:
    times = "  ".join(f"{r.engine} {r.median_ms:.2f}" for r in row.records)
    print(f"{row.model:24} {times}  ({row.threads} threads; roofline {row.bound_ms:.2f})", flush=True)
    for name, reason in row.missing.items():
        print(f"  {name} was left out: {' '.join(reason.split())[:200]}")


def table(found: Sequence[Measured], peers: tuple[str, ...] = PEERS) -> Table:
    """A row for each model, and a last row with the geometric mean."""
    rows: list[tuple[object, ...]] = []
    for m in found:
        ratio = m.ratio
        speed = m.flops / m.ours / 1e6
        rows.append(
            (
                m.model,
                m.ours,
                *(_cell(m, p) for p in peers),
                "" if ratio is None else f"{ratio:.2f}",
                speed,
                f"{100 * speed / m.peak_gflops:.0f}%",
                f"{100 * m.bound_ms / m.ours:.0f}%" + (" †" if m.above_roofline else ""),
            )
        )
    ratios = [m.ratio for m in found if m.ratio is not None]
    if ratios:
        rows.append(("**geometric mean**", "", *[""] * len(peers), f"**{geometric_mean(ratios):.3f}**", "", "", ""))
    threads, precision = (found[0].threads, found[0].precision) if found else (0, "f32")
    groups = {m.group for m in found}
    what = WHAT[groups.pop()] if len(groups) == 1 else "Models"
    columns = ("weft / best", "GFLOP/s", "of peak", "of roofline")
    return Table(
        f"{what}, {precision}, {threads} thread{'s' if threads != 1 else ''}",
        ("model", "weft ms", *(f"{TITLES.get(p, p)} ms" for p in peers), *columns),
        tuple(rows),
        note(found),
    )


def _cell(m: Measured, peer: str) -> str:
    if peer not in m.peers:
        return "–"
    r = m.peers[peer]
    time = f"{r.median_ms:.3g}" if r.median_ms < 1000 else f"{r.median_ms:.0f}"
    return f"{time} ≠" if peer in m.disagree else time


def note(found: Sequence[Measured]) -> str:
    """How the table was measured, and which results are missing."""
    if not found:
        return ""
    versions = {r.engine: r.version.split("-")[0].split("+")[0] for m in found for r in m.records}
    engines = ", ".join(f"{TITLES.get(n, n)} {v}" for n, v in versions.items())
    text = (
        f"Median latency, all engines alternately in one run, each in a process of its own: {engines}. Measured peak "
        f"{max(m.peak_gflops for m in found):.0f} GFLOP/s. Outputs agree within {TOLERANCE[found[0].precision]:g} of "
        "how far an output's numbers lie apart; ≠ marks those that do not, – what did not run."
    )
    if any(m.above_roofline for m in found):
        text += " †: faster than the measured peaks allow, which other work on the machine has lowered."
    for m in found:
        for name, reason in m.missing.items():
            line = " ".join(reason.split())
            text += f"\n\n{m.model} in {TITLES.get(name, name)}: {line[:160]}{'…' if len(line) > 160 else ''}"
    return text


def to_json(found: Sequence[Measured]) -> str:
    return json.dumps([asdict(m) for m in found], indent=1) + "\n"


def from_json(text: str) -> list[Measured]:
    """The records that :func:`to_json` wrote."""
    return [Measured(**{**m, "records": tuple(Record(**r) for r in m["records"])}) for m in json.loads(text)]


def run(quick: bool) -> list[Table]:
    return [table(measured(available(quick), threads)) for threads in ((1,) if quick else (1, 2))]


def words(text: str) -> tuple[str, ...]:
    return tuple(w for w in text.split(",") if w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the four models that matter most")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--batch", default="1,8", help="of images")
    parser.add_argument("--groups", type=words, default=GROUPS, help=", ".join(GROUPS))
    parser.add_argument("--models", type=words, default=(), help="only those whose name contains one of these words")
    parser.add_argument("--peers", default=None, help=f"[default: {','.join(PEERS)}; bf16: {','.join(BF16_PEERS)}]")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="show the N kernels that lose most time")
    parser.add_argument("--markdown", action="store_true", help="tables for README.md")
    parser.add_argument("--json", default=None, help="write what was measured to this file")
    options = parser.parse_args()
    usual = BF16_PEERS if options.precision == "bf16" else PEERS
    peers = usual if options.peers is None else words(options.peers)
    batches = tuple(int(b) for b in words(options.batch))
    entries = select(options.groups, options.models, batches, options.precision)
    every: list[Measured] = []
    for threads in map(int, words(options.threads)):
        models = available(options.quick, entries)
        found = measured(models, threads, peers, options.runs, options.precision, options.kernels)
        made = table(found, peers)
        print("\n" + (made.markdown() if options.markdown else made.plain()))
        every += found
    if options.json:
        Path(options.json).write_text(to_json(every))


if __name__ == "__main__":
    main()
