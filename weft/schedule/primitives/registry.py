"""The table of all primitives. Schedules use these names to apply, record and replay primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from weft.schedule.primitives import (
    blockize,
    cache,
    cache_index,
    cache_operand,
    cache_state,
    compute_location,
    decompose_padding,
    element_type,
    inline,
    iterations,
    kinds,
    layout,
    lookup,
    loops,
    merge,
    padding,
    partition,
    pipelining,
    reduction,
    reindex,
    rfactor,
    sampling,
    sliding,
    storage,
    tensorize,
)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A named function of the state. ``variadic`` is the argument that the method takes as ``*args``."""

    name: str
    run: Callable[..., Any]
    variadic: str | None = None
    looks_up: bool = False
    """Whether it only returns blocks or loops and does not change the program."""
    samples: bool = False
    moves: bool = False
    """Whether it moves or copies results of blocks. A buffer that holds only a window of its result is refused."""
    exposes: bool = False
    """Whether it may make a buffer visible to other iterations that was private to each concurrent iteration."""

    @property
    def shares(self) -> bool:
        return self.moves or self.exposes

    @property
    def returns_tuple(self) -> bool:
        """Whether its result is always a tuple, also with a single value."""
        if self.samples:
            return self.name in ("sample_tile", "sample_order")
        return str(signature(self.run).return_annotation).startswith("tuple[")


_TABLE: Final = (
    # look-ups
    Primitive("get_block", lookup.get_block, looks_up=True),
    Primitive("get_blocks", lookup.get_blocks, looks_up=True),
    Primitive("get_loops", lookup.get_loops, looks_up=True),
    Primitive("get_loop", lookup.get_loop, looks_up=True),
    Primitive("get_producers", lookup.get_producers, looks_up=True),
    Primitive("get_consumers", lookup.get_consumers, looks_up=True),
    # loops
    Primitive("split", loops.split),
    Primitive("fuse", loops.fuse, variadic="loops"),
    Primitive("add_unit_loop", loops.add_unit_loop),
    Primitive("normalize", loops.normalize),
    Primitive("reorder", loops.reorder, variadic="loops"),
    Primitive("partition", partition.partition),
    Primitive("merge", merge.merge, variadic="loops", exposes=True),
    # kinds of loops, annotations
    Primitive("parallel", kinds.parallel),
    Primitive("vectorize", kinds.vectorize, exposes=True),
    Primitive("unroll", kinds.unroll),
    Primitive("bind", kinds.bind),
    Primitive("virtual_thread", kinds.virtual_thread),
    Primitive("annotate", kinds.annotate),
    Primitive("unannotate", kinds.unannotate),
    # where blocks are computed
    Primitive("compute_at", compute_location.compute_at, moves=True),
    Primitive("reverse_compute_at", compute_location.reverse_compute_at, moves=True),
    Primitive("compute_root", compute_location.compute_root, moves=True),
    Primitive("compute_inline", inline.compute_inline, moves=True),
    Primitive("reverse_compute_inline", inline.reverse_compute_inline, moves=True),
    # memory
    Primitive("cache_read", cache.cache_read, moves=True),
    Primitive("cache_write", cache.cache_write, moves=True),
    Primitive("cache_index", cache_index.cache_index, moves=True),
    Primitive("cache_operand", cache_operand.cache_operand, moves=True),
    Primitive("cache_state", cache_state.cache_state, moves=True),
    Primitive("reindex", reindex.reindex, moves=True),
    Primitive("set_scope", cache.set_scope),
    Primitive("unsafe_set_dtype", element_type.unsafe_set_dtype),
    Primitive("transform_layout", layout.transform_layout, moves=True),
    Primitive("pad_einsum", padding.pad_einsum, moves=True),
    Primitive("decompose_padding", decompose_padding.decompose_padding, moves=True),
    Primitive("double_buffer", storage.double_buffer),
    Primitive("storage_align", storage.storage_align),
    Primitive("store_at", sliding.store_at, exposes=True),
    Primitive("fold_storage", sliding.fold_storage),
    Primitive("run_once", sliding.run_once, exposes=True),
    Primitive("prefetch", storage.prefetch),
    Primitive("stream", storage.stream),
    Primitive("pipeline", pipelining.pipeline),
    # reductions
    Primitive("decompose_reduction", reduction.decompose_reduction),
    Primitive("rfactor", rfactor.rfactor, moves=True),
    # blocks and intrinsics
    Primitive("reorder_block_iter_var", iterations.reorder_block_iter_var),
    Primitive("transform_block_layout", iterations.transform_block_layout, moves=True),
    Primitive("blockize", blockize.blockize, moves=True),
    Primitive("tensorize", tensorize.tensorize),
    # sampling
    Primitive("sample_tile", sampling.sample_tile, samples=True),
    Primitive("sample_choice", sampling.sample_choice, samples=True),
    Primitive("sample_order", sampling.sample_order, samples=True),
    Primitive("sample_location", sampling.sample_location, samples=True),
)

PRIMITIVES: Final[dict[str, Primitive]] = {p.name: p for p in _TABLE}
