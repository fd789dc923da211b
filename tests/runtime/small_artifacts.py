"""Small artifacts for the tests of the runtime: kernels in C, and programs that call one of them."""

from __future__ import annotations

from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import BufferSpec, CallKernel, ExecutableProgram, KernelRef, TensorSpec

KERNELS = r"""
#include <stdint.h>
#include <math.h>
int32_t weft_parallel_for(int32_t (*body)(int64_t, int64_t, void *), int64_t count, int64_t grain, void *closure);
void *weft_scratch(int64_t bytes);
void weft_scratch_release(int64_t bytes);
void *memcpy(void *, const void *, unsigned long);

/* y = 2 x + 1 */
int32_t double_plus_one(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0];
    float *y = buffers[1];
    for (int64_t i = 0; i < sizes[0]; i++) y[i] = 2 * x[i] + 1;
    return 0;
}

int32_t add_constant(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0], *c = buffers[1];
    float *y = buffers[2];
    for (int64_t i = 0; i < sizes[0]; i++) y[i] = x[i] + c[i % sizes[1]];
    return 0;
}

static int32_t exp_body(int64_t begin, int64_t end, void *closure) {
    void *const *buffers = closure;
    const float *x = buffers[0];
    float *y = buffers[1];
    float *scratch = weft_scratch((end - begin) * 4);
    if (!scratch) return 7;
    for (int64_t i = begin; i < end; i++) scratch[i - begin] = expf(x[i]);
    memcpy(y + begin, scratch, (end - begin) * 4);
    weft_scratch_release((end - begin) * 4);
    return 0;
}

int32_t parallel_exp(void *const *buffers, const int64_t *sizes) {
    return weft_parallel_for(exp_body, sizes[0], sizes[1], (void *)buffers);
}

/* Writes how many x are positive, as int64. */
int32_t count_positive(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0];
    int64_t n = 0;
    for (int64_t i = 0; i < sizes[0]; i++) n += x[i] > 0;
    *(int64_t *)buffers[1] = n;
    return 0;
}

int32_t keep_positive(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0];
    float *y = buffers[1];
    for (int64_t i = 0; i < sizes[0]; i++)
        if (x[i] > 0) *y++ = x[i];
    return 0;
}

int32_t fails(void *const *buffers, const int64_t *sizes) {
    (void)buffers;
    return (int32_t)sizes[0];
}
"""


def artifact(program: ExecutableProgram, code: bytes, constants: tuple = (), **fields: object) -> Artifact:  # type: ignore[type-arg]
    """An artifact with one code object."""
    return Artifact(program, (CodeObject((Variant(frozenset(), code),)),), constants, **fields)  # type: ignore[arg-type]


def vector_program(kernel: str, *extra_sizes: int, size: int | str = 8) -> ExecutableProgram:
    """``y = kernel(x)`` on float32 vectors of one size, fixed or a symbol."""
    n = (size,)
    return ExecutableProgram(
        symbols=(size,) if isinstance(size, str) else (),
        inputs=(TensorSpec("x", "float32", (n,)),),
        outputs=(TensorSpec("y", "float32", (n,)),),
        buffers=(BufferSpec("input", 0), BufferSpec("output", 0)),
        kernels=(KernelRef(kernel, 0),),
        instructions=(
            CallKernel(0, (0, 1), (n, *((s,) for s in extra_sizes)), label="node", flops=n, bytes=(*n, 8, "mul")),
        ),
    )
