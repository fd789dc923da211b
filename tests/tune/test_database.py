"""What a tuning database answers: the best trials, their baselines, verdicts, neighbours, and what pruning leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tuned_kernels import PROGRAM, product, split_by, timed

from weft.kernels.task import KernelTask
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError, UserError
from weft.target import Target
from weft.tune.database import Database
from weft.tune.record import Outcome, TrialRecord

TASK = product(64, 64, 64)
A, B, C = (split_by(TASK, n) for n in (4, 8, 16))
FAILED = TrialRecord(A, Outcome.FAILED, message="too few registers")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuned.db", create=True) as made:
        yield made


def test_trials_come_back_as_they_were(database: Database) -> None:
    records = [
        timed(None, 2e-3),
        TrialRecord(A, Outcome.OK, 1e-3, (1e-3, 1.1e-3), 0.5, 2, "rows", ""),
        TrialRecord(B, Outcome.SLOW, 9e-3),
        TrialRecord(None, Outcome.CRASHED, message="signal 11\nbyte \udcff"),
    ]
    numbers = database.add(TASK, records, run="first", seed=7, features=[None, [1, 2.5], np.zeros(0), None])
    found = database.trials(TASK)
    assert [t.record for t in found[:3]] == records[:3] and [t.number for t in found] == numbers
    assert found[3].message == "signal 11\nbyte \\udcff", "what UTF-8 cannot hold is written out"
    assert {t.run for t in found} == {"first"} and {t.seed for t in found} == {7}
    assert [t.place for t in found] == [0, 1, 2, 3] and len({t.uid for t in found}) == 4
    assert found[1].features is not None and found[1].features.tolist() == [1, 2.5] and found[0].features is None
    database.add(TASK, timed(C, 1e-3), run="first")
    assert [t.place for t in database.trials(TASK)] == [0, 1, 2, 3, 4]


def test_kernels_are_known_by_their_structure_and_target(database: Database) -> None:
    database.add(TASK, timed(A, 1e-3))
    database.add(TASK.with_trace(B), timed(B, 2e-3))  # the schedule of the task is not part of it
    assert len(database.trials(product(64, 64, 64, name="renamed"))) == 2
    for other in (product(64, 64, 32), product(64, 64, 64, target="zen3")):
        assert database.trials(other) == [] and database.find(other) is None and database.best(other) is None
    (kernel,) = database.workloads()
    assert kernel.name == "dense" and kernel.task() == TASK and kernel.task().trace is None
    assert [t.trace for t in database.trials(kernel)] == [A, B]


def test_a_kernel_is_found_after_its_machine_was_measured(database: Database) -> None:
    """And the other way round: rates change what the compiler estimates, not what a schedule takes."""
    rated = product(64, 64, 64, target=f"{Target('zen4')} -rates=packed_products:7e10")
    assert "-rates=" in str(rated.target) and str(TASK.target) != str(rated.target)
    database.add(TASK, timed(A, 2e-3))
    assert database.find(rated) == A
    database.add(rated, timed(B, 1e-3))
    assert database.find(TASK) == B and len(database.trials(TASK)) == 2 and len(database.workloads()) == 1
    database.add(product(64, 64, 32), timed(A, 1e-3))
    (near,) = database.nearest(rated, 5)
    assert near.trial.trace == A


def test_the_verdict_of_the_model_itself_counts(database: Database) -> None:
    numbers = database.add(TASK, [timed(None, 4e-3), timed(A, 1e-3), timed(B, 2e-3), timed(C, 3e-3)])
    database.add_verdict(numbers[1], "resnet", accepted=False, graph="r")
    database.add_verdict(numbers[1], "vgg", accepted=True, graph="v")
    database.add_verdict(numbers[2], "vgg", accepted=False, graph="v")
    answers = {graph: database.find(TASK, graph=graph) for graph in ("r", "v", "unknown", "")}
    assert answers == {"r": C, "v": A, "unknown": C, "": C}, "what another model refuses is not tried where none knows"
    database.add_verdict(numbers[2], "resnet", accepted=True, graph="r")
    assert database.find(TASK, graph="r") == B and database.find(TASK, graph="v") == A
    database.add_verdict(numbers[1], "model", accepted=False)  # as files of older formats have it
    assert database.find(TASK, graph="v") == A and database.find(TASK) == C
    assert database.prune(keep=0) == 0, "verdicts of all models need their trials"
    versions = [database.for_threads(1).for_model(graph).version for graph in ("", "unknown", "r", "v")]
    assert versions[0] == versions[1] and len(set(versions)) == 3


def test_the_best_succeeded_and_was_not_refused(database: Database) -> None:
    numbers = database.add(TASK, [timed(None, 3e-3), timed(A, 1e-3), timed(B, 2e-3), FAILED])
    assert database.find(TASK) == A
    database.add_verdict(numbers[1], "resnet", accepted=False, reason="alone in the cache")
    best = database.best(TASK)
    assert best is not None and best.trace == B and database.find(TASK) == B
    (verdict,) = database.trials(TASK)[1].verdicts
    assert (verdict.model, verdict.accepted, verdict.reason) == ("resnet", False, "alone in the cache")
    database.add(TASK, timed(A, 0.5e-3), run="again")
    assert database.find(TASK) == B, "the schedule was refused, whichever trial it is of"
    database.add_verdict(database.trials(TASK)[-1], "resnet", accepted=True)
    assert database.find(TASK) == A, "the last verdict of a model counts"
    with pytest.raises(UserError, match="no trial 99") as error:
        database.add_verdict(99, "resnet", accepted=True)
    assert error.value.code == "U012"


def test_warm_and_cold_caches_are_kept_apart(database: Database) -> None:
    """Times with warm caches say nothing about those with cold ones; what was measured last decides."""
    warm = [timed(None, 2e-3), timed(A, 1e-3), timed(B, 1.5e-3)]
    cold = [replace(r, cold=True) for r in (timed(None, 6e-3), timed(A, 7e-3), timed(B, 5e-3))]
    database.add(TASK, warm, run="warm")
    assert database.find(TASK) == A
    numbers = database.add(TASK, cold, run="cold")
    assert database.find(TASK) == B and database.speedup(TASK) == pytest.approx(1.2)
    assert [t.record.cold for t in database.trials(TASK)] == [False] * 3 + [True] * 3
    baseline = database.baseline(TASK)
    assert baseline is not None and baseline.number == numbers[0]
    database.add(TASK, [timed(None, 2e-3), timed(A, 1.1e-3)], run="warm again")
    assert database.find(TASK) == A and database.speedup(TASK) == pytest.approx(2 / 1.1)
    assert database.prune(keep=0) and database.find(TASK) == A


def test_answers_are_what_is_found_when_one_after_the_other_is_refused(database: Database) -> None:
    traces = [split_by(TASK, n) for n in (1, 2, 4, 8, 16, 32, 64)]
    times = (3e-3, 1e-3, 1.5e-3, 2e-3, 0.5e-3, 2.5e-3, 1.2e-3)
    database.add(TASK, [timed(None, 2.2e-3), *(timed(t, s) for t, s in zip(traces, times, strict=True))], run="one")
    database.add(TASK, [timed(None, 1.4e-3), timed(A, 1.3e-3), timed(B, 1.6e-3)], run="two")
    database.add_verdict(database.trials(TASK)[7], "vgg", accepted=False)
    answers = database.answers(TASK)
    found = []
    while (trace := database.find(TASK)) is not None:
        found.append(trace)
        (number,) = [t.number for t in answers if t.trace == trace]
        database.add_verdict(number, "resnet", accepted=False)
    assert [t.trace for t in answers] == found and len(found) >= 3
    assert database.answers(TASK) == [] and database.answers(product(9, 9, 9)) == []
    with pytest.raises(UserError, match="no trial 99"):
        database.add_verdicts({1: "", 99: ""}, "resnet", accepted=True)
    assert database.find(TASK) is None, "all or none"
    database.add_verdicts({t.number: "" for t in answers}, "resnet", accepted=True)
    assert database.find(TASK) == found[0]


def test_only_what_is_faster_than_the_default_schedule_is_used(database: Database) -> None:
    database.add(TASK, [timed(None, 1e-3), timed(A, 2e-3)])
    assert database.find(TASK) is None
    best, baseline = database.best(TASK), database.baseline(TASK)
    assert best is not None and best == baseline and best.trace is None
    database.add(TASK, timed(B, 0.9e-3))
    assert database.find(TASK) == B
    other = product(8, 8, 8)
    database.add(other, FAILED)
    assert database.find(other) is None and database.baseline(other) is None
    database.add(other, timed(A, 1.0))
    assert database.find(other) == A, "nothing says that it is slower than the default schedule"


def test_relative_times_count_where_the_machine_drifts(database: Database) -> None:
    """The machine gets three times slower after the second trial."""
    records = [timed(None, 1e-3), timed(A, 0.8e-3, 0.8), timed(B, 1.8e-3, 0.75), timed(C, 2.0e-3, 1.1)]
    database.add(TASK, records, run="slower")
    assert database.find(TASK) == B
    steady = [t.steady for t in database.trials(TASK)]
    assert steady == pytest.approx([1e-3, 0.8e-3, 0.6e-3, 0.66e-3])
    quick = product(16, 16, 16)  # gets faster: seconds would choose the third
    database.add(quick, [timed(None, 3e-3), timed(A, 2e-3, 0.5), timed(B, 1e-3, 1.2)], run="quicker")
    assert database.find(quick) == A


def test_trials_beside_a_schedule_of_another_run_are_told_by_it(database: Database) -> None:
    """A search goes on: its default schedule is measured again, its candidates run beside the best of before."""
    known = timed(A, 1e-3, 0.5)
    database.add(TASK, [timed(None, 2e-3), known], run="first")
    records = [timed(B, 8e-3, 2.0), timed(C, 3e-3, 0.75), timed(split_by(TASK, 2), 5e-3, 1.2)]
    database.add(TASK, timed(None, 8e-3), run="second")
    database.add(TASK, records, run="second", best=known)
    assert [t.steady for t in database.trials(TASK)[3:]] == pytest.approx([2e-3, 0.75e-3, 1.2e-3])
    assert {t.default_steady for t in database.trials(TASK)[3:]} == {2e-3}
    assert database.find(TASK) == C and database.speedup(TASK) == pytest.approx(2 / 0.75)
    stranger = TrialRecord(split_by(TASK, 32), Outcome.OK, 0.7e-3)  # of no trial: its own time counts
    database.add(TASK, timed(B, 9e-3, 0.5), run="third", best=stranger)
    assert database.trials(TASK)[-1].steady == pytest.approx(0.35e-3) and database.find(TASK) == B


def test_confirmed_schedules_run_beside_the_default_one(database: Database) -> None:
    default = timed(None, 2e-3)
    database.add(TASK, [default, timed(A, 1e-3, 0.5), timed(B, 0.9e-3, 0.9)], run="search")
    assert database.find(TASK) == B
    again = [timed(B, 6e-3, 0.7), timed(A, 4e-3, 0.6)]
    database.add(TASK, again, run="search confirmed", best=default)
    assert [t.steady for t in database.trials(TASK)[3:]] == pytest.approx([1.4e-3, 1.2e-3])
    assert database.find(TASK) == A, "the last trial of a schedule counts"
    best = database.best(TASK)
    assert best is not None and best.run == "search confirmed" and database.speedup(TASK) == pytest.approx(2 / 1.2)
    database.add(TASK, [timed(A, 4e-3, 1.1), timed(B, 4e-3, 1.01)], run="once more", best=default)
    assert database.find(TASK) is None, "neither is faster"
    assert database.prune(keep=1) == 5 and database.find(TASK) is None


def test_relative_times_to_something_unknown_do_not_count(database: Database) -> None:
    database.add(TASK, [timed(A, 3e-3, 0.5), timed(B, 2e-3, 0.1), timed(C, 1e-3, 2.0)], run="no beginning")
    assert [t.steady for t in database.trials(TASK)] == [3e-3, 2e-3, 1e-3]
    assert database.find(TASK) == C and database.speedup(TASK) is None


def test_the_default_schedule_of_the_same_run_is_compared(database: Database) -> None:
    database.add(TASK, timed(None, 1e-3), run="on a quiet machine")
    database.add(TASK, [timed(None, 4e-3), timed(A, 2e-3)], run="on a busy one")
    assert database.find(TASK) == A and database.speedup(product(1, 1, 1)) is None
    baseline = database.baseline(TASK)
    assert baseline is not None and baseline.seconds == 1e-3
    late = product(8, 8, 8)  # the default schedule was measured last
    database.add(late, timed(None, 1e-3), run="quiet")
    database.add(late, [timed(A, 2e-3), timed(None, 4e-3)], run="busy")
    assert database.find(late) == A


def test_trials_of_the_nearest_number_of_threads_count(database: Database) -> None:
    database.add(TASK, [timed(None, 8e-3), timed(A, 4e-3)])
    database.add(TASK, [timed(None, 2e-3, threads=4), timed(B, 1e-3, threads=4), timed(A, 3e-3, threads=4)])
    database.add(TASK, replace(FAILED, threads=64))
    assert database.thread_counts(TASK) == [1, 4]
    assert [database.find(TASK, n) for n in (1, 2, 3, 4, 16, None)] == [A, A, B, B, B, B]
    assert database.for_threads(1).find(TASK) == A and database.for_threads(8).find(TASK) == B


def test_the_version_changes_with_the_answers_only(database: Database, tmp_path: Path) -> None:
    seen = [database.version]

    def changes() -> bool:
        seen.append(database.version)
        return seen[-1] != seen[-2]

    database.add(TASK, [FAILED, FAILED])
    assert not changes()
    numbers = database.add(TASK, [timed(None, 2e-3), timed(A, 1e-3), timed(B, 1.5e-3)])
    assert changes()
    database.add_verdict(numbers[1], "m", accepted=False)
    assert changes() and len(set(seen)) == 3
    assert database.prune(keep=0, failed=True) > 0 and not changes()
    with Database(tmp_path / "other.db", create=True) as other:
        assert other.version not in seen
        assert database.merge(other).trials == 0 and not changes()
        other.add(TASK, timed(C, 1e-4))
        assert database.merge(other).trials == 1 and changes()
    assert database.for_threads(1).version != database.for_threads(2).version


def test_pruning_changes_no_answer(database: Database) -> None:
    small = product(4, 4, 4)
    slow = [timed(split_by(TASK, n), 1e-3 * n) for n in range(2, 20)]
    numbers = database.add(TASK, [timed(None, 9e-3), *slow, FAILED, timed(None, 8e-3)])
    database.add(TASK, [timed(None, 7e-3, threads=2), timed(C, 6e-3, threads=2), timed(B, 6.5e-3, threads=2)])
    database.add(small, [FAILED, timed(A, 1.0)])
    database.add_verdict(numbers[15], "accepted", accepted=True)
    asked = [(TASK, 1), (TASK, 2), (small, 1)]
    before = [(database.find(*q), database.best(*q), database.baseline(*q)) for q in asked]
    assert database.prune(failed=True) == 2
    assert database.prune(keep=3) == len(slow) - 3 - 1 + 1, "three, the accepted one; of the baselines, the faster"
    assert database.prune(keep=3, failed=True) == 0
    assert [(database.find(*q), database.best(*q), database.baseline(*q)) for q in asked] == before
    assert database.prune(keep=0) == 3, "two of those with one thread, one of those with two"
    assert [(database.find(*q), database.best(*q), database.baseline(*q)) for q in asked] == before
    with pytest.raises(UserError, match="cannot be kept"):
        database.prune(keep=-1)


TRANSPOSED = PROGRAM.replace("w: f32[K, M]", "w: f32[M, K]").replace("w[r, x_1]", "w[x_1, r]")
HALVES = PROGRAM.replace("f32", "f16")
LARGEST = PROGRAM.replace("out[y, x_1] + x[y, r] * w[r, x_1]", "max(out[y, x_1], x[y, r] * w[r, x_1])")
OPEN = PROGRAM.replace("N", "n").replace('"nAME"', '"NAME"[n]')


def test_neighbours_have_the_same_loops_and_other_extents(database: Database) -> None:
    for task in (product(64, 64, 128), product(64, 512, 64), product(32, 64, 64, name="other")):
        database.add(task, [timed(None, 2e-3), timed(B, 1e-3), timed(A, 1.5e-3)])
    others = [product(64, 64, 8, text=t) for t in (TRANSPOSED, HALVES, LARGEST)]
    others += [product(64, 64, 8, target="zen3"), product(64, 64, 8, text=OPEN)]
    for task in (TASK, *others):
        database.add(task, timed(C, 1e-3))
    database.add(product(64, 64, 63), [timed(None, 1e-3), FAILED])  # no schedule of its own
    found = database.nearest(TASK, 10)
    assert [(n.kernel.task(), n.distance) for n in found] == [
        (product(64, 64, 128), 1.0),
        (product(32, 64, 64, name="other"), 1.0),
        (product(64, 512, 64), 3.0),
    ]
    assert all(n.trial.trace == B for n in found)
    assert database.nearest(TASK, 1) == found[:1] and database.nearest(TASK, 0) == []
    (unknown, *_) = database.nearest(product(64, 500, 64), 1)
    assert unknown.kernel.task() == product(64, 512, 64) and 0 < unknown.distance < 0.1


def test_a_tuner_asks_what_is_known(database: Database) -> None:
    records = [timed(None, 2e-3), timed(A, 1e-3), FAILED]
    database.add(TASK, [*records, timed(B, 1e-3, threads=2)])
    near, far = product(64, 64, 32), product(8, 8, 8)
    database.add(near, [timed(C, 1e-3), timed(A, 2e-3)])
    database.add(far, timed(B, 1e-3))
    told = [replace(r, relative=t) for r, t in zip(records, (1.0, 0.5, None), strict=True)]
    assert database.known(TASK, 1) == told and database.known(product(9, 9, 9), 1) == []
    assert database.similar(TASK, 1) == [C, B] and database.similar(TASK, 1, count=1) == [C]
    with database._file.writing() as connection:
        connection.execute("UPDATE trials SET trace = '{}' WHERE trace LIKE '%4]%' OR trace LIKE '%16]%'")
    assert database.known(TASK, 1) == told[:1] and database.similar(TASK, 1) == [B], "what cannot be read is left out"


@pytest.mark.parametrize(
    "wrong",
    [
        timed(A, math.nan),
        timed(A, -1.0),
        timed(A, 0.0),
        timed(A, 1.0, 0.0),
        timed(A, 1.0, math.inf),
        timed(A, 1.0, threads=0),
        TrialRecord(A, Outcome.OK),
        TrialRecord(A, Outcome.SLOW, math.inf),
        TrialRecord(A, Outcome.OK, 1.0, (1.0, math.nan)),
    ],
    ids=str,
)
def test_records_that_no_measurement_gives_are_refused(database: Database, wrong: TrialRecord) -> None:
    with pytest.raises(UserError) as error:
        database.add(TASK, [timed(B, 1.0), wrong])
    assert error.value.code == "U009"
    assert database.trials(TASK) == [] and database.workloads() == [], "none of them was added"


def test_wrong_arguments_of_add_are_refused(database: Database) -> None:
    for more in ({"features": [[1.0], [2.0]]}, {"features": ["fast"]}, {"seed": 2**63}):
        with pytest.raises(UserError) as error:
            database.add(TASK, timed(A, 1.0), **more)  # type: ignore[arg-type]
        assert error.value.code == "U009"
    assert database.trials(TASK) == []


def test_schedules_of_other_versions_are_kept_and_reported(database: Database) -> None:
    database.add(TASK, [timed(None, 2e-3), timed(A, 1e-3)])
    with database._file.writing() as connection:
        connection.execute("""UPDATE trials SET trace = replace(trace, '"version": 2', '"version": 1')""")
    with pytest.raises(ScheduleError, match="format version 1"):
        database.find(TASK)
    default, tuned = database.trials(TASK)
    assert default.trace is None and (tuned.outcome, tuned.seconds) == (Outcome.OK, 1e-3)
    with pytest.raises(ScheduleError, match="format version 1"):
        _ = tuned.record


def test_a_trace_of_a_kernel_replays_on_the_stored_task(database: Database) -> None:
    database.add(TASK, timed(A, 1e-3))
    (kernel,) = database.workloads()
    task, trace = kernel.task(), database.find(TASK)
    assert isinstance(trace, Trace) and isinstance(task, KernelTask)
    assert task.with_trace(trace).key == TASK.with_trace(A).key
