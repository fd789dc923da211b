"""Latency of whole models, alternately with other engines in processes of their own.

python -m benchmarks.models [--quick] [--threads 1,2] [--peers onnxruntime,openvino] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.report import Table, geometric_mean
from benchmarks.suite import available
from weft.cli.common import input_shapes, input_specs, parse_shapes
from weft.cli.inputs import random_inputs
from weft.cli.measure import Record, measure

PEERS = ("onnxruntime", "openvino")


def records(quick: bool, threads: int, peers: tuple[str, ...] = PEERS, runs: int = 20) -> list[Record]:
    """Records of Weft and of each peer for each model of the suite; Weft's come first."""
    import weft

    found: list[Record] = []
    for entry, path in available(quick):
        specs = input_specs(weft.load(path, shapes=parse_shapes(entry.shapes)))
        inputs = random_inputs(specs, 0, input_shapes(specs, entry.shapes))
        made, missing = measure(str(path), list(peers), threads, runs=runs, inputs=inputs)
        for name, reason in missing.items():
            print(f"{entry.name}: {name} was left out: {reason[:200]}")
        found += [Record(**{**asdict(r), "model": entry.name}) for r in made]
        ours = made[0]
        print(
            f"{entry.name:22} "
            + "  ".join(f"{r.engine} {r.median_ms:.2f}" for r in made)
            + f"  ({ours.threads} threads)"
        )
    return found


def table(found: list[Record], peers: tuple[str, ...] = PEERS) -> Table:
    rows: list[tuple[object, ...]] = []
    ratios = []
    for model in dict.fromkeys(r.model for r in found):
        mine = {r.engine: r for r in found if r.model == model}
        others = {p: mine[p] for p in peers if p in mine}
        ours = mine["weft"].median_ms
        best = min((r.median_ms for r in others.values()), default=float("nan"))
        ratios.append(ours / best)
        worst = max((r.max_rel_diff for r in others.values()), default=0.0)
        rows.append((model, ours, *(others[p].median_ms if p in others else "" for p in peers), ours / best, worst))
    known = [r for r in ratios if r == r]
    if known:
        rows.append(("geometric mean", "", *([""] * len(peers)), geometric_mean(known), ""))
    threads = found[0].threads if found else 0
    return Table(
        f"Models, fp32, {threads} thread{'s' if threads != 1 else ''}",
        ("model", "weft ms", *(f"{p} ms" for p in peers), "weft / best", "largest relative difference"),
        tuple(rows),
        "Median latency; all engines measured alternately in one run, each in a process of its own.",
    )


def run(quick: bool) -> list[Table]:
    return [table(records(quick, threads)) for threads in ((1,) if quick else (1, 2))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the four models that matter most, fewer runs")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    peers = tuple(p for p in options.peers.split(",") if p)
    every: list[Record] = []
    for threads in map(int, options.threads.split(",")):
        found = records(options.quick, threads, peers, options.runs)
        print("\n" + table(found, peers).plain())
        every += found
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in every], indent=1) + "\n")


if __name__ == "__main__":
    main()
