"""Runs stop within 50 ms at a time limit or at Ctrl-C, wherever they spend their time, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from small_artifacts import artifact

from weft.runtime import Executable
from weft.runtime._native import allocated_blocks
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    Copy,
    ExecutableProgram,
    FunctionSpec,
    Instruction,
    Invoke,
    Jump,
    KernelRef,
    NewView,
    SetSize,
    TensorSpec,
)
from weft.support.errors import InputError, UserError

SOURCE = r"""
#include <stdint.h>
#include <time.h>
typedef int32_t (*body_t)(int64_t, int64_t, void *);
int32_t weft_parallel_for(body_t body, int64_t count, int64_t grain, void *closure);
void *weft_scratch(int64_t);
void weft_scratch_release(int64_t);

/* Busy for about `steps` thousand additions for each iteration. */
static int32_t work(int64_t begin, int64_t end, void *closure) {
    int64_t steps = *(const int64_t *)closure;
    char *room = weft_scratch(64);
    for (int64_t i = begin; i < end; i++)
        for (volatile int64_t k = 0; k < steps * 1000; k++) room[k % 64]++;
    weft_scratch_release(64);
    return 0;
}
int32_t quick(void *const *b, const int64_t *s) { return 0; }
int32_t parallel(void *const *b, const int64_t *s) { return weft_parallel_for(work, s[0], s[1], (void *)&s[2]); }
static int32_t once(int64_t begin, int64_t end, void *closure) {
    const int64_t *s = closure;
    int32_t r = 0;
    for (int64_t i = begin; i < end && !r; i++) r = weft_parallel_for(work, s[0], s[1], (void *)&s[2]);
    return r;
}
int32_t nested(void *const *b, const int64_t *s) { return weft_parallel_for(once, 1, 1, (void *)s); }
"""
ONE = (1,)


def program(*instructions: Instruction, kernel: str = "quick", **fields: object) -> ExecutableProgram:
    return ExecutableProgram(
        **{  # type: ignore[arg-type]
            "symbols": ("i",),
            "inputs": (TensorSpec("x", "float32", ((8,),)),),
            "outputs": (TensorSpec("y", "float32", ((8,),)),),
            "buffers": (
                BufferSpec("input", 0),
                BufferSpec("output", 0),
                BufferSpec("dynamic"),
                BufferSpec("object"),
                BufferSpec("object"),
            ),
            "kernels": (KernelRef(kernel, 0),),
            "instructions": instructions,
            **fields,
        }
    )


def call(*sizes: int) -> CallKernel:
    return CallKernel(0, (0, 1), tuple((s,) for s in sizes), label="node", flops=ONE, bytes=ONE)


LONG, FEW = (30_000, 1, 100), (2000, 1, 1500)  # iterations, grain, steps
PROGRAMS = {
    "jump": program(SetSize("i", ("i", 1, "add")), Jump(0)),
    "conditional jump": program(SetSize("i", ("i", 1, "add")), Jump(0, ("i", 0, "lt"))),
    "kernels": program(Allocate(2, (64,)), call(), SetSize("i", (1,)), Jump(1)),
    "one loop": program(call(*LONG), SetSize("i", (1,)), kernel="parallel"),
    "few iterations": program(call(*FEW), SetSize("i", (1,)), kernel="parallel"),
    "nested loop": program(call(*LONG), SetSize("i", (1,)), kernel="nested"),
}
PROGRAMS["tail calls"] = program(
    NewView(3, 0, (32,), ((8,),)),
    Invoke(0, None, (3,), (), tail=False),
    Invoke(0, None, (4,), (), tail=True),
    symbols=(),
    functions=(FunctionSpec("f", 2, 3, (4, 5), (4,), (), 0),),
)
X = np.zeros(8, np.float32)


@pytest.fixture(params=PROGRAMS)
def endless(request, compile_c):
    return Executable(artifact(PROGRAMS[request.param], compile_c(SOURCE)), threads=2)


PROMISED = 0.05
"""Seconds within which a run ends on a machine that is not busy."""


def machine_delay() -> float:
    """Seconds by which this thread wakes up late now. Other work on the machine delays everything by about as much."""
    start = time.perf_counter()
    for _ in range(4):
        time.sleep(0.005)
    return time.perf_counter() - start - 4 * 0.005


def assert_ends_in_time(attempt, after: float) -> None:
    """At least one of several attempts ends within the promised time, counted from ``after`` seconds after its start.
    The present delay of the machine is added."""
    seen = []
    for _ in range(8):
        delay = machine_delay()
        start = time.perf_counter()
        attempt()
        late = time.perf_counter() - start - after
        allowed = PROMISED + 4 * (delay + machine_delay())
        seen.append(f"{late:.3f} s late, {allowed:.3f} s allowed")
        assert late > -0.001, "it ends before its time"
        if late < allowed:
            return
    raise AssertionError("; ".join(seen))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_stops_at_its_time_limit(endless, threads):
    endless.threads = threads

    def attempt():
        with pytest.raises(UserError, match="took longer") as caught:
            endless(X, timeout=0.05)
        assert caught.value.code == "I035"

    attempt()
    blocks = allocated_blocks()
    assert_ends_in_time(attempt, 0.05)
    gc.collect()
    assert allocated_blocks() <= blocks


@pytest.mark.parametrize("part", [False, True])
def test_copies_stop_at_the_time_limit(compile_c, part):
    """A copy of gigabytes takes as long as a kernel."""
    n = 1 << 24
    copy = Copy(0, 1, (4 * n - 64,), (64,), (64,)) if part else Copy(0, 1, (4 * n,))
    ports = {"inputs": (TensorSpec("x", "float32", ((n,),)),), "outputs": (TensorSpec("y", "float32", ((n,),)),)}
    exe = Executable(artifact(program(*[copy] * 4, SetSize("i", (1,)), **ports), compile_c(SOURCE)))
    x = np.arange(n, dtype=np.float32)
    with pytest.raises(UserError, match="took longer"):
        exe(x, timeout=0.001)
    np.testing.assert_array_equal(exe(x, timeout=100)[16:], x[16:])


@pytest.fixture
def control_c():
    """Ctrl-C raises KeyboardInterrupt, also where the shell started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def assert_control_c_stops(call):
    """``call``, which takes long, ends soon after Ctrl-C."""

    def attempt():
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        timer.join()

    assert_ends_in_time(attempt, 0.05)


