"""Functions of other languages in schedules: C functions (``te.call_extern``) and Python ones (``te.call_packed``)."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft.backends.llvm.types import type_of
from weft.classic.callbacks import c_function, keep, shaped
from weft.expr.added import declare_foreign
from weft.expr.intrinsic_table import Intrinsic, NativeCode
from weft.expr.intrinsics import apart
from weft.expr.nodes import Call, Const, Expr, ExprLike, Load, const, make, wrap
from weft.runtime._native import has_export
from weft.support.arguments import FUNCTION, TEXT, checked, instance, optional
from weft.support.dtypes import INDEX, INT32, DType
from weft.support.errors import UserError
from weft.tensor_expr.nodes import Tensor
from weft.tir.foreign import inputs_here, is_pointer, pointer_of
from weft.tir.nodes import Buffer, Evaluate, Stmt, seq
from weft.tir.placement import compact_strides, require

RESULTS: Final = ("int32", "void")
_SCALARS: Final = {"int32": "int32_t", "int64": "int64_t", "float32": "float", "float64": "double"}
"""Types of scalar arguments, and their names in C."""
_HEADERS: Final = "#include <string.h>\n#include <math.h>"


@dataclass(frozen=True, slots=True, eq=False)
class ExternFunction:
    """A C function that kernels call; :func:`extern_function` makes it."""

    name: str
    llvm: str | None
    c: str | None
    address: int | None
    python: Callable[..., Any] | None

    @property
    def is_defined(self) -> bool:
        """Whether anything but its name is known."""
        return self.llvm is not None or self.c is not None or self.address is not None


@checked("E145", name=TEXT, llvm=optional(TEXT), c=optional(TEXT), python=optional(FUNCTION))
def extern_function(
    name: str,
    *,
    llvm: str | None = None,
    c: str | None = None,
    address: Any = None,
    python: Callable[..., Any] | None = None,
) -> ExternFunction:
    """A C function for :func:`call_extern`.

    ``llvm`` and ``c`` are texts that define it, for targets of these kinds; what is built with them can be saved.
    ``address`` is that of a function in this process, a number or a function of ``ctypes``; what is built with it
    cannot be saved (A012). A function without any of these is one that the runtime exports, such as ``memcpy``.
    ``python`` takes its place in the interpreter: it gets scalars, and for each pointer the elements as a flat array,
    which it changes in place. Raises UserError E145 if the name is no word, E146 if there is no such function.
    """
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None:
        raise UserError(f"a C function cannot be called {name!r}", code="E145", hint="give its name")
    where = address
    if address is not None and not isinstance(address, int):
        where = ctypes.cast(address, ctypes.c_void_p).value if isinstance(address, ctypes._CFuncPtr) else None  # type: ignore[attr-defined]  # base class of all C functions
        keep(address)
    if address is not None and (isinstance(where, bool) or not where or not 0 < where < 1 << 64):
        raise UserError(
            f"extern_function: {address!r} is no address of a function", code="E145", hint="a number, or lib.function"
        )
    made = ExternFunction(name, llvm, c, where, python)
    if not made.is_defined and (name.startswith(("weft_", "__")) or not has_export(name)):
        raise UserError(
            f"the runtime has no function '{name}'",
            code="E146",
            hint="give its source, te.extern_function(name, c=…, llvm=…), or its address",
        )
    return made


@checked("E145", result=TEXT, function=instance("a name or te.extern_function", str, ExternFunction))
def call_extern(result: str, function: str | ExternFunction, *args: Any) -> Stmt:
    """A statement that calls a C function, for ``te.extern`` and for the lowering of an instruction.

    ``args`` are addresses, ``buffer.access_ptr("r")`` or ``"w"`` or ``"rw"``, and scalars: whole numbers and sizes are
    ``int64_t``, others int32, float32 and float64. A function whose ``result`` is ``"int32"`` returns 0, or another
    number that ends the run with UserError I038; the other possible result is ``"void"``. The elements of each buffer
    must lie in memory one after another, in rows, or as ``te.decl_buffer`` declares (S083). It must access no other
    memory. Raises UserError E145 for other arguments.
    """
    known = extern_function(function) if isinstance(function, str) else function
    if result not in RESULTS:
        raise UserError(
            f"call_extern: the result of '{known.name}' cannot be {result}",
            code="E145",
            hint="'int32' for a status, 'void' for none; results go into buffers",
        )
    if not args:
        raise UserError(f"call_extern: '{known.name}' gets no arguments", code="E145", hint="at least one")
    return _called(known, result, [_argument(known.name, a) for a in args])


@checked("E145", function=FUNCTION)
def call_packed(function: Callable[..., Any], *args: Any) -> Stmt:
    """A statement that calls a Python function, for ``te.extern`` and for the lowering of an instruction.

    The function gets NumPy arrays for buffers, which are valid during the call only, and scalars. It writes its results
    into arrays; what it returns says nothing. What it raises ends the run and is raised again by the call of the built
    function. ``args`` are buffers, addresses of whole buffers (``buffer.access_ptr("r")``) and scalars. What is built
    with it cannot be saved (A012). Raises UserError E145 for other arguments.
    """
    name = re.sub(r"\W", "_", getattr(function, "__name__", "python"), flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"python_{name}"
    made = [_argument(name, _address(a) if isinstance(a, Buffer) else a) for a in args]
    buffers = [pointer_of(a).buffer if is_pointer(a) else None for a in made]
    if not any(buffers):
        raise UserError(f"call_packed: '{name}' gets no buffer", code="E145", hint="it has nowhere to write to")
    dtypes = [a.dtype if b is None else b.dtype for a, b in zip(made, buffers, strict=True)]
    ranks = [None if b is None else len(b.shape) for b in buffers]
    address = c_function(function, dtypes, ranks)
    known = ExternFunction(name, None, None, address, shaped(function, ranks))
    return _called(known, "int32", [*made, *(e for b in buffers if b is not None for e in b.shape)])


def _address(b: Buffer) -> Expr:
    return b.access_ptr("r" if b in inputs_here() else "rw")


def _argument(name: str, given: Any) -> Expr:
    """An argument as an expression."""
    hint = 'buffer.access_ptr("r"), sizes, and scalars of ' + ", ".join(_SCALARS)
    if isinstance(given, (Buffer, Tensor)):
        raise UserError(f"'{name}' cannot get '{given.name}' as it is", code="E145", hint=hint)
    try:
        made = wrap(given, INDEX) if isinstance(given, int) and not isinstance(given, bool) else wrap(given)
    except (UserError, TypeError) as error:
        raise UserError(f"'{name}' cannot get {given!r}", code="E145", hint=hint) from error
    if not is_pointer(made) and (str(made.dtype) not in _SCALARS or made.lanes != 1):
        raise UserError(f"'{name}' cannot get a scalar of {made.dtype}", code="E145", hint=hint)
    return made


def _called(function: ExternFunction, result: str, args: Sequence[Expr]) -> Stmt:
    """The requirements on buffers, and the call."""
    row = _row(function, result, args)
    declare_foreign(row, in_process=function.address is not None)
    needs = [c for a in args if is_pointer(a) for c in _layout(pointer_of(a).buffer)]
    return seq(*map(require, needs), Evaluate(Call(row.name, tuple(args), INT32)))


def _layout(b: Buffer) -> Iterator[Expr]:
    """Conditions under which the rows of ``b`` lie one after another. Declared operands have their own."""
    if b.strides is not None or any(isinstance(e, Const) and e.value == 0 for e in b.shape):
        return
    zero = const(0)
    first = Load(b, (zero,) * len(b.shape))
    for d, (extent, stride) in enumerate(zip(b.shape, compact_strides(b.shape), strict=True)):
        steps: list[ExprLike] = [extent - 1]
        if isinstance(extent, Const):  # a layout that stores a dimension in parts differs at a power of 2 or at the end
            last = int(extent.value) - 1
            steps = [n for n in dict.fromkeys((*(1 << k for k in range(last.bit_length())), last)) if n]
        for n in steps:
            there = Load(b, tuple(wrap(n, INDEX) if x == d else zero for x in range(len(b.shape))))
            yield make("eq", apart(first, there), wrap(n, INDEX) * stride)


def _row(function: ExternFunction, result: str, args: Sequence[Expr]) -> Intrinsic:
    """The function with arguments of these types, under a name that nothing else has."""
    kinds = ["ptr" if is_pointer(a) else str(a.dtype) for a in args]
    parts = (function.name, function.llvm, function.c, function.address, result, kinds)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()
    name, dtype = f"{function.name}_{digest}", args[0].dtype
    codes = []
    exported = not function.is_defined
    if function.llvm is not None or function.address is not None or exported:
        codes.append(_llvm(function, name, result, [("ptr" if is_pointer(a) else type_of(a)) for a in args], dtype))
    if function.c is not None or function.address is not None or exported:
        codes.append(_c(function, result, ["void *" if k == "ptr" else _SCALARS[k] for k in kinds], dtype))

    return Intrinsic(
        name,
        len(args),
        "any",
        lambda dtypes: INT32,
        function.python,  # type: ignore[arg-type]  # None: the interpreter refuses
        "a function of another language",
        pure=False,
        codes=tuple(codes),
    )


def _llvm(function: ExternFunction, name: str, result: str, types: Sequence[str], dtype: DType) -> NativeCode:
    callee = f"@{function.name}" if function.address is None else f"inttoptr (i64 {function.address} to ptr)"
    defines = function.llvm or ""
    if not function.is_defined:
        defines = f"declare {'i32' if result == 'int32' else 'void'} {callee}({', '.join(types)})"
    typed = ", ".join(f"{ty} {{{i}}}" for i, ty in enumerate(types))
    if result == "int32":
        return NativeCode("llvm", str(dtype), f"call i32 {callee}({typed})", defines)
    named = ", ".join(f"{ty} %a{i}" for i, ty in enumerate(types))
    wrapper = f"define internal i32 @{name}({named}) alwaysinline {{\n  call void {callee}({named})\n  ret i32 0\n}}"
    return NativeCode("llvm", str(dtype), f"call i32 @{name}({typed})", f"{defines}\n\n{wrapper}".strip())


def _c(function: ExternFunction, result: str, types: Sequence[str], dtype: DType) -> NativeCode:
    given = ", ".join(f"{{{i}}}" for i in range(len(types)))
    callee = function.name
    if function.address is not None:
        kind = "int32_t" if result == "int32" else "void"
        callee = f"(({kind} (*)({', '.join(types)}))(uintptr_t){function.address}ULL)"
    call = f"{callee}({given})"
    defines = function.c if function.c is not None else "" if function.address is not None else _HEADERS
    return NativeCode("c", str(dtype), call if result == "int32" else f"({call}, 0)", defines)
