"""Printing of expressions, in the notation of :mod:`weft.expr.text`.

Nodes are distinguished by the names of their classes, so that the module of the nodes can import this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np

from weft.expr.intrinsic_table import result_dtype
from weft.expr.operators import BINARY, normal_value
from weft.ir.text import Names
from weft.ir.walk import post_order
from weft.support.dtypes import BOOL, FLOAT32, INDEX, DType

ATOM: Final = 100
_MAX_TREE_NODES: Final = 300
"""Largest number of nodes of an expression that is printed as a tree although some nodes occur several times."""
_MIN_SHARED_NODES: Final = 4
"""Smallest number of nodes of a part that gets its own name if it occurs several times."""
NOT_PRECEDENCE: Final = 2.5


def literal(value: Any, typed: bool = True) -> str:
    """Text of a constant; with ``typed`` it includes its dtype unless that is INDEX, float32 or bool."""
    dtype = value.dtype
    if dtype == BOOL:
        return "true" if value.value else "false"
    if dtype.kind != "float":
        return str(value.value) + (dtype.short if typed and dtype != INDEX else "")
    text = _decimal(float(value.value), dtype)
    if dtype == FLOAT32:
        return text
    if not typed and (text[-1] in "nf" or _read_back(text, dtype) == value.value):
        return text
    return f"{text}_{dtype.short}" if text[-1] in "nf" else text + dtype.short


def _read_back(text: str, dtype: DType) -> Any:
    return normal_value(normal_value(float(text), FLOAT32), dtype)


def _decimal(number: float, dtype: DType) -> str:
    """The shortest decimal that rounds to ``number`` in ``dtype``."""
    if dtype.bits == 64:
        return repr(number)
    return str(np.float16(number) if dtype.short == "f16" else np.float32(number))


def _kind(e: Any) -> str:
    return type(e).__name__


class ExprPrinter:
    """Prints expressions with one naming. Packages with their own nodes override :meth:`other`."""

    def __init__(self, names: Callable[[Any], str]) -> None:
        self.names = names

    def print(self, e: Any) -> str:
        """The text of ``e``; shared parts are named if the text would otherwise be long."""
        if not e.children:
            return self._one(e, {})[0]
        done: dict[Any, tuple[str, float]] = {}
        bindings = []
        for part, name in self._shared(e).items():
            bindings.append(f"{name} = {self._tree(part, done)}")
            done[part] = (name, ATOM)
        text = self._tree(e, done)
        return f"let({', '.join([*bindings, text])})" if bindings else text

    def _shared(self, e: Any) -> dict[Any, str]:
        """Names for parts that occur several times, parts of parts first; none if ``e`` is small."""
        sizes: dict[Any, int] = {}
        uses: dict[Any, int] = {}
        for node in post_order(e):
            size = 1
            for child in node.children:
                size += sizes[child]
                uses[child] = uses.get(child, 0) + 1
            sizes[node] = size
        if sizes[e] <= _MAX_TREE_NODES:
            return {}
        taken = {self.names(n) for n in sizes if _kind(n) == "Var"}
        taken |= {self.names(n.source) for n in sizes if _kind(n) == "Load"}
        fresh = (name for name in map("t{}".format, count()) if name not in taken)
        return {n: next(fresh) for n, size in sizes.items() if size >= _MIN_SHARED_NODES and uses.get(n, 0) > 1}

    def _tree(self, e: Any, done: dict[Any, tuple[str, float]]) -> str:
        stack = [e]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            missing = [c for c in top.children if c not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            done[top] = self._one(top, done)
        return done[e][0]

    def other(self, e: Any, parts: Sequence[str]) -> str:
        """Text of a node of another package, given the texts of its children."""
        return f"{type(e).__name__}({', '.join(parts)})"

    def _one(self, e: Any, done: dict[Any, tuple[str, float]]) -> tuple[str, float]:
        if _kind(e) == "Var":
            return self.names(e), ATOM
        if _kind(e) == "Const":
            return literal(e), ATOM
        if _kind(e) == "Binary":
            return self._binary(e, done)
        parts = [done[c][0] for c in e.children]
        if _kind(e) == "Load":
            inside = ", ".join(parts[: len(e.indices)]) + (f"; {parts[-1]}" if e.mask is not None else "")
            return f"{self.names(e.source)}[{inside}]", ATOM
        if _kind(e) == "Not":
            text, level = done[e.a]
            return f"not {text}" if level == ATOM else f"not ({text})", NOT_PRECEDENCE
        return self._call(e, parts), ATOM

    def _call(self, e: Any, parts: list[str]) -> str:
        if _kind(e) == "Cast":
            return f"{e.dtype.short}({parts[0]})"
        if _kind(e) == "Select":
            then, otherwise = self._pair(e.then, e.otherwise, parts[1], parts[2])
            return f"select({parts[0]}, {then}, {otherwise})"
        if _kind(e) == "Call":
            by_table = result_dtype(e.name, [a.dtype for a in e.args])
            suffix = "" if by_table == e.dtype else f":{e.dtype.short}"
            return f"{e.name}{suffix}({', '.join(parts)})"
        if _kind(e) == "Ramp":
            return f"ramp({parts[0]}, {parts[1]}, {e.count})"
        if _kind(e) == "Broadcast":
            return f"broadcast({parts[0]}, {e.count})"
        if _kind(e) == "Shuffle":
            return f"shuffle({', '.join(parts)}, [{', '.join(map(str, e.picks))}])"
        return self.other(e, parts)

    @staticmethod
    def _pair(a: Any, b: Any, left: str, right: str) -> tuple[str, str]:
        """Drop the dtype of a literal that takes it from its partner."""
        if _kind(a) == "Const" and _kind(b) != "Const" and a.dtype == b.dtype:
            left = literal(a, typed=False)
        elif _kind(b) == "Const" and _kind(a) != "Const" and a.dtype == b.dtype:
            right = literal(b, typed=False)
        return left, right

    def _binary(self, e: Any, done: dict[Any, tuple[str, float]]) -> tuple[str, float]:
        op = BINARY[e.op]
        (left, left_level), (right, right_level) = done[e.a], done[e.b]
        left, right = self._pair(e.a, e.b, left, right)
        if op.precedence == 0:
            return f"{op.symbol}({left}, {right})", ATOM
        if left_level < op.precedence:
            left = f"({left})"
        if right_level <= op.precedence:
            right = f"({right})"
        return f"{left} {op.symbol} {right}", op.precedence


def to_text(e: Any, names: Callable[[Any], str] | None = None) -> str:
    """The text of ``e``. ``names`` gives the names of variables and sources (default: their own, made unique)."""
    return ExprPrinter(names or Names()).print(e)