@pytest.mark.usefixtures("control_c")
@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_stops_a_run(endless, threads):
    endless.threads = threads
    assert_control_c_stops(lambda: endless(X))


def test_other_signals_are_handled_and_the_run_goes_on(compile_c):
    exe = Executable(artifact(PROGRAMS["kernels"], compile_c(SOURCE)))
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.perf_counter()))
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        start = time.perf_counter()
        with pytest.raises(UserError, match="took longer"):
            exe.run({"x": X}, timeout=2)
        assert seen and seen[0] - start < 1.5, "handled during the run, not after it"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_exception_of_a_signal_handler_ends_the_run(compile_c):
    exe = Executable(artifact(PROGRAMS["one loop"], compile_c(SOURCE)))

    def handler(*_):
        raise LookupError("from the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(LookupError, match="from the handler") as caught:
            exe(X)
        assert caught.traceback[-1].name == "handler", "where it was raised is told"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_runs_on_other_threads_go_on(compile_c):
    """Ctrl-C belongs to the main thread; the limit of one run is not that of another."""
    exe = Executable(artifact(program(call(2000, 1, 100), SetSize("i", (1,)), kernel="parallel"), compile_c(SOURCE)))
    ended = []
    thread = threading.Thread(target=lambda: ended.append(exe(X)))
    thread.start()
    with pytest.raises(UserError):
        exe(X, timeout=0.01)
    thread.join()
    assert len(ended) == 1


def test_a_run_that_is_fast_enough_is_not_stopped(compile_c):
    exe = Executable(artifact(program(call(), SetSize("i", (1,))), compile_c(SOURCE)))
    for timeout in (None, 10, 1e30, float("inf"), 10**400, np.float32(10), np.float16(9), np.int64(7), Fraction(21, 2)):
        assert exe(X, timeout=timeout).shape == (8,)
        assert exe.run({"x": X}, timeout=timeout)["y"].shape == (8,)
    out = np.zeros(8, np.float32)
    assert exe(X, out=out, timeout=5.0) is out


@pytest.mark.parametrize(
    "timeout",
    [-1, "1", float("nan"), np.float32("nan"), True, np.True_, 1j, np.float32(-1), -(10**400), -(10**9999)],
    ids=lambda v: type(v).__name__,
)
def test_a_time_limit_is_a_number_of_seconds(compile_c, timeout):
    exe = Executable(artifact(program(call(), SetSize("i", (1,))), compile_c(SOURCE)))
    with pytest.raises(InputError, match="timeout must be"):
        exe(X, timeout=timeout)


LATE_WORKER = r"""
#include <stdint.h>
typedef int32_t (*body_t)(int64_t, int64_t, void *);
int32_t weft_parallel_for(body_t body, int64_t count, int64_t grain, void *closure);

/* The caller's iterations take no time, those of a worker some milliseconds each. The caller waits for the worker to
 * begin, though not for ever. */
static _Atomic int began;
static int32_t uneven(int64_t begin, int64_t end, void *closure) {
    const char *here = __builtin_frame_address(0), *callers = closure;
    const int64_t distance = here < callers ? callers - here : here - callers;
    if (distance < 65536) {
        for (int64_t k = 0; k < 100000000 && !began; k++) {}
        return 0;
    }
    began = 1;
    for (int64_t i = begin; i < end; i++)
        for (volatile int64_t k = 0; k < 2000000; k++) {}
    return 0;
}
int32_t quick(void *const *b, const int64_t *s) {
    char on_the_stack_of_the_caller = 0;
    began = 0;
    return weft_parallel_for(uneven, s[0], 1, &on_the_stack_of_the_caller);
}
"""


def test_a_caller_that_waits_for_its_workers_watches_the_time(compile_c):
    """The worker has a chunk of many seconds, and only the caller can see that the time is over."""
    exe = Executable(artifact(program(call(20_000), SetSize("i", (1,))), compile_c(LATE_WORKER)), threads=2)

    def attempt() -> None:
        with pytest.raises(UserError) as found:
            exe(X, timeout=0.05)
        assert found.value.code == "I035"

    assert_ends_in_time(attempt, 0.05)


def test_pieces_are_at_least_the_grain(compile_c):
    """No call of a body has fewer iterations than the grain, also the last one, and also under a watch."""
    source = (
        SOURCE.replace("int32_t quick(", "int32_t unused(")
        + r"""
static _Atomic int64_t least, total;
static int32_t note(int64_t begin, int64_t end, void *closure) {
    const int64_t n = end - begin;
    int64_t seen = least;
    while (n < seen && !__atomic_compare_exchange_n((int64_t *)&least, &seen, n, 0, 5, 5)) {}
    total += n;
    return work(begin, end, closure);
}
int32_t quick(void *const *b, const int64_t *s) {
    least = INT64_MAX, total = 0;
    int32_t r = weft_parallel_for(note, s[0], s[1], (void *)&s[2]);
    ((float *)b[1])[0] = least, ((float *)b[1])[1] = total;
    return r;
}
"""
    )
    code = compile_c(source)
    for threads in (1, 2):
        for count, grain, steps in ((1000, 7, 100), (999, 333, 30), (1000, 334, 30), (50, 1, 2000), (77, 10, 500)):
            exe = Executable(artifact(program(call(count, grain, steps), SetSize("i", (1,))), code), threads=threads)
            least, total = exe(X, timeout=100)[:2]
            assert least >= min(count, grain) and total == count, (threads, count, grain)


def test_an_interruption_from_outside_of_python(compile_c):
    """A program that runs Python may stop runs by a watch of its own."""
    import ctypes

    from weft.runtime import _native

    library = ctypes.CDLL(_native.__file__)
    poll = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda context: 1)
    library.weft_watch_begin.restype = ctypes.c_void_p
    library.weft_watch_begin.argtypes = [ctypes.c_int64, type(poll), ctypes.c_void_p, ctypes.c_int64]
    library.weft_watch_end.argtypes = [ctypes.c_void_p]
    watch = library.weft_watch_begin((1 << 63) - 1, poll, None, 0)
    try:
        with pytest.raises(KeyboardInterrupt):
            Executable(artifact(PROGRAMS["jump"], compile_c(SOURCE)))(X)
    finally:
        library.weft_watch_end(watch)


