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
from weft.runtime.sizes import shape_text
from weft.support.memory import ALIGN

_FORMS: Final = (CallKernel, Copy, SetSize, Check, CheckRange, Jump)
_INFIX: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&&",
    "or": "||",
}
_CALLED: Final = {"min": "smaller", "max": "larger"}
_CHECKED: Final = {"add": "plus", "sub": "minus", "mul": "times", "floordiv": "floor_div", "floormod": "floor_mod"}
"""Operations that can fail: their functions set ``bad``."""
_INTEGERS: Final = {
    "bool": "uint8_t",
    **{f"{kind}int{bits}": f"{kind}int{bits}_t" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}
HELPERS: Final = """\
/* Arithmetic on sizes. What overflows or divides by zero sets *bad, and gives 0. */
static inline int64_t plus(int64_t a, int64_t b, int *bad) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return *bad = 1, 0;
    return a + b;
}
static inline int64_t minus(int64_t a, int64_t b, int *bad) {
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b) return *bad = 1, 0;
    return a - b;
}
static inline int64_t times(int64_t a, int64_t b, int *bad) {
    if (a == 0 || b == 0) return 0;
    if (a == -1 || b == -1) return minus(0, a == -1 ? b : a, bad);
    if ((a > 0) == (b > 0) ? (b > 0 ? a > INT64_MAX / b : a < INT64_MAX / b)
                           : (b > 0 ? a < INT64_MIN / b : a > INT64_MIN / b)) return *bad = 1, 0;
    return a * b;
}
static inline int64_t floor_div(int64_t a, int64_t b, int *bad) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return *bad = 1, 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t floor_mod(int64_t a, int64_t b, int *bad) {
    if (b == 0) return *bad = 1, 0;
    if (b == -1) return 0;
    return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
/* nbytes at offset of memory that has `all` bytes; 0 if they are not inside: a check refuses the sizes before they are
 * used, or the calls that use them are not reached. */
static inline void *part(void *memory, int64_t all, int64_t offset, int64_t nbytes, int *bad) {
    const int inside = !*bad && offset >= 0 && nbytes >= 0 && offset <= all && nbytes <= all - offset;
    *bad = 0;
    return inside ? (char *)memory + offset : 0;
}"""


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
        total += -(-array.nbytes // ALIGN) * ALIGN
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
        lines += [f" * sizes[{i}]: {_plain(n)}" for i, n in enumerate(p.symbols)]
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
                "/* Bytes of the arena, which holds intermediate results; -1 for sizes that do not fit the model. */",
                "int64_t weft_model_arena_bytes(const int64_t *sizes);",
                "",
                f"/* Run the model. All memory is aligned to {ALIGN} bytes; tensors are dense, in row-major order.",
                *lines,
                " * Returns 0, what a kernel returned, INT32_MIN for sizes that do not fit the model, or -1 - i if the",
                " * check of instruction i (plan.txt) fails or a size that it uses is out of range. */",
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
        used = sorted({b for step in self.program.instructions for b in _buffers(step)})
        pointers = [f"    void *const b{i} = {self._pointer(self.program.buffers[i])};" for i in used]
        registers = [f"    int64_t {', '.join(f'{n} = 0' for n in self.computed)};"] if self.computed else []
        unused = "    (void)inputs, (void)outputs, (void)constants, (void)arena, (void)bad;"
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
                "    int bad = 0;",
                *self._size_checks(),
                f"    const int64_t all = {self._size(self.program.arena_bytes)};",
                "    return bad || all < 0 ? -1 : all;",
                "}",
                "",
                "int32_t weft_model_run(void *const *inputs, void *const *outputs, const int64_t *sizes,",
                "                       const void *constants, void *arena) {",
                "    int32_t status = 0;",
                "    int bad = 0;",
                "    const int64_t all = weft_model_arena_bytes(sizes);",
                "    if (all < 0) return INT32_MIN;",
                unused,
                *pointers,
                *registers,
                *body,
                *end,
                "    return status;",
                "}",
                "",
            ]
        )

    def _size_checks(self) -> list[str]:
        """Sizes, and the dimensions of inputs and outputs that depend on them, are at least 0."""
        lines = [f"    if (sizes[{i}] < 0) return -1; /* {_plain(n)} */" for i, n in enumerate(self.program.symbols)]
        tensors = (*self.program.inputs, *self.program.outputs)
        derived = dict.fromkeys(d for t in tensors for d in t.shape if len(d) > 1)
        lines += [f"    if ({self._size(d)} < 0 || bad) return -1;" for d in derived]
        return lines or ["    (void)sizes;"]

    def _pointer(self, b: BufferSpec) -> str:
        if b.kind == "constant":
            place = constant_places(self.artifact)[0][b.index]
            return f"(char *)constants + {place}" if place else "(void *)constants"
        base = {"input": f"inputs[{b.index}]", "output": f"outputs[{b.index}]"}.get(b.kind, "arena")
        offset, all_bytes = self._size(b.offset), "all" if b.kind == "arena" else "INT64_MAX"
        if self._may_lack(b):
            return f"part({base}, {all_bytes}, {offset}, {self._size(b.nbytes)}, &bad)"
        return f"(char *){base} + {offset}" if offset != "0" else f"(void *){base}"

    def _may_lack(self, b: BufferSpec) -> bool:
        """Whether sizes decide if the buffer lies inside its memory."""
        inside = b.kind == "arena" or (b.kind != "constant" and len(b.offset) > 1)
        return inside and any(
            isinstance(w, str) for size in (b.offset, b.nbytes, self.program.arena_bytes) for w in size
        )

    def _step(self, number: int, step: Instruction) -> list[str]:
        made = [f"{_label(number)}:;"] if number in self.targets else []
        refuse = f"return {-number - 1};"
        lacking = [f"!b{b}" for b in dict.fromkeys(_buffers(step)) if self._may_lack(self.program.buffers[b])]
        if lacking:
            made.append(f"    if ({' || '.join(lacking)}) {refuse}")
        can_fail = any(w in _CHECKED for size in _sizes(step) for w in size)
        if isinstance(step, CallKernel):
            return [*made, *self._call(step, [f"        if (bad) {refuse}"] if can_fail else [])]
        if isinstance(step, Copy):
            return [*made, *self._copy(number, step)]
        if isinstance(step, SetSize):
            made.append(f"    {self.names[step.name]} = {self._set(step)};")
            return [*made, f"    if (bad) {refuse}"] if can_fail else made
        if isinstance(step, Check):
            failed = f"!({self._size(step.condition)})" + (" || bad" if can_fail else "")
            return [*made, f"    if ({failed}) {refuse}{_comment(step.message)}"]
        if isinstance(step, CheckRange):
            return [*made, *self._range(number, step, " || bad" if can_fail else "")]
        assert isinstance(step, Jump)
        if step.condition is None:
            return [*made, f"    goto {_label(step.to)};"]
        if not can_fail:
            return [*made, f"    if (!({self._size(step.condition)})) goto {_label(step.to)};"]
        return [
            *made,
            "    {",
            f"        const int64_t goes_on = {self._size(step.condition)};",
            f"        if (bad) {refuse}",
            f"        if (!goes_on) goto {_label(step.to)};",
            "    }",
        ]

    def _call(self, step: CallKernel, checks: list[str]) -> list[str]:
        name = self.program.kernels[step.kernel].name
        buffers = ", ".join(f"b{b}" for b in step.buffers)
        sizes = ", ".join(self._size(s) for s in step.sizes)
        return [
            f"    {{{_comment(step.label)}",
            f"        void *const buffers[] = {{{buffers}}};",
            *([f"        const int64_t given[] = {{{sizes}}};"] if step.sizes else []),
            *(checks if step.sizes else []),
            f"        status = {name}(buffers, {'given' if step.sizes else '0'});",
            "        if (status) return status;",
            "    }",
        ]

    def _copy(self, number: int, step: Copy) -> list[str]:
        if all(len(size) == 1 and isinstance(size[0], int) for size in _sizes(step)):
            to, source = self._at(step.target, step.target_offset), self._at(step.source, step.source_offset)
            return [f"    memmove({to}, {source}, (size_t)({self._size(step.nbytes)}));"]
        to, source = (self._size(offset) for offset in (step.target_offset, step.source_offset))
        return [
            "    {",
            f"        const int64_t to = {to}, from = {source}, count = {self._size(step.nbytes)};",
            f"        if (bad || to < 0 || from < 0 || count < 0) return {-number - 1};",
            f"        memmove((char *)b{step.target} + to, (char *)b{step.source} + from, (size_t)count);",
            "    }",
        ]

    def _set(self, step: SetSize) -> str:
        if step.buffer is None:
            return self._size(step.value)
        return f"((const {self._integer(step.buffer)} *)b{step.buffer})[{step.element}]"

    def _range(self, number: int, step: CheckRange, bad: str) -> list[str]:
        n = len(step.low)
        low, high = (", ".join(self._size(s) for s in ends) for ends in (step.low, step.high))
        return [
            f"    {{{_comment(step.message)}",
            f"        const int64_t low[] = {{{low}}}, high[] = {{{high}}}, count = {self._size(step.count)};",
            f"        if (count < 0{bad}) return {-number - 1};",
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
        return c_size(size, self.names)


def _buffers(step: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads or writes."""
    if isinstance(step, CallKernel):
        return step.buffers
    if isinstance(step, Copy):
        return step.target, step.source
    if isinstance(step, (SetSize, CheckRange)) and step.buffer is not None:
        return (step.buffer,)
    return ()


def _sizes(step: Instruction) -> tuple[SizeExpr, ...]:
    """The sizes that an instruction computes."""
    if isinstance(step, CallKernel):
        return step.sizes
    if isinstance(step, Copy):
        return step.target_offset, step.source_offset, step.nbytes
    if isinstance(step, CheckRange):
        return *step.low, *step.high, step.count
    if isinstance(step, SetSize):
        return (step.value,) if step.buffer is None else ()
    if isinstance(step, (Check, Jump)):
        return (step.condition,) if step.condition is not None else ()
    return ()


def c_size(size: SizeExpr, names: Mapping[str, str]) -> str:
    """A size in postfix order as an expression of C; ``names`` gives those of symbols. It sets ``bad`` (an ``int``) to
    1 where it overflows or divides by zero."""
    stack: list[str] = []
    for word in size:
        if isinstance(word, int):
            stack.append(_literal(word))
        elif word == "not":
            stack.append(f"!{stack.pop()}")
        elif word in _CHECKED:
            b, a = stack.pop(), stack.pop()
            stack.append(f"{_CHECKED[word]}({a}, {b}, &bad)")
        elif word in _INFIX or word in _CALLED:
            b, a = stack.pop(), stack.pop()
            stack.append(f"({a} {_INFIX[word]} {b})" if word in _INFIX else f"{_CALLED[word]}({a}, {b})")
        else:
            stack.append(names[word])
    (made,) = stack
    return made


def _literal(value: int) -> str:
    if value == -(1 << 63):
        return "INT64_MIN"  # its digits without the sign are no int64
    return str(value) if -(1 << 31) < value < 1 << 31 else f"INT64_C({value})"


def _tensor(name: str, dtype: str, shape: Sequence[SizeExpr]) -> str:
    return _plain(f"{name}, {dtype}{shape_text(tuple(shape))}")


def _comment(text: str) -> str:
    plain = _plain(text)
    return f" /* {plain} */" if plain else ""


def _plain(text: str) -> str:
    """A text that may stand in a comment of one line."""
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())


def _label(number: int) -> str:
    return f"at{number}"


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
