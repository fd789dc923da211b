"""Reads the text of optimized LLVM IR: functions, blocks, instructions, natural loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = r'%(?:"[^"]*"|[-\w.$]+)'
_OPERAND = re.compile(_NAME)
_DEFINE = re.compile(r'^define .*?@("[^"]*"|[-\w.$]+)\((.*)\)')
_PARAM = re.compile(rf"^\s*(\S+).*?({_NAME})\s*$")
_LABEL = re.compile(r'^("[^"]*"|[-\w.$]+):')
_DEFINITION = re.compile(rf"^({_NAME}) = (?:tail |musttail |notail )?(\w+)")
_OPCODE = re.compile(r"^(?:tail |musttail |notail )?(\w+)")
_TARGET = re.compile(rf"label ({_NAME})")


@dataclass(frozen=True, slots=True)
class IrInstruction:
    """One instruction: ``name`` of its result (empty without one), its operation, and the names that it reads."""

    name: str
    opcode: str
    text: str
    operands: tuple[str, ...]


@dataclass(slots=True)
class IrBlock:
    """A basic block; names have their leading ``%``."""

    name: str
    instructions: list[IrInstruction] = field(default_factory=list)

    @property
    def successors(self) -> tuple[str, ...]:
        """The blocks that may follow, each once."""
        return tuple(dict.fromkeys(_TARGET.findall(self.instructions[-1].text))) if self.instructions else ()


@dataclass(frozen=True, slots=True)
class IrLoop:
    """A natural loop: its blocks, and the loop around it."""

    header: str
    blocks: frozenset[str]


@dataclass(slots=True)
class IrFunction:
    """A function of the module. ``params``: names and types."""

    name: str
    params: dict[str, str]
    blocks: dict[str, IrBlock] = field(default_factory=dict)
    defined: dict[str, tuple[IrInstruction, str]] = field(default_factory=dict)
    """Each result with its instruction and block."""

    def order(self) -> list[str]:
        """The blocks that can be reached, each after all that come before it, but for jumps back."""
        seen, done = {next(iter(self.blocks))}, list[str]()
        stack = [(name, iter(self.blocks[name].successors)) for name in seen]
        while stack:
            name, rest = stack[-1]
            following = next((s for s in rest if s not in seen), None)
            if following is None:
                done.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.blocks[following].successors)))
        return done[::-1]

    def loops(self) -> list[IrLoop]:
        """All natural loops, outer ones before those inside of them."""
        order = self.order()
        place = {name: i for i, name in enumerate(order)}
        before: dict[str, list[str]] = {}
        for name in order:
            for s in self.blocks[name].successors:
                before.setdefault(s, []).append(name)
        found = []
        for header in order:
            body, pending = {header}, [b for b in before.get(header, ()) if place[b] >= place[header]]
            if not pending:
                continue
            while pending:
                name = pending.pop()
                if name not in body and place[name] > place[header]:
                    body.add(name)
                    pending += before.get(name, ())
            found.append(IrLoop(header, frozenset(body)))
        return sorted(found, key=lambda v: -len(v.blocks))


def functions(text: str) -> Iterator[IrFunction]:
    """The functions that the module defines."""
    made: IrFunction | None = None
    block: IrBlock | None = None
    lines = iter(text.splitlines())
    for raw in lines:
        if made is None:
            if head := _DEFINE.match(raw):
                made = IrFunction(head[1].strip('"'), _params(head[2]))
            continue
        if raw.startswith("}"):
            yield made
            made = block = None
        elif label := _LABEL.match(raw):
            block = made.blocks.setdefault(f"%{label[1]}", IrBlock(f"%{label[1]}"))
        elif line := raw.strip():
            while line.endswith("[") or (line.startswith("switch") and "]" not in line):
                line += " " + next(lines).strip()
            if block is None:
                block = made.blocks.setdefault("%0", IrBlock("%0"))
            instruction = _instruction(line)
            block.instructions.append(instruction)
            if instruction.name:
                made.defined[instruction.name] = instruction, block.name


def _params(text: str) -> dict[str, str]:
    """Names and types; attributes with brackets hold no commas that matter, since every parameter ends with its
    name."""
    found = {}
    for part in text.split(", "):
        if match := _PARAM.match(part):
            found[match[2]] = match[1]
    return found


def _instruction(line: str) -> IrInstruction:
    if definition := _DEFINITION.match(line):
        rest = line[definition.end() :]
        return IrInstruction(definition[1], definition[2], line, tuple(_OPERAND.findall(rest)))
    opcode = _OPCODE.match(line)
    return IrInstruction("", opcode[1] if opcode else "", line, tuple(_OPERAND.findall(line)))
