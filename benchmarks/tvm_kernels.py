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

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm_definitions import KERNELS, Notation

TARGET = {"kind": "llvm", "num-cores": 1}


NOTATION = Notation(te, tvm.tirx.all, tvm.tirx.if_then_else)


def tune(name: str, folder: str) -> None:
    target = tvm.target.Target({**TARGET, "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    ms.tune_tir(
        te.create_prim_func(KERNELS[name](NOTATION)),
        target,
        folder,
        100_000,
        num_trials_per_iter=32,
        num_tuning_cores=2,
    )


def serve(name: str, folder: str) -> None:
    target = tvm.target.Target({**TARGET, "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    tensors = KERNELS[name](NOTATION)
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
