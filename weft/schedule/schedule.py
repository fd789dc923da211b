"""The schedule of a program: primitives as methods, references that stay valid, and the trace of what was done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.expr.nodes import Expr
from weft.schedule.dependence import carried_loops, partial_blocks
from weft.schedule.index_map import IndexMap
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.numbers import Sampled
from weft.schedule.primitives.pipelining import pipelined_loops
from weft.schedule.primitives.sliding import kept_buffers, window
from weft.schedule.recorder import Recorder
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.registers import register_notes
from weft.schedule.rewrite import is_true
from weft.schedule.size_texts import parse_sizes
from weft.schedule.state import State
from weft.schedule.threads import has_threads
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.support.html import TextInNotebooks
from weft.tir.nodes import Program
from weft.tir.text import to_text

Factor = int | Expr | None


class Schedule(TextInNotebooks):
    """Rewrites ``program`` (scheduled form) by primitives, each of which checks, rewrites and forwards references.

    Every method raises ``ScheduleError`` where it would change what the program computes, and then has changed
    nothing. Blocks are named by :class:`BlockRef` (or their name), loops by :class:`LoopRef`. ``seed`` drives the
    sampling instructions; ``intrinsics`` are those that ``tensorize`` may name beside the built-in ones.
    """

    def __init__(self, program: Program, seed: int = 0, intrinsics: Sequence[TensorIntrinsic] = ()) -> None:
        self._state = State(program, seed)
        self._declare(intrinsics)
        self._state.carried = carried_loops(program)
        self._state.partial = partial_blocks(program)
        self._state.conditional = frozenset(b.name for b in self._state.tree.blocks.values() if not is_true(b.where))
        self._state.kept = kept_buffers(self._state.tree)
        self._state.pipelined = pipelined_loops(self._state.tree)
        self._state.threaded = has_threads(program)
        self._recorder = Recorder()
        self._notes: dict[str, None] = {}

    @property
    def program(self) -> Program:
        """The current program: immutable, printable, runnable."""
        return self._state.program

    @property
    def state(self) -> State:
        """The program with its index, for reading (rules and analyses)."""
        return self._state

    @property
    def trace(self) -> Trace:
        """The primitives applied so far."""
        return self._recorder.trace

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks of the rules that made the schedule, such as why a loop is not vectorized, and on register buffers
        that are not in registers as it stands. They have no effect on the code."""
        return (*self._notes, *register_notes(self._state))

    def note(self, text: str) -> None:
        """Add a remark to the notes, once. It is not an instruction, and traces do not contain it.

        Raises ScheduleError (S004) for what is no text.
        """
        if not isinstance(text, str):
            raise ScheduleError(f"note: 'text' must be a text, not {type(text).__name__}", code="S004")
        self._notes[text] = None

    def __repr__(self) -> str:
        """The loops as scheduled so far."""
        return to_text(self.program)

    def copy(self) -> Schedule:
        """An independent schedule in the same state; references work in both."""
        made = Schedule.__new__(Schedule)
        made._state, made._recorder = self._state.copy(), self._recorder.copy()
        made._notes = dict(self._notes)
        return made

    def replay(self, trace: Trace, intrinsics: Sequence[TensorIntrinsic] = ()) -> Schedule:
        """Apply a trace made on an equal program. Returns the schedule itself.

        ``intrinsics`` are those that the trace names beside the built-in ones; they are declared to the schedule.
        """
        if not isinstance(trace, Trace):
            raise ScheduleError(
                f"replay: {type(trace).__name__} is not a trace", code="S006", hint="Trace.from_json reads one"
            )
        self._declare(intrinsics)
        self._recorder.replay(self._state, trace)
        return self

    def forget_unused(self) -> None:
        """Drop look-ups and sampling instructions whose results are unused from the trace, and renumber the slots.
        References that only the dropped instructions returned are then unknown to the schedule."""
        self._recorder.forget_unused()

    @property
    def intrinsics(self) -> tuple[TensorIntrinsic, ...]:
        """The intrinsics that the trace names, built-in ones included."""
        return tuple(self._state.intrinsic(name) for name in self.trace.intrinsics)

    def _declare(self, intrinsics: Sequence[TensorIntrinsic]) -> None:
        given = tuple(intrinsics) if isinstance(intrinsics, (list, tuple)) else (None,)
        for intrinsic in given:
            if not isinstance(intrinsic, TensorIntrinsic):
                raise ScheduleError(
                    "intrinsics are given as a row of TensorIntrinsic", code="S004", hint="intrinsics=[my_intrinsic]"
                )
            self._state.declare(intrinsic)

    def _apply(self, primitive: str, /, decision: Any = None, **args: Any) -> Any:
        return self._recorder.apply(self._state, primitive, args, decision)

    # -- look-ups -------------------------------------------------------------------------------------------

    def get_block(self, name: str) -> BlockRef:
        """The block called ``name``."""
        found: BlockRef = self._apply("get_block", name=name)
        return found

    def get_blocks(self) -> tuple[BlockRef, ...]:
        """All blocks, in program order."""
        found: tuple[BlockRef, ...] = self._apply("get_blocks")
        return found

    def get_loops(self, block: BlockRef | str) -> tuple[LoopRef, ...]:
        """The loops around ``block`` within its scope, outermost first."""
        found: tuple[LoopRef, ...] = self._apply("get_loops", block=_block(block))
        return found

    def get_loop(self, block: BlockRef | str, at: int) -> LoopRef:
        """One of the loops around ``block``: 0 is the outermost, -1 the innermost."""
        found: LoopRef = self._apply("get_loop", block=_block(block), at=at)
        return found

    def get_producers(self, block: BlockRef | str) -> tuple[BlockRef, ...]:
        """Blocks that write what ``block`` reads."""
        found: tuple[BlockRef, ...] = self._apply("get_producers", block=_block(block))
        return found

    def get_consumers(self, block: BlockRef | str) -> tuple[BlockRef, ...]:
        """Blocks that read what ``block`` writes."""
        found: tuple[BlockRef, ...] = self._apply("get_consumers", block=_block(block))
        return found

    # -- loops ----------------------------------------------------------------------------------------------

    def split(
        self,
        loop: LoopRef,
        factors: Sequence[Factor] | None = None,
        *,
        factor: Factor = None,
        nparts: Factor = None,
    ) -> tuple[LoopRef, ...]:
        """Split a loop into a nest, outermost first.

        ``factors`` has at most one None, which is inferred; ``factor=f`` means ``(None, f)`` and ``nparts=p``
        ``(p, None)``. Factors are whole numbers or expressions of sizes. An uneven tail is guarded.
        """
        if sum(x is not None for x in (factors, factor, nparts)) != 1:
            raise ScheduleError("split: give one of factors, factor and nparts", code="S004")
        if factor is not None:
            factors = (None, factor)
        elif nparts is not None:
            factors = (nparts, None)
        made: tuple[LoopRef, ...] = self._apply("split", loop=loop, factors=factors)
        return made

    def size(self, text: str) -> Expr:
        """An expression of sizes, such as ``s.size("n // 2")``, for ``split``. Names that the program does not have
        become new sizes. Raises ScheduleError (S004) for other texts."""
        return parse_sizes(text, self.program.sizes)

    def tile(
        self, y: LoopRef, x: LoopRef, y_factor: int | Expr, x_factor: int | Expr
    ) -> tuple[LoopRef, LoopRef, LoopRef, LoopRef]:
        """Split two nested loops and reorder to ``y outer, x outer, y inner, x inner``, which are returned."""
        y_outer, y_inner = self.split(y, factor=y_factor)
        x_outer, x_inner = self.split(x, factor=x_factor)
        self.reorder(y_outer, x_outer, y_inner, x_inner)
        return y_outer, x_outer, y_inner, x_inner

    def fuse(self, *loops: LoopRef) -> LoopRef:
        """Fuse directly nested loops, given outermost first, into one."""
        made: LoopRef = self._apply("fuse", loops=loops)
        return made

    def add_unit_loop(self, target: BlockRef | LoopRef | str) -> LoopRef:
        """Put a loop of one iteration around a block or a loop; returns it."""
        made: LoopRef = self._apply("add_unit_loop", target=_target(target))
        return made

    def normalize(self, loop: LoopRef) -> None:
        """Let a loop start at 0; its iterations stay the same."""
        self._apply("normalize", loop=loop)

    def reorder(self, *loops: LoopRef) -> None:
        """Put loops of one nest into the given order. They take the same set of positions as before."""
        self._apply("reorder", loops=loops)

    def partition(self, loop: LoopRef, at: int) -> tuple[LoopRef, LoopRef]:
        """Split a loop into its first ``at`` iterations and the rest; returns both loops."""
        made: tuple[LoopRef, LoopRef] = self._apply("partition", loop=loop, at=at)
        return made

    def merge(self, *loops: LoopRef) -> LoopRef:
        """Merge loops of equal length that stand one after another into one loop."""
        made: LoopRef = self._apply("merge", loops=loops)
        return made

    def parallel(self, loop: LoopRef) -> None:
        """Run the iterations on the threads of the pool."""
        self._apply("parallel", loop=loop)

    def vectorize(self, loop: LoopRef, reassociate: bool = False) -> None:
        """Make the iterations the lanes of vectors; the extent must be constant.

        ``reassociate`` allows a reduction loop, whose lanes are then combined in another order than written.
        """
        self._apply("vectorize", loop=loop, reassociate=reassociate)

    def unroll(self, loop: LoopRef, limit: int | None = None) -> None:
        """Repeat the body for every iteration; the extent must be constant. Loops longer than ``limit`` stay
        unchanged."""
        self._apply("unroll", loop=loop, limit=limit)

    def bind(self, loop: LoopRef, thread: str, reassociate: bool = False) -> None:
        """Make the iterations the indices of a GPU thread axis such as ``threadIdx.x``.

        ``reassociate`` allows the threads to share a reduction whose result depends on the order of its terms.
        """
        self._apply("bind", loop=loop, thread=thread, **({"reassociate": True} if reassociate else {}))

    def virtual_thread(self, loop: LoopRef, name: str = "vthread") -> None:
        """Make the iterations interleaved virtual threads."""
        self._apply("virtual_thread", loop=loop, name=name)

    def annotate(self, target: BlockRef | LoopRef | str, key: str, value: Any = True) -> None:
        """Attach ``key = value`` (a number, string or tuple of these) to a loop or block."""
        self._apply("annotate", target=_target(target), key=key, value=value)

    def unannotate(self, target: BlockRef | LoopRef | str, key: str) -> None:
        """Take an annotation away."""
        self._apply("unannotate", target=_target(target), key=key)

    # -- where blocks are computed --------------------------------------------------------------------------

    def compute_at(
        self, block: BlockRef | str, loop: LoopRef | Stay, *, preserve_unit_loops: bool | None = None
    ) -> None:
        """Compute a producer in a loop of its consumers.

        ``preserve_unit_loops``: variables of which one value is needed get a loop of one iteration, instead of none.
        """
        self._apply("compute_at", block=_block(block), loop=loop, **_units(preserve_unit_loops))

    def reverse_compute_at(
        self, block: BlockRef | str, loop: LoopRef, *, preserve_unit_loops: bool | None = None
    ) -> None:
        """Compute a consumer in a loop of its producer."""
        self._apply("reverse_compute_at", block=_block(block), loop=loop, **_units(preserve_unit_loops))

    def compute_root(self, block: BlockRef | str, *, preserve_unit_loops: bool | None = None) -> None:
        """Compute a block completely before its consumers."""
        self._apply("compute_root", block=_block(block), **_units(preserve_unit_loops))

    def compute_inline(self, block: BlockRef | str) -> None:
        """Compute each element where it is read; the block and its buffer disappear."""
        self._apply("compute_inline", block=_block(block))

    def reverse_compute_inline(self, block: BlockRef | str) -> None:
        """Make an element-wise consumer part of its only producer."""
        self._apply("reverse_compute_inline", block=_block(block))

    # -- memory ---------------------------------------------------------------------------------------------

    def cache_read(
        self,
        block: BlockRef | str,
        read_index: int,
        scope: str = "global",
        others: Sequence[BlockRef | str] = (),
        *,
        preserve_unit_loops: bool | None = None,
    ) -> BlockRef:
        """Copy what the block reads through its region ``read_index`` into a buffer of its own; returns the copy.

        ``others`` are further blocks that read the copy.
        """
        given = [_block(b) for b in others] if isinstance(others, (list, tuple)) else others
        made: BlockRef = self._apply(
            "cache_read",
            block=_block(block),
            read_index=read_index,
            scope=scope,
            others=given or None,
            **_units(preserve_unit_loops),
        )
        return made

    def cache_write(
        self,
        block: BlockRef | str,
        write_index: int = 0,
        scope: str = "global",
        others: Sequence[int] = (),
        *,
        preserve_unit_loops: bool | None = None,
    ) -> BlockRef:
        """Compute the block's result in a buffer of its own and copy it out; returns the copying block.

        ``others`` are further results of the block, to be copied by the same block.
        """
        made: BlockRef = self._apply(
            "cache_write",
            block=_block(block),
            write_index=write_index,
            scope=scope,
            others=others or None,
            **_units(preserve_unit_loops),
        )
        return made

    def read_at(self, loop: LoopRef, block: BlockRef | str, read_index: int, scope: str = "global") -> BlockRef:
        """Copy what the block reads through its region ``read_index`` in each iteration of ``loop``: ``cache_read``,
        then ``compute_at``. Returns the copying block."""

        def steps() -> BlockRef:
            made = self.cache_read(block, read_index, scope)
            self.compute_at(made, loop)
            return made

        return self._all_or_none(steps)

    def write_at(self, loop: LoopRef, block: BlockRef | str, write_index: int = 0, scope: str = "global") -> BlockRef:
        """Compute the block's result in a buffer of its own and copy it out in each iteration of ``loop``:
        ``cache_write``, then ``reverse_compute_at``. Returns the copying block."""

        def steps() -> BlockRef:
            made = self.cache_write(block, write_index, scope)
            self.reverse_compute_at(made, loop)
            return made

        return self._all_or_none(steps)

    def _all_or_none(self, steps: Callable[[], BlockRef]) -> BlockRef:
        """The result of several primitives; if one refuses, none has changed anything."""
        kept = self.copy()
        try:
            return steps()
        except ScheduleError:
            self.__dict__.update(kept.__dict__)
            raise

    def reindex(self, block: BlockRef | str, index: int, written: bool = False) -> BlockRef:
        """Copy an operand (with ``written`` a result) into a buffer that the block's variables index; returns the
        copying block."""
        made: BlockRef = self._apply("reindex", block=_block(block), index=index, written=written)
        return made

    def cache_index(self, block: BlockRef | str, read_index: int, axis: int, scope: str = "global") -> BlockRef:
        """Compute the index along ``axis`` of what the block reads through its region ``read_index`` before the block;
        returns the block that computes the indices."""
        made: BlockRef = self._apply("cache_index", block=_block(block), read_index=read_index, axis=axis, scope=scope)
        return made

    def cache_operand(
        self, block: BlockRef | str, operand: int, scope: str = "global", reassociate: bool = False
    ) -> BlockRef:
        """Compute operand 0 or 1 of the products that the block sums before the block; returns the block that computes
        it. ``reassociate`` makes two operands of a product of several factors and divisors."""
        made: BlockRef = self._apply(
            "cache_operand", block=_block(block), operand=operand, scope=scope, reassociate=reassociate
        )
        return made

    def cache_state(self, block: BlockRef | str, scope: str = "global") -> BlockRef:
        """Keep the last step of a recurrence in a buffer of its own; returns the block that copies the state before the
        first step there."""
        made: BlockRef = self._apply("cache_state", block=_block(block), scope=scope)
        return made

    def unsafe_set_dtype(self, block: BlockRef | str, write_index: int, dtype: str) -> None:
        """Store an intermediate buffer in another type. Values are cast, so results may change."""
        self._apply("unsafe_set_dtype", block=_block(block), write_index=write_index, dtype=dtype)

    def set_scope(self, block: BlockRef | str, write_index: int, scope: str) -> None:
        """Store an intermediate buffer that the block writes in another memory space."""
        self._apply("set_scope", block=_block(block), write_index=write_index, scope=scope)

    def transform_layout(
        self,
        block: BlockRef | str,
        buffer: str,
        index_map: Callable[..., Any] | IndexMap,
        pad: float | None = None,
        change_parameter: bool = False,
    ) -> None:
        """Store an intermediate buffer in another layout: ``index_map`` maps old indices to new ones.

        ``pad`` is the value that the producer stores in elements that the old layout does not have. With
        ``change_parameter`` the buffer may be a parameter: the caller then passes it in the new layout.
        """
        made = IndexMap.of(index_map, self._dimensions(block, buffer))
        more = {"change_parameter": True} if change_parameter else {}
        self._apply("transform_layout", block=_block(block), buffer=buffer, index_map=made, pad=pad, **more)

    def _dimensions(self, block: BlockRef | str, buffer: str) -> int:
        found = self._state.block(_block(block))
        return next((len(r.buffer.shape) for r in (*found.reads, *found.writes) if r.buffer.name == buffer), 0)

    def pad_einsum(self, block: BlockRef | str, padding: Sequence[int]) -> tuple[BlockRef, ...]:
        """Round up the extents of the block's variables to multiples of ``padding``; returns the blocks that pad and
        crop."""
        made: tuple[BlockRef, ...] = self._apply("pad_einsum", block=_block(block), padding=padding)
        return made

    def decompose_padding(self, block: BlockRef | str, loop: LoopRef) -> BlockRef:
        """Fill a padded buffer with its padding before ``loop``, then copy the data into it; returns the block that
        fills."""
        made: BlockRef = self._apply("decompose_padding", block=_block(block), loop=loop)
        return made

    def double_buffer(self, block: BlockRef | str, write_index: int = 0) -> None:
        """Request two copies of an intermediate buffer."""
        self._apply("double_buffer", block=_block(block), write_index=write_index)

    def storage_align(self, block: BlockRef | str, write_index: int, axis: int, factor: int, offset: int = 0) -> None:
        """Request a stride of ``offset`` modulo ``factor`` elements along ``axis``."""
        self._apply(
            "storage_align", block=_block(block), write_index=write_index, axis=axis, factor=factor, offset=offset
        )

    def store_at(self, block: BlockRef | str, loop: LoopRef) -> None:
        """Keep the block's result across the iterations of ``loop``: each iteration computes only elements not yet
        computed."""
        self._apply("store_at", block=_block(block), loop=loop)

    def fold_storage(self, block: BlockRef | str, axis: int, factor: int) -> None:
        """Store a dimension modulo ``factor`` (a rolling buffer of what ``store_at`` keeps)."""
        self._apply("fold_storage", block=_block(block), axis=axis, factor=factor)

    def window(self, block: BlockRef | str) -> tuple[int, int]:
        """For a buffer kept by ``store_at``: the axis along which its window slides, and how many elements along that
        axis are needed at a time."""
        return window(self._state, _block(block))

    def run_once(self, block: BlockRef | str, loop: LoopRef, at: int = 0) -> None:
        """Run a block that every iteration of ``loop`` would repeat only in iteration ``at``."""
        self._apply("run_once", block=_block(block), loop=loop, at=at)

    def prefetch(
        self, loop: LoopRef, buffer: str, distance: int = 1, within: LoopRef | None = None, unit: str = "iterations"
    ) -> None:
        """Prefetch what is read ``distance`` iterations later (or, with the unit ``bytes``, so many bytes of whole
        iterations). With ``within``, each of its iterations prefetches a share."""
        shared = {} if within is None else {"within": within}
        counted = {} if unit == "iterations" else {"unit": unit}
        self._apply("prefetch", loop=loop, buffer=buffer, distance=distance, **shared, **counted)

    def stream(self, block: BlockRef | str, write_index: int = 0) -> None:
        """Write the block's result with stores that bypass the caches."""
        self._apply("stream", block=_block(block), write_index=write_index)

    def pipeline(self, loop: LoopRef, stages: Sequence[int], order: Sequence[int]) -> None:
        """Overlap iterations: statement n runs ``stages[n]`` iterations late, at position ``order[n]``."""
        self._apply("pipeline", loop=loop, stages=stages, order=order)

    # -- reductions -----------------------------------------------------------------------------------------

    def decompose_reduction(self, block: BlockRef | str, loop: LoopRef) -> BlockRef:
        """Move the init of a reduction out, directly before ``loop``; returns the init block."""
        made: BlockRef = self._apply("decompose_reduction", block=_block(block), loop=loop)
        return made

    def rfactor(self, loop: LoopRef, axis: int = 0, reassociate: bool = False, share_loops: bool = False) -> BlockRef:
        """Give each iteration of a reduction loop its own partial result; returns the block that computes them."""
        made: BlockRef = self._apply("rfactor", loop=loop, axis=axis, reassociate=reassociate, share_loops=share_loops)
        return made

    # -- blocks and intrinsics ------------------------------------------------------------------------------

    def reorder_block_iter_var(self, block: BlockRef | str, order: Sequence[int]) -> None:
        """Put the variables of a block into another order, given as positions."""
        self._apply("reorder_block_iter_var", block=_block(block), order=order)

    def transform_block_layout(self, block: BlockRef | str, index_map: Callable[..., Any] | IndexMap) -> None:
        """Run a block over other variables: ``index_map`` maps its old variables to new ones."""
        made = IndexMap.of(index_map, len(self._state.block(_block(block)).iters))
        self._apply("transform_block_layout", block=_block(block), index_map=made)

    def blockize(self, loop: LoopRef) -> BlockRef:
        """Make the nest from ``loop`` inwards the body of a new block; returns the block."""
        made: BlockRef = self._apply("blockize", loop=loop)
        return made

    def tensorize(self, target: BlockRef | LoopRef, intrinsic: TensorIntrinsic | str) -> BlockRef:
        """Replace a tile's computation by an intrinsic, given here or declared to the schedule by name."""
        name: Any = intrinsic
        if isinstance(intrinsic, TensorIntrinsic):
            name = intrinsic.name
            self._state.declare(intrinsic)
        made: BlockRef = self._apply("tensorize", target=_target(target), intrinsic=name)
        return made

    # -- sampling -------------------------------------------------------------------------------------------

    def sample_tile(
        self,
        loop: LoopRef,
        parts: int,
        innermost_at_most: int = 64,
        decision: Sequence[int] | None = None,
    ) -> tuple[Sampled, ...]:
        """Draw factors that divide the extent of ``loop`` exactly, for ``split``."""
        drawn: tuple[Sampled, ...] = self._apply(
            "sample_tile", decision, loop=loop, parts=parts, innermost_at_most=innermost_at_most
        )
        return drawn

    def sample_choice(
        self, candidates: Sequence[int | str], weights: Sequence[float] | None = None, decision: int | None = None
    ) -> Any:
        """Draw one of ``candidates``."""
        return self._apply("sample_choice", decision, candidates=candidates, weights=weights)

    def sample_order(self, loops: Sequence[LoopRef], decision: Sequence[int] | None = None) -> tuple[LoopRef, ...]:
        """Draw an order of ``loops``, for ``reorder``."""
        drawn: tuple[LoopRef, ...] = self._apply("sample_order", decision, loops=loops)
        return drawn

    def sample_location(
        self, block: BlockRef | str, loops: Sequence[LoopRef] | None = None, decision: int | None = None
    ) -> LoopRef | Stay:
        """Draw a loop for ``compute_at``, of ``loops`` if they are given, or the decision to leave the block where it
        is."""
        given = {} if loops is None else {"loops": tuple(loops) if isinstance(loops, list) else loops}
        drawn: LoopRef | Stay = self._apply("sample_location", decision, block=_block(block), **given)
        return drawn


def _units(preserve: bool | None) -> dict[str, Any]:
    """The argument as traces record it: only where it is given."""
    return {} if preserve is None else {"preserve_unit_loops": preserve}


def _block(ref: BlockRef | str) -> BlockRef:
    return BlockRef(ref) if isinstance(ref, str) else ref


def _target(ref: BlockRef | LoopRef | str) -> BlockRef | LoopRef:
    return BlockRef(ref) if isinstance(ref, str) else ref
