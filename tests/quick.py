"""The tests that ``pytest --quick`` (``make test-quick``) runs.

For each folder of tests the table lists files that take a few seconds at most. A folder that is not in the table
runs as a whole. No test uses a model of the zoo. All of them together take less than a minute with two workers on a
quiet machine. For the other tests that a change can break, run the folders that it touches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FILES: Final = {
    "api": "wrong_arguments",
    "backends": "zero_fill",
    "backends/c": "c_text",
    "classic": "static_types",
    "cli": "help",
    "conformance": "casts",
    "docs": "command_page errors_page",
    "e2e_control": "onnx_runtime_sequences",
    "expr": "contexts evaluate simplify_cases symbolic_quotients",
    "frontends": "onnx_contrib_errors onnx_learned onnx_pooling onnx_sizes payloads",
    "graph": "chains graph_basics graph_fuse graph_layout graph_memory may_match type_relations",
    "house": "layers",
    "ir": "interning passes structural text_kit",
    "kernels": "group_addresses",
    "lowering": "kernel_storage kernel_transpose memory_plan te_to_tir",
    "ops": "cook_toom operator_cases ops_layouts ops_relations ops_requirements weight_transforms",
    "ops_rules": "pipeline_random",
    "perf": "matrix_unit",
    "plugins": "commands_of_plugins kernel_plugins scalar_intrinsics",
    "rpc": "frames sha256 tracker_pool tracker_queue",
    "runtime": "artifact_format direct_call tensor",
    "schedule": "schedule_arguments schedule_blocks schedule_refusals",
    "support": "settings",
    "target": "target",
    "tensor_expr": "te_analysis te_api te_arguments te_evaluate",
    "tir": "tir_interpreter tir_iterations tir_verify",
    "view": "assembly",
}
TESTS: Final = Path(__file__).resolve().parent
FILES: Final = frozenset(
    TESTS / folder / f"test_{name}.py" for folder, names in _FILES.items() for name in names.split()
)
WITHOUT: Final = ("golden", "models")
"""Folders without quick tests: whole models, and texts that change with every stage."""


def is_quick(path: Path) -> bool:
    """Whether a test file is listed, or its folder has no list."""
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return path in FILES or folder not in {name.split("/")[0] for name in (*_FILES, *WITHOUT)}
