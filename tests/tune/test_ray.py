"""Tuning on a Ray cluster: a real one on this machine, with several workers."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sample_models import dense
from tuned_kernels import product, split_by

from weft import te
from weft.cli.main import main
from weft.kernels.machine_code import MachineCode
from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.rpc.errors import LinkError
from weft.schedule.trace import Instruction, Trace
from weft.support.errors import InputError, MissingExtra, UserError
from weft.tune import tune_kernel, tune_model
from weft.tune.measure import ray_cluster, ray_models
from weft.tune.measure.ray_bench import NodeUnfit, RayBench
from weft.tune.measure.ray_builder import RayBuilder
from weft.tune.measure.ray_runner import RayRunner
from weft.tune.measure.runner import RunnerGone, RunsModels, Workload
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome, TrialRecord
from weft.tune.turns import in_turns, kernels_in_turns, times_kernels

ray = pytest.importorskip("ray", reason="Ray is not installed")
QUICK = Limits(abort=200.0, seconds=0.02, run=5.0)
TASK = product(12, 16, 10, target="cpu")
CPUS = 4
"""Of the cluster, whatever the machine has: two benches and two builders."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster that all tests share: starting one takes seconds."""
    ray.init(address="local", num_cpus=CPUS, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def runner(cluster: None) -> Iterator[RayRunner]:
    with RayRunner("local", limits=QUICK) as made:
        assert made.open(Workload(TASK)).ok
        yield made
    assert ray.is_initialized()  # the connection is not the runner's


def test_benches_and_builders_share_the_candidates(runner: RayRunner) -> None:
    runner.resume(Workload(TASK))
    baseline = runner.open(Workload(TASK))
    refused = Trace((Instruction("slice_and_dice", ()),))
    traces = [split_by(TASK, n) for n in (2, 4, 8)] + [refused] + [split_by(TASK, n) for n in (16, 1)]
    records = list(runner.measure(traces, baseline))
    assert [r.trace for r in records] == traces
    assert [r.outcome for r in records] == [Outcome.OK] * 3 + [Outcome.REFUSED] + [Outcome.OK] * 2
    assert runner._parts is not None and len(runner._parts._benches) == 2
    assert all(b.open(Workload(TASK)).ok for b in runner._parts._benches)  # the second one may have had nothing to do
    assert all(r.seconds and r.relative and "on " in r.message for r in records if r.ok)


def test_another_kernel_takes_its_turn(runner: RayRunner) -> None:
    other = Workload(product(6, 8, 4, target="cpu"))
    baseline = runner.open(other)
    assert [r.ok for r in runner.measure([split_by(other.task, 4)], baseline)] == [True]
    unknown = Workload(TASK, sizes=((1, 2, 3),))
    with pytest.raises(UserError, match="are no sizes for kernel 'dense'") as error:
        runner.open(unknown)
    assert error.value.code == "U040"


def test_an_actor_that_dies_costs_a_trial(runner: RayRunner) -> None:
    baseline = runner.open(Workload(TASK))
    assert runner._parts is not None
    for bench in runner._parts._benches:
        bench.open(runner._opened.workload)  # type: ignore[union-attr]
        os.kill(ray.get(bench._actor.__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)
    time.sleep(0.2)
    records = list(runner.measure([split_by(TASK, n) for n in (2, 4, 8, 16)], baseline))
    outcomes = [r.outcome for r in records]
    assert outcomes.count(Outcome.OK) >= 2 and set(outcomes) <= {Outcome.OK, Outcome.LOST}
    assert all("ended" in r.message for r in records if r.outcome is Outcome.LOST)


def test_a_builder_that_dies_costs_a_kernel(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = ray_cluster.RayCluster("local")
    builder = RayBuilder(connection, 1, 60.0)
    made = builder.build(TASK).result(120)
    assert isinstance(made, MachineCode)
    builder._build = ray.remote(num_cpus=1, max_retries=0)(lambda text: os.kill(os.getpid(), signal.SIGKILL))
    assert builder.build(TASK).result(120) == (Outcome.FAILED, "the process that builds it ended")
    builder._build = ray.remote(num_cpus=1, max_retries=0)(lambda text: time.sleep(1000))
    monkeypatch.setattr("weft.tune.measure.ray_builder.START_SECONDS", 0.5)
    builder._seconds = 0.5
    late = builder.build(TASK).result(120)
    assert isinstance(late, tuple) and late[0] is Outcome.TIMEOUT
    builder.close()


def test_a_search_on_a_cluster(cluster: None, tmp_path: Path) -> None:
    a, b = (te.placeholder((32, 32), name=n) for n in "ab")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    with RayRunner("local", benches=1, limits=QUICK) as made:
        found = tune_kernel([a, b, c], database=tmp_path / "t.db", trials=6, threads=1, runner=made)
    assert found.trials == 6 and found.before > 0
    x, y = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(found.executable()(x, y), x @ y, atol=1e-3)


def test_models_run_in_turns_on_a_node(cluster: None) -> None:
    with RayRunner("local", limits=QUICK) as made:
        assert isinstance(made, RunsModels)
        models = [made.executable(one_program(TASK.program, TASK.target), 1) for _ in range(2)]
        a, b = (np.ones(s, np.float32) for s in ((12, 10), (10, 16)))
        for model in models:
            np.testing.assert_allclose(model(a, b), np.full((12, 16), 10))
            assert times_kernels(model)
        with pytest.raises(InputError):
            models[0](a)
        assert all(seconds > 0 for seconds in in_turns(models, [a, b]))
        first, second = kernels_in_turns(models, [a, b])
        assert list(first) == list(second) == ["dense"] and first["dense"] > 0
        baseline = made.open(Workload(TASK))  # benches and models take turns on the node
        assert [r.ok for r in made.measure([split_by(TASK, 4)], baseline)] == [True]
        again = made.executable(one_program(TASK.program, TASK.target), 1)
        os.kill(ray.get(again._actor.__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)
        with pytest.raises(LinkError, match="ended"):
            again(a, b)
        np.testing.assert_allclose(made.executable(one_program(TASK.program, TASK.target), 1)(a, b)[0, 0], 10)


def test_a_model_is_tuned_and_checked_on_a_cluster(cluster: None, tmp_path: Path) -> None:
    model = dense(tmp_path / "small.onnx", batch=64)
    with RayRunner("local", benches=1, limits=QUICK) as made:
        found = tune_model(model, database=tmp_path / "t.db", trials=4, threads=1, runner=made)
    assert found.verdicts is not None and found.verdicts.before > 0 and found.trials >= 4


def test_a_model_that_no_node_can_run(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = one_program(TASK.program, TASK.target)
    with RayRunner("local", limits=QUICK) as made:
        with pytest.raises(RunnerGone, match="no node of the Ray cluster runs the model: none has 99 processors"):
            made.executable(artifact, 99)
        monkeypatch.setattr(ray_models, "compiler_fingerprint", lambda: "another")
        with pytest.raises(RunnerGone, match="has another version of Weft") as error:
            made.executable(artifact, 1)
    assert error.value.code == "U041" and error.value.hint


def test_the_command_line(cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(
        "from weft import te\n\ndef program():\n    x = te.placeholder((64, 64), name='x')\n"
        "    return [x, te.compute((64, 64), lambda i, j: te.exp(x[i, j]) * 2.0, name='y')]\n"
    )
    words = ["tune", "--kernel", str(tmp_path / "k.py"), "--db", str(tmp_path / "t.db"), "--trials", "4"]
    main([*words, "--threads", "1", "--ray", "local", "--flush-caches"])
    assert "all trials: weft db show" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main([*words, "--ray", "local", "--board", "localhost:1"])
    assert ended.value.code == 2 and "--ray is one place to measure" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "127.0.0.1:123456"])
def test_an_address_where_nobody_listens_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens there
        with pytest.raises(UserError, match="there is no Ray cluster at '") as missing:
            ray_cluster.RayCluster(address.format(unused.getsockname()[1]))
    assert missing.value.code == "U062" and "ray start" in (missing.value.hint or "")


def test_what_no_cluster_can_do(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        RayRunner("local", limits=QUICK) as made,
        pytest.raises(UserError, match=r"no node .* has 64 processors") as error,
    ):
        made.open(Workload(TASK, 64))
    assert error.value.code == "U062" and "--threads 4" in (error.value.hint or "")
    with pytest.raises(UserError, match="0 benches") as number:
        RayRunner("local", benches=0)
    assert number.value.code == "U042"
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def unreachable(**given: object) -> None:
        raise ConnectionError("nobody answers\nmore words")

    monkeypatch.setattr(ray, "init", unreachable)
    with pytest.raises(UserError, match=r"there is no Ray cluster at 'auto': nobody answers\n") as missing:
        RayRunner("auto")
    assert missing.value.code == "U062" and "ray start" in (missing.value.hint or "")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match="Ray cluster"):
        RayRunner("auto")


def test_a_cluster_that_is_lost_ends_the_search(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with RayRunner("local", benches=1, limits=QUICK) as made:
        baseline = made.open(Workload(TASK))
        assert made._parts is not None
        (bench,) = made._parts._benches
        bench.close()

        def never(*_: object) -> None:
            raise ray.exceptions.RayError("no such node")

        monkeypatch.setattr(bench, "_start", never)
        monkeypatch.setattr(bench, "_asked", never)
        records = list(made.measure([split_by(TASK, n) for n in (2, 4, 8, 16)], baseline))
        assert [r.outcome for r in records] == [Outcome.LOST] * 4
        with pytest.raises(RunnerGone, match="no node of the Ray cluster measures any more") as gone:
            list(made.measure([split_by(TASK, 2)], baseline))
    assert gone.value.code == "U041" and "goes on" in (gone.value.hint or "")


def test_unfit_nodes_are_not_used(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two has another version: the other one measures everything. Where none fits, the reason is told."""
    open_ = RayBench.open
    unfit: list[RayBench] = []

    def picky(self: RayBench, workload: Workload) -> TrialRecord:
        if self in unfit:
            raise NodeUnfit("node-2 has another version of Weft")
        return open_(self, workload)

    monkeypatch.setattr(RayBench, "open", picky)
    with RayRunner("local", limits=QUICK) as made:
        made.resume(Workload(TASK))
        parts = made._parts_for(Workload(TASK))
        unfit.append(parts._benches[-1])
        baseline = made.open(Workload(TASK))
        records = list(made.measure([split_by(TASK, n) for n in (2, 4, 8)], baseline))
        assert [r.outcome for r in records] == [Outcome.OK] * 3 and parts._alive == 1
        unfit.extend(parts._benches)
        assert [r.outcome for r in made.measure([split_by(TASK, 16)], baseline)] == [Outcome.LOST]
        with pytest.raises(RunnerGone, match="node-2 has another version of Weft"):
            made.open(Workload(TASK))


def test_nodes_that_cannot_run_the_code_say_so() -> None:
    target = TASK.target
    assert ray_cluster._unfit(TASK) == ""
    from weft.target import Target

    other = KernelTask(TASK.program, Target("raspberry-pi-4"))
    assert target is not None and "code for aarch64 does not run on this node" in ray_cluster._unfit(other)
