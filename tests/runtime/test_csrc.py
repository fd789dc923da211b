"""The C runtime by itself: it builds without Python, and a static run allocates nothing and is fast to start."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from small_artifacts import vector_program

from benchmarks.overhead import c_microseconds, empty_program
from weft.runtime.encode import encode
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    Construct,
    Copy,
    ExecutableProgram,
    Field,
    FunctionSpec,
    Invoke,
    Jump,
    KernelRef,
    NewTensor,
    Reserve,
    Return,
    TensorSpec,
)

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "weft_runtime.h"

/* Of the calling thread: a worker may meet its first job, and make its scratch memory, at any time. */
static _Thread_local long allocations;
void *__real_malloc(size_t), *__real_calloc(size_t, size_t), *__real_aligned_alloc(size_t, size_t);
void *__wrap_malloc(size_t n) { allocations++; return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t m) { allocations++; return __real_calloc(n, m); }
void *__wrap_aligned_alloc(size_t a, size_t n) { allocations++; return __real_aligned_alloc(a, n); }

static int32_t square(int64_t begin, int64_t end, void *closure) {
    void *const *b = closure;
    float *scratch = weft_scratch(1000);
    for (int64_t i = begin; i < end; i++) ((float *)b[1])[i] = ((float *)b[0])[i] * ((float *)b[0])[i];
    scratch[0] = 1;
    weft_scratch_release(1000);
    return 0;
}
static int32_t kernel(void *const *b, const int64_t *s) { return weft_parallel_for(square, s[0], 1, (void *)b); }

int main(void) {
    static const int64_t words[] = {WORDS};
    const weft_kernel_code kernels[] = {{kernel, NULL, NULL, NULL, 0}};
    const weft_parts parts = {.kernels = kernels, .kernel_count = 1};
    weft_executable *exe;
    weft_error error;
    if (weft_executable_create(words, sizeof words / 8, &parts, 2, &exe, &error)) {
        puts(error.message);
        return 1;
    }
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    int64_t shape[1] = {8}, out_shape[1];
    weft_tensor input = {x, shape, sizeof x, 1, NULL, NULL}, output = {y, out_shape, sizeof y, 1, NULL, NULL};
    if (weft_run(exe, &input, &output, NULL, &error)) return 2;
    for (int i = 0; i < 200; i++) if (weft_run(exe, &input, &output, NULL, &error)) return 2;
    long before = allocations;
    int64_t start = weft_nanoseconds();
    for (int i = 0; i < 1000; i++) if (weft_run(exe, &input, &output, NULL, &error)) return 3;
    printf("%ld %lld %g\n", allocations - before, (long long)(weft_nanoseconds() - start) / 1000, y[7]);
    shape[0] = 9;
    if (weft_run(exe, &input, &output, NULL, &error) != WEFT_ERROR_SHAPE || error.given != 9) return 4;
    weft_executable_free(exe);
    return 0;
}
"""
WRAPPED = ("malloc", "calloc", "aligned_alloc", "realloc", "free", "weft_wait_word", "weft_wake_word")
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-pthread"]


FORKS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "weft_device.h"
#include "weft_runtime.h"

static _Atomic int stop;
static void locks(void) {
    weft_device *none;
    weft_error error;
    weft_trim();
    (void)weft_device_open("none", 0, &none, &error);
    weft_scratch_release(weft_scratch(100) ? 100 : 0);
}
static void *others(void *nothing) {
    while (!atomic_load(&stop)) locks();
    return nothing;
}

int main(void) {
    pthread_t thread;
    int failed = 0;
    if (pthread_create(&thread, NULL, others, NULL)) return 2;
    for (int i = 0; i < 2000 && !failed; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            locks();
            _exit(0);
        }
        int status = 0;
        failed = child < 0 || waitpid(child, &status, 0) != child || status;
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    return failed;
}
"""


PROCESSORS = r"""
#define _GNU_SOURCE
#include <sched.h>
#include "platform.h"

