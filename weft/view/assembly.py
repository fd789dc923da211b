"""Statistics of a kernel's loops, read from its assembly text (AT&T notation of x86-64).

They show, without measuring time, whether a loop lost its vectors, its fused multiply-adds or its registers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.?[A-Za-z_$][\w.$]*):")
_JUMP = re.compile(r"^j\w+\s+(\.L\w+)")
_FUSED = re.compile(r"^v?(fn?m(add|sub)\d|dpbf16ps|pdpbusd|pdpwssd)|^tdp")
_FLOATS = re.compile(r"^v?(fn?m(add|sub)|add|sub|mul|div|max|min|sqrt|rcp|rsqrt|dp)\w*[ps][sdh]|^vpd?p|^tdp")
_SCALAR = re.compile(r"^(?!vpdp).*s[sdh]$")
_LANES = re.compile(r"^v?(p?gather|pinsr|insertps)")
_CALL = re.compile(r"^call\w*\s+\*?([\w.$]+)")
_ONE_WORD = re.compile(r"%e\w\w\b|%r\d+d\b")
_STACK = re.compile(r"-?\d*\(%r[sb]p[,)]")
_WIDTHS = (("%tmm", 8192), ("%zmm", 512), ("%ymm", 256), ("%xmm", 128))


@dataclass(frozen=True, slots=True)
class LoopCode:
    """One innermost loop (or a kernel without loops): the number of instructions, of fused multiply-adds, of other
    arithmetic instructions and of stack accesses (spilled registers). ``vector_bits`` is the width of the widest
    register used in arithmetic, or in moves if there is no arithmetic; 32 or 64 means scalars. ``depth`` is the number
    of nested loops, this one included. ``lanes`` is the number of gathers and of instructions that fill one lane of a
    vector; ``calls`` names the functions called."""

    instructions: int
    fused: int
    arithmetic: int
    spills: int
    vector_bits: int
    depth: int
    lanes: int = 0
    calls: tuple[str, ...] = ()

    @property
    def scalar(self) -> bool:
        """Whether the loop computes on scalars."""
        return self.vector_bits <= 64


def innermost_loops(assembly: str) -> list[LoopCode]:
    """Every innermost loop of a kernel's assembly. A function without loops counts as one loop if it has arithmetic."""
    found = []
    for body in _functions(assembly):
        frame = any(line.startswith("movq\t%rsp, %rbp") for line in body)
        spans = _loops(body)
        for a, b in spans or [(0, len(body))]:
            if not any(a < c and d <= b for c, d in spans):
                depth = sum(c <= a and b <= d for c, d in spans)
                found.append(_count(body[a : b + 1], frame, depth))
    return found


def hot_loop(assembly: str) -> LoopCode:
    """The loop that does most of the work: the deepest of the loops with fused multiply-adds, else of those with other
    arithmetic, else of all. Among loops of equal depth it is the one with the most work per iteration."""
    loops = innermost_loops(assembly)
    return max(loops, key=_weight, default=LoopCode(0, 0, 0, 0, 0, 0))


def _weight(code: LoopCode) -> tuple[int, ...]:
    kind = 2 if code.fused else 1 if code.arithmetic else 0
    return kind, code.depth, code.fused * code.vector_bits, code.arithmetic * code.vector_bits, code.instructions


def _functions(assembly: str) -> Iterator[list[str]]:
    """The labels and instructions of each function."""
    body: list[str] = []
    for raw in assembly.splitlines():
        line = raw.split("#", 1)[0].strip()
        if line.startswith(".type"):
            body = []
        elif line.startswith(".Lfunc_end"):
            yield body
        elif line and (line[0] != "." or _LABEL.match(line)):
            body.append(line)


def _loops(body: Sequence[str]) -> list[tuple[int, int]]:
    """Ranges from a label to the last jump back to it."""
    labels: dict[str, int] = {}
    spans: dict[int, int] = {}
    for i, line in enumerate(body):
        if label := _LABEL.match(line):
            labels[label[1]] = i
        elif (jump := _JUMP.match(line)) and jump[1] in labels:
            spans[labels[jump[1]]] = i
    return list(spans.items())


def _count(lines: Sequence[str], frame: bool, depth: int) -> LoopCode:
    code = [line for line in lines if not _LABEL.match(line)]
    fused = arithmetic = spills = worked = moved = 0
    for line in code:
        mnemonic = line.split(None, 1)[0]
        is_fused = bool(_FUSED.match(mnemonic))
        fused += is_fused
        if is_fused or _FLOATS.match(mnemonic):
            arithmetic += not is_fused
            worked = max(worked, _bits(mnemonic, line))
        elif "(" in line and not mnemonic.startswith("lea"):
            moved = max(moved, _bits(mnemonic, line))
        stack = _STACK.search(line)
        spills += bool(stack and (frame or "%rsp" in stack[0]) and not mnemonic.startswith("lea"))
    lanes = sum(bool(_LANES.match(line)) for line in code)
    calls = tuple(call[1] for line in code if (call := _CALL.match(line)))
    return LoopCode(len(code), fused, arithmetic, spills, worked or moved, depth, lanes, calls)


def _bits(mnemonic: str, line: str) -> int:
    if _SCALAR.search(mnemonic):
        return 64 if mnemonic.endswith("d") else 32
    return next((bits for name, bits in _WIDTHS if name in line), 32 if _ONE_WORD.search(line) else 64)
