"""Scaled dot-product attention over long sequences, compared with PyTorch's fused operator and onnxruntime's.

python -m benchmarks.attention [--quick] [--lengths 512,2048] [--threads 1,2] [--seconds 3] [--markdown]

Twelve heads of width 64, one sequence, float32; with and without a causal limit. Weft and onnxruntime run the same ONNX
model, the operator ``Attention``. A causal row counts half of the operations. Each engine starts when the threads of
the previous engine are asleep.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.movement import best_of
from benchmarks.report import Table, geometric_mean

HEADS, WIDTH = 12, 64
LENGTHS = (128, 512, 2048, 4096)
TOLERANCE = 1e-4

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """Best milliseconds of each engine, Weft's first."""

    length: int
    causal: bool
    milliseconds: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Weft's time over that of the fastest other."""
        return self.milliseconds["weft"] / min(v for k, v in self.milliseconds.items() if k != "weft")

    @property
    def gflops(self) -> float:
        operations = 4 * HEADS * WIDTH * self.length**2 / (2 if self.causal else 1)
        return operations / self.milliseconds["weft"] / 1e6


def model(length: int, causal: bool) -> Any:
    """One node ``Attention`` over queries, keys and values [1, heads, length, width]."""
    from onnx import TensorProto, checker, helper

    shape = (1, HEADS, length, WIDTH)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkvy"]
    graph = helper.make_graph([node], "attention", ports[:3], ports[3:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    checker.check_model(proto)
    return proto


def engines(length: int, causal: bool, threads: int) -> dict[str, Callable[[], Array]]:
    """The engines that compute the attention, by name; engines whose results differ are left out."""
    import onnxruntime as ort
    import torch

    import weft

    proto = model(length, causal)
    rng = np.random.default_rng(length)
    inputs = [rng.standard_normal((1, HEADS, length, WIDTH), dtype=np.float32) for _ in range(3)]
    out = np.empty_like(inputs[0])
    exe = weft.compile(proto, threads=threads)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = dict(zip("qkv", inputs, strict=True))
    q, k, v = (torch.from_numpy(x) for x in inputs)
    torch.set_num_threads(threads)

    def fused() -> Array:
        with torch.inference_mode():
            made = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return np.asarray(made.numpy())

    runs: dict[str, Callable[[], Array]] = {
        "weft": lambda: np.asarray(exe(*inputs, out=out)),
        "PyTorch": fused,
        "onnxruntime": lambda: np.asarray(session.run(None, feed)[0]),
    }
    wanted = runs["weft"]().copy()
    return {name: run for name, run in runs.items() if np.allclose(run(), wanted, atol=TOLERANCE, rtol=TOLERANCE)}


def table(lengths: Sequence[int], threads: int, seconds: float) -> Table:
    """All lengths, with and without a causal limit."""
    rows = []
    for length in lengths:
        for causal in (False, True):
            rows.append(Row(length, causal, best_of(engines(length, causal, threads), seconds)))
            times = "  ".join(f"{k} {v:.4g}" for k, v in rows[-1].milliseconds.items())
            print(f"{threads} {length} {'causal' if causal else ''} {times}  {rows[-1].ratio:.2f}", flush=True)
    names = list(dict.fromkeys(k for r in rows for k in r.milliseconds))
    lines = [
        (
            f"{r.length}{', causal' if r.causal else ''}",
            *(r.milliseconds.get(k, "–") for k in names),
            r.gflops,
            f"{r.ratio:.2f}",
        )
        for r in rows
    ]
    note = (
        f"{HEADS} heads of width {WIDTH}, float32; best milliseconds of several in turns. Geometric mean beside the "
        f"best peer {geometric_mean([r.ratio for r in rows]):.2f}."
    )
    columns = ("tokens", *names, "GFLOP/s", "weft / best")
    return Table(f"Attention, {threads} thread{'s' if threads != 1 else ''}", columns, tuple(lines), note)


def run(quick: bool) -> list[Table]:
    return [table((128, 512) if quick else LENGTHS, threads, 0.3 if quick else 3) for threads in (1, 2)]


def main() -> None:
    numbers: Callable[[str], tuple[int, ...]] = lambda text: tuple(int(x) for x in text.split(","))  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short lengths, less long")
    parser.add_argument("--lengths", type=numbers, default=LENGTHS)
    parser.add_argument("--threads", type=numbers, default=(1, 2))
    parser.add_argument("--seconds", type=float, default=3, help="of computing for each row")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    lengths = (128, 512) if options.quick else options.lengths
    for threads in options.threads:
        made = table(lengths, threads, 0.3 if options.quick else options.seconds)
        print("\n" + (made.markdown() if options.markdown else made.plain()))


if __name__ == "__main__":
    main()
