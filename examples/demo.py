"""The main job, shown on a real network: ResNet-50 compiled, checked against onnxruntime and measured.

The architecture comes with the ``onnx`` package; its weights are seeded random numbers that keep activations sane.
Run it with ``make demo``, or ``python examples/demo.py [--threads N]``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np


def model_file(folder: Path) -> Path:
    """ResNet-50 with random weights, as an ONNX file in ``folder``."""
    import onnx
    import onnx.backend.test
    from random_weights import randomize_weights

    source = Path(onnx.backend.test.__file__).parent / "data" / "light" / "light_resnet50.onnx"
    path = folder / "resnet50.onnx"
    onnx.save(randomize_weights(onnx.load(source), seed=0), path)
    return path


def peer(path: Path, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def alternate(ours, theirs, rounds: int = 12) -> tuple[float, float]:
    """Median milliseconds of two functions, called in turn so that drift of the machine meets both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, seen in zip((ours, theirs), times, strict=True):
            for _ in range(2):
                start = time.perf_counter()
                function()
                seen.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["WEFT_CACHE_DIR"] = str(folder / "cache")  # an empty cache, so that "cold" is cold
        from weft.api import compile_with_report

        path = model_file(folder)
        print(f"ResNet-50, {path.stat().st_size / 1e6:.0f} MB, {threads} thread{'s' if threads > 1 else ''}\n")
        for name in ("cold", "cached"):
            start = time.perf_counter()
            exe, report = compile_with_report(path, threads=threads, progress=True)
            print(
                f"compiled, {name:6}  {time.perf_counter() - start:5.2f} s   "
                f"{report.operators} operators in {report.calls} kernel calls, {report.groups} distinct kernels, "
                f"{report.built} built, {report.cached} from the cache"
            )
        x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
        session = peer(path, threads)
        feed = {session.get_inputs()[0].name: x}
        got, want = exe(x), session.run(None, feed)[0]
        scale = float(np.abs(want).max())
        print(f"\nlargest difference to onnxruntime  {np.abs(got - want).max():.2g}  (largest output {scale:.2g})")
        ours, theirs = alternate(lambda: exe(x), lambda: session.run(None, feed))
        print(f"weft         {ours:7.2f} ms")
        print(f"onnxruntime  {theirs:7.2f} ms   weft takes {ours / theirs:.2f}×\n")
        print("the most expensive kernels")
        print(exe.profile(x).table(12))


if __name__ == "__main__":
    main()
