"""Kernels that behave well and badly, compiled by the system's compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from weft.backends.protocol import Code

SOURCE = r"""
#include <stdint.h>
void *weft_scratch(int64_t bytes);
void weft_scratch_release(int64_t bytes);
int32_t weft_must_stop(void);
int32_t weft_parallel_for(int32_t (*body)(int64_t, int64_t, void *), int64_t count, int64_t grain, void *closure);

/* y = 2 x, sizes[0] numbers */
int32_t twice(void *const *b, const int64_t *s) {
    for (int64_t i = 0; i < s[0]; i++) ((float *)b[1])[i] = 2 * ((const float *)b[0])[i];
    return 0;
}
int32_t seven(void *const *b, const int64_t *s) { return (void)b, (void)s, 7; }
int32_t null_store(void *const *b, const int64_t *s) {
    volatile int *nowhere = (volatile int *)s[0];
    *nowhere = 1;
    return (void)b, 0;
}
int32_t trap(void *const *b, const int64_t *s) { (void)b, (void)s; __builtin_trap(); }
static int32_t store_somewhere(int64_t begin, int64_t end, void *closure) {
    (void)end, (void)closure;
    if (begin) *(volatile int *)8 = 1;
    while (!begin) {}
    return 0;
}
/* On a thread that helps, while the thread that calls is busy. */
int32_t null_store_in_worker(void *const *b, const int64_t *s) {
    return (void)s, weft_parallel_for(store_somewhere, 2, 1, (void *)b);
}
int32_t deep(void *const *b, const int64_t *s) {
    volatile char room[4096];
    room[s[0] & 4095] = 1;
    return deep(b, s) + room[0];
}
int32_t loops(void *const *b, const int64_t *s) {
    volatile int64_t n = 0;
    while (n >= 0) n = s[0];
    return (void)b, 0;
}
int32_t loops_politely(void *const *b, const int64_t *s) {
    (void)b, (void)s;
    for (;;) {
        const int32_t stop = weft_must_stop();
        if (stop) return stop;
    }
}
/* Writes to memory until there is none. */
int32_t eats(void *const *b, const int64_t *s) {
    (void)b;
    for (int64_t n = 0; n < s[0]; n++) {
        char *more = weft_scratch(1 << 24);
        if (!more) return 12;
        for (int64_t i = 0; i < 1 << 24; i += 4096) more[i] = 1;
    }
    return 0;
}
"""


def compiled(compiler: list[str], folder: Path, *flags: str) -> bytes:
    """The object of the kernels."""
    (folder / "kernels.c").write_text(SOURCE)
    command = [*compiler, "-c", "-O1", "-fno-optimize-sibling-calls", *flags, "kernels.c", "-o", "kernels.o"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "kernels.o").read_bytes()


def code(data: bytes, entry: str, features: frozenset[str] = frozenset()) -> Code:
    """One of them."""
    return Code("elf", data, entry, features)
