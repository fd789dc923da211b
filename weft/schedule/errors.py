"""The error codes with which schedule primitives refuse."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "S002": "a reference must name a block or loop of this schedule",
    "S003": "a reference must not be used after a primitive consumed it",
    "S004": "arguments of a primitive must have the documented form",
    "S005": "only sampling instructions take decisions",
    "S006": "a trace must be the output of to_json, and its program must equal this one",
    # loops
    "S010": "factors of a split must cover the extent",
    "S011": "a loop that is transformed further must be serial and not annotated",
    "S012": "fused loops must be directly nested, and the inner extent must not depend on the outer variable",
    "S013": "reordered loops must form one nest without statements in between",
    "S014": "an inner loop's range must not use the variable of a loop that moves inside it",
    "S015": "instances of a reordered, parallel or vectorized loop must not depend on each other",
    "S016": "a parallel, vectorized or thread loop must not carry a reduction",
    "S017": "a vectorized, unrolled or virtual loop must have a constant extent",
    "S018": "a buffer written by every iteration of a parallel loop must be used in that loop only",
    "S019": "threads share a loop only if they agree on it, and accumulate only in memory of their own",
    # moving computation
    "S020": "only a block with spatial and reduce variables, the single writer of its buffers, can move",
    "S021": "an output of the program must be computed completely",
    "S022": "every consumer must stand below the loop under which its producer is computed",
    "S023": "what a block reads must be complete before it runs",
    "S024": "the needed region must be expressible over the loops outside",
    "S025": "a loop and a block must belong to the same scope, and the block must not be below the loop already",
    # inlining
    "S030": "only a single store of one value for each element can be inlined",
    "S031": "an inlined block must write each element at its own variables",
    "S032": "an inlined buffer must be an intermediate one that has readers",
    "S033": "an epilogue is inlined only into its sole producer, element by element",
    # caches and scopes
    "S040": "a read or write index must name a region of the block",
    "S041": "a parameter's scope cannot change: the caller provides its memory",
    "S042": "a scope must be known",
    "S043": "a buffer with elements that no block writes cannot be copied as a whole",
    "S044": "a block must not read a buffer that it writes with stores that bypass the caches",
    "S045": "an element that is copied must exist for all values of the variables",
    "S046": "a state is kept apart only if each step reads that of the step before it, in its own column",
    # reductions
    "S050": "only a block with init and reduce variables can be decomposed or factored",
    "S051": "the init must run before every loop of the reduction and after none",
    "S052": "a loop that is factored must belong to the reduction alone",
    "S053": "the combination must be one commutative and associative function of old and new values",
    "S054": "a reduction whose result depends on the order is reassociated only if that is allowed",
    "S055": "a reduction that recomputes instances must stay inside the loop at which it is computed",
    "S056": "the init of a reduction must stay before all its instances",
    "S057": "only a choice between a value and a constant has padding",
    # sliding windows
    "S060": "the region that is kept across a loop must be a box that moves forward with the loop",
    "S061": "a dimension must be stored modulo at least the number of elements needed at a time",
    "S062": "a predicate may only exclude instances that repeat those of the first iteration",
    "S063": "a buffer that keeps only a window cannot be copied, inlined or read elsewhere",
    "S064": "a statement of a pipelined loop must not come before one that it depends on",
    "S065": "a buffer passed between stages of a pipelined loop must not be used outside the loop or kept for later",
    "S066": "the statements of a pipelined loop cannot be changed",
    # layouts
    "S070": "an index map must carry every index exactly once",
    "S071": "only the layout of an intermediate buffer can change, unless the caller's layout may change too",
    "S072": "padding needs a producer whose every element can be rewritten",
    "S073": "a padded block must have a nest of its own, and zeros in its operands must not change its result",
    # blocks and intrinsics
    "S080": "a loop becomes a block only if it contains a single block whose indices divide into tiles",
    "S081": "the computation must match the description of the intrinsic",
    "S082": "an intrinsic must be declared to the schedule",
    "S083": "operands of an intrinsic must lie in memory as its declaration says",
    "S084": "the instruction of an intrinsic is not called in an expression: it computes whole tensors",
    # annotations
    "S090": "the annotation must exist",
}
