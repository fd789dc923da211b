"""Sizes, loops and results that are decided at run time.

python -m benchmarks.dynamic [--rows NAME,…] [--threads 1,2] [--quick] [--markdown]

``--rows`` takes parts of names; "BERT" stands for the table of open sizes, "4 × 384" for one row of it, "open batch"
for the table of convolutional networks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import benchmarks.suite as suite
from benchmarks.dynamic_models import Case, cases
from benchmarks.report import Table

SIZES = ((1, 8), (1, 32), (1, 128), (2, 64), (4, 16), (4, 384))
BATCHES = (1, 4)
REST_S = 0.05
"""Seconds of pause between turns: threads of the previous engine may still be spinning."""
TURNS, RUNS, LONG_S = 9, 3, 10.0
"""Number of turns, runs in each turn, and seconds after which no further turn starts (after at least three turns)."""
NOTE = "Median latency in one process, in turns."


def alternately(*runs: Callable[[], object]) -> list[float]:
    """The median milliseconds of each, measured in turns; the first run of each turn is not counted."""
    times: list[list[float]] = [[] for _ in runs]
    begin = time.perf_counter()
    for turn in range(TURNS):
        if turn > 2 and time.perf_counter() - begin > LONG_S:
            break
        for run, found in zip(runs, times, strict=True):
            time.sleep(REST_S)
            run()
            for _ in range(RUNS):
                start = time.perf_counter()
                run()
                found.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(t) for t in times]


def _bert_name(batch: int, length: int) -> str:
    return f"BERT {batch} × {length}"


def one_for_all_sizes(sizes: Sequence[tuple[int, int]], threads: int = 1) -> Table:
    """BERT with open batch and sequence, compared with executables compiled for one size each."""
    import weft

    path = suite.zoo.transformer("bert", "base", "dynamic")
    general = weft.compile(path, threads=threads)
    rows = []
    for batch, length in sizes:
        alone = weft.compile(path, threads=threads, shapes={"batch": batch, "sequence": length})
        rng = np.random.default_rng(0)
        shape = (batch, length)
        inputs = [np.ones(shape, np.int64) if "mask" in t.name else rng.integers(0, 2, shape) for t in general.inputs]
        ours, fixed = alternately(lambda x=inputs: general(*x), lambda x=inputs, e=alone: e(*x))  # type: ignore[misc]
        rows.append((_bert_name(batch, length), ours, fixed, ours / fixed))
    columns = ("batch × sequence", "one for all, ms", "for this size alone, ms", "ratio")
    return Table(f"BERT-base with open sizes, {_threads(threads)}", columns, tuple(rows), NOTE)


def convolutional(quick: bool) -> dict[str, Callable[[], Path]]:
    """Networks of convolutions by name, all with an open batch."""
    zoo = suite.zoo
    light = ("resnet50", "squeezenet", "densenet121", "inception_v2", "shufflenet")
    exported = ("mobilenetv2", "efficientnet", "convnext")
    made: dict[str, Callable[[], Path]] = {
        **{name: partial(_any_batch, partial(zoo.light, name)) for name in light},
        **{name: partial(zoo.transformer, name, sizes="dynamic") for name in exported},
        "U-Net": partial(_any_batch, _unet),
        "candy": partial(zoo.shared, "winml_candy"),
        "face landmarks": partial(zoo.shared, "osf_lm_model0_opt"),
    }
    return dict(list(made.items())[:2]) if quick else made


def _any_batch(build: Callable[[], Path]) -> Path:
    return suite.zoo.batched(build(), "batch")


def _unet() -> Path:
    from benchmarks.zoo import cache
    from benchmarks.zoo.lists import ENTRIES

    return cache.model(next(e for e in ENTRIES if e.name == "unet"))


def open_batches(models: Mapping[str, Callable[[], Path]], threads: int = 1) -> Table:
    """Convolutional networks with an open batch, compared with executables compiled for one batch. Those that are not
    available here are left out."""
    import onnx

    import weft

    rows = []
    for name, build in models.items():
        try:
            path = build()
        except suite.zoo.Unavailable as why:
            print(f"{name} is left out: {why}", file=sys.stderr)
            continue
        model = onnx.load(path)
        weights = {w.name for w in model.graph.initializer}
        (size,) = {d.dim_param for i in model.graph.input if i.name not in weights
                   for d in i.type.tensor_type.shape.dim if d.dim_param}  # fmt: skip
        general = weft.compile(path, threads=threads)
        for batch in BATCHES:
            alone = weft.compile(path, threads=threads, shapes={size: batch})
            inputs = suite.zoo.random_inputs(model, 0, {size: batch})
            x = [inputs[t.name] for t in general.inputs]
            ours, fixed = alternately(lambda x=x, e=general: e(*x), lambda x=x, e=alone: e(*x))  # type: ignore[misc]
            rows.append((f"{name} × {batch}", ours, fixed, ours / fixed))
    columns = ("network", "any batch, ms", "this batch alone, ms", "ratio")
    note = f"{NOTE} Wanted: a ratio of at most 1.05."
    return Table(f"Convolutional networks with an open batch, {_threads(threads)}", columns, tuple(rows), note)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def against_onnxruntime(chosen: Sequence[Case], threads: int = 1) -> Table:
    rows = tuple(_beside_onnxruntime(case, threads) for case in chosen)
    columns = ("what", "weft ms", "onnxruntime ms", "ratio", "equal")
    return Table(f"Loops and operators of the data's size, {_threads(threads)}", columns, rows, NOTE)


def _beside_onnxruntime(case: Case, threads: int) -> tuple[object, ...]:
    import onnxruntime

    import weft

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    model, feed = case.build()
    exe = weft.compile(model, threads=threads)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    inputs = [feed[t.name] for t in exe.inputs]
    wanted, made = session.run(None, feed), exe.run(feed).values()
    same = all(_equal(w, g) for w, g in zip(wanted, made, strict=True))
    ours, other = alternately(lambda: exe(*inputs), lambda: session.run(None, feed))
    return (case.name, ours, other, ours / other, "yes" if same else "NO")


def _equal(wanted: Any, made: Any) -> bool:
    return wanted.shape == made.shape and np.allclose(wanted, made, 1e-3, 1e-3)


def tables(names: Sequence[str], threads: Sequence[int], quick: bool) -> list[Table]:
    """The tables with the rows whose name contains one of ``names``, or with all."""

    def wanted(name: str) -> bool:
        return not names or any(n.lower() in name.lower() for n in names)

    sizes = [s for s in (SIZES[:3] if quick else SIZES) if wanted(_bert_name(*s))]
    chosen = [c for c in cases()[:: 3 if quick else 1] if wanted(c.name)]
    found = [one_for_all_sizes(sizes, t) for t in threads if sizes]
    networks = {k: v for k, v in convolutional(quick).items() if wanted(f"open batch {k}")}
    found += [open_batches(networks, t) for t in threads if networks]
    return found + [against_onnxruntime(chosen, t) for t in threads if chosen]


def run(quick: bool) -> list[Table]:
    return tables((), (1, 2), quick)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamic", description=__doc__)
    parser.add_argument("--rows", default="", help="parts of the names of rows")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--markdown", action="store_true", help="tables for README.md")
    options = parser.parse_args()
    names = [n.strip() for n in options.rows.split(",") if n.strip()]
    for table in tables(names, [int(t) for t in options.threads.split(",")], options.quick):
        print(table.markdown() if options.markdown else table.plain(), flush=True)


if __name__ == "__main__":
    main()
