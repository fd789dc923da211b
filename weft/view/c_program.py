"""The program of an artifact as C: the calls of its kernels in order, as ``weft_model_run``.

Programs of kernels, copies, sizes, checks and jumps have this form; those that create values at run time do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from weft.runtime.artifact import Artifact
from weft.runtime.program import (
    BufferSpec,
    CallKernel,
    Check,
    CheckRange,
    Copy,
    ExecutableProgram,
    Instruction,
    Jump,
    SetSize,
    SizeExpr,
)

ALIGNMENT: Final = 64
"""Bytes to which constants, and everything that the caller passes, are aligned."""
_FORMS: Final = (CallKernel, Copy, SetSize, Check, CheckRange, Jump)
_INFIX: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&&",
    "or": "||",
}
_CALLED: Final = {"floordiv": "floor_div", "floormod": "floor_mod", "min": "smaller", "max": "larger"}
_INTEGERS: Final = {
    "bool": "uint8_t",
    **{f"{kind}int{bits}": f"{kind}int{bits}_t" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}
HELPERS: Final = """\
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }"""


def why_no_c(program: ExecutableProgram) -> str:
    """Why the program has no form in C, or an empty text."""
    if program.devices:
        return "parts of it run on other devices than the CPU"
    if program.functions or program.hosts or any(t.is_value for t in (*program.inputs, *program.outputs)):
        return "it has functions or values at run time"
    if any(b.kind in ("dynamic", "object") for b in program.buffers):
        return "it allocates memory whose size it computes"
    other = next((i for i in program.instructions if not isinstance(i, _FORMS)), None)
    if other is not None:
        return f"it has the instruction {type(other).__name__}"
    read = [i.buffer for i in program.instructions if isinstance(i, (SetSize, CheckRange)) and i.buffer is not None]
    if any(program.buffers[b].dtype not in _INTEGERS for b in read):
        return "it reads sizes from tensors that are not integers"
    computed = {i.name for i in program.instructions if isinstance(i, SetSize)}
    if any(w in computed for t in program.outputs for d in t.shape for w in d):
        return "it computes the sizes of its outputs"
    return ""


def constant_places(artifact: Artifact) -> tuple[list[int], int]:
    """The offset of each constant in ``constants.bin``, and the bytes of the file."""
    places, total = [], 0
    for array in artifact.constants:
        places.append(total)
        total += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places, total


class CProgram:
    """Writes the program of an artifact, for which :func:`why_no_c` has no objection."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.program = artifact, artifact.program
        p = self.program
        computed = dict.fromkeys(i.name for i in p.instructions if isinstance(i, SetSize))
        self.names: dict[str, str] = {n: f"sizes[{i}]" for i, n in enumerate(p.symbols)}
        self.names |= {n: f"n{i}_{_word(n)}" for i, n in enumerate(computed)}
        self.computed = [self.names[n] for n in computed]
        self.targets = {i.to for i in p.instructions if isinstance(i, Jump)}

    def header(self) -> str:
        """``model.h``: how to call the model."""
        p = self.program
        lines = [f" * inputs[{i}]: {_tensor(t.name, t.dtype, t.shape)}" for i, t in enumerate(p.inputs)]
        lines += [f" * outputs[{i}]: {_tensor(t.name, t.dtype, t.shape)}" for i, t in enumerate(p.outputs)]
        lines += [f" * sizes[{i}]: {n}" for i, n in enumerate(p.symbols)]
        return "\n".join(
            [
                "#ifndef WEFT_MODEL_H",
                "#define WEFT_MODEL_H",
                "",
                "#include <stdint.h>",
                "",
                "/* Bytes of constants.bin, which the caller reads into memory. */",
                f"#define WEFT_MODEL_CONSTANT_BYTES INT64_C({constant_places(self.artifact)[1]})",
                "",
                "/* Bytes of the arena, which holds intermediate results. */",
                "int64_t weft_model_arena_bytes(const int64_t *sizes);",
                "",
                f"/* Run the model. All memory is aligned to {ALIGNMENT} bytes; tensors are dense, in row-major order.",
                *lines,
                " * Returns 0, what a kernel returned, or -1 - i if the check of instruction i (plan.txt) fails. */",
                "int32_t weft_model_run(void *const *inputs, void *const *outputs, const int64_t *sizes,",
                "                       const void *constants, void *arena);",
                "",
                "#endif",
                "",
            ]
        )

    def source(self) -> str:
        """``model.c``."""
        body = [line for i, step in enumerate(self.program.instructions) for line in self._step(i, step)]
        used = sorted({int(n) for line in body for n in re.findall(r"\bb(\d+)\b", line)})
        pointers = [f"    void *const b{i} = {self._pointer(self.program.buffers[i])};" for i in used]
        registers = [f"    int64_t {', '.join(f'{n} = 0' for n in self.computed)};"] if self.computed else []
        unused = "    (void)inputs, (void)outputs, (void)sizes, (void)constants, (void)arena;"
        end = [f"{_label(len(self.program.instructions))}:"] if len(self.program.instructions) in self.targets else []
        return "\n".join(
            [
                '#include "model.h"',
                '#include "weft_kernels.h"',
                "",
                "#include <string.h>",
                "",
                HELPERS,
                "",
                "int64_t weft_model_arena_bytes(const int64_t *sizes) {",
                "    (void)sizes;",
                f"    return {self._size(self.program.arena_bytes)};",
                "}",
                "",
                "int32_t weft_model_run(void *const *inputs, void *const *outputs, const int64_t *sizes,",
                "                       const void *constants, void *arena) {",
                unused,
                "    int32_t status = 0;",
                *pointers,
                *registers,
                *body,
                *end,
                "    return status;",
                "}",
                "",
            ]
        )

    def _pointer(self, b: BufferSpec) -> str:
        offset = self._size(b.offset)
        if b.kind == "constant":
            offset = str(constant_places(self.artifact)[0][b.index])
        base = {"input": f"inputs[{b.index}]", "output": f"outputs[{b.index}]", "arena": "arena"}.get(
            b.kind, "constants"
        )
        return f"(char *){base} + {offset}" if offset != "0" else f"(void *){base}"

    def _step(self, number: int, step: Instruction) -> list[str]:
        made = [f"{_label(number)}:;"] if number in self.targets else []
        if isinstance(step, CallKernel):
            return [*made, *self._call(step)]
        if isinstance(step, Copy):
            to, source = self._at(step.target, step.target_offset), self._at(step.source, step.source_offset)
            return [*made, f"    memmove({to}, {source}, (size_t)({self._size(step.nbytes)}));"]
        if isinstance(step, SetSize):
            return [*made, f"    {self.names[step.name]} = {self._set(step)};"]
        if isinstance(step, Check):
            comment = _comment(step.message)
            return [*made, f"    if (!({self._size(step.condition)})) return {-number - 1};{comment}"]
        if isinstance(step, CheckRange):
            return [*made, *self._range(number, step)]
        assert isinstance(step, Jump)
        condition = "" if step.condition is None else f"if (!({self._size(step.condition)})) "
        return [*made, f"    {condition}goto {_label(step.to)};"]

    def _call(self, step: CallKernel) -> list[str]:
        name = self.program.kernels[step.kernel].name
        buffers = ", ".join(f"b{b}" for b in step.buffers)
        sizes = ", ".join(self._size(s) for s in step.sizes)
        return [
            f"    {{{_comment(step.label)}",
            f"        void *const buffers[] = {{{buffers}}};",
            *([f"        const int64_t given[] = {{{sizes}}};"] if step.sizes else []),
            f"        status = {name}(buffers, {'given' if step.sizes else '0'});",
            "        if (status) return status;",
            "    }",
        ]

    def _set(self, step: SetSize) -> str:
        if step.buffer is None:
            return self._size(step.value)
        return f"((const {self._integer(step.buffer)} *)b{step.buffer})[{step.element}]"

    def _range(self, number: int, step: CheckRange) -> list[str]:
        n = len(step.low)
        low, high = (", ".join(self._size(s) for s in ends) for ends in (step.low, step.high))
        return [
            f"    {{{_comment(step.message)}",
            f"        const int64_t low[] = {{{low}}}, high[] = {{{high}}}, count = {self._size(step.count)};",
            "        for (int64_t i = 0; i < count; i++) {",
            f"            const int64_t x = (int64_t)((const {self._integer(step.buffer)} *)b{step.buffer})[i];",
            f"            if (x < low[i % {n}] || x > high[i % {n}]) return {-number - 1};",
            "        }",
            "    }",
        ]

    def _integer(self, buffer: int) -> str:
        return _INTEGERS[self.program.buffers[buffer].dtype]

    def _at(self, buffer: int, offset: SizeExpr) -> str:
        return f"(char *)b{buffer} + {self._size(offset)}"

    def _size(self, size: SizeExpr) -> str:
        return infix(size, self.names)


