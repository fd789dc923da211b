"""Which operations are steps of a scan: computed for one time after another, from the first time that has no init."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.expr.visit import loads
from weft.tensor_expr.nodes import ComputeOp, Operation, ScanOp, Tensor
from weft.tensor_expr.visit import read_tensors, topological


def steps_of(
    scan: ScanOp,
    order: Iterable[Operation],
    outputs: Iterable[Tensor],
    stop: Sequence[Tensor],
    reads_outside: Callable[[ComputeOp], bool],
) -> list[Operation]:
    """The steps of ``scan``, producers first: what depends on its states, and what cannot be computed for earlier times
    because it would read outside of a tensor.

    An operation of the second kind must be read by steps only, at their own time, and must not be one of ``outputs``.
    ``order`` are all operations of the program, ``stop`` tensors behind which no step is looked for.
    ``reads_outside`` says whether some element of an operation reads outside of a tensor.
    """
    reachable = topological(scan.update, (*stop, *scan.states))
    inside = set(_depending(reachable, set(scan.states)))
    readers: dict[Operation, list[Operation]] = {}
    for op in order:
        for t in read_tensors(op):
            readers.setdefault(t.op, []).append(op)
    kept = {t.op for t in (*outputs, *scan.init)}
    early: list[Tensor] = []
    for op in reversed(reachable):
        if op in inside or op in kept or not isinstance(op, ComputeOp) or not _has_times(op, scan):
            continue
        if all(r is scan or (r in inside and _reads_own_time(r, op)) for r in readers.get(op, ())):
            inside.add(op)
            if reads_outside(op):
                early += _outputs(op)
    return _depending(reachable, {*scan.states, *early})


def _depending(order: Iterable[Operation], tensors: set[Tensor]) -> list[Operation]:
    """The operations that compute or read one of ``tensors``, or read what such an operation computes."""
    found: list[Operation] = []
    for op in order:
        if not tensors.isdisjoint((*_outputs(op), *read_tensors(op))):
            tensors.update(_outputs(op))
            found.append(op)
    return found


def _outputs(op: Operation) -> list[Tensor]:
    return [op.output(i) for i in range(op.num_outputs)]


def _has_times(op: ComputeOp, scan: ScanOp) -> bool:
    """Whether the first axis of ``op`` runs over the times of ``scan``."""
    return bool(op.axis) and op.axis[0].extent is scan.states[0].shape[0]


def _reads_own_time(reader: Operation, op: Operation) -> bool:
    """Whether ``reader`` reads of ``op`` only elements whose first index is the reader's first axis."""
    if not isinstance(reader, ComputeOp) or not reader.axis:
        return False
    found = (e for e in loads(*reader.body) if isinstance(e.source, Tensor) and e.source.op is op)
    return all(e.indices[0] is reader.axis[0].var for e in found)