int main(void) {
    cpu_set_t before, after;
    if (sched_getaffinity(0, sizeof before, &before)) return 1;
    for (int i = 0; i < 20; i++) {
        const int32_t at = weft_processor();
        weft_leave_processor(at);
        if (sched_getaffinity(0, sizeof after, &after) || !CPU_EQUAL(&before, &after)) return 2;
        cpu_set_t other = before;
        CPU_CLR(at, &other);
        if (at < 0 || (CPU_COUNT(&other) == 1 && weft_processor() == at)) return 3; /* 1: nothing moves it back */
    }
    return 0;
}
"""


WAKING = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>
#include "weft_runtime.h"

/* Whoever is about to sleep is held until the other thread has woken it: a wake-up that comes just before the sleep
 * must not be lost. In every other round it really sleeps, and must be woken. */
void __real_weft_wait_word(_Atomic uint32_t *, uint32_t, int64_t);
void __real_weft_wake_word(_Atomic uint32_t *);
static _Thread_local bool is_caller;
static _Atomic bool held, began, caller_waits, worker_waits, worker_woke;

void __wrap_weft_wait_word(_Atomic uint32_t *word, uint32_t expected, int64_t nanoseconds) {
    if (is_caller) {
        atomic_store(&caller_waits, true);
        while (atomic_load(&held) && !atomic_load(&worker_woke)) sched_yield();
    } else {
        atomic_store(&worker_waits, true);
        while (atomic_load(&held) && atomic_load(word) == expected) sched_yield();
    }
    __real_weft_wait_word(word, expected, nanoseconds);
}

void __wrap_weft_wake_word(_Atomic uint32_t *word) {
    __real_weft_wake_word(word);
    if (!is_caller) atomic_store(&worker_woke, true);
}

static void nap(void) { nanosleep(&(struct timespec){0, 2000000}, NULL); }

/* Each thread has one iteration; the worker's ends when the caller waits for it. */
static int32_t last(int64_t begin, int64_t end, void *closure) {
    (void)begin, (void)end, (void)closure;
    if (is_caller) {
        while (!atomic_load(&began)) sched_yield();
        return 0;
    }
    atomic_store(&began, true);
    while (!atomic_load(&caller_waits)) sched_yield();
    if (!atomic_load(&held)) nap();
    return 0;
}

int main(void) {
    alarm(20); /* ends threads that sleep for ever */
    is_caller = true;
    void *token = weft_parallel_begin(2);
    for (int round = 0; round < 40; round++) {
        atomic_store(&held, round % 2 == 0);
        while (!atomic_load(&worker_waits)) sched_yield();
        if (!atomic_load(&held)) nap();
        atomic_store(&worker_waits, false);
        atomic_store(&began, false);
        atomic_store(&caller_waits, false);
        atomic_store(&worker_woke, false);
        if (weft_parallel_for(last, 2, 1, NULL)) return 1;
    }
    weft_parallel_end(token);
    return 0;
}
"""


MEMORY = r"""
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "weft_runtime.h"

static _Thread_local long count, refused = -1; /* one allocation of a thread fails */
static _Atomic long kept;
void *__real_malloc(size_t), *__real_calloc(size_t, size_t), *__real_aligned_alloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void __real_free(void *);
static int is_refused(void) { return count++ == refused; }
static void *kept_block(void *made) { return atomic_fetch_add(&kept, made != NULL), made; }
void *__wrap_malloc(size_t n) { return kept_block(is_refused() ? NULL : __real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t m) { return kept_block(is_refused() ? NULL : __real_calloc(n, m)); }
void *__wrap_aligned_alloc(size_t a, size_t n) { return kept_block(is_refused() ? NULL : __real_aligned_alloc(a, n)); }
void *__wrap_realloc(void *old, size_t n) {
    void *made = is_refused() ? NULL : __real_realloc(old, n);
    atomic_fetch_add(&kept, made && !old);
    return made;
}
void __wrap_free(void *old) {
    atomic_fetch_sub(&kept, old != NULL);
    __real_free(old);
}

static _Alignas(64) char object[1 << 20];
static size_t size;
static const int64_t words[] = {PROGRAM};

static const char *run(weft_executable *exe, int32_t *status, weft_error *error) {
    float x[8] = {-2, -1, -0.5, 0, 0.5, 1, 2, 3};
    int64_t shape[1] = {8}, out_shape[1];
    weft_tensor input = {x, shape, sizeof x, 1, NULL, NULL}, output = {NULL, out_shape, 0, 1, NULL, NULL};
    *status = weft_run(exe, &input, &output, NULL, error);
    if (*status) return output.data ? "a failed run leaves an output" : NULL;
    const char *wrong = NULL;
    for (int i = 0; i < 8; i++)
        if (fabsf(((float *)output.data)[i] - (2 * expf(x[i]) + 1)) > 1e-4f) wrong = "a wrong result";
    weft_free(output.data);
    return wrong;
}

/* Loads code and a program, and runs it twice. What is wrong, or NULL. */
static const char *whole(int32_t *status, weft_error *error) {
    weft_code *code;
    weft_executable *exe;
    const char *wrong = NULL;
    *status = weft_code_load(object, size, 0, &code, error);
    if (*status) return code ? "code that is not loaded" : NULL;
    const weft_kernel_code kernels[] = {{weft_code_function(code, "parallel_exp"), NULL, NULL, NULL, 0},
                                        {weft_code_function(code, "double_plus_one"), NULL, NULL, NULL, 0}};
    const weft_parts parts = {.kernels = kernels, .kernel_count = 2};
    *status = weft_executable_create(words, sizeof words / 8, &parts, 1, &exe, error);
    if (*status && exe) wrong = "an executable that is not made";
    for (int i = 0; i < 2 && !*status && !wrong; i++) wrong = run(exe, status, error);
    if (exe) weft_executable_free(exe);
    weft_code_free(code);
    weft_parallel_end(weft_parallel_begin(3)); /* without memory for the threads, one does all */
    weft_trim();
    return wrong;
}

typedef struct {
    long which, count;
    int32_t status;
    const char *wrong;
    weft_error error;
} job;

/* In a thread of its own, whose end gives back its scratch memory. */
static void *attempt(void *given) {
    job *j = given;
    refused = j->which;
    j->wrong = whole(&j->status, &j->error);
    j->count = count;
    return NULL;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size = file ? fread(object, 1, sizeof object, file) : 0;
    long before = 0;
    for (long which = -1;; which++) {
        job j = {.which = which};
        pthread_t thread;
        if (pthread_create(&thread, NULL, attempt, &j) || pthread_join(thread, NULL)) return 1;
        if (which < 0) before = atomic_load(&kept);
        const int refusal = j.status == WEFT_ERROR_MEMORY || j.status == WEFT_ERROR_DEPTH || /* no memory for a call */
                            (j.status == WEFT_ERROR_KERNEL && j.error.given == 7); /* no scratch memory */
        if (!j.wrong && j.status && (which < 0 || which >= j.count || !refusal)) j.wrong = j.error.message;
        if (!j.wrong && atomic_load(&kept) != before) j.wrong = "memory is kept";
        if (j.wrong) return printf("allocation %ld: %s\n", which, j.wrong), 2;
        if (which >= j.count) return printf("%ld\n", j.count), 0;
    }
}
"""


