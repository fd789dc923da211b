"""What users call: load a model, compile it, run it."""

from weft.api.compiling import (
    compile,
    compile_artifact,
    compile_sources,
    compile_with_report,
    dumping,
    graph_instruments,
    kept_graphs,
    kernel_disk_cache,
    load,
)

__all__ = [
    "compile",
    "compile_artifact",
    "compile_sources",
    "compile_with_report",
    "dumping",
    "graph_instruments",
    "kept_graphs",
    "kernel_disk_cache",
    "load",
]
