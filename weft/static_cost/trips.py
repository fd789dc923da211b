"""How often each block of a function runs: integers of the IR are computed for the middle turn of the loops around.

Sizes that are not known are taken as :data:`weft.cost.assumed.EXTENT`. A condition that is not known is assumed to hold
half of the times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from weft.cost.assumed import EXTENT
from weft.static_cost.ir import IrFunction, IrInstruction, IrLoop

_MAX_DEPTH = 60
"""Longest chain of integer instructions that is followed."""
_MAX_SIMULATED_TURNS = 8
"""Most turns of a loop that are followed one by one, where no formula gives them."""
_TERM = r'(%(?:"[^"]*"|[-\w.$]+)|-?\d+|true|false)'
_TWO = re.compile(rf"\w+ (?:[a-z]+ )*i\d+ {_TERM}, {_TERM}")
_COMPARE = re.compile(rf"icmp (?:samesign )?(\w+) i\d+ {_TERM}, {_TERM}")
_NO_NULL = re.compile(r"icmp (eq|ne) ptr %\S+, null")
"""Memory that was asked for is assumed to be given."""
_CAST = re.compile(rf"(?:zext|sext|trunc|freeze) (?:[a-z]+ )*i\d+ {_TERM}")
_SELECT = re.compile(rf"select i1 {_TERM}, i\d+ {_TERM}, i\d+ {_TERM}")
_MINMAX = re.compile(rf"call .*@llvm\.([us]m(?:in|ax))\.i\d+\(i\d+ {_TERM}, i\d+ {_TERM}\)")
_INCOMING = re.compile(r'\[ (?:([^,\[\]]+?)), (%(?:"[^"]*"|[-\w.$]+)) \]')
_ADDRESS = re.compile(rf"getelementptr (?:[a-z]+ )*(\[\d+ x .+?\]|<[^>]+>|\w+), ptr {_TERM}((?:, i\d+ {_TERM})*)")
_INDEX = re.compile(rf"i\d+ {_TERM}")
_FIELDS = re.compile(r"[<\[](\d+) x (.+)[>\]]$")
_CONDITION = re.compile(rf"br i1 {_TERM}, label (%\S+?), label (%[^\s,]+)")
_WIDTHS = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "shl": lambda a, b: a << b if 0 <= b < 63 else None,
    "lshr": lambda a, b: a >> b if a >= 0 and 0 <= b < 64 else None,
    "ashr": lambda a, b: a >> b if 0 <= b < 64 else None,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "sdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None,
    "udiv": lambda a, b: a // b if a >= 0 and b > 0 else None,
    "srem": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else None,
    "urem": lambda a, b: a % b if a >= 0 and b > 0 else None,
    "smax": max,
    "smin": min,
    "umax": max,
    "umin": min,
}
_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}
_OPPOSITE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle"}


def type_bytes(text: str) -> int:
    """Bytes of a type of LLVM; vectors of bits count as bytes."""
    text = text.strip()
    if fields := _FIELDS.match(text):
        return int(fields[1]) * type_bytes(fields[2])
    if text in _WIDTHS:
        return _WIDTHS[text]
    return max(1, int(text[1:]) // 8) if text[:1] == "i" and text[1:].isdigit() else 1


class Trips:
    """What the integers of a function are, how many turns its loops take and how often its blocks run.

    ``given``: values of parameters; others have the assumed extent.
    """

    def __init__(self, function: IrFunction, given: Mapping[str, int]) -> None:
        self.function = function
        self.params = {n: given.get(n, EXTENT) for n, t in function.params.items() if t[:1] == "i"}
        self.loops = function.loops()
        self.around: dict[str, list[IrLoop]] = {b: [v for v in self.loops if b in v.blocks] for b in function.blocks}
        self._header = {v.header: v for v in self.loops}
        self._turns: dict[str, tuple[int, str]] = {}
        self._memo: dict[str, int | None] = {}
        self.frequency = self._frequencies()

    # -- integers ------------------------------------------------------------------------------------------------------

    def value(self, term: str, at: Mapping[str, int] | None = None, depth: int = 0) -> int | None:
        """The integer, or the offset of the address, in turn ``at[header]`` of loops, else in their middle turns."""
        term = term.strip()
        if not term.startswith("%"):
            return {"true": 1, "false": 0, "null": 0}.get(term, int(term) if term.lstrip("-").isdigit() else None)
        if term in self.params:
            return self.params[term]
        if term in self.function.params:
            return 0 if self.function.params[term] == "ptr" else None
        if not at and term in self._memo:
            return self._memo[term]
        if depth > _MAX_DEPTH or term not in self.function.defined:
            return None
        instruction, block = self.function.defined[term]
        found = self._computed(instruction, block, at or {}, depth + 1)
        if not at:
            self._memo[term] = found
        return found

    def _computed(self, e: IrInstruction, block: str, at: Mapping[str, int], depth: int) -> int | None:
        text = e.text.split(" = ", 1)[1]
        if e.opcode == "phi":
            return self._phi(e, block, at, depth)
        if e.opcode == "getelementptr":
            return self._address(text, at, depth)
        if e.opcode == "alloca" or (e.opcode == "call" and "@weft_" in text):
            return 0  # functions of the runtime report that nothing failed
        if e.opcode == "select" and (found := _SELECT.match(text)):
            condition = self.value(found[1], at, depth)
            return None if condition is None else self.value(found[2] if condition else found[3], at, depth)
        test: Callable[[Any, Any], Any] | None
        if found := _NO_NULL.match(text):
            return int(found[1] == "ne")
        if found := _COMPARE.match(text):
            test, pair = _COMPARED.get(found[1].replace("u", "s")), (found[2], found[3])
        elif found := _CAST.match(text):
            return self.value(found[1], at, depth)
        elif found := _MINMAX.search(text):
            test, pair = _ARITHMETIC[found[1]], (found[2], found[3])
        elif found := _TWO.match(text):
            test, pair = _ARITHMETIC.get(e.opcode), (found[1], found[2])
        else:
            return None
        a, b = (self.value(x, at, depth) for x in pair)
        return None if test is None or a is None or b is None else test(a, b)

    def _address(self, text: str, at: Mapping[str, int], depth: int) -> int | None:
        found = _ADDRESS.match(text)
        if not found:
            return None
        total, unit = self.value(found[2], at, depth), found[1]
        for i, index in enumerate(_INDEX.findall(found[3])):
            if i and (fields := _FIELDS.match(unit)):
                unit = fields[2]
            number = self.value(index, at, depth)
            if total is None or number is None:
                return None
            total += number * type_bytes(unit)
        return total

    def _phi(self, e: IrInstruction, block: str, at: Mapping[str, int], depth: int) -> int | None:
        incoming = _INCOMING.findall(e.text)
        loop = self._header.get(block)
        if loop is None:
            known = (self.value(v, at, depth) for v, _ in incoming)
            return next((v for v in known if v is not None), None)
        start = next((self.value(v, at, depth) for v, b in incoming if b not in loop.blocks), None)
        turn = at[block] if block in at else self.turns(loop) // 2
        if start is None or not turn:
            return start
        step = self._step(e.name, incoming, loop, at, depth)
        if step is not None:
            return start + step * turn
        if turn > _MAX_SIMULATED_TURNS:
            return None
        back = next((v for v, b in incoming if b in loop.blocks), "")
        return self.value(back, {**at, block: turn - 1}, depth)

    def _step(
        self, name: str, incoming: list[tuple[str, str]], loop: IrLoop, at: Mapping[str, int], depth: int
    ) -> int | None:
        """What a turn adds: followed through additions and addresses only."""
        term, total = next((v for v, b in incoming if b in loop.blocks), ""), 0
        for _ in range(_MAX_DEPTH):
            if term == name:
                return total
            if term not in self.function.defined:
                return None
            e = self.function.defined[term][0]
            text = e.text.split(" = ", 1)[1]
            if e.opcode == "getelementptr" and (found := _ADDRESS.match(text)):
                alone = text.replace(f"ptr {found[2]}", "ptr null", 1)
                added, term = self._offset(alone, at, depth), found[2]
            elif e.opcode in ("add", "sub", "or") and (found := _TWO.match(text)):
                term, other = found[1], self.value(found[2], at, depth)
                added = None if other is None else -other if e.opcode == "sub" else other
            else:
                return None
            if added is None:
                return None
            total += added
        return None

    def _offset(self, text: str, at: Mapping[str, int], depth: int) -> int | None:
        unit = _ADDRESS.match(text.replace("ptr null", "ptr 0", 1))
        return self._address(text.replace("ptr null", "ptr 0", 1), at, depth) if unit else None

    # -- loops ---------------------------------------------------------------------------------------------------------

    def turns(self, loop: IrLoop) -> int:
        """How often the body of a loop runs each time it is entered."""
        return self._leaving(loop)[0]

    def _leaving(self, loop: IrLoop) -> tuple[int, str]:
        """The turns, and the block where the loop is left."""
        if loop.header in self._turns:
            return self._turns[loop.header]
        self._turns[loop.header] = EXTENT, ""  # while the bounds are computed, which must not need it
        exits = [b for b in self.function.blocks if b in loop.blocks and self._leaves(b, loop)]
        known = [(n, b) for b in exits if (n := self._turns_to(b, loop)) is not None]
        found = min(known) if known else (EXTENT, exits[-1] if exits else "")
        self._memo.clear()
        self._turns[loop.header] = found
        return found

    def _leaves(self, block: str, loop: IrLoop) -> bool:
        return any(s not in loop.blocks for s in self.function.blocks[block].successors)

    def _turns_to(self, block: str, loop: IrLoop) -> int | None:
        """The turn, counted from 1, at whose end the condition of ``block`` leaves the loop."""
        branch = _CONDITION.match(self.function.blocks[block].instructions[-1].text)
        if not branch or branch[1] not in self.function.defined:
            return None
        compared = _COMPARE.match(self.function.defined[branch[1]][0].text.split(" = ", 1)[1])
        if not compared:
            return self._simulated(branch, loop)
        way = compared[1].replace("u", "s")
        stays = way if branch[2] in loop.blocks else _OPPOSITE[way]
        first, second = (self._difference(compared, loop, turn) for turn in (0, 1))
        return None if first is None or second is None else _first_false(stays, first, second - first)

    def _simulated(self, branch: re.Match[str], loop: IrLoop) -> int | None:
        for turn in range(_MAX_SIMULATED_TURNS):
            condition = self.value(branch[1], {loop.header: turn})
            if condition is None:
                return None
            if branch[2 if condition else 3] not in loop.blocks:
                return turn + 1
        return None

    def _difference(self, compared: re.Match[str], loop: IrLoop, turn: int) -> int | None:
        a, b = (self.value(compared[i], {loop.header: turn}) for i in (2, 3))
        return None if a is None or b is None else a - b

    def _frequencies(self) -> dict[str, float]:
        order = self.function.order()
        mass = dict.fromkeys(self.function.blocks, 0.0)
        mass[order[0]] = 1.0
        entered: dict[str, float] = {}
        for name in order:
            if (loop := self._header.get(name)) is not None:
                entered[name] = mass[name]
                mass[name] *= self.turns(loop)
            for successor, share in self._ways(name):
                back = self._header.get(successor)
                if back is not None and name in back.blocks:
                    continue
                left = [v for v in self.around[name] if successor not in v.blocks]
                if not left:
                    mass[successor] += mass[name] * share
                elif self._leaving(left[-1])[1] == name:  # the innermost loop is left here: with all that entered
                    mass[successor] += entered[left[0].header] * (share if len(left) > 1 else 1.0)
        return mass

    def _ways(self, name: str) -> list[tuple[str, float]]:
        block = self.function.blocks[name]
        following = block.successors
        stays = [s for s in following if all(s in v.blocks for v in self.around[name])]
        if 0 < len(stays) < len(following):
            return [(s, 1.0 / len(stays) if s in stays else 1.0) for s in following]
        branch = _CONDITION.match(block.instructions[-1].text)
        known = self.value(branch[1]) if branch and len(following) == 2 else None
        if branch is None or known is None:
            return [(s, 1.0 / len(following)) for s in following]
        taken = branch[2] if known else branch[3]
        return [(s, 1.0 if s == taken else 0.0) for s in following]


def _first_false(stays: str, start: int, step: int) -> int | None:
    """The first turn, counted from 1, in which ``start + turn * step`` does not compare with 0 as ``stays`` says."""
    if not _COMPARED[stays](start, 0):
        return 1
    if stays == "ne" and step and -start % step == 0 and -start // step >= 0:
        return -start // step + 1
    if stays in ("slt", "sle") and step > 0:
        return -(-(-start + (stays == "sle")) // step) + 1
    if stays in ("sgt", "sge") and step < 0:
        return -(-(start + (stays == "sge")) // -step) + 1
    return None