def build(csrc, folder, *flags, main=MAIN):
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    words = ",".join(f"{w}LL" for w in encode(vector_program("kernel")).tolist())
    (folder / "main.c").write_text(main.replace("WORDS", words))
    wraps = [f"-Wl,--wrap={name}" for name in WRAPPED if f"__wrap_{name}" in main]
    sources = sorted(str(p) for p in (csrc / "src").glob("*.c"))
    command = [
        compiler,
        *STRICT,
        *flags,
        *wraps,
        f"-I{csrc / 'include'}",
        f"-I{csrc / 'src'}",
        "main.c",
        *sources,
        "-lm",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


@pytest.mark.parametrize("flags", [(), ("-DWEFT_NO_FUTEX",)])
def test_standalone_build_runs_without_allocation(csrc, tmp_path, flags):
    done = subprocess.run([build(csrc, tmp_path, *flags)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    allocations, _, last = done.stdout.split()
    assert allocations == "0" and float(last) == 64


@pytest.mark.parametrize("flags", [(), ("-DWEFT_NO_FUTEX",)])
def test_a_fork_while_another_thread_holds_a_lock(csrc, tmp_path, flags):
    """Nothing in the child waits for a thread that it does not have, also where no worker was ever started."""
    assert subprocess.run([build(csrc, tmp_path, *flags, main=FORKS)], timeout=60).returncode == 0


@pytest.mark.parametrize("flags", [(), ("-DWEFT_NO_FUTEX",)])
def test_no_wake_up_is_lost(csrc, tmp_path, flags):
    """Of a caller that waits for its worker, and of a worker that waits for work; just before they sleep, and later."""
    assert subprocess.run([build(csrc, tmp_path, *flags, main=WAKING)], timeout=60).returncode == 0


def memory_program() -> ExecutableProgram:
    """``y = 2 exp(x) + 1`` through memory of every kind: an arena, memory that grows, values, a function."""
    n, nbytes = (8,), (32,)
    main = (
        CallKernel(0, (0, 2), (n, (4,))),
        Allocate(3, nbytes),
        CallKernel(1, (2, 3), (n,)),
        Reserve(3, (256,)),
        NewTensor(4, nbytes, (n,)),
        Copy(3, 4, nbytes),
        Construct(5, 1, (4,) * 20),
        Field(6, 5, 19),
        Invoke(0, None, (6,), (5,)),
        Copy(5, 1, nbytes),
        Jump(12),
    )
    return ExecutableProgram(
        symbols=(),
        inputs=(TensorSpec("x", "float32", (n,)),),
        outputs=(TensorSpec("y", "float32", (n,)),),
        buffers=(
            BufferSpec("input", 0),
            BufferSpec("output", 0),
            BufferSpec("arena", nbytes=nbytes),
            BufferSpec("dynamic"),
            *(BufferSpec("object") for _ in range(4)),
        ),
        kernels=(KernelRef("parallel_exp", 0), KernelRef("double_plus_one", 0)),
        instructions=(*main, Return((7,))),
        arena_bytes=(64,),
        functions=(FunctionSpec("f", len(main), len(main) + 1, (7, 8), (7,), (), 1),),
    )


def test_every_allocation_may_fail(csrc, tmp_path, kernels):
    """Each in turn: an error says that memory is exhausted, and all that was allocated before is freed."""
    words = ",".join(f"{w}LL" for w in encode(memory_program()).tolist())
    program = build(csrc, tmp_path, main=MEMORY.replace("PROGRAM", words))
    (tmp_path / "kernels.o").write_bytes(kernels)
    done = subprocess.run([program, tmp_path / "kernels.o"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 30


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets threads choose their processor")
def test_a_thread_leaves_its_processor(csrc, tmp_path):
    """And may run on the same processors as before."""
    assert subprocess.run([build(csrc, tmp_path, main=PROCESSORS)], timeout=60).returncode == 0


def test_half_conversions_match_numpy(csrc, tmp_path):
    """The software conversions to 16-bit formats agree with NumPy on every half and on random floats."""
    import ml_dtypes

    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    import ctypes

    (tmp_path / "h.c").write_text(
        """
        #include "internal.h"
        static uint32_t bits(float f) { union { float f; uint32_t u; } v = {f}; return v.u; }
        static float value(uint32_t u) { union { uint32_t u; float f; } v = {u}; return v.f; }
        void to_half(const float *x, uint16_t *y, long n) {
            while (n--) y[n] = (uint16_t)bits(weft_float_to_half(x[n]));
        }
        void to_bfloat(const float *x, uint16_t *y, long n) {
            while (n--) y[n] = (uint16_t)bits(weft_float_to_bfloat(x[n]));
        }
        void from_half(const uint16_t *x, float *y, long n) { while (n--) y[n] = weft_half_to_float(value(x[n])); }
        void bfloat_of_double(const double *x, uint16_t *y, long n) {
            while (n--) y[n] = (uint16_t)bits(weft_double_to_bfloat(x[n]));
        }
        """
    )
    include = [f"-I{csrc / 'include'}", f"-I{csrc / 'src'}"]
    command = [compiler, "-shared", "-fPIC", "-O1", *include, "h.c", str(csrc / "src" / "half.c"), "-o", "h.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "h.so"))

    def convert(name, x, dtype):
        y = np.empty(len(x), dtype)
        getattr(library, name)(
            x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(len(x))
        )
        return y

    halves = np.arange(1 << 16, dtype=np.uint16)
    np.testing.assert_array_equal(convert("from_half", halves, np.float32), halves.view(np.float16).astype(np.float32))
    random = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    finite = random[~np.isnan(random)]
    near = halves.view(np.float16).astype(np.float32)
    near = np.sort(near[np.isfinite(near)])
    ties = np.concatenate(
        [near[:-1] + np.diff(near) / 2, near, finite, np.float32([65504, 65519, 65520, 6e-8, 2.9e-8])]
    )
    ties = np.ascontiguousarray(ties[~np.isnan(ties)], dtype=np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(convert("to_half", ties, np.uint16), ties.astype(np.float16).view(np.uint16))
        wanted = ties.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(convert("to_bfloat", ties, np.uint16), wanted)
    np.testing.assert_array_equal(convert("bfloat_of_double", ties.astype(np.float64), np.uint16), wanted)
    nans = np.array([np.nan, -np.nan], np.float32)
    assert np.isnan(convert("to_half", nans, np.uint16).view(np.float16)).all()
    assert np.isnan(convert("to_bfloat", nans, np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)).all()


def test_every_cpu_feature_that_llvm_detects_is_listed():
    """What a compiler on this machine reports must not keep its own code from loading here."""
    import llvmlite.binding as binding

    from weft.runtime.threads import SYSTEM_FEATURES, cpu_features

    seen = {name for name, on in binding.get_host_cpu_features().items() if on}
    assert seen <= cpu_features() | SYSTEM_FEATURES


def test_the_benchmark_of_calls_from_c_builds():
    if shutil.which("cc") is None and shutil.which("gcc") is None and shutil.which("clang") is None:
        pytest.skip("no C compiler")
    assert c_microseconds(empty_program()) > 0
