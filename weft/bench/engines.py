"""Engines to measure, each in a separate process: ``python -m weft.bench.engines NAME REQUEST.json``.

The process loads the model with the engine's best settings for a number of threads. Then it reads one-line JSON
commands from its standard input. ``{"runs": n, "seconds": s}`` runs n times, or fewer if s seconds have passed, and
answers with the times in milliseconds. ``{"save": path}`` writes the outputs of one run. Separate processes let engines
be measured alternately without sharing threads, allocators or imports.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import numpy as np

from weft.support.clock import repeated

INDUCTOR_MODES = ("default", "max-autotune")

Run = Callable[[], Sequence[Any]]
Inputs = dict[str, np.ndarray[Any, Any]]

WARMUP_SECONDS = 2.0
"""Warming up an engine ends after so many seconds; it has at least one run."""


def _weft(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    from weft.api import compile
    from weft.pipeline import Options
    from weft.support.version import VERSION

    shapes = {name: value.shape for name, value in inputs.items()}
    exe = compile(
        request["model"],
        target=request.get("target", "cpu"),
        threads=request["threads"],
        shapes=shapes,
        options=Options(precision=request.get("precision", "f32"), winograd=request.get("winograd", True)),
        tuning_db=request.get("tuning_db"),
    )
    return VERSION, lambda: list(exe.run(inputs).values())


def _onnxruntime(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    for name, size in _open_sizes(request["model"], inputs).items():  # Weft and OpenVINO get them too
        options.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(None, inputs)


def _open_sizes(model: str, inputs: Inputs) -> dict[str, int]:
    """The sizes of axes that have names in the file, taken from the inputs."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    found: dict[str, int] = {}
    for given in graph.input:
        if given.name in inputs:
            axes = zip(given.type.tensor_type.shape.dim, inputs[given.name].shape, strict=False)
            found.update((axis.dim_param, size) for axis, size in axes if axis.dim_param)
    return found


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


def _torch_module(request: dict[str, Any]) -> Any:
    """The module that the model was exported from, if the request names it; else a module that runs the ONNX nodes."""
    if source := request.get("torch"):
        path, _, call = source.partition(":")
        spec = spec_from_file_location("torch_source", path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(f"{path} is not a Python file")
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)
        name, *words = call.split(",")
        return getattr(loaded, name)(*words)
    from weft.frontends.onnx.in_torch import torch_module

    return torch_module(request["model"])


def _in_torch(request: dict[str, Any], inputs: Inputs, prepare: Callable[[Any, Any, tuple[Any, ...]], Run]) -> Run:
    """``prepare(torch, module, tensors)`` returns the function to time; its results are converted to arrays."""
    import torch

    torch.set_num_threads(request["threads"])
    tensors = tuple(torch.from_numpy(v) for v in inputs.values())
    with torch.no_grad():
        call = prepare(torch, _torch_module(request).eval(), tensors)

    def run() -> Sequence[Any]:
        with torch.no_grad():
            result = call()
        return [result] if isinstance(result, torch.Tensor) else list(result)

    return run


def _eager(torch: Any, module: Any, tensors: tuple[Any, ...]) -> Run:
    """Eager mode; for images in the faster of the two memory formats (contiguous, channels last)."""

    def plain() -> Any:
        return module(*tensors)

    if all(t.dim() != 4 for t in tensors):
        return plain
    before = _seconds(plain)
    module.to(memory_format=torch.channels_last)
    turned = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in tensors]
    if _seconds(lambda: module(*turned)) < before:
        return lambda: module(*turned)
    module.to(memory_format=torch.contiguous_format)
    return plain


def _inductor(torch: Any, module: Any, tensors: tuple[Any, ...]) -> Run:
    """TorchInductor with frozen weights, in the faster of two modes: the usual one, and the one that measures its
    products. Graph breaks are errors, so that nothing runs in eager mode."""
    config: Any = import_module("torch._inductor.config")
    config.freezing = True
    dynamo: Any = import_module("torch._dynamo.config")
    dynamo.allow_rnn = True
    if not any(True for _ in module.parameters()):  # a module that runs ONNX nodes: trace it for these inputs
        module = import_module("torch.fx.experimental.proxy_tensor").make_fx(module)(*tensors)
    return _fastest([partial(torch.compile(module, fullgraph=True, mode=mode), *tensors) for mode in INDUCTOR_MODES])


def _fastest(runs: Sequence[Run]) -> Run:
    """The fastest of those that run. Raises the first error if none does."""
    timed: list[tuple[float, int]] = []
    errors: list[Exception] = []
    for i, run in enumerate(runs):
        try:
            timed.append((_seconds(run), i))
        except Exception as problem:  # of another package: any
            errors.append(problem)
    if not timed:
        raise errors[0]
    return runs[min(timed)[1]]


def _seconds(run: Run) -> float:
    return min(repeated(run, 3))


def _torch(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    run = _in_torch(request, inputs, _eager)
    return str(import_module("torch").__version__), run


def _torch_compile(request: dict[str, Any], inputs: Inputs) -> tuple[str, Run]:
    run = _in_torch(request, inputs, _inductor)
    return str(import_module("torch").__version__), run


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
    "torch-compile": ("torch", _torch_compile),
    "tvm": ("apache-tvm", _tvm),
}
"""Engine name → the package it needs, and the function that loads a model with it."""


def serve(name: str, request_path: str) -> None:
    """Load the model and execute commands until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the engine's own output apart from the answers
    with open(request_path) as file:
        request = json.load(file)
    with np.load(request["inputs"]) as archive:
        inputs = {k: archive[k] for k in archive.files}

    def answer(**values: Any) -> None:
        replies.write(json.dumps(values) + "\n")
        replies.flush()

    try:
        version, run = ENGINES[name][1](request, inputs)
        _timed(run, request.get("warmup", 3), WARMUP_SECONDS)
    except Exception as problem:  # other engines may raise any exception
        answer(error=f"{type(problem).__name__}: {problem}")
        return
    answer(version=version)
    for line in sys.stdin:
        order = json.loads(line)
        if "save" in order:
            np.savez(order["save"], *[np.asarray(v) for v in run()])
            answer(saved=True)
            continue
        answer(times=_timed(run, order["runs"], order.get("seconds", float("inf"))))


def _timed(run: Run, count: int, seconds: float) -> list[float]:
    """Milliseconds of ``count`` runs, or of fewer if ``seconds`` have passed; at least one run."""
    return [s * 1e3 for s in repeated(run, count, seconds)]


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
