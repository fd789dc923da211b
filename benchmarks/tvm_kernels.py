"""Kernels in Apache TVM, tuned by MetaSchedule, then timed on request: a process of :mod:`benchmarks.metaschedule`.

    PYTHON tvm_kernels.py tune KERNEL FOLDER        tunes until it is killed
    PYTHON tvm_kernels.py serve KERNEL FOLDER       reads numbers of runs, answers with the seconds of each run

It imports nothing of Weft, as it runs where TVM is installed. The interpreter needs ``apache-tvm==0.27.*``,
``apache-tvm-ffi==0.1.14.post1``, ``xgboost``, ``cloudpickle`` and ``psutil``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

TARGET = {"kind": "llvm", "num-cores": 1}


def _conv(channels: int, size: int, out: int, window: int, pad: int) -> list[Any]:
    x, w = te.placeholder((channels, size, size), name="x"), te.placeholder((out, channels, window, window), name="w")
    inside = lambda i, j: tvm.tirx.all(i >= pad, i < size + pad, j >= pad, j < size + pad)  # noqa: E731
    padded = te.compute(
        (channels, size + 2 * pad, size + 2 * pad),
        lambda c, i, j: tvm.tirx.if_then_else(inside(i, j), x[c, i - pad, j - pad], 0.0),
        name="padded",
    )
    c, u, v = (te.reduce_axis((0, n), n_) for n, n_ in ((channels, "c"), (window, "u"), (window, "v")))
    n = size + 2 * pad - window + 1
    y = te.compute(
        (out, n, n), lambda o, i, j: te.sum(padded[c, i + u, j + v] * w[o, c, u, v], axis=[c, u, v]), name="y"
    )
    return [x, w, y]


def _depthwise(channels: int, size: int, window: int, pad: int) -> list[Any]:
    x, w = te.placeholder((channels, size, size), name="x"), te.placeholder((channels, window, window), name="w")
    inside = lambda i, j: tvm.tirx.all(i >= pad, i < size + pad, j >= pad, j < size + pad)  # noqa: E731
    padded = te.compute(
        (channels, size + 2 * pad, size + 2 * pad),
        lambda c, i, j: tvm.tirx.if_then_else(inside(i, j), x[c, i - pad, j - pad], 0.0),
        name="padded",
    )
    u, v = te.reduce_axis((0, window), "u"), te.reduce_axis((0, window), "v")
    n = size + 2 * pad - window + 1
    y = te.compute(
        (channels, n, n), lambda c, i, j: te.sum(padded[c, i + u, j + v] * w[c, u, v], axis=[u, v]), name="y"
    )
    return [x, w, y]


def _matmul(m: int, n: int, k: int) -> list[Any]:
    a, b, r = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.reduce_axis((0, k), "r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")]


def _batch_matmul(b: int, m: int, n: int, k: int) -> list[Any]:
    x, y, r = te.placeholder((b, m, k), name="x"), te.placeholder((b, n, k), name="y"), te.reduce_axis((0, k), "r")
    return [x, y, te.compute((b, m, n), lambda h, i, j: te.sum(x[h, i, r] * y[h, j, r], axis=r), name="z")]


def _softmax(rows: int, columns: int) -> list[Any]:
    x = te.placeholder((rows, columns), name="x")
    j, k = te.reduce_axis((0, columns), "j"), te.reduce_axis((0, columns), "k")
    most = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="most")
    e = te.compute((rows, columns), lambda i, c: te.exp(x[i, c] - most[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, k], axis=k), name="total")
    return [x, te.compute((rows, columns), lambda i, c: e[i, c] / total[i], name="y")]


def _norm_matmul(rows: int, columns: int, out: int) -> list[Any]:
    x, w = te.placeholder((rows, columns), name="x"), te.placeholder((columns, out), name="w")
    j, k, r = (te.reduce_axis((0, columns), n) for n in "jkr")
    mean = te.compute((rows,), lambda i: te.sum(x[i, j] * (1.0 / columns), axis=j), name="mean")
    square = lambda i, c: (x[i, c] - mean[i]) * (x[i, c] - mean[i])  # noqa: E731
    var = te.compute((rows,), lambda i: te.sum(square(i, k) * (1.0 / columns), axis=k), name="var")
    n = te.compute((rows, columns), lambda i, c: (x[i, c] - mean[i]) * te.rsqrt(var[i] + 1e-5), name="n")
    return [x, w, te.compute((rows, out), lambda i, o: te.sum(n[i, r] * w[r, o], axis=r), name="y")]


KERNELS = {
    "matmul": lambda: _matmul(1024, 1024, 1024),
    "conv 64": lambda: _conv(64, 56, 64, 3, 1),
    "conv 128": lambda: _conv(128, 28, 128, 3, 1),
    "conv 1x1": lambda: _conv(256, 14, 1024, 1, 0),
    "depthwise": lambda: _depthwise(144, 56, 3, 1),
    "batch matmul": lambda: _batch_matmul(12, 128, 128, 64),
    "softmax": lambda: _softmax(1536, 128),
    "norm + matmul": lambda: _norm_matmul(128, 768, 768),
}


def tune(name: str, folder: str) -> None:
    target = tvm.target.Target({**TARGET, "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    ms.tune_tir(
        te.create_prim_func(KERNELS[name]()), target, folder, 100_000, num_trials_per_iter=32, num_tuning_cores=2
    )


def serve(name: str, folder: str) -> None:
    target = tvm.target.Target({**TARGET, "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    tensors = KERNELS[name]()
    mod = tvm.IRModule({"main": te.create_prim_func(tensors)})
    database = ms.database.JSONDatabase(work_dir=folder)
    schedule = ms.tir_integration.compile_tir(database, mod, target)
    lib = tvm.compile(schedule.mod if schedule is not None else mod, target)
    rng = np.random.default_rng(0)
    arrays = [tvm.runtime.tensor(rng.standard_normal([int(d) for d in t.shape]).astype(np.float32)) for t in tensors]
    run = lib["main"]
    run(*arrays)
    print(json.dumps({"trials": len(database)}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run(*arrays)
            times.append(time.perf_counter() - begin)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    action, kernel, where = sys.argv[1:]
    Path(where).mkdir(parents=True, exist_ok=True)
    {"tune": tune, "serve": serve}[action](kernel, where)
