"""Traversal of tensor expressions: the operations that tensors depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.tensor_expr.nodes import Operation, Tensor, read_tensors

__all__ = ["read_tensors", "topological"]


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
