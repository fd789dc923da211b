"""What ``pytest --quick`` (``make test-quick``) runs: for each room the files that take a second or two at most.

They use no model of the zoo. All together take less than a minute with two workers on a quiet machine; a room
that is not listed here runs as a whole. What else a change can break is found by the tests of its room and of the doors
next to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FILES: Final = {
    "api": "wrong_arguments",
    "backends": "zero_fill",
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
    "lowering": "functions te_to_tir",
    "ops": "cook_toom operator_cases ops_layouts ops_relations ops_requirements weight_transforms",
    "ops_rules": "pipeline_random",
    "perf": "matrix_unit",
    "runtime": "artifact_format tensor",
    "schedule": "schedule_arguments schedule_blocks schedule_refusals",
    "support": "settings",
    "target": "target",
    "tensor_expr": "te_analysis te_api te_arguments",
    "tir": "tir_interpreter tir_verify",
    "view": "assembly",
}
TESTS: Final = Path(__file__).resolve().parent
FILES: Final = frozenset(TESTS / room / f"test_{name}.py" for room, names in _FILES.items() for name in names.split())
WITHOUT: Final = ("golden", "models")
"""Folders with nothing quick: whole models, and texts that change with every stage."""


def is_quick(path: Path) -> bool:
    """Whether a test file is on the list, or of a room that is not."""
    return path in FILES or path.parent.name not in (*_FILES, *WITHOUT)
