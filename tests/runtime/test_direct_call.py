"""A kernel called directly: its results arrive, and a write outside of its memory is an error."""

from __future__ import annotations

from collections.abc import Callable

import kernel_runner
import numpy as np
import pytest

from weft.runtime.direct_call import PATTERN, call_kernel, unwritten
from weft.support.errors import ProgramError

SOURCE = """
#include <stdint.h>
int32_t fill(void *const *buffers, const int64_t *sizes) {
    int64_t *out = buffers[1], *room = buffers[2];
    if (((uintptr_t)buffers[0] | (uintptr_t)out | (uintptr_t)room) % 64) return 7;
    for (int64_t i = sizes[0]; i < sizes[1]; i++) out[i] = ((int64_t *)buffers[0])[0] + i;
    room[sizes[2]] = 1;
    return 0;
}
"""


@pytest.fixture(scope="module")
def code(compile_c: Callable[..., bytes]) -> bytes:
    return compile_c(SOURCE)


def test_results_arrive_and_the_rest_keeps_its_contents(code: bytes) -> None:
    out = unwritten((2, 2), "int64")
    call_kernel(code, "fill", [np.array(5), out], (0, 3, 0), 8)
    assert out.ravel()[:3].tolist() == [5, 6, 7]
    assert out.ravel()[3:].view(np.uint8).tolist() == [PATTERN] * 8
    every = np.zeros((8, 4), np.int64).T[::2, :4]  # not contiguous
    call_kernel(code, "fill", [np.array(1), every], (0, 8, 0), 8)
    assert every.tolist() == np.arange(1, 9).reshape(every.shape).tolist()


@pytest.mark.parametrize(
    ("sizes", "where"), [((-1, 4, 0), "parameter 1"), ((0, 5, 0), "parameter 1"), ((0, 4, 1), "its workspace")]
)
def test_writes_outside_are_errors(code: bytes, sizes: tuple[int, ...], where: str) -> None:
    with pytest.raises(ProgramError, match=f"V919.*writes outside of {where}"):
        call_kernel(code, "fill", [np.array(5), np.zeros(4, np.int64)], sizes, 8)


def test_a_status_is_an_error(compile_c: Callable[..., bytes]) -> None:
    with pytest.raises(ProgramError, match=r"V918.*'f' returned 3"):
        call_kernel(compile_c("int f(void *b, void *s) { (void)b; (void)s; return 3; }"), "f", [])


@pytest.mark.parametrize("kept", [0, 1, 1000])
def test_the_test_runner_detects_scratch_memory_that_is_kept(compile_c: Callable[..., bytes], kept: int) -> None:
    leaks = compile_c("""
#include <stdint.h>
void *weft_scratch(int64_t);
void weft_scratch_release(int64_t);
int32_t kernel(void *const *buffers, const int64_t *sizes) {
    weft_scratch(sizes[0] + sizes[1]);
    if (sizes[0]) weft_scratch_release(sizes[0]);
    return 0;
}
""")
    if not kept:
        kernel_runner.call(leaks, "kernel", [np.zeros(1)], (64, 0))
        return
    with pytest.raises(AssertionError, match=r"kernel keeps [0-9]+ bytes of scratch memory"):
        kernel_runner.call(leaks, "kernel", [np.zeros(1)], (64, kept))