def infix(size: SizeExpr, names: Mapping[str, str]) -> str:
    """A size in postfix order as an expression of C; ``names`` gives those of symbols."""
    stack: list[str] = []
    for word in size:
        if isinstance(word, int):
            stack.append(str(word) if -(1 << 31) < word < 1 << 31 else f"INT64_C({word})")
        elif word == "not":
            stack.append(f"!{stack.pop()}")
        elif word in _INFIX or word in _CALLED:
            b, a = stack.pop(), stack.pop()
            stack.append(f"({a} {_INFIX[word]} {b})" if word in _INFIX else f"{_CALLED[word]}({a}, {b})")
        else:
            stack.append(names[word])
    (made,) = stack
    return made


def shape_text(shape: Sequence[SizeExpr]) -> str:
    """A shape for people: symbols by name."""
    symbols = {w: w for d in shape for w in d if isinstance(w, str)}
    return f"[{', '.join(_bare(infix(d, symbols)) for d in shape)}]"


def _bare(text: str) -> str:
    """An expression without the parentheses around it."""
    return text[1:-1] if text.startswith("(") else text


def _tensor(name: str, dtype: str, shape: Sequence[SizeExpr]) -> str:
    return f"{name}, {dtype}{shape_text(shape)}".replace("*/", "* /")


def _comment(text: str) -> str:
    plain = " ".join(text.replace("*/", "* /").split())
    return f" /* {plain} */" if plain else ""


def _label(number: int) -> str:
    return f"at{number}"


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
