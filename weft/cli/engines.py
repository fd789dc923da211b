"""Engines to measure against, each driven in a process of its own: ``python -m weft.cli.engines NAME REQUEST.json``.

The process loads the model with the engine's best settings for a number of threads, then obeys one-line JSON commands
on its standard input: ``{"runs": n}`` runs n times and answers with the times in milliseconds; ``{"save": path}``
writes the outputs of one run. So engines can be measured alternately without sharing threads, allocators or imports.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

Run = Callable[[], Sequence[Any]]
Inputs = dict[str, np.ndarray[Any, Any]]


def _weft(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    import weft

    shapes = {name: value.shape for name, value in inputs.items()}
    exe = weft.compile(request["model"], target=request.get("target", "cpu"), threads=request["threads"], shapes=shapes)
    return weft.__version__, lambda: list(exe.run(inputs).values())


def _onnxruntime(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(None, inputs)


def _openvino(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": request["threads"],
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": request.get("precision", "f32"),
    }
    model = core.read_model(request["model"])
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    compiled = core.compile_model(model, "CPU", settings)
    made = compiled.create_infer_request()

    def run() -> Sequence[Any]:
        result = made.infer(inputs, share_inputs=True, share_outputs=True)
        return [result[o] for o in compiled.outputs]

    return str(openvino.__version__), run


def _torch(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    import torch

    from weft.frontend.onnx.in_torch import torch_module

    torch.set_num_threads(request["threads"])
    module = torch_module(request["model"])
    tensors = tuple(torch.from_numpy(v) for v in inputs.values())
    with torch.inference_mode():
        try:
            trace: Any = torch.jit.trace
            traced = torch.jit.optimize_for_inference(torch.jit.freeze(trace(module, tensors, check_trace=False)))
            traced(*tensors)
        except RuntimeError:  # what cannot be traced runs eagerly
            traced = module

    def run() -> Sequence[Any]:
        with torch.inference_mode():
            result = traced(*tensors)
        return [result] if isinstance(result, torch.Tensor) else list(result)

    return str(torch.__version__), run


def _tvm(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    os.environ["TVM_NUM_THREADS"] = str(request["threads"])
    import onnx

    tvm: Any = import_module("tvm")
    relax: Any = import_module("tvm.relax")
    module = import_module("tvm.relax.frontend.onnx").from_onnx(
        onnx.load(request["model"]),
        shape_dict={k: list(v.shape) for k, v in inputs.items()},
        keep_params_in_input=False,
    )
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    with target:
        built = relax.build(relax.get_pipeline("default_build")(relax.get_pipeline("zero")(module)), target)
    machine = relax.VirtualMachine(built, tvm.cpu())
    tensors = [tvm.runtime.tensor(v) for v in inputs.values()]

    def run() -> Sequence[Any]:
        result = machine["main"](*tensors)
        return [r.numpy() for r in (result if not hasattr(result, "numpy") else [result])]

    return str(tvm.__version__), run


ENGINES: dict[str, tuple[str, Callable[[dict[str, Any], Inputs], tuple[str, Run]]]] = {
    "weft": ("weft", _weft),
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "openvino": ("openvino", _openvino),
    "torch": ("torch", _torch),
    "tvm": ("apache-tvm", _tvm),
}
"""Engine name → the package it needs, and what loads a model with it."""


def serve(name: str, request_path: str) -> None:
    """Load the model and obey commands until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints must not mix with the answers
    with open(request_path) as file:
        request = json.load(file)
    with np.load(request["inputs"]) as archive:
        inputs = {k: archive[k] for k in archive.files}

    def answer(**values: Any) -> None:
        replies.write(json.dumps(values) + "\n")
        replies.flush()

    try:
        version, run = ENGINES[name][1](request, inputs)
        for _ in range(request.get("warmup", 3)):
            run()
    except Exception as problem:
        answer(error=f"{type(problem).__name__}: {problem}")
        return
    answer(version=version)
    for line in sys.stdin:
        order = json.loads(line)
        if "save" in order:
            np.savez(order["save"], *[np.asarray(v) for v in run()])
            answer(saved=True)
            continue
        times = []
        for _ in range(order["runs"]):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        answer(times=times)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
