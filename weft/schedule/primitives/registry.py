"""The table of all primitives. A schedule applies, records and replays them by these names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from weft.schedule.primitives import (
    blockize,
    cache,
    compute_location,
    inline,
    kinds,
    layout,
    lookup,
    loops,
    partition,
    reduction,
    rfactor,
    sampling,
    storage,
    tensorize,
)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A named function of the state. ``variadic`` is the argument that the method takes as ``*args``."""

    name: str
    run: Callable[..., Any]
    variadic: str | None = None
    samples: bool = False


_TABLE: Final = (
    # look-ups
    Primitive("get_block", lookup.get_block),
    Primitive("get_blocks", lookup.get_blocks),
    Primitive("get_loops", lookup.get_loops),
    Primitive("get_producers", lookup.get_producers),
    Primitive("get_consumers", lookup.get_consumers),
    # loops
    Primitive("split", loops.split),
    Primitive("fuse", loops.fuse, variadic="loops"),
    Primitive("reorder", loops.reorder, variadic="loops"),
    Primitive("partition", partition.partition),
    # kinds of loops, annotations
    Primitive("parallel", kinds.parallel),
    Primitive("vectorize", kinds.vectorize),
    Primitive("unroll", kinds.unroll),
    Primitive("bind", kinds.bind),
    Primitive("virtual_thread", kinds.virtual_thread),
    Primitive("annotate", kinds.annotate),
    Primitive("unannotate", kinds.unannotate),
    # where blocks are computed
    Primitive("compute_at", compute_location.compute_at),
    Primitive("reverse_compute_at", compute_location.reverse_compute_at),
    Primitive("compute_root", compute_location.compute_root),
    Primitive("compute_inline", inline.compute_inline),
    Primitive("reverse_compute_inline", inline.reverse_compute_inline),
    # memory
    Primitive("cache_read", cache.cache_read),
    Primitive("cache_write", cache.cache_write),
    Primitive("set_scope", cache.set_scope),
    Primitive("transform_layout", layout.transform_layout),
    Primitive("double_buffer", storage.double_buffer),
    Primitive("storage_align", storage.storage_align),
    Primitive("store_at", storage.store_at),
    Primitive("fold_storage", storage.fold_storage),
    Primitive("prefetch", storage.prefetch),
    Primitive("pipeline", storage.pipeline),
    # reductions
    Primitive("decompose_reduction", reduction.decompose_reduction),
    Primitive("rfactor", rfactor.rfactor),
    # blocks and intrinsics
    Primitive("blockize", blockize.blockize),
    Primitive("tensorize", tensorize.tensorize),
    # sampling
    Primitive("sample_tile", sampling.sample_tile, samples=True),
    Primitive("sample_choice", sampling.sample_choice, samples=True),
    Primitive("sample_location", sampling.sample_location, samples=True),
)

PRIMITIVES: Final[dict[str, Primitive]] = {p.name: p for p in _TABLE}
VARIADIC: Final[dict[str, str]] = {p.name: p.variadic for p in _TABLE if p.variadic is not None}
