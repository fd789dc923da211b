"""How many trials search strategies need, on the same kernels with the same measurements.

    python -m benchmarks.tuning                                        # all kernels, all strategies, 5 seeds
    python -m benchmarks.tuning --kernels conv2d --strategies refine,random --trials 192 --seeds 3 --json FILE

Every schedule is measured once, whichever strategy asks for it: its time relative to the default schedule is kept in
a file (--corpus), so that strategies are compared without noise between them, and a benchmark that was interrupted
goes on. In the end the fastest are measured again: of many measurements the best one is lucky. "share reached" is the
speed relative to the best known of the kernel, "trials to 95 %" those until 95 % of it is reached, both as medians over
the seeds. Searches that did not reach it count with twice the trials that they had.
``--history 10`` adds searches of the convolution by a template that know what was found for ten other shapes. Run
nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Table, tables_to_json
from benchmarks.tuning_kernels import KERNELS
from weft import te
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.database import Database
from weft.tune.guiding import DEFAULT_FEATURES, FEATURES, guide_of
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import STRATEGIES, strategy_named
from weft.tune.sketches import space_of
from weft.tune.space import Space
from weft.tune.template import Knobs, TemplateSketch

NEAR_BEST: Final = 0.95
BATCH: Final = 8


AGAIN: Final = 24
"""The fastest schedules of a kernel, which are measured again."""
TIMES: Final = 5
"""Measurements of each of them; the median counts."""
HISTORY_TRIALS: Final = 64
"""Trials of the search of each shape of the history."""


@dataclass(frozen=True)
class ConvShape:
    """A convolution of 3 x 3: the rows and columns of its result, and the channels."""

    size: int
    channels: int
    out: int


CONV: Final = ConvShape(28, 128, 128)
"""A convolution of ResNet-50."""
OTHER_CONVS: Final = (
    *(ConvShape(14, 256, 256), ConvShape(28, 64, 128), ConvShape(28, 256, 128), ConvShape(56, 64, 128)),
    *(ConvShape(7, 512, 512), ConvShape(14, 128, 256), ConvShape(35, 48, 128), ConvShape(42, 64, 128)),
    *(ConvShape(14, 512, 128), ConvShape(21, 96, 256)),
)


def conv2d(shape: ConvShape) -> Program:
    """A convolution in plain NHWC layout with weights HWIO."""
    n, wide = shape.size, shape.size + 2
    x = te.placeholder((wide, wide, shape.channels), name="X")
    w = te.placeholder((3, 3, shape.channels, shape.out), name="W")
    u, v, c = (te.reduce_axis((0, n), name=s) for n, s in ((3, "u"), (3, "v"), (shape.channels, "c")))
    axes = (u, v, c)
    y = te.compute((n, n, shape.out), lambda i, j, o: te.sum(x[i + u, j + v, c] * w[u, v, c, o], axis=axes), name="Y")
    return te_to_tir("conv2d", [x, w], [y])


def conv2d_template(cfg: Knobs, s: Schedule, shape: ConvShape) -> None:
    """Tiles of sums in registers, in blocks of tiles, with all orders of the loops: four million schedules."""
    n, tile = shape.size, max(w for w in (1, 2, 3, 4, 5, 7) if shape.size % w == 0)
    (block,) = s.get_blocks()
    out = s.cache_write(block, 0, "register")
    i, j, o = s.get_loops(out)
    i0, i1, i2 = cfg.define_split("i", i, parts=3, innermost_at_most=4, default=(n, 1, 1))
    j0, j1, j2 = cfg.define_split("j", j, parts=3, innermost_at_most=14, default=(n // tile, 1, tile))
    o0, o1, o2, lane = s.split(o, factors=(None, cfg.define_knob("o1", (1, 2, 4)), cfg.define_knob("o2", (1, 2)), 16))
    s.reorder(i0, j0, o0, i1, j1, o1, i2, j2, o2, lane)
    cfg.define_reorder("outer", (i0, j0, o0))
    cfg.define_reorder("block", (i1, j1, o1), after=(i2, j2, o2, lane))
    s.compute_at(block, s.get_loop(out, 5), preserve_unit_loops=True)
    a, b, d, u, v, c = s.get_loops(block)[6:]
    d0, d1 = s.split(d, factors=(None, 16))
    c0, c1 = cfg.define_split("c", c, parts=2, innermost_at_most=16, default=(shape.channels, 1))
    order = cfg.define_reorder("reduction", (u, v, c0), after=(c1, a, b, d0, d1))
    init = s.decompose_reduction(block, order[0])
    for loop in s.get_loops(init)[6:-1]:
        s.unroll(loop)
    s.vectorize(s.get_loops(init)[-1])
    for loop in (a, b, d0):
        s.unroll(loop)
    s.unroll(c1, limit=cfg.define_knob("unroll", (0, 4, 16)))
    s.vectorize(d1)
    for loop in (i2, j2, o2):
        s.unroll(loop)
    s.vectorize(lane)


def _template_space(shape: ConvShape = CONV) -> tuple[Program, Space]:
    program = conv2d(shape)
    return program, Space((TemplateSketch(program, partial(conv2d_template, shape=shape)),))


def _of_kind(kind: str) -> Callable[[], tuple[Program, Space]]:
    def made() -> tuple[Program, Space]:
        program = KERNELS[kind].make(*KERNELS[kind].shapes[0])
        return program, space_of(KernelTask(program, Target("cpu")))

    return made


SPACES: Final[dict[str, Callable[[], tuple[Program, Space]]]] = {
    "conv2d": _template_space,
    **{kind: _of_kind(kind) for kind in KERNELS},
}
"""Kernels and their spaces: the template, and the sketches of a dozen kinds of operators."""


@dataclass
class Shared:
    """A runner that measures each schedule once, and keeps the results in a file."""

    runner: LocalRunner
    path: Path | None
    kernel: str = ""
    known: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    baseline: TrialRecord | None = None
    measured: int = 0

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for line in self.path.read_text().splitlines():
                kernel, trace, outcome, relative = json.loads(line)
                self.known.setdefault(kernel, {})[trace] = [outcome, relative]

    def open(self, workload: Workload) -> TrialRecord:
        """Open the kernel once."""
        self.baseline = self.runner.open(workload)
        return self.baseline

    def resume(self, workload: Workload) -> None:
        """The runner has no other kernel."""

    def measure(self, traces: Sequence[Trace], best: TrialRecord) -> list[TrialRecord]:
        """Records whose times are relative to the default schedule, as seconds."""
        assert self.baseline is not None
        return [self._record(t) for t in traces]

    def _record(self, trace: Trace) -> TrialRecord:
        known, key = self.known.setdefault(self.kernel, {}), trace.to_json()
        if key not in known:
            assert self.baseline is not None
            (r,) = self.runner.measure([trace], self.baseline)
            slow = r.seconds and self.baseline.seconds and r.seconds / self.baseline.seconds
            known[key] = [str(r.outcome), r.relative if r.ok else slow]
            self.measured += 1
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([self.kernel, key, *known[key]]) + "\n")
        outcome, relative = known[key]
        assert self.baseline is not None and self.baseline.seconds is not None
        seconds = None if relative is None else relative * self.baseline.seconds
        return TrialRecord(trace, Outcome(outcome), seconds, () if seconds is None else (seconds,))

    def close(self) -> None:
        """End the runner."""
        self.runner.close()

    def measure_again(self) -> None:
        """Measure the fastest schedules again, in turns. Their times in the file stay what they were."""
        assert self.baseline is not None
        known = self.known.get(self.kernel, {})
        fastest = sorted((k for k, (o, r) in known.items() if o == Outcome.OK and r), key=lambda k: known[k][1])[:AGAIN]
        times: dict[str, list[float]] = {key: [known[key][1]] for key in fastest}
        for key in [*fastest] * (TIMES - 1):
            (r,) = self.runner.measure([Trace.from_json(key)], self.baseline)
            times[key] += [r.relative] if r.ok and r.relative else []
        known.update({key: [Outcome.OK, statistics.median(found[1:] or found)] for key, found in times.items()})

    def curve(self, found: Sequence[str], is_template: bool) -> list[float]:
        """The best speed relative to the default schedule, which is no point of a template, after each trial."""
        speeds, best = [0.0 if is_template else 1.0], self.known.get(self.kernel, {})
        for outcome, relative in (best[key] for key in found):
            speeds.append(max(speeds[-1], 1 / relative if outcome == Outcome.OK and relative else 0.0))
        return speeds[1:]


def search(
    shared: Shared, kernel: str, strategy: str, seed: int, trials: int, features: str, memory: Database | None = None
) -> list[str]:
    """The schedules that were measured, in order."""
    program, space = SPACES[kernel]()
    workload = Workload(KernelTask(program, Target("cpu")))
    guide = guide_of(space, workload, features, seed)
    is_template = isinstance(space.sketches[0], TemplateSketch)
    tuner = KernelTuner(
        workload, space, shared, strategy_named(strategy), guide=guide, memory=memory, seed=seed,
        has_default=not is_template,
    )  # fmt: skip
    tuner.open()
    while len(tuner.history.trials) < trials and not tuner.exhausted:
        tuner.step(min(BATCH, trials - len(tuner.history.trials)))
    return [t.record.trace.to_json() for t in tuner.history.trials if isinstance(t.record.trace, Trace)]


def write_history(path: Path, shapes: Sequence[ConvShape], features: str) -> None:
    """Search each of these shapes, and keep what is found in a database."""
    with LocalRunner() as runner, Database(path, create=True) as database:
        for shape in shapes:
            program, space = _template_space(shape)
            workload = Workload(KernelTask(program, Target("cpu")))
            tuner = KernelTuner(
                workload, space, runner, strategy_named("refine"), guide=guide_of(space, workload, features),
                memory=database, has_default=False,
            )  # fmt: skip
            tuner.open()
            while len(tuner.history.trials) < HISTORY_TRIALS and not tuner.exhausted:
                tuner.step(BATCH)
            print(f"{shape}: {tuner.speedup:.3f}", flush=True)


@contextmanager
def copied(path: Path) -> Iterator[Database]:
    """A copy of a database: what one search finds, the next one does not know."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "known.db")
        with Database(Path(folder) / "known.db") as database:
            yield database


