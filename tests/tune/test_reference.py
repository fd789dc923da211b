"""What boards are compared with when a kernel is opened there: results of this machine, and how far they may differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from boards_kit import KEY, LONG, QUICK, made_in_c
from tuned_kernels import product

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.rpc.kernel import RemoteKernel
from weft.rpc.local import LocalServer
from weft.support.errors import UserError
from weft.target import Target
from weft.target.target import host
from weft.tir.text import parse
from weft.tune.measure import reference
from weft.tune.measure.bench import Bench
from weft.tune.measure.inputs import inputs_of
from weft.tune.measure.reference import MIN_PER_FLIP, Reference, disagreement
from weft.tune.measure.remote import runner_for
from weft.tune.measure.remote_bench import RemoteBench, WrongBoard
from weft.tune.measure.runner import Workload

ROWS = """program "rows"[n](x: f32[n, 5]) -> (out: f32[n, 5]):
  for i in serial(0, n):
    for j in serial(0, 5):
      block "out"(y: spatial n = i, z: spatial 5 = j):
        reads x[y, z]
        writes out[y, z]
        body:
          out[y, z] = sqrt(x[y, z])
"""


def found_by(task: KernelTask, sizes: tuple[tuple[int, ...], ...] = (), builds: bool = True) -> Any:
    """The results for the code of another machine."""
    foreign = machine_code(replace(task, target=Target("graviton2")))
    return Reference(
        Workload(replace(task, target=Target("graviton2")), 1, sizes),
        foreign,
        machine_code if builds else lambda t: None,
    ).results()


@pytest.mark.parametrize("builds", [True, False], ids=["compiled", "interpreted"])
def test_kernels_of_other_machines_are_computed_here(builds: bool) -> None:
    """By code for this machine or by the interpreter; of roots, the inputs that have them."""
    (found,) = found_by(product(7, 5, 3), (), builds)
    inputs = inputs_of(product(7, 5, 3).program, {})
    assert not found.positive
    np.testing.assert_allclose(found.wanted[0], inputs[0] @ inputs[1], rtol=1e-5)
    task = KernelTask(parse(ROWS), host())
    results = found_by(task, ((0,), (1,), (9,)), builds)
    assert [r.wanted[0].shape for r in results] == [(0, 5), (1, 5), (9, 5)]
    n = task.program.sizes[0]
    assert results[2].positive
    np.testing.assert_allclose(
        results[2].wanted[0], np.sqrt(inputs_of(task.program, {n: 9}, positive=True)[0]), rtol=1e-6
    )


def test_code_that_runs_here_is_not_built_again() -> None:
    task = product(4, 4, 4, target=str(host()))

    def never(task: KernelTask) -> MachineCode | None:
        raise AssertionError

    (found,) = Reference(Workload(task), machine_code(task), never).results() or ()
    assert not disagreement(found.wanted, Bench(task).cases[0].wanted)


def test_what_takes_too_long_to_interpret_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_INTERPRETED", 1000)
    assert found_by(product(16, 16, 16), (), builds=False) is None
    assert found_by(product(4, 4, 4), (), builds=False) is not None


def test_results_are_freed_and_computed_again() -> None:
    task = product(4, 4, 4, target=str(host()))
    known = Reference(Workload(task), machine_code(task), lambda t: None)
    before = known.results()
    assert known.results() is before
    known.forget()
    after = known.results()
    assert before is not None and after is not None and after is not before
    assert not disagreement(before[0].wanted, after[0].wanted)


def changed(array: np.ndarray[Any, Any], count: int, by: float) -> list[np.ndarray[Any, Any]]:
    made = array.copy()
    made.reshape(-1)[:count] += array.dtype.type(by)
    return [made]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats_may_differ_by_rounding(dtype: str) -> None:
    wanted = np.linspace(-8, 8, 100).astype(dtype)
    narrow = dtype == "float16"
    assert not disagreement(changed(wanted, 3, 0.1 if narrow else 1e-3), [wanted])
    assert "of the largest" in disagreement(changed(wanted, 1, 1.0 if narrow else 0.1), [wanted])
    assert "of the largest" in disagreement(changed(wanted, 1, np.nan), [wanted])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_some_integers_may_differ(dtype: str) -> None:
    """As the place of the largest of two equal numbers does."""
    wanted = np.arange(4 * MIN_PER_FLIP).astype(dtype)
    assert not disagreement(changed(wanted, 4, 1), [wanted])
    assert "5 of 256" in disagreement(changed(wanted, 5, 1), [wanted])
    few = wanted[:3]
    assert not disagreement([few], [few]) and "1 of 3" in disagreement(changed(few, 1, 1), [few])
    assert disagreement([few.reshape(3, 1)], [few])
    assert not disagreement([few[:0]], [few[:0]])


# ---- boards ----------------------------------------------------------------------------------------------------------


def test_a_wrong_default_schedule_is_noticed(server: LocalServer, task: KernelTask, tmp_path: Any) -> None:
    made = made_in_c(tmp_path)
    known = Reference(Workload(task), machine_code(task), lambda t: None).results()
    with server.connect() as session:
        RemoteBench(session, Workload(task), made("right"), QUICK, known)
        with pytest.raises(WrongBoard, match=r"'desk' computes .* of 'dense' wrongly: its results differ .* largest"):
            RemoteBench(session, Workload(task), made("wrong"), QUICK, known)
        RemoteBench(session, Workload(task), made("wrong"), QUICK)


def test_one_board_that_computes_wrongly(
    server: LocalServer, task: KernelTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always alike, so that all schedules agree. The search ends at once, and says why."""
    honest = RemoteKernel.run

    def doubled(self: RemoteKernel, *buffers: Any, **given: Any) -> None:
        honest(self, *buffers, **given)
        honest(self, buffers[-1], buffers[1], buffers[-1], **given)

    monkeypatch.setattr(RemoteKernel, "run", doubled)
    with (
        runner_for(board=server.address, secret=KEY, limits=QUICK, patience=LONG) as runner,
        pytest.raises(UserError, match="'desk' computes the default schedule of 'dense' wrongly") as error,
    ):
        runner.open(Workload(task))
    assert error.value.code == "U040"
