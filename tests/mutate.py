"""Plants one mistake at a time in the core and runs its tests: ``python tests/mutate.py --sample 60``.

Each mutant (``tests/mutants.py`` says of which kinds) lives in a copy of the tree. It is *killed* when a test fails,
the process ends, or the tests take several times as long as without it; else it *survived*: either a test is missing,
or the mutant is *equivalent*, since nothing that counts depends on the change. Those are listed with the reason in
``tests/equivalent_mutants.py``. Results go to a JSON file after each mutant; a run that is started again goes on.

    python tests/mutate.py --list                             how many mutants each file has
    python tests/mutate.py --sample 60 --seed 1               60 of them, drawn by a seed, equally many of each group
    python tests/mutate.py --sample 60 --only core            60 of the groups where tests of models see least
    python tests/mutate.py --only weft/expr/bounds.py:43      those of a file, of a group, or of a line
    python tests/mutate.py --again                            what survived so far, after tests were added
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import Queue
from typing import Any

from equivalent_mutants import EQUIVALENT
from mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
TIMES_AS_LONG, AND_SECONDS = 4, 30
"""Tests of a mutant are ended after so many times the seconds that they take without it, and some more."""
BUILD = (sys.executable, "setup.py", "-q", "build_ext", "--inplace")


@dataclass(frozen=True)
class Group:
    """Files (patterns) that the same tests (paths below ``tests``, the quick ones first) must protect."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


CORE = (
    Group(
        "expressions",
        ("weft/expr/rules/*.py", "weft/expr/bounds.py", "weft/expr/normalize.py", "weft/expr/prove.py"),
        ("expr/test_normal_forms.py", "expr/test_typed_forms.py", "expr"),
    ),
    Group(
        "dependence",
        ("weft/schedule/dependence.py",),
        (
            "schedule/test_dependence.py",
            "schedule/test_dependence_enumerated.py",
            "schedule/test_schedule_shared.py",
            "schedule/test_schedule_illegal.py",
            "schedule/test_schedule_refusals.py",
            "schedule/test_schedule_affine.py",
            "schedule/test_schedule_blocks.py",
        ),
    ),
    Group(
        "memory plan",
        ("weft/lowering/lifetimes.py", "weft/lowering/place.py", "weft/lowering/verify_memory.py"),
        (
            "lowering/test_memory_enumerated.py",
            "lowering/test_verify_memory.py",
            "lowering/test_memory_plan.py",
            "lowering/test_place.py",
            "lowering/test_joins_in_place.py",
            "lowering/test_memory_of_functions.py",
            "graph/test_graph_memory.py",
        ),
    ),
    Group(
        "decoder",
        ("weft/runtime/artifact.py", "weft/runtime/serialize.py", "weft/runtime/encode.py", "csrc/src/decode.c"),
        (
            "runtime/test_decoder_words.py",
            "runtime/test_malformed_parts.py",
            "runtime/test_devices.py",
            "runtime/test_artifact_format.py",
            "runtime/test_artifact.py",
            "runtime/test_executor.py",
            "runtime/test_loader.py",
            "lowering/test_memory_of_functions.py",
        ),
    ),
)
"""A wrong line gives wrong results or lets a damaged file in, and few tests of whole models would see it."""
OTHERS = (
    Group(
        "executor",
        ("csrc/src/execute.c", "csrc/src/functions.c", "csrc/src/values.c", "csrc/src/sizes.c"),
        (
            "runtime/test_executor.py",
            "runtime/test_devices.py",
            "runtime/test_device_in_c.py",
            "runtime/test_profile.py",
            "lowering/test_pending_values.py",
            "lowering/test_functions.py",
            "lowering/test_control_flow.py",
            "runtime/test_artifact_hostile.py",
        ),
    ),
    Group(
        "schedule primitives",
        ("weft/schedule/primitives/*.py",),
        (
            "schedule/test_schedule_refusals.py",
            "schedule/test_schedule_arguments.py",
            "schedule/test_schedule_blocks.py",
            "schedule/test_schedule_typical.py",
            "schedule/test_schedule_illegal.py",
            "schedule/test_schedule_affine.py",
            "schedule/test_schedule_padding.py",
            "schedule/test_schedule_pipelining.py",
            "schedule/test_schedule_rfactor.py",
            "schedule/test_schedule_tensor_ir.py",
            "schedule/test_schedule_traces.py",
            "schedule/test_schedule_random.py",
        ),
    ),
    Group(
        "interpreters",
        ("weft/tir/interpret.py", "weft/graph/interpret.py"),
        ("tir/test_tir_interpreter.py", "graph", "lowering/test_functions.py", "lowering/test_te_to_tir.py"),
    ),
    Group("graph passes", ("weft/graph/passes/*.py",), ("graph", "ops_rules/test_pipeline_random.py")),
    Group(
        "kernel lowering",
        ("weft/lowering/kernel/*/*.py",),
        (
            "lowering/test_tir_to_kernel.py",
            "lowering/test_kernel_indices.py",
            "lowering/test_kernel_masks.py",
            "lowering/test_kernel_hidden.py",
            "lowering/test_kernel_storage.py",
            "lowering/test_kernel_transpose.py",
            "lowering/test_kernel_unread.py",
            "lowering/test_kernel_mathematics.py",
            "schedule/test_schedule_pipelining.py",
            "schedule/test_virtual_threads.py",
            "schedule/test_schedule_typical.py",
            "lowering/test_random_programs.py",
        ),
    ),
)
GROUPS = (*CORE, *OTHERS)


