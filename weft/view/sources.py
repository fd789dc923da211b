"""A model as a folder of C sources: kernels, the program that calls them, constants, and a plan for people.

The folder needs a C11 compiler and nothing of Weft::

    kernels/NAME.c    one file for each kernel
    weft_kernels.h    their declarations, and the functions of the runtime that they call
    weft_serial.c     these functions for one thread
    model.h, model.c  the program, where it has a form in C
    sources.txt       the C files, which the compiler reads as arguments
    constants.bin     the constants, each at a multiple of 64 bytes
    plan.txt          the program for people
    README.md         how to build it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from weft.runtime.artifact import Artifact
from weft.runtime.program import CallKernel, ExecutableProgram
from weft.runtime.sizes import shape_text, to_text
from weft.support.errors import UserError
from weft.support.files import replace_text, replaced_file
from weft.support.memory import ALIGN
from weft.view.c_program import CProgram, constant_places, why_no_c

LISTED: Final = "sources.txt"
"""The file that lists the C files, one a line: arguments of the compiler, and what a later run may delete."""
_OURS: Final = re.compile(r"kernels/\w+\.c|model\.[ch]", re.ASCII)
FORMAT: Final = "c"
"""The format of code objects whose bytes are C sources."""

_HEADER: Final = """\
#ifndef WEFT_KERNELS_H
#define WEFT_KERNELS_H

#include <stdint.h>

/* Run body on chunks that cover 0 <= i < count, each of at least grain iterations or all. Returns 0, or the first other
 * result of a chunk. weft_serial.c runs one chunk; a version with threads may run chunks at the same time. */
int32_t weft_parallel_for(int32_t (*body)(int64_t begin, int64_t end, void *closure), int64_t count, int64_t grain,
                          void *closure);

/* Memory of the calling thread, aligned to 64 bytes: a stack, released in reverse order. NULL if it is exhausted. */
void *weft_scratch(int64_t bytes);
void weft_scratch_release(int64_t bytes);

/* Not 0 if the kernel shall end early: it returns this. Kernels ask now and then in loops that take long; weft_serial.c
 * never ends them. */
int32_t weft_must_stop(void);

/* Kernels. Each takes its buffers, aligned to 64 bytes, and its sizes, in the order that the comment in its file gives,
 * and returns 0 or what is wrong. */
"""
_SERIAL: Final = """\
/* What kernels need of the runtime, for one thread. */
#include "weft_kernels.h"

#include <stdlib.h>

#define SCRATCH_BLOCKS 64

static void *blocks[SCRATCH_BLOCKS]; /* as malloc returned them */
static int used;

int32_t weft_parallel_for(int32_t (*body)(int64_t begin, int64_t end, void *closure), int64_t count, int64_t grain,
                          void *closure) {
    (void)grain;
    return count > 0 ? body(0, count, closure) : 0;
}

void *weft_scratch(int64_t bytes) {
    if (used == SCRATCH_BLOCKS || bytes < 0) return 0;
    void *const block = malloc((size_t)bytes + 64);
    if (!block) return 0;
    blocks[used++] = block;
    return (void *)(((uintptr_t)block + 63) / 64 * 64);
}

void weft_scratch_release(int64_t bytes) {
    (void)bytes;
    free(blocks[--used]);
}