def test_every_iteration_runs_once_under_a_watch(compile_c):
    """The pieces of a chunk that takes long cover it."""
    source = (
        SOURCE.replace("int32_t quick(", "int32_t unused(")
        + r"""
static int32_t count(int64_t begin, int64_t end, void *closure) {
    float *y = closure;
    for (int64_t i = begin; i < end; i++) {
        for (volatile int64_t k = 0; k < 100000; k++) {}
        __atomic_fetch_add((int32_t *)&y[i % 8], 1, __ATOMIC_RELAXED);
    }
    return 0;
}
int32_t quick(void *const *b, const int64_t *s) {
    int32_t *y = b[1];
    for (int i = 0; i < 8; i++) y[i] = 0;
    return weft_parallel_for(count, s[0], s[1], y);
}
"""
    )
    for n, grain in ((803, 1), (803, 7), (90, 50), (17, 1), (3, 1)):
        exe = Executable(artifact(program(call(n, grain), SetSize("i", (1,))), compile_c(source)))
        for threads in (1, 2, 3):
            exe.threads = threads
            seen = exe(X, timeout=100).view(np.int32)
            np.testing.assert_array_equal(seen, [len(range(i, n, 8)) for i in range(8)])


def test_a_child_that_another_thread_forked_handles_its_signals(compile_c, tmp_path):
    """The thread that forks is the only one of the child, so it is its main thread."""
    path = tmp_path / "endless.weft"
    Executable(artifact(PROGRAMS["jump"], compile_c(SOURCE))).save(path)
    script = textwrap.dedent(
        """
        import os, resource, signal, sys, threading
        import numpy as np
        from weft.runtime import load_executable

        class Rung(Exception):
            pass

        def ring(*about):
            raise Rung

        def in_child():
            resource.setrlimit(resource.RLIMIT_CPU, (10, 10))  # ends a child that does not hear the bell
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                exe(np.zeros(8, np.float32))
            except Rung:
                os._exit(0)

        def fork():
            child = os.fork()
            if child == 0:
                try:
                    in_child()
                finally:
                    os._exit(1)
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        exe, ended = load_executable(sys.argv[1]), []
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        assert ended == [0], ended
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