class Workshop:
    """A copy of the tree in which one mutant after the other is tested."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout.split("\0")
        names += [str(p.relative_to(root)) for p in root.glob("weft/runtime/_native*.so")]
        for name in filter(None, names):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)

    def run(self, tests: Sequence[str], seconds: float | None) -> tuple[str, str]:
        """``passed``, ``failed`` or ``time limit``, and what pytest printed."""
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "PYTHONPATH": str(self.folder), "WEFT_CACHE_DIR": cache}
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
            paths = [f"tests/{t}" for t in tests]
            process = subprocess.Popen(
                [*command, *paths], cwd=self.folder, env=environment, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                told, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "time limit", ""
        return "failed" if process.returncode else "passed", told.strip()

    def judge(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> tuple[str, str]:
        """``killed``, ``time limit`` or ``survived``, and by what."""
        path = self.folder / mutant.path
        try:
            self._write(path, mutant.text)
            if (
                path.suffix == ".c"
                and subprocess.run(BUILD, cwd=self.folder, capture_output=True, check=False).returncode
            ):
                return "killed", "does not compile"
            outcome, told = self.run(tests, seconds)
        finally:
            self._write(path, mutant.source)
        if outcome == "failed":
            lines = [line for line in told.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return "killed", lines[0][:200] if lines else told[-200:]
        return ("survived", "") if outcome == "passed" else ("time limit", "")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if path.suffix == ".py":  # compiled code counts as new if time (in seconds) and size of the source are the same
            Path(cache_from_source(str(path))).unlink(missing_ok=True)


class Results:
    """What is known of mutants, by key, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = json.loads(path.read_text())["mutants"] if path.exists() else {}

    def add(self, group: Group, mutant: Mutant, outcome: str, by: str) -> None:
        self.known[mutant.key] = {
            "outcome": outcome, "by": by, "group": group.name, "kind": mutant.kind, "of": mutant.of,
            "at": f"{mutant.path}:{mutant.line}", "diff": mutant.diff(),
        }  # fmt: skip
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps({"summary": self.summary(), "mutants": self.known}, indent=1) + "\n")
        os.replace(draft, self.path)

    def summary(self) -> dict[str, Any]:
        counts = Counter(r["outcome"] for r in self.known.values())
        judged = sum(counts.values()) - counts["equivalent"]
        return {**counts, "surviving share": round(counts["survived"] / judged, 4) if judged else 0.0}


def every_mutant(root: Path = ROOT, groups: Sequence[Group] = GROUPS) -> Iterator[tuple[Group, Mutant]]:
    for group in groups:
        for path in sorted(p for pattern in group.files for p in root.glob(pattern)):
            for mutant in mutants_of(str(path.relative_to(root)), path.read_text()):
                yield group, mutant


