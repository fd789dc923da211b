"""Hybrid functions: tensors computed by Python loops.

>>> from weft import te
>>> @te.hybrid.script
... def outer(a, b):
...     c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
...     for i in parallel(a.shape[0]):
...         for j in range(b.shape[0]):
...             c[i, j] = a[i] * b[j]
...     return c

Called with tensors, the function is translated to statements of a tensor program, which is one stage of a schedule;
called with NumPy arrays, these statements are interpreted. In a function there are

* ``output_tensor(shape, dtype)``, the results, which the function returns, and ``allocate(shape, dtype)``, scratch
  memory. Elements have no value before they are assigned;
* the loops ``range``, ``serial``, ``parallel``, ``vectorize``, ``unroll`` (``(n)`` or ``(low, high)``) and
  ``const_range``, which is unrolled while the function is translated. Iterations of ``parallel`` and ``vectorize`` must
  not write what others read or write;
* ``if``, conditional expressions, assignments to elements and to variables; variables live until the end of the block
  in which they are first assigned;
* the functions of ``weft.te`` for single elements (``exp``, ``min`` …), conversions (``float32(x)``) and ``len``;
  numbers and tuples of Python are constants.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from weft.classic.hybrid_checks import check
from weft.classic.hybrid_statements import Translation
from weft.expr.nodes import Expr, Load
from weft.expr.visit import loads
from weft.lowering.te_to_tir import te_to_tir
from weft.support.arguments import FUNCTION, checked
from weft.support.errors import Location, UserError
from weft.tensor_expr import placeholder
from weft.tensor_expr.nodes import ExternOp, Tensor
from weft.tensor_expr.tags import current_tag
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, Stmt


class HybridFunction:
    """A function of tensors, made by :func:`script`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        update_wrapper(self, fn)
        self._fn = fn
        self.__name__: str = fn.__name__
        self.definition, self._lines, self._first = _parsed(fn)
        self.parameters = inspect.signature(fn)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results for ``args``: tensors, sizes and scalars give a tensor, or a tuple of them; arrays give arrays.

        Raises UserError E140 with the line of the function that cannot be translated, E141 for a parallel loop whose
        iterations are not independent, E206 for memory whose shape depends on data, E209 for an access that is outside
        of a tensor for all sizes. Where data decides whether an access is outside, elements outside read as 0 and are
        not written."""
        given = self._bound(args, named)
        if any(isinstance(v, np.ndarray) for v in given.values()):
            return self._interpreted(given)
        inputs = {n: t for n, v in given.items() if (t := _as_tensor(v)) is not None}
        outer = {n: Buffer(n, t.shape, t.dtype) for n, t in inputs.items()}
        first = self._translated(given, outer, lambda n, s, scope, d: Buffer(n, s, d, scope), None)
        checks, _ = check(first)

        def emit(ins: Sequence[Buffer], outs: Sequence[Buffer], new: Callable[..., Buffer]) -> Stmt:
            own = dict(zip(inputs, ins, strict=True))
            return check(self._translated(given, own, new, [outs[i] for i in first.order]))[1]

        shapes, dtypes = tuple(b.shape for b in first.results), tuple(b.dtype for b in first.results)
        op = ExternOp(self.__name__, tuple(inputs.values()), shapes, dtypes, emit, tuple(checks), tag=current_tag())
        outputs = tuple(op.output(i) for i in range(len(shapes)))
        return outputs if first.several else outputs[0]

    def _bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        try:
            given = self.parameters.bind(*args, **named)
        except TypeError as error:
            raise UserError(f"'{self.__name__}': {error}", code="E140") from error
        given.apply_defaults()
        return dict(given.arguments)

    def _translated(
        self,
        given: Mapping[str, Any],
        inputs: Mapping[str, Buffer],
        new: Callable[..., Buffer],
        outputs: Sequence[Buffer] | None,
    ) -> Translation:
        values = {**given, **inputs}
        around = inspect.getclosurevars(self._fn)
        known = {**around.builtins, **around.globals, **around.nonlocals}
        made = Translation(self.__name__, known, new, outputs, self._where)
        made.run(self.definition, values)
        return made

    def _where(self, node: ast.AST) -> Location:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", column + 1) if getattr(node, "end_lineno", line) == line else column + 1
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return Location(node=self.__name__, line=self._first + line - 1, text=text, column=column, length=end - column)

    def _interpreted(self, given: Mapping[str, Any]) -> Any:
        arrays = {n: np.asarray(v) for n, v in given.items() if isinstance(v, (np.ndarray, np.generic))}
        tensors = {n: placeholder(a.shape, a.dtype.name, name=n) for n, a in arrays.items()}
        made = self(**{**given, **tensors})
        outputs = made if isinstance(made, tuple) else (made,)
        found = run(te_to_tir(self.__name__, list(tensors.values()), outputs), list(arrays.values()))
        return found if isinstance(made, tuple) else found[0]


@checked("E140", fn=FUNCTION)
def script(fn: Callable[..., Any]) -> HybridFunction:
    """``fn`` as a hybrid function; see the module for what it may contain. Raises UserError E140 if its source is not
    available, as for functions typed into a plain prompt."""
    return HybridFunction(fn)


def _parsed(fn: Callable[..., Any]) -> tuple[ast.FunctionDef, list[str], int]:
    """The definition, its lines without the common indentation, and the number of the first one in its file."""
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        hint = "define it in a file or in a notebook"
        raise UserError(f"the source of {fn!r} is not available", code="E140", hint=hint) from error
    text = textwrap.dedent("".join(lines))
    try:
        body = ast.parse(text).body[0]
    except SyntaxError:  # the lines around a lambda
        body = ast.Pass()
    if not isinstance(body, ast.FunctionDef):
        raise UserError("only functions made by 'def' are hybrid functions", code="E140")
    return body, text.splitlines(), max(first, 1)


def _as_tensor(value: Any) -> Tensor | None:
    """The tensor of an argument; a scalar ``te.var("x", "float32")`` is the element of one."""
    if isinstance(value, Load) and not value.indices and isinstance(value.source, Tensor):
        return value.source
    if isinstance(value, Expr) and loads(value):
        raise UserError(f"the argument {value} is made of elements of tensors", code="E140", hint="pass the tensor")
    return value if isinstance(value, Tensor) else None
