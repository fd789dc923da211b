"""Traversal of tensor expressions: the tensors that an operation reads, and the operations that tensors depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.expr.visit import loads
from weft.tensor_expr.nodes import ComputeOp, ExternOp, Operation, OrderOp, ScanOp, Tensor, UpdateOp


def read_tensors(op: Operation) -> tuple[Tensor, ...]:
    """The tensors that ``op`` reads directly, each once, in evaluation order.

    A scan reads its inits and updates, an update reads its base. Their states do not count as read.
    """
    if isinstance(op, ComputeOp):
        sources = (load.source for load in loads(*op.body))
        return tuple(dict.fromkeys(s for s in sources if isinstance(s, Tensor)))
    if isinstance(op, ScanOp):
        return tuple(dict.fromkeys((*op.init, *op.update)))
    if isinstance(op, UpdateOp):
        found = (load.source for load in loads(*op.at, op.value, op.condition))
        return tuple(dict.fromkeys((op.base, *(s for s in found if isinstance(s, Tensor) and s is not op.state))))
    if isinstance(op, OrderOp):
        found = (load.source for load in loads(op.before, op.among, op.hides))
        return tuple(dict.fromkeys(s for s in found if isinstance(s, Tensor)))
    if isinstance(op, ExternOp):
        return tuple(dict.fromkeys(op.inputs))
    return ()


def topological(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> list[Operation]:
    """The operations needed for ``outputs``, producers first. The traversal stops at the tensors ``inputs``."""
    stop = set(inputs)
    order: list[Operation] = []
    state: dict[Operation, bool] = {}  # False: being expanded, True: done
    stack = [t.op for t in reversed(outputs) if t not in stop]
    while stack:
        op = stack[-1]
        if op not in state:
            state[op] = False
            stack.extend(t.op for t in reversed(read_tensors(op)) if t not in stop and t.op not in state)
            continue
        stack.pop()
        if not state[op]:
            state[op] = True
            order.append(op)
    return order