def is_equivalent(mutant: Mutant) -> bool:
    return (mutant.path, *mutant.change) in EQUIVALENT


def chosen(
    found: Sequence[tuple[Group, Mutant]], only: str, sample: int | None, seed: int
) -> list[tuple[Group, Mutant]]:
    """Those of the file, line or group ``only`` (``core``: of the groups of CORE), or ``sample`` of them: about equally
    many of each group."""
    core = [g for g in CORE if only == "core"]
    wanted = [(g, m) for g, m in found if g in core or only in ("", g.name, m.path, f"{m.path}:{m.line}")]
    if sample is None or sample >= len(wanted):
        return wanted
    pick = random.Random(seed)
    piles = [[w for w in wanted if w[0].name == name] for name in dict.fromkeys(g.name for g, _ in wanted)]
    for pile in piles:
        pick.shuffle(pile)
    turns = [pile[i] for i in range(max(map(len, piles))) for pile in piles if i < len(pile)]
    return turns[:sample]


def bar(done: int, of: int, survived: int, since: float) -> str:
    width = 30
    filled = "#" * (width * done // max(of, 1))
    left = (time.monotonic() - since) / max(done, 1) * (of - done)
    return f"[{filled:<{width}}] {done}/{of}, {survived} survived, {left / 60:.0f} min left"


def judge_all(todo: Sequence[tuple[Group, Mutant]], results: Results, jobs: int, root: Path = ROOT) -> None:
    """Judge the mutants, ``jobs`` at a time. Raises SystemExit if tests fail without any mutant."""
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as place, ThreadPoolExecutor(jobs) as pool:
        free: Queue[Workshop] = Queue()
        for number in range(jobs):
            free.put(Workshop(Path(place) / str(number), root))
        limits = {}
        for group in dict.fromkeys(g for g, m in todo if not is_equivalent(m)):
            limits[group] = _limit(group, free)
        since, survived = time.monotonic(), 0

        def judge(one: tuple[Group, Mutant]) -> tuple[Group, Mutant, str, str]:
            group, mutant = one
            if is_equivalent(mutant):
                return group, mutant, "equivalent", EQUIVALENT[mutant.path, *mutant.change]
            workshop = free.get()
            try:
                return group, mutant, *workshop.judge(mutant, group.tests, limits[group])
            finally:
                free.put(workshop)

        for done, (group, mutant, outcome, by) in enumerate(pool.map(judge, todo), 1):
            results.add(group, mutant, outcome, by)
            survived += outcome == "survived"
            if outcome == "survived":
                print(f"\r{'':80}\rsurvived: {mutant.path}:{mutant.line} ({mutant.kind})\n{mutant.diff()}", flush=True)
            print(f"\r{bar(done, len(todo), survived, since)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _limit(group: Group, free: Queue[Workshop]) -> float:
    """Seconds after which the tests of a mutant are ended."""
    workshop, start = free.get(), time.monotonic()
    outcome, told = workshop.run(group.tests, None)
    free.put(workshop)
    if outcome != "passed":
        sys.exit(f"the tests of the group '{group.name}' fail without any mutant:\n{told}")
    return TIMES_AS_LONG * (time.monotonic() - start) + AND_SECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="PATH", help="a file, FILE:LINE or the name of a group")
    parser.add_argument("--again", action="store_true", help="judge again what survived or was ended by the time limit")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"), help="results, kept and added to")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="count the mutants of each file and end")
    options = parser.parse_args(arguments)
    found = list(every_mutant())
    if options.list:
        for path, count in Counter(m.path for _, m in found).items():
            print(f"{count:5} {path}")
        return 0
    results = Results(options.out)
    if options.again:
        doubtful = {k for k, r in results.known.items() if r["outcome"] in ("survived", "time limit")}
        todo = [(g, m) for g, m in found if m.key in doubtful]
    else:
        wanted = chosen(found, options.only, options.sample, options.seed)
        todo = [(g, m) for g, m in wanted if results.known.get(m.key, {}).get("of") != m.of]
    judge_all(todo, results, options.jobs)
    print(json.dumps(results.summary()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