def with_history(shared: Shared, history: int, seeds: int, trials: int, features: str) -> list[list[str]]:
    """The searches of the convolution that know so many other shapes."""
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder) / "history.db", list[list[str]]()
        write_history(path, OTHER_CONVS[:history], features)
        for seed in range(seeds):
            with copied(path) as database:
                found.append(search(shared, "conv2d", "refine", seed, trials, features, database))
    return found


def trials_to(curve: Sequence[float], wanted: float) -> int:
    """Trials until ``wanted`` is reached; twice the length if it is not."""
    return next((i + 1 for i, b in enumerate(curve) if b >= wanted), 2 * len(curve))


def table(
    kernels: Sequence[str], strategies: Sequence[str], seeds: int, trials: int, path: Path | None, features: str,
    history: int = 0,
) -> Table:  # fmt: skip
    """All searches, and what they reached."""
    rows: list[tuple[object, ...]] = []
    for kernel in kernels:
        searches: dict[str, list[list[str]]] = {}
        is_template = SPACES[kernel] is _template_space
        with LocalRunner() as runner:
            shared = Shared(runner, path, kernel)
            for strategy in strategies:
                searches[strategy] = [search(shared, kernel, strategy, s, trials, features) for s in range(seeds)]
                print(f"{kernel} {strategy}: searched", flush=True)
            if kernel == "conv2d" and history:
                name = f"refine, knows {history} shapes"
                searches[name] = with_history(shared, history, seeds, trials, features)
            shared.measure_again()
        best = max(shared.curve(list(shared.known.get(kernel, {})), is_template), default=1.0)
        for strategy, lists in searches.items():
            found = [shared.curve(one, is_template) for one in lists]
            print(f"{kernel} {strategy}: {[round(c[-1], 3) for c in found]}", flush=True)
            last = statistics.median(c[-1] for c in found)
            needed = statistics.median(trials_to(c, NEAR_BEST * best) for c in found)
            rows.append((kernel, strategy, best, last / best, needed))
    note = f"Medians of {seeds} seeds, {trials} trials each. Speeds are relative to the default schedule of the rules."
    columns = ("kernel", "strategy", "best known", "share reached", "trials to 95 %")
    return Table("Trials of search strategies", columns, tuple(rows), note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default=",".join(SPACES), help="comma-separated")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="comma-separated")
    parser.add_argument("--features", default=DEFAULT_FEATURES, choices=list(FEATURES), help="of the cost model")
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--history", type=int, default=0, help="shapes of conv2d that are searched before, at most 10")
    parser.add_argument("--corpus", type=Path, default=None, help="file of measured schedules, which is added to")
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    made = table(
        given.kernels.split(","), given.strategies.split(","), given.seeds, given.trials, given.corpus, given.features,
        given.history,
    )  # fmt: skip
    print(made.plain())
    if given.json:
        given.json.write_text(tables_to_json([made]))


if __name__ == "__main__":
    main()
