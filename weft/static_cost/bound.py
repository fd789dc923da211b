"""The least that a kernel must cost, from its expressions: arithmetic, special functions, and bytes that must be moved.

It counts what any schedule needs: each operation once for each combination of the axes that it depends on, multiply-add
as one operation, each operand read once and each result written once. See :mod:`weft.tensor_expr.analysis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from weft.cost.assumed import EXTENT
from weft.expr.intrinsic_table import ROOTS
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Select, Var, const
from weft.expr.simplify import simplify
from weft.expr.visit import free_vars, post_order, substitute
from weft.lowering.kernel.common.intrinsics import EXPANSIONS
from weft.static_cost.kernel import DIVISION_UNITS, LANE_BITS, LANE_UNITS, STORE_UNITS, CostMachine
from weft.support.dtypes import FLOAT32
from weft.tensor_expr.analysis import contraction, operation_count, traffic
from weft.tensor_expr.nodes import ComputeOp, Operation, Reduce, Tensor
from weft.tensor_expr.visit import topological


@dataclass(frozen=True, slots=True)
class Least:
    """The least units of a kernel: of its arithmetic (special functions included), of its loads and stores, and of
    moving its ``bytes`` from where they are."""

    arithmetic: float
    access: float
    memory: float
    bytes: int

    @property
    def units(self) -> float:
        """The largest of the three, which overlap."""
        return max(self.arithmetic, self.access, self.memory)

    @property
    def limit(self) -> str:
        """What the bound is a bound of."""
        names = {self.arithmetic: "arithmetic", self.access: "loads and stores", self.memory: "memory"}
        return names[self.units]


def least(outputs: Sequence[Tensor], inputs: Sequence[Tensor], machine: CostMachine) -> Least:
    """The bound of the kernel that computes ``outputs`` from ``inputs``."""
    arithmetic = sum(_operation(op, machine) for op in topological(outputs, inputs))
    nbytes = number(traffic(outputs, inputs))
    written = sum(number(_product(t.shape)) * t.dtype.nbytes for t in outputs)
    vector = machine.vector_bits / 8
    access = max((nbytes - written) / vector * machine.load_units, written / vector * STORE_UNITS)
    return Least(arithmetic, access, machine.memory_units(nbytes, nbytes, nbytes), nbytes)


def number(e: Expr) -> int:
    """A count as a number; sizes that are not known have the assumed extent."""
    found = simplify(substitute(e, {v: const(EXTENT) for v in free_vars(e)}))
    return int(found.value) if isinstance(found, Const) else EXTENT


def _product(extents: Iterable[Expr]) -> Expr:
    total: Expr = const(1)
    for n in extents:
        total = total * n
    return total


def _operation(op: Operation, machine: CostMachine) -> float:
    if not isinstance(op, ComputeOp):
        return 0.0
    count = number(operation_count(op))
    product = contraction(op)
    if product is not None:  # a multiplication and an addition are one operation, of numbers as wide as the operands
        bits = max(8 * load.source.dtype.nbytes for load in (product.lhs, product.rhs))
        return count / 2 * bits / machine.vector_bits
    added = _added_product(op)
    if added is not None:  # of other operands: their multiplication is part of a multiply-add, too
        used = set(free_vars(added))
        count -= number(_product(a.extent for a in (*op.axis, *op.reduce_axis) if a.var in used))
    bits = 8 * max(op.output(i).dtype.nbytes for i in range(op.num_outputs))
    return count * bits / machine.vector_bits + _special(op) * LANE_BITS / machine.vector_bits + _looked_up(op)


def _added_product(op: ComputeOp) -> Expr | None:
    """The product of floats that the operation sums, if it is a sum of products."""
    reduce = op.body[0]
    if len(op.body) != 1 or not isinstance(reduce, Reduce) or reduce.reducer.name != "sum":
        return None
    product = reduce.sources[0]
    return product if isinstance(product, Binary) and product.op == "mul" and product.dtype.is_float else None


def _looked_up(op: ComputeOp) -> float:
    """The time of loads whose places come from data anew for each number along the last axis."""
    if not op.axis:
        return 0.0
    last = op.axis[-1].var
    places = {e for e in post_order(*op.body) if isinstance(e, Load) and any(_reads_along(i, last) for i in e.indices)}
    return LANE_UNITS * len(places) * number(_product(a.extent for a in (*op.axis, *op.reduce_axis)))


def _reads_along(index: Expr, axis: Var) -> bool:
    return any(isinstance(e, Load) and axis in free_vars(e) for e in post_order(index))


def _special(op: ComputeOp) -> float:
    """Operations of the functions, divisions and roots of float32 beyond the one that each counts as."""
    axes = {a.var: a.extent for a in (*op.axis, *op.reduce_axis)}
    first = op.body[0]
    roots = first.children if isinstance(first, Reduce) else op.body
    total = 0.0
    for e in post_order(*roots):
        if (weight := _weight(e)) and any(isinstance(c, Load) for c in post_order(e)):
            total += weight * number(_product(axes[v] for v in set(free_vars(e)) & axes.keys()))
    return total


def _weight(e: Expr) -> float:
    if isinstance(e, Binary) and e.op == "div" and e.dtype == FLOAT32 and not isinstance(e.b, Const):
        return DIVISION_UNITS
    if not isinstance(e, Call) or e.dtype != FLOAT32:
        return 0.0
    return DIVISION_UNITS if e.name in ROOTS else expanded_operations(e.name, len(e.args))


@cache
def expanded_operations(name: str, arguments: int) -> float:
    """The operations of the expansion of a function of so many arguments for one vector; 0 of other functions."""
    if name not in EXPANSIONS:
        return 0.0
    made = EXPANSIONS[name](*(Var(f"x{i}", FLOAT32) for i in range(arguments)))
    parts = set(post_order(made))
    divisions = sum(isinstance(e, Binary) and e.op == "div" for e in parts)
    products = sum(isinstance(e, Binary) and e.op in ("add", "sub") and _fuses(e) for e in parts)
    return sum(isinstance(e, (Binary, Call, Select)) for e in parts) - products + DIVISION_UNITS * divisions


def _fuses(e: Binary) -> bool:
    return any(isinstance(c, Binary) and c.op == "mul" for c in (e.a, e.b))
