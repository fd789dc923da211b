"""Code on a remote machine, from end to end: tensors, kernels, measurements and whole models, compared with NumPy."""

from __future__ import annotations

import gc
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashing_kernels import code, compiled
from raw_client import KEY, Start
from remote_programs import COLUMNS, INNER, ROWS, matmul_model, matmul_task, matrices
from sample_models import dense, random_input

import weft
import weft.rpc
from weft import te
from weft.kernels.machine_code import machine_code
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.local import LocalServer
from weft.rpc.machine import RemoteMachine
from weft.rpc.session import Session
from weft.runtime import Artifact, CodeObject, Executable, Variant, nd
from weft.runtime.program import BufferSpec, Copy, DeviceSpec, ExecutableProgram, KernelRef, TensorSpec
from weft.schedule.schedule import Schedule
from weft.support.errors import ArtifactError, InputError, UserError
from weft.target import Target

X = np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module")
def kernels(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(compiler, tmp_path_factory.mktemp("kernels"))


# ---- the machine -----------------------------------------------------------------------------------------------------


def test_the_machine_says_what_it_is(session: Session) -> None:
    mine, m = Target("cpu").cpu, session.machine
    assert m.name == "board" and m.cores == mine.cores and m.memory > 1 << 20 and m.formats == ("elf",)
    target = session.target()
    assert str(Target(target)) == target and Target(target).cpu.features <= m.features
    assert Target(target).cpu.triple == mine.triple and Target(target).cpu.l1 == mine.l1
    assert "board" in repr(session) and "dead" not in repr(session)


TOLD = {
    **{"name": "b", "system": "linux", "architecture": "riscv64", "features": "", "formats": "elf", "cores": "4"},
    **{"memory": "1", "l1": "0", "l2": "0", "l3": "0", "abi": "1", "program": "5", "sessions": "1"},
    **{"request_seconds": "1", "session_seconds": "1", "session_bytes": "0"},
}


def test_targets_of_other_machines() -> None:
    assert "-mcpu=generic-rv64 " in RemoteMachine.of(TOLD).target()
    arm = RemoteMachine.of({**TOLD, "architecture": "aarch64", "features": "neon,dotprod,fullfp16,crc", "l2": "99"})
    cpu = Target(arm.target()).cpu
    assert (cpu.triple, cpu.l2, cpu.cores) == ("aarch64-unknown-linux-gnu", 99, 4) and cpu.has("dotprod")
    for wrong, number in (({"abi": "2"}, "N002"), ({"program": "4"}, "N002"), ({"cores": "many"}, "N009")):
        with pytest.raises(RemoteError) as error:
            RemoteMachine.of({**TOLD, **wrong})
        assert error.value.code == number


# ---- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 400_001)])
def test_tensors_go_there_and_back(session: Session, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    there = nd.array(array, session.device)
    assert there.device == session.device and "remote" in str(there.device)
    np.testing.assert_array_equal(there.numpy(), array)


def test_memory_is_freed_there(start: Start) -> None:
    session = start("--session-bytes", "1G").connect()
    for _ in range(6):
        held = nd.empty((300 << 20,), "uint8", session.device)
        del held
    with pytest.raises(UserError) as full:
        _held = [nd.empty((300 << 20,), "uint8", session.device) for _ in range(6)]
    assert full.value.code == "I007"


def test_several_threads_share_a_session(session: Session) -> None:
    wrong: list[int] = []

    def copy(seed: int) -> None:
        for _ in range(10):
            array = np.random.default_rng(seed).standard_normal(1000)
            if (nd.array(array, session.device).numpy() != array).any():
                wrong.append(seed)

    threads = [threading.Thread(target=copy, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_kernels_run_on_arrays_and_on_tensors(session: Session, kernels: bytes) -> None:
    kernel = session.kernel(code(kernels, "twice"))
    y = np.zeros_like(X)
    kernel.run(X, y, sizes=(5,))
    np.testing.assert_array_equal(y, 2 * X)
    x, z = nd.array(X, session.device), nd.empty((5,), "float32", session.device)
    kernel.run(x, z, sizes=(4,))
    np.testing.assert_array_equal(z.numpy()[:4], 2 * X[:4])
    kernel.close()
    with pytest.raises(RemoteError, match="was closed"):
        kernel.run(X, y, sizes=(5,))


def test_a_kernel_that_tuners_measure(session: Session) -> None:
    """What a tuner does: compile for the target of the machine, check the result, measure."""
    a, b, expected = matrices()
    kernel = session.kernel(matmul_task(session.target()))
    c = np.zeros_like(expected)
    kernel.run(a, b, c, sizes=(ROWS,))
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)
    there = [nd.array(x, session.device) for x in (a, b, c)]
    times = kernel.time(*there, sizes=(ROWS,), threads=2, repeat=5, min_seconds=0.001)
    assert len(times) == 5 and all(1e-8 < t < 1 for t in times)


def test_kernels_get_their_workspace(session: Session) -> None:
    """Of a size that follows from the sizes of the call: two stages, the first of which is stored."""
    n = te.var("n")
    x = te.placeholder((n, 64), name="x")
    b = te.compute((n, 64), lambda i, j: x[i, j] * 2.0, name="b")
    c = te.compute((64, n), lambda i, j: b[j, i] + 1.0, name="c")
    program = te_to_tir("stored", [x], [c])
    task = KernelTask(program, Target(session.target()), Schedule(program).trace)
    assert machine_code(task).workspace != (0,)
    kernel = session.kernel(task)
    for rows in (100, 7):
        a, y = np.random.default_rng(0).random((rows, 64), np.float32), np.zeros((64, rows), np.float32)
        kernel.run(a, y, sizes=(rows,))
        np.testing.assert_allclose(y, 2 * a.T + 1, rtol=1e-6)
    with pytest.raises(RemoteError, match="does not take these sizes"):
        kernel.run(a, y)


def test_measurements_take_the_time_that_was_asked_for(session: Session, kernels: bytes) -> None:
    kernel = session.kernel(code(kernels, "twice"))
    start = time.perf_counter()
    kernel.time(X, X.copy(), sizes=(5,), repeat=4, min_seconds=0.02)
    assert time.perf_counter() - start > 0.08
    assert len(kernel.time(X, X.copy(), sizes=(5,), repeat=1)) == 1


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"repeat": 0}, "0 measurements"),
        ({"repeat": 1.5}, "'repeat' must be"),
        ({"min_seconds": -1}, "-1 seconds"),
        ({"min_seconds": "x"}, "'min_seconds' must be"),
        ({"sizes": (1.5,)}, "whole numbers"),
        ({"sizes": (1 << 63,)}, "whole numbers"),
        ({"threads": 1 << 40}, "threads are not possible"),
        ({"threads": 0}, "0 threads"),
    ],
)
def test_wrong_measurements(session: Session, kernels: bytes, wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(RemoteError, match=word):
        session.kernel(code(kernels, "twice")).time(X, X.copy(), **{"sizes": (5,), **wrong})
    session.ping()


def test_wrong_buffers(session: Session, kernels: bytes) -> None:
    kernel = session.kernel(code(kernels, "twice"))
    for wrong in ([1.0], np.zeros((4, 4))[:, ::2], np.array(["x"], object)):
        with pytest.raises(RemoteError) as error:
            kernel.run(X, wrong, sizes=(1,))
        assert error.value.code == "N018" and error.value.hint
    read_only = X.copy()
    read_only.flags.writeable = False
    kernel.run(X, read_only, sizes=(5,))
    np.testing.assert_array_equal(read_only, X)


def test_errors_of_kernels(session: Session, kernels: bytes) -> None:
    with pytest.raises(RemoteError) as seven:
        session.kernel(code(kernels, "seven")).run()
    assert seven.value.code == "N012" and "error 7" in seven.value.message
    for data, entry, number in ((kernels, "absent", "N011"), (b"no object", "f", "N011"), (b"", "f", "N011")):
        with pytest.raises(RemoteError) as error:
            session.kernel(code(data, entry))
        assert error.value.code == number
    with pytest.raises(RemoteError) as lacking:
        session.kernel(code(kernels, "twice", frozenset({"neon", "sve9"})))
    assert lacking.value.code == "N016" and "sve9" in lacking.value.message
    with pytest.raises(RemoteError) as foreign:
        session.kernel(replace(code(kernels, "twice"), format="ptx"))
    assert foreign.value.code == "N016"
    with pytest.raises(RemoteError) as nothing:
        session.kernel("twice")  # type: ignore[arg-type]
    assert nothing.value.code == "N018" and session.lost is None


# ---- models ----------------------------------------------------------------------------------------------------------


def test_models_run_there(session: Session, tmp_path: Path) -> None:
    exe = weft.compile(dense(tmp_path / "model.onnx"), threads=1)
    there = session.load(exe, threads=2)
    for batch in (1, 7):
        x = random_input((batch, 24))
        np.testing.assert_allclose(there(x), exe(x), rtol=1e-5)
        np.testing.assert_allclose(there(x=x), exe(x), rtol=1e-5)
    x = random_input((3, 24))
    np.testing.assert_allclose(there(nd.array(x, session.device)), exe(x), rtol=1e-5)
    np.testing.assert_allclose(there(x.tolist()), exe(x), rtol=1e-5)
    timing = there.benchmark(x, seconds=0.05, repeat=3)
    assert len(timing.times) == 3 and 0 < timing.min <= timing.median < 1000
    assert [s.name for s in (*there.inputs, *there.outputs)] == ["x", "y"] and "model" in repr(there)
    there.close()
    with pytest.raises(RemoteError, match="was closed"):
        there(x)


def test_what_a_model_uses_is_kept_and_then_freed(session: Session, tmp_path: Path) -> None:
    there = session.load(weft.compile(dense(tmp_path / "model.onnx"), threads=1))
    parts, ask = there._parts, session._channel.ask
    held = [(MessageType.UNLOAD, struct.pack("<I", n)) for n in parts._codes]
    held += [(MessageType.FREE, struct.pack("<Q", a)) for a in parts._constants]
    assert {type for type, _ in held} == {MessageType.UNLOAD, MessageType.FREE}
    for type, which in held:
        with pytest.raises(RemoteError, match="in use"):
            ask(type, which)
    there.close()
    for type, which in held:
        with pytest.raises(RemoteError, match=r"there is no code|nothing is allocated"):
            ask(type, which)


def test_the_best_code_for_a_machine_is_chosen(session: Session) -> None:
    plain = matmul_model(session.target())
    best = plain.codes[0].variants[0]
    assert best.features
    others = (Variant(frozenset(), b"unfit"), best, Variant(best.features | {"none"}, b"unfit"))
    a, b, expected = matrices(2)
    there = session.load(replace(plain, codes=(CodeObject(others),)))
    np.testing.assert_allclose(there(a, b), expected, rtol=1e-4, atol=1e-5)


def test_wrong_inputs_of_models(session: Session) -> None:
    there = session.load(matmul_model(session.target()))
    a, b, expected = matrices(3)
    for wrong, number in (((a,), "I001"), ((a, b[:5]), "I003"), ((a, b.astype(int)), "I002"), ((a, b[0]), "I003")):
        with pytest.raises(InputError) as error:
            there(*wrong)
        assert error.value.code == number
    np.testing.assert_allclose(there(a, b), expected, rtol=1e-4, atol=1e-5)
    empty = there(np.zeros((0, INNER), np.float32), b)
    assert empty.shape == (0, COLUMNS)


def test_models_that_a_machine_cannot_run(session: Session) -> None:
    plain = matmul_model(session.target())
    program = plain.program
    variant = plain.codes[0].variants[0]
    foreign = CodeObject((Variant(frozenset({"neon"}), variant.data), Variant(frozenset({"sve", "x"}), variant.data)))
    values = replace(program, inputs=(TensorSpec("s", "string", ()), *program.inputs[1:]))
    cases = [
        (replace(plain, codes=(foreign,)), "N016", "needs neon"),
        (replace(plain, program=values), "N017", "plain tensors"),
        (replace(plain, program=replace(program, devices=(DeviceSpec("abacus"),))), "N017", "abacus"),
        (replace(plain, program=replace(program, kernels=(KernelRef("absent", 0),))), "N009", "absent"),
        (replace(plain, codes=(CodeObject((Variant(frozenset(), b"x" * 100),)),)), "N011", "ELF"),
        (replace(plain, program=replace(program, kernels=(KernelRef("f", 7),))), "A008", "lacks the code"),
        ("model.onnx", "N018", "compiled model"),
    ]
    for model, number, word in cases:
        with pytest.raises(UserError, match=word) as error:
            session.load(model)
        assert error.value.code == number
    with pytest.raises(ArtifactError) as here_only:
        session.load(replace(plain, metadata={"in_process": ["f"]}))
    assert here_only.value.code == "A012"
    for threads in (0, 5000, 1.5):
        with pytest.raises(RemoteError, match="threads are not possible"):
            session.load(plain, threads=threads)  # type: ignore[arg-type]
    assert session.lost is None


def test_malformed_programs(session: Session) -> None:
    """The checks of the executor there are those of the executor here."""
    beyond = ExecutableProgram(
        symbols=("n",),
        inputs=(TensorSpec("x", "float32", (("n",),)),),
        outputs=(TensorSpec("y", "float32", (("n",),)),),
        buffers=(BufferSpec("input", 0, nbytes=("n", 4, "mul")), BufferSpec("output", 0, nbytes=("n", 4, "mul"))),
        kernels=(),
        instructions=(Copy(0, 1, ("n", 8, "mul")),),
    )
    artifact = Artifact(beyond, ())
    here, there = Executable(artifact, 1), session.load(artifact, 1)
    with pytest.raises(weft.WeftError) as local:
        here(X)
    with pytest.raises(weft.WeftError) as remote:
        there(X)
    assert type(local.value) is type(remote.value) and local.value.code == remote.value.code
    assert "on board" in remote.value.message and session.lost is None


def test_objects_die_with_their_session(server: LocalServer, kernels: bytes) -> None:
    session = server.connect()
    tensor, kernel = nd.array(X, session.device), session.kernel(code(kernels, "twice"))
    there = session.load(matmul_model(session.target()))
    session.close()
    a, b, _ = matrices()
    for use, arguments in ((session.ping, ()), (kernel.run, ()), (there, (a, b)), (there.benchmark, (a, b))):
        with pytest.raises(LinkError, match="is closed"):
            use(*arguments)
    with pytest.raises(UserError) as of_tensor:
        tensor.numpy()
    assert isinstance(of_tensor.value.__cause__, LinkError) and "dead" in repr(there) and "dead" in repr(session)
    del tensor, kernel, there
    gc.collect()


def test_keys_come_from_the_environment(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_RPC_KEY", KEY.decode())
    with weft.rpc.connect(server.address) as session:
        session.ping()
