"""weft_parallel_for: every iteration once, nested, from many threads, across fork, and at exit."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from pool_shares import busy, divide
from small_artifacts import artifact, vector_program

from weft.runtime import _native
from weft.runtime.executable import Executable

SOURCE = r"""
#include <stdint.h>
typedef int32_t (*body_t)(int64_t, int64_t, void *);
int32_t weft_parallel_for(body_t body, int64_t count, int64_t grain, void *closure);
void *weft_scratch(int64_t bytes);
void weft_scratch_release(int64_t bytes);

static int32_t visit(int64_t begin, int64_t end, void *closure) {
    int32_t *seen = closure;
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(&seen[i], 1, __ATOMIC_RELAXED);
    return 0;
}
int32_t cover(void *const *b, const int64_t *s) {
    int32_t r = 0;
    for (int64_t k = 0; k < s[2] && !r; k++) r = weft_parallel_for(visit, s[0], s[1], b[0]);
    return r;
}
/* The chunks as (begin, end) pairs after their number. */
static int32_t note(int64_t begin, int64_t end, void *closure) {
    int64_t *noted = closure, at = __atomic_fetch_add(&noted[0], 1, __ATOMIC_RELAXED);
    noted[1 + 2 * at] = begin, noted[2 + 2 * at] = end;
    return 0;
}
int32_t chunks(void *const *b, const int64_t *s) { return weft_parallel_for(note, s[0], s[1], b[0]); }
int32_t calls(void *const *b, const int64_t *s) {
    (void)s;
    return ((int32_t(*)(void))(uintptr_t)*(int64_t *)b[0])();
}
typedef struct { int32_t *seen; int64_t inner; } nest;
static int32_t inner(int64_t begin, int64_t end, void *closure) {
    nest *n = closure;
    int32_t *row = n->seen;
    if (begin != 0 || end != n->inner) return 99; /* nested runs are serial: one chunk */
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(&row[i], 1, __ATOMIC_RELAXED);
    return 0;
}
static int32_t outer(int64_t begin, int64_t end, void *closure) {
    nest *n = closure;
    int32_t r = 0;
    for (int64_t i = begin; i < end && !r; i++) {
        nest row = {n->seen + i * n->inner, n->inner};
        r = weft_parallel_for(inner, n->inner, 1, &row);
    }
    return r;
}
int32_t nested(void *const *b, const int64_t *s) {
    nest n = {b[0], s[1]};
    return weft_parallel_for(outer, s[0], 1, &n);
}
static int32_t fail_at(int64_t begin, int64_t end, void *closure) {
    int64_t bad = *(int64_t *)closure;
    return begin <= bad && bad < end ? 42 : 0;
}
int32_t fails(void *const *b, const int64_t *s) {
    int64_t bad = s[1];
    return weft_parallel_for(fail_at, s[0], 1, &bad);
}
static int32_t fault(int64_t begin, int64_t end, void *closure) {
    char here;
    uintptr_t a = (uintptr_t)&here, caller = (uintptr_t)closure;
    if ((a > caller ? a - caller : caller - a) > 1 << 20) *(volatile int *)0 = 1; /* a worker has another stack */
    for (;;) {} /* the caller leaves the other chunks to workers */
}
int32_t faults(void *const *b, const int64_t *s) {
    char here;
    return weft_parallel_for(fault, 2, 1, &here);
}
int32_t scratch(void *const *b, const int64_t *s) {
    /* blocks of growing size, released in reverse; all aligned and none overlapping */
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = weft_scratch(1 + i * s[0]);
        if (!blocks[i] || (uintptr_t)blocks[i] % 64) return 1;
        for (int64_t k = 0; k <= i * s[0]; k++) blocks[i][k] = (char)i;
    }
    for (int i = 63; i >= 0; i--) {
        for (int64_t k = 0; k <= i * s[0]; k++) if (blocks[i][k] != (char)i) return 2;
        weft_scratch_release(1 + i * s[0]);
    }
    char *again = weft_scratch(64), *same;
    weft_scratch_release(64);
    same = weft_scratch(64);
    weft_scratch_release(64);
    return again == same ? 0 : 3;
}
"""


@pytest.fixture(scope="module")
def code(compile_c):
    return _native.Code(compile_c(SOURCE))


@pytest.fixture
def trim(kernels):
    """Ends all idle workers, whoever had them."""
    return Executable(artifact(vector_program("double_plus_one"), kernels), threads=1).trim


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("count", "grain"), [(1, 1), (2, 1), (7, 3), (1000, 1), (1000, 999), (4097, 16), (0, 1), (5, 0)]
)
def test_every_iteration_runs_once(code, threads, count, grain):
    seen = np.zeros(max(count, 1), np.int32)
    result, _ = code.call("cover", [seen], [count, grain, 200], threads=threads)
    assert result == 0
    assert (seen[:count] == 200).all()


def chunks_of(code, count: int, grain: int, threads: int) -> list[int]:
    """The sizes of the chunks in order."""
    noted = np.zeros(1 + 2 * (5 * threads + 1), np.int64)
    assert code.call("chunks", [noted], [count, grain], threads=threads)[0] == 0
    pairs = sorted(noted[1 : 1 + 2 * noted[0]].reshape(-1, 2).tolist())
    assert [begin for begin, _ in pairs] == [0, *(end for _, end in pairs[:-1])] and pairs[-1][1] == count
    return [end - begin for begin, end in pairs]


COUNTS = [*range(1, 50), 63, 64, 65, 100, 127, 128, 129, 191, 192, 1000, 4097, 1_000_003]


@pytest.mark.parametrize(("outside", "inside"), [(1, 3), (3, 1), (3, 2), (2, 2), (1, 1)])
def test_a_run_inside_of_a_run_has_its_own_number_of_threads(code, outside, inside):
    """As when a host operator runs another executable."""
    found = []

    def run() -> int:
        found.append((chunks_of(code, 1000, 1, inside), chunks_of(code, 1000, 1, outside)))
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int32)(run)
    address = np.array([ctypes.cast(callback, ctypes.c_void_p).value], np.int64)
    assert code.call("calls", [address], [], threads=outside)[0] == 0
    ((inner, outer),) = found
    assert len(inner) > 1 if inside > 1 else inner == [1000]
    assert len(outer) > 1 if outside > 1 else outer == [1000]


@pytest.mark.parametrize("threads", [2, 3, 4, 7, 16, 64])
def test_equal_iterations_make_equal_shares(code, threads):
    for count in COUNTS:
        chunks = chunks_of(code, count, 1, threads)
        shares = busy(chunks, threads)
        assert max(shares) - min(shares) <= 1, (count, chunks)
        assert len(chunks) <= 5 * threads


@pytest.mark.parametrize("threads", [2, 3, 16, 64])
@pytest.mark.parametrize("grain", [2, 10, 333])
def test_chunks_are_at_least_the_grain_and_still_fair(code, threads, grain):
    for count in COUNTS:
        chunks = chunks_of(code, count, grain, threads)
        assert min(chunks) >= min(grain, count)
        shares = busy(chunks, threads)
        if count >= grain * threads:
            assert max(shares) - min(shares) <= 1, (count, chunks)
        else:
            assert max(shares) <= 2 * grain - 1


@pytest.mark.parametrize("threads", [2, 3, 7, 64])
def test_chunks_shrink(code, threads):
    """There are four chunks for each thread, each no larger than the one before: from four tenths of a thread's share
    to one tenth. So threads that come late still find work."""
    chunks = chunks_of(code, 1_000_000, 1, threads)
    assert len(chunks) == 4 * threads
    assert chunks == sorted(chunks, reverse=True)
    assert abs(chunks[0] * threads - 400_000) <= 2 * threads
    assert abs(chunks[-1] * threads - 100_000) <= 2 * threads


@pytest.mark.parametrize("grain", [1, 2, 7, 100])
def test_the_formula_of_the_tests_is_that_of_the_pool(code, grain):
    for threads in (2, 3, 64):
        for count in COUNTS:
            assert chunks_of(code, count, grain, threads) == divide(count, grain, threads)


def test_nested_calls_run_serially(code):
    seen = np.zeros((50, 20), np.int32)
    assert code.call("nested", [seen], [50, 20], threads=3)[0] == 0
    assert (seen == 1).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_error_of_a_chunk_is_returned(code, threads):
    assert code.call("fails", [], [1000, 500], threads=threads)[0] == 42
    assert code.call("fails", [], [1000, 5000], threads=threads)[0] == 0


def test_calls_take_one_thread_unless_told_otherwise(code):
    noted = np.zeros(99, np.int64)
    assert code.call("chunks", [noted], [1000, 1])[0] == 0
    assert noted[:3].tolist() == [1, 0, 1000]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, -1, -(1 << 62)])
def test_nothing_runs_without_iterations(code, threads, count):
    noted = np.zeros(1 + 2 * (5 * threads + 1), np.int64)
    assert code.call("chunks", [noted], [count, 1], threads=threads)[0] == 0
    assert not noted.any()


def test_workers_leave_the_signals_of_the_program_alone(code, trim):
    """Those that start with signals blocked do not leave them blocked in the thread that starts them."""
    seen = np.zeros(100, np.int32)
    for blocked in (set(), {signal.SIGUSR1}):
        before = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        try:
            trim()  # so that the workers are new
            assert code.call("cover", [seen], [100, 1, 1], threads=3)[0] == 0
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("threads", [1, 0, -1, -(2**31)])
def test_less_than_one_thread_is_one(code, trim, threads):
    """No pool is made for it, which would take the place of one that has workers."""
    trim()
    others, noted = _native.worker_count(), np.zeros(99, np.int64)
    assert code.call("chunks", [noted], [1000, 1], threads=threads)[0] == 0
    assert noted[:3].tolist() == [1, 0, 1000] and _native.worker_count() == others
    for other in range(2, 18):
        assert code.call("chunks", [np.zeros(999, np.int64)], [1, 1], threads=other)[0] == 0
    assert _native.worker_count() - others == sum(range(1, 17))
    trim()


def test_few_pools_stay_idle(code, trim):
    """However many runs there were at once."""
    trim()
    others, most = _native.worker_count(), 16
    together = threading.Barrier(24)

    def meet() -> int:
        together.wait(60)
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int32)(meet)
    address = np.array([ctypes.cast(callback, ctypes.c_void_p).value], np.int64)
    for _ in range(2):
        runs = [
            threading.Thread(target=code.call, args=("calls", [address], []), kwargs={"threads": 2}) for _ in range(24)
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert _native.worker_count() - others == most
    trim()
    assert _native.worker_count() == others


def test_many_python_threads_at_once(code):
    failures: list[object] = []

    def work(threads: int) -> None:
        for _ in range(20):
            seen = np.zeros(500, np.int32)
            result, _ = code.call("cover", [seen], [500, 7, 10], threads=threads)
            if result or not (seen == 10).all():
                failures.append((threads, result))

    workers = [threading.Thread(target=work, args=(1 + i % 4,)) for i in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


@pytest.mark.parametrize("step", [1, 100, 30_000])
def test_scratch_is_a_stack(code, step):
    for _ in range(3):
        assert code.call("scratch", [], [step])[0] == 0


def test_workers_are_reused(code):
    seen = np.zeros(100, np.int32)
    code.call("cover", [seen], [100, 1, 1], threads=5)
    before = _native.worker_count()
    for _ in range(50):
        code.call("cover", [seen], [100, 1, 1], threads=5)
    assert _native.worker_count() == before


def test_fork(code, compile_c, tmp_path):
    """A child has no workers and gets its own; exit joins them."""
    (tmp_path / "k.o").write_bytes(compile_c(SOURCE))
    script = textwrap.dedent(
        """
        import os, sys
        import numpy as np
        from weft.runtime import _native
        code = _native.Code(open(sys.argv[1], "rb").read())
        def check():
            seen = np.zeros(1000, np.int32)
            assert code.call("cover", [seen], [1000, 1, 20], threads=3)[0] == 0 and (seen == 20).all()
        check()
        for _ in range(3):
            child = os.fork()
            if child == 0:
                assert _native.worker_count() == 0
                check()
                assert _native.worker_count() == 2
                sys.exit(0)
            check()
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "k.o")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_fault_in_a_worker_is_reported(compile_c, tmp_path):
    """Workers do not block the signals of faults, so Python's fault handler says where the process ended."""
    (tmp_path / "k.o").write_bytes(compile_c(SOURCE))
    script = "import sys; from weft.runtime import _native as n; n.Code(open(sys.argv[1], 'rb').read())"
    command = [sys.executable, "-X", "faulthandler", "-c", f"{script}.call('faults', [], threads=2)"]
    done = subprocess.run([*command, str(tmp_path / "k.o")], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV and "Fatal Python error: Segmentation fault" in done.stderr
