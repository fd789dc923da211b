"""Memory for intermediate results: kept for later runs, given up on demand, limited."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.runtime import Executable
from weft.runtime._native import allocated_blocks, worker_count
from weft.runtime.program import Allocate, BufferSpec, CallKernel, ExecutableProgram, KernelRef, TensorSpec
from weft.support.errors import InputError, UserError

N = ("n",)
BYTES = ("n", 4, "mul")


def pipeline(kind: str, kernels: bytes) -> Executable:
    """y = 2 (2 x + 1) + 1, with the middle in the arena or in memory allocated by the program."""
    arena = kind == "arena"
    program = ExecutableProgram(
        symbols=N,
        inputs=(TensorSpec("x", "float32", (N,)),),
        outputs=(TensorSpec("y", "float32", (N,)),),
        buffers=(
            BufferSpec("input", 0),
            BufferSpec("output", 0),
            BufferSpec(kind, nbytes=BYTES) if arena else BufferSpec(kind),
        ),
        kernels=(KernelRef("double_plus_one", 0),),
        instructions=(
            *(() if arena else (Allocate(2, BYTES),)),
            CallKernel(0, (0, 2), (N,)),
            CallKernel(0, (2, 1), (N,)),
        ),
        arena_bytes=BYTES if arena else (0,),
    )
    return Executable(artifact(program, kernels), threads=1)


@pytest.mark.parametrize("kind", ["arena", "dynamic"])
def test_a_run_beyond_the_limit_is_refused_and_others_are_not(kernels, kind):
    exe = pipeline(kind, kernels)
    exe.memory_limit = 4000
    small, large = np.ones(1000, np.float32), np.ones(1001, np.float32)
    blocks = None
    for _ in range(3):
        np.testing.assert_array_equal(exe(small), np.full(1000, 7, np.float32))
        with pytest.raises(UserError, match="need 4004 bytes, and the limit is 4000") as caught:
            exe(large)
        assert caught.value.code == "I036"
        assert exe.arena_bytes <= 4000
        assert blocks is None or allocated_blocks() <= blocks
        blocks = allocated_blocks()
    exe.memory_limit = None
    np.testing.assert_array_equal(exe(large), np.full(1001, 7, np.float32))


def test_idle_memory_makes_room_for_other_runs(kernels):
    """Threads that ran at once leave one arena each; a later, larger run gets their memory."""
    exe = pipeline("arena", kernels)
    x = np.ones(100_000, np.float32)

    def run(gate: threading.Barrier) -> None:
        gate.wait()
        for _ in range(20):
            exe(x)

    for _ in range(100):
        gate = threading.Barrier(4)
        threads = [threading.Thread(target=run, args=(gate,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if exe.arena_bytes >= 2 * x.nbytes:
            break
    assert exe.arena_bytes >= 2 * x.nbytes, "no two runs were at once"
    exe.memory_limit = 1_700_000
    assert exe(np.ones(400_000, np.float32))[0] == 7
    assert exe.arena_bytes <= 1_700_000


def test_a_run_that_fits_is_not_refused_because_of_one_that_does_not(kernels):
    """Memory is counted only where it fits: there is no moment in which a refused run takes the room of others."""
    exe = pipeline("dynamic", kernels)
    exe.memory_limit = 1_000_000
    small, large = np.ones(1000, np.float32), np.ones(249_900, np.float32)
    exe(small)
    done, refused = threading.Event(), []

    def too_large() -> None:
        while not done.is_set():
            try:
                exe(np.concatenate([large, large]))
            except UserError as error:
                refused.append(error.code)

    thread = threading.Thread(target=too_large)
    thread.start()
    try:
        for _ in range(20_000):
            assert exe(small)[0] == 7
    finally:
        done.set()
        thread.join()
    assert set(refused) == {"I036"}


@pytest.mark.parametrize("kind", ["arena", "dynamic"])
def test_trim_gives_everything_back(kernels, kind):
    exe = pipeline(kind, kernels)
    assert exe.trim() == 0
    x = np.ones(1 << 20, np.float32)
    for _ in range(3):
        before = allocated_blocks()
        assert exe(x)[-1] == 7
        held = exe.arena_bytes
        assert held == (x.nbytes if kind == "arena" else 0)
        assert exe.trim() == held
        assert exe.arena_bytes == 0 and allocated_blocks() <= before
        assert worker_count() == 0


def test_trim_during_runs(kernels):
    exe = pipeline("arena", kernels)
    stop = threading.Event()
    wrong: list[object] = []
    runs = dict.fromkeys((1000, 5000, 9000), 0)

    def run(n: int) -> None:
        x = np.arange(n, dtype=np.float32)
        while not stop.is_set():
            if not np.array_equal(exe(x), 4 * x + 3):
                wrong.append(n)
            runs[n] += 1

    threads = [threading.Thread(target=run, args=(n,)) for n in runs]
    for t in threads:
        t.start()
    given_back = 0
    while (min(runs.values()) < 50 or not given_back) and min(runs.values()) < 100_000:
        given_back += exe.trim()
        time.sleep(0)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and min(runs.values()) >= 50 and given_back
    exe.trim()
    assert exe.arena_bytes == 0


def exponentials(kernels: bytes) -> Executable:
    """Each thread writes its part to scratch memory first."""
    return Executable(artifact(vector_program("parallel_exp", 1 << 20, size="n"), kernels), threads=1)


def test_trim_frees_the_scratch_memory_of_threads_that_wait(kernels):
    """Threads of a server live on between requests."""
    exe = exponentials(kernels)
    x = np.linspace(0, 1, 1 << 20, dtype=np.float32)
    ran, resume, right = threading.Barrier(4), threading.Barrier(4), []

    def serve() -> None:
        for _ in range(3):
            right.append(bool(np.allclose(exe(x), np.exp(x))))
            ran.wait()
            resume.wait()

    exe.trim()
    gc.collect()  # executables of other tests are freed now, not while blocks are counted
    before = allocated_blocks()
    threads = [threading.Thread(target=serve) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(3):
        ran.wait()
        assert allocated_blocks() >= before + 3, "each thread keeps a block"
        exe.trim()
        assert allocated_blocks() <= before
        resume.wait()
    for t in threads:
        t.join()
    assert right == [True] * 9
    assert allocated_blocks() <= before


def test_trim_leaves_scratch_memory_in_use_alone(kernels):
    exe = exponentials(kernels)
    stop, wrong, runs = threading.Event(), [], []

    def run(n: int) -> None:
        x = np.linspace(0, 1, n, dtype=np.float32)
        wanted = np.exp(x)
        while not stop.is_set():
            wrong.extend([n] * (not np.allclose(exe(x), wanted)))
            runs.append(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in (1000, 70_000, 300_000)]
    for t in threads:
        t.start()
    while len(set(runs)) < 3 or len(runs) < 300:
        exe.trim()
        time.sleep(0)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong
    before = allocated_blocks()
    exe.trim()
    assert allocated_blocks() <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes have groups on POSIX systems")
def test_trim_in_a_child_of_a_process_whose_threads_trim(kernels):
    """A fork while another thread trims: nothing waits for that thread in the child, which does not have it."""
    exe = exponentials(kernels)
    x = np.ones(1000, np.float32)
    exe(x)
    stop = threading.Event()

    def trim() -> None:
        while not stop.is_set():
            exe.trim()

    thread = threading.Thread(target=trim)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that waits forever ends with a signal
                exe(x)
                exe.trim()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", 1 << 63, True])
def test_a_limit_is_a_number_of_bytes(kernels, limit):
    exe = pipeline("arena", kernels)
    with pytest.raises(InputError, match="memory_limit must be"):
        exe.memory_limit = limit
