"""Intrinsics that ask the C library only for rare arguments: the first argument is the result of vector code, and NaN
where that cannot be used. The library is behind a branch, in functions of the module."""

from __future__ import annotations

from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import scalar_type, type_of
from weft.expr.nodes import Call

BEYOND: Final = "_beyond"
"""End of the names of these intrinsics."""
_WEIGHTS: Final = '!prof !{!"branch_weights", i32 1, i32 2000}'


def beyond(f: LlvmFunction, e: Call, typed: list[tuple[str, str]]) -> str:
    """The value of a call whose arguments have these types and values."""
    ty, lanes = type_of(e), e.lanes
    own = f"weft_{e.name}.{scalar_type(e.dtype)}.{lanes}"
    names = ["near", *"xy"[: len(typed) - 1]]
    heads = ", ".join(f"{ty} %{n}" for n in names)
    usual = [f"define internal {ty} @{own}({heads}) alwaysinline nounwind #0 {{"]
    usual.append(f"  %far = fcmp uno {ty} %near, %near")
    if lanes > 1:
        usual.append(f"  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %far)")
    usual.append(f"  br i1 %{'any' if lanes > 1 else 'far'}, label %rarely, label %usually, {_WEIGHTS}")
    usual += ["rarely:", f"  %made = call {ty} @{own}.rare({heads})", f"  ret {ty} %made"]
    usual += ["usually:", f"  ret {ty} %near", "}"]
    f.defined["\n".join([*_rare(e, f"{own}.rare", names), "", *usual])] = None
    return f.op(f"call {ty} @{own}({', '.join(f'{t} {v}' for t, v in typed)})")


def _rare(e: Call, own: str, names: list[str]) -> list[str]:
    """The function for a vector of which some lane needs the library: it calls that for every lane."""
    ty, element, lanes = type_of(e), scalar_type(e.dtype), e.lanes
    name = e.name.removesuffix(BEYOND) + ("f" if e.dtype == "float32" else "")
    lines = [f"define internal {ty} @{own}({', '.join(f'{ty} %{n}' for n in names)}) noinline cold nounwind #0 {{"]
    if lanes == 1:
        arguments = ", ".join(f"{element} %{n}" for n in names[1:])
        return [*lines, f"  %made = call {element} @{name}({arguments})", f"  ret {ty} %made", "}"]
    whole = "poison"
    for lane in range(lanes):
        lines += [f"  %{n}{lane} = extractelement {ty} %{n}, i64 {lane}" for n in names[1:]]
        arguments = ", ".join(f"{element} %{n}{lane}" for n in names[1:])
        lines.append(f"  %f{lane} = call {element} @{name}({arguments})")
        lines.append(f"  %v{lane} = insertelement {ty} {whole}, {element} %f{lane}, i64 {lane}")
        whole = f"%v{lane}"
    lines.append(f"  %far = fcmp uno {ty} %near, %near")
    lines.append(f"  %made = select <{lanes} x i1> %far, {ty} {whole}, {ty} %near")
    return [*lines, f"  ret {ty} %made", "}"]
