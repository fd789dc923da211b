"""Records what a module assumes about its symbolic sizes, to be checked when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.graph import dims
from weft.graph.assume import collect_assumptions
from weft.graph.nodes import Call, Function, GraphExpr, If, Loop, Match, Module
from weft.graph.operator import Operator
from weft.graph.visit import children
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class RecordRequirements:
    """Infer types anew and keep the assumptions as ``Module.attrs["requires"]``: pairs of a condition and a message.

    Branches and bodies of loops are left out: the code that builds them states their requirements inside of them.
    """

    name: str = "record_requirements"

    def run(self, module: Module) -> Module:
        known = dict(module.attrs.get("requires", ()))
        before = len(known)
        for e in _always_computed(module.main.body):
            if not isinstance(e, Call) or not isinstance(e.target, Operator):
                continue
            types = [a.type for a in e.args]
            if not dims.is_symbolic(e.attrs) and not any(dims.is_symbolic(t) for t in types):
                continue
            with collect_assumptions() as assumed:
                if e.target.infer(e.attrs, *types) != e.type:
                    raise InternalError(f"the type of a call of {e.target.name} is not what its operands give")
            for condition, message in assumed:
                known.setdefault(condition, message)
        if len(known) == before:
            return module
        return Module(module.functions, module.types, module.attrs.replace(requires=tuple(known.items())))


def _always_computed(root: GraphExpr) -> Iterator[GraphExpr]:
    """What is computed whenever ``root`` is, results before operands."""
    stack, seen = [root], {root}
    while stack:
        e = stack.pop()
        yield e
        if isinstance(e, (Function, Loop)):
            continue
        inner = (e.condition,) if isinstance(e, If) else (e.value,) if isinstance(e, Match) else children(e)
        for c in inner:
            if c not in seen:
                seen.add(c)
                stack.append(c)