int32_t weft_must_stop(void) {
    return 0;
}
"""


def write_sources(artifact: Artifact, folder: Path, flags: str) -> list[Path]:
    """Write the sources of ``artifact``, whose code objects hold C, to ``folder``, which is made. ``flags`` are those
    that the compiler needs. The C files of an earlier run into the same folder are deleted. Returns the files. Raises
    UserError B020 for an artifact with other code, OSError if a file cannot be written."""
    kernels = kernel_sources(artifact)
    reason = why_no_c(artifact.program)
    files = {f"kernels/{name}.c": text for name, text in kernels.items()}
    declared = "".join(f"int32_t {name}(void *const *buffers, const int64_t *sizes);\n" for name in kernels)
    files["weft_kernels.h"] = f"{_HEADER}{declared}\n#endif\n"
    files["weft_serial.c"] = _SERIAL
    files["plan.txt"] = plan(artifact)
    if not reason:
        program = CProgram(artifact)
        files |= {"model.h": program.header(), "model.c": program.source()}
    files["README.md"] = _readme(artifact, flags, reason)
    files[LISTED] = "".join(f"{name}\n" for name in files if name.endswith(".c"))
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    _delete_older(folder, files)
    for name, text in files.items():
        replace_text(folder / name, text, durable=False)
    with replaced_file(folder / "constants.bin") as file:
        for array in artifact.constants:
            data = array.tobytes()
            file.write(data + bytes(-len(data) % ALIGN))
    return [folder / name for name in (*files, "constants.bin")]


def _delete_older(folder: Path, files: Mapping[str, str]) -> None:
    """Delete the C files that an earlier run listed and this one does not write."""
    try:
        listed = (folder / LISTED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    if "model.c" in listed:
        listed.append("model.h")
    for name in listed:
        if name not in files and _OURS.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


def kernel_sources(artifact: Artifact) -> dict[str, str]:
    """The C source of each kernel, by its name. Raises UserError B020 for an artifact with other code."""
    found = {}
    for kernel in artifact.program.kernels:
        source = next((v for v in artifact.codes[kernel.code].variants if v.format == FORMAT), None)
        if source is None:
            raise UserError(
                f"the kernel '{kernel.name}' is no C source",
                code="B020",
                hint="compile for a target of kind 'c' with the option -code=source",
            )
        found[kernel.name] = source.data.decode()
    return found


def plan(artifact: Artifact) -> str:
    """The program for people: tensors, memory and instructions in order."""
    p = artifact.program
    places, total = constant_places(artifact)
    lines = [f"target {artifact.target}", ""]
    for kind, tensors in (("input", p.inputs), ("output", p.outputs)):
        lines += [f"{kind} {i}: {t.name}: {t.dtype}{shape_text(t.shape)}" for i, t in enumerate(tensors)]
    lines += [f"size {i}: {name}" for i, name in enumerate(p.symbols)]
    lines += [f"constants.bin: {total} bytes", f"arena: {to_text(p.arena_bytes)} bytes", "", "buffers"]
    for i, b in enumerate(p.buffers):
        at = f"at {places[b.index]}" if b.kind == "constant" else f"at {to_text(b.offset)}"
        number = "" if b.kind == "arena" else f" {b.index}"
        lines.append(f"  b{i}: {b.kind}{number} {at}, {to_text(b.nbytes)} bytes")
    lines += ["", "instructions"]
    lines += [f"  {i}: {_instruction(p, step)}" for i, step in enumerate(p.instructions)]
    return "\n".join(lines) + "\n"


def _instruction(p: ExecutableProgram, step: Any) -> str:
    if isinstance(step, CallKernel):
        sizes = f"; {', '.join(to_text(s) for s in step.sizes)}" if step.sizes else ""
        label = f"    # {step.label}" if step.label else ""
        return f"{p.kernels[step.kernel].name}({', '.join(f'b{b}' for b in step.buffers)}{sizes}){label}"
    fields = ((n, getattr(step, n)) for n in step.__dataclass_fields__)
    return f"{type(step).__name__}({', '.join(f'{n}={v!r}' for n, v in fields)})"


def _readme(artifact: Artifact, flags: str, reason: str) -> str:
    name = artifact.metadata.get("model") or "a model"
    calls = (
        f"`model.c` does not exist: {reason}. `plan.txt` lists the calls in order."
        if reason
        else "`weft_model_run` in `model.h` runs it; the caller provides all memory and the content of `constants.bin`."
    )
    return f"""\
# C sources of {name}

Made for the target `{artifact.target}`.

    cc {flags} -shared -fPIC -o libmodel.so @sources.txt -lm

{calls}

| file | |
|---|---|
| `kernels/` | a C file for each kernel, whose comment names its buffers and sizes |
| `weft_kernels.h` | declarations of the kernels and of the functions that they call |
| `weft_serial.c` | these functions, for one thread; replace it to use several |
| `sources.txt` | the C files above, for the command line |
| `constants.bin` | the constants, each at a multiple of {ALIGN} bytes; `plan.txt` says where |
| `plan.txt` | tensors, memory and the order of the calls |
"""
