"""weft_parallel_for: every iteration once, nested, from many threads, across fork, and at exit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from weft.runtime import _native

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
static int32_t smallest(int64_t begin, int64_t end, void *closure) {
    int64_t *least = closure, size = end - begin;
    if (end != least[1] && size < least[0]) least[0] = size;
    return 0;
}
int32_t grain(void *const *b, const int64_t *s) { return weft_parallel_for(smallest, s[0], s[1], b[0]); }
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


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("count", "grain"), [(1, 1), (2, 1), (7, 3), (1000, 1), (1000, 999), (4097, 16), (0, 1), (5, 0)]
)
def test_every_iteration_runs_once(code, threads, count, grain):
    seen = np.zeros(max(count, 1), np.int32)
    result, _ = code.call("cover", [seen], [count, grain, 200], threads=threads)
    assert result == 0
    assert (seen[:count] == 200).all()


@pytest.mark.parametrize("grain", [1, 10, 333])
def test_chunks_are_at_least_the_grain(code, grain):
    least = np.array([1 << 40, 1000], np.int64)
    assert code.call("grain", [least], [1000, grain], threads=4)[0] == 0
    assert least[0] >= grain


def test_nested_calls_run_serially(code):
    seen = np.zeros((50, 20), np.int32)
    assert code.call("nested", [seen], [50, 20], threads=3)[0] == 0
    assert (seen == 1).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_error_of_a_chunk_is_returned(code, threads):
    assert code.call("fails", [], [1000, 500], threads=threads)[0] == 42
    assert code.call("fails", [], [1000, 5000], threads=threads)[0] == 0


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


def test_default_threads():
    before = _native.get_default_threads()
    assert before == len(os.sched_getaffinity(0))
    _native.set_default_threads(3)
    assert _native.get_default_threads() == 3
    _native.set_default_threads(0)
    assert _native.get_default_threads() == before
    with pytest.raises(ValueError):
        _native.set_default_threads(-1)
