"""Plants one mistake at a time in the core and runs its tests: ``python tests/mutate.py --sample 60``.

Each mutant (``tests/mutants.py`` says of which kinds) lives in a copy of the tree. It is *killed* when a test fails,
the process ends, or the tests take several times as long as without it; else it *survived*: either a test is missing,
or the mutant is *equivalent*, since nothing that counts depends on the change, or *arbitrary*: another number in the
place of one that nothing demands. Those two kinds are listed with the reason in ``tests/equivalent_mutants.py`` and not
judged. Results go to a JSON file after each mutant; a run that is started again goes on.

    python tests/mutate.py --list                             how many mutants each file has
    python tests/mutate.py --sample 60 --seed 1               60 of them, drawn by a seed, equally many of each group
    python tests/mutate.py --sample 60 --only core            60 of the groups where tests of models see least
    python tests/mutate.py --only weft/expr/bounds.py:43      those of a file, of a group, or of a line
    python tests/mutate.py --again                            what survived so far, after tests were added
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from queue import Queue
from typing import Any

from equivalent_mutants import ARBITRARY, EQUIVALENT
from mutants import Function, Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
SERVER = str(Path(__file__).with_name("mutation_server.py"))
TIMES_AS_LONG, AND_SECONDS = 4, 5
"""A test of a mutant is ended after so many times the CPU seconds that it takes without it, and some more."""
WAITS = 120
"""Or after so many seconds of the clock and five times that limit: a test may wait for what never comes, which takes no
CPU time."""
BUILD = (sys.executable, "setup.py", "-v", "build_ext", "--inplace", "--force")


@dataclass(frozen=True)
class Group:
    """Files (patterns) that the same tests (paths below ``tests``, the quick ones first) must protect."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


CORE = (
    Group(
        "expressions",
        (
            "weft/expr/rules/*.py",
            "weft/expr/bounds.py",
            "weft/expr/normalize.py",
            "weft/expr/prove.py",
            "weft/expr/solver.py",
            "weft/expr/linear.py",
            "weft/expr/affine.py",
            "weft/expr/sweep.py",
            "weft/expr/match.py",
        ),
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
        "accesses",
        ("weft/tensor_expr/bounds.py", "weft/tir/empty_reductions.py"),
        (
            "tensor_expr/test_te_bounds.py",
            "tensor_expr/test_reduction_starts.py",
            "tir/test_empty_reductions.py",
            "lowering/test_empty_loops.py",
        ),
    ),
    Group(
        "memory plan",
        ("weft/lowering/lifetimes.py", "weft/lowering/place.py", "weft/lowering/verify_memory.py"),
        (
            "lowering/test_memory_enumerated.py",
            "lowering/test_verify_memory.py",
            "lowering/test_lifetimes.py",
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
            "runtime/test_sanitizers.py",
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
            "runtime/test_csrc.py",
        ),
    ),
    Group(
        "loader and threads",
        ("csrc/src/loader.c", "csrc/src/pool.c", "csrc/src/relocate*"),
        (
            "runtime/test_loader_limits.py",
            "runtime/test_loader.py",
            "runtime/test_relocations.py",
            "runtime/test_thread_pool.py",
            "runtime/test_threads.py",
            "runtime/test_long_kernels.py",
            "runtime/test_interruption.py",
            "runtime/test_csrc.py",
        ),
    ),
    Group(
        "binding",
        ("csrc/python/*.c",),
        (
            "runtime/test_executor.py",
            "runtime/test_tensor.py",
            "runtime/test_native_arguments.py",
            "runtime/test_binding_limits.py",
            "runtime/test_binding_memory.py",
            "runtime/test_direct_call.py",
            "runtime/test_views_escape.py",
            "runtime/test_value_nodes.py",
            "runtime/test_loader.py",
            "runtime/test_thread_pool.py",
            "runtime/test_numbers.py",
            "runtime/test_malformed_parts.py",
            "runtime/test_devices.py",
            "runtime/test_interruption.py",
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


class Server:
    """A process that imported the tests of a group and runs them as often as it is asked (``mutation_server.py``)."""

    def __init__(self, folder: Path, group: Group, seconds: float = 600) -> None:
        """Raises ServerError if the tests cannot be imported, or not in so many seconds."""
        here, there = socket.socketpair()
        files = sorted(str(p.relative_to(folder)) for pattern in group.files for p in folder.glob(pattern))
        self.process = subprocess.Popen(
            [sys.executable, SERVER, str(there.fileno()), str(folder), ",".join(files), *group.tests],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, pass_fds=(there.fileno(),),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        there.close()
        here.settimeout(seconds)
        self.stream = here.makefile("rw")
        here.close()
        answer = self._answer()
        if "imported" not in answer:
            raise ServerError(self.close())
        self.imported = {tuple(name) for name in answer["imported"]}
        self.tests: list[str] = answer["tests"]

    def do(self, **job: Any) -> dict[str, Any]:
        self.stream.write(json.dumps(job) + "\n")
        self.stream.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.stream.readline() or "{}"))
        except TimeoutError:
            return {}

    def close(self) -> str:
        """What the process printed."""
        with contextlib.suppress(OSError):
            self.stream.close()
        try:
            return self.process.communicate(timeout=5)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.communicate()[0]


class ServerError(Exception):
    """The tests cannot be imported; with what was printed."""


@dataclass
class Known:
    """What is known of the tests of a group: the CPU seconds of each, the functions that it calls, the mutants that it
    killed so far; and the functions that were called already when the tests were imported."""

    seconds: dict[str, float]
    calls: dict[str, set[Function]]
    imported: set[Function]
    kills: Counter[str] = field(default_factory=Counter)

    def order(self, function: Function | None) -> list[tuple[str, float]]:
        """All tests with their limits of CPU seconds: those that call the function come first, and of them the quick
        ones and those that killed before."""

        def rank(test: str) -> tuple[bool, float]:
            return function not in self.calls[test], (self.seconds[test] + 0.005) / (1 + self.kills[test])

        tests = sorted(self.seconds, key=rank if function else lambda test: rank(test)[1])
        return [(test, TIMES_AS_LONG * self.seconds[test] + AND_SECONDS) for test in tests]


class Workshop:
    """A copy of the tree in which one mutant after the other is tested.

    A mutant in a function is put into a process that has imported everything. Where that would not be the same (other
    statements, functions that were called by imports, C), the tests are imported anew.
    """

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        self.servers: dict[Group, Server] = {}
        self.build: list[list[str]] = []
        self.hash = ""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout.split("\0")
        names += [str(p.relative_to(root)) for p in root.glob("weft/runtime/_native*.so")]
        for name in filter(None, names):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)

    def close(self) -> None:
        for server in self.servers.values():
            server.close()
        self.servers.clear()

    def known(self, group: Group, remembered: dict[str, Any]) -> Known:
        """Runs the tests without any mutant, those left out that ``remembered`` has from a run of the same program.
        Raises SystemExit if one fails."""
        try:
            server = self._server(group)
        except ServerError as error:
            sys.exit(f"the tests of the group '{group.name}' fail without any mutant:\n{error}")
        keys = {test: self._key(test.split("::")[0]) + test for test in server.tests}
        new = [test for test, key in keys.items() if key not in remembered]
        answer = server.do(record=new) if new else {"tests": {}}
        if "tests" not in answer:
            sys.exit(f"the tests of the group '{group.name}' fail without any mutant:\n{answer}")
        remembered.update({keys[test]: record for test, record in answer["tests"].items()})
        records = {test: remembered[key] for test, key in keys.items()}
        seconds = {test: float(r["seconds"]) for test, r in records.items()}
        calls = {test: {tuple(name) for name in r["called"]} for test, r in records.items()}
        return Known(seconds, calls, server.imported)

    def _key(self, test: str) -> str:
        """Stays the same while this file of tests and everything besides tests does."""
        if not self.hash:
            paths = [
                *self.folder.glob("weft/**/*.py"),
                *self.folder.glob("csrc/**/*.[ch]"),
                *self.folder.glob("tests/**/*.py"),
            ]
            texts = [p.read_bytes() for p in sorted(paths) if not p.name.startswith("test_")]
            self.hash = blake2b(b"\0".join(texts), digest_size=8).hexdigest()
        text = (self.folder / test).read_bytes()
        return blake2b(self.hash.encode() + text, digest_size=8).hexdigest() + " "

    def judge(self, group: Group, mutant: Mutant, known: Known) -> tuple[str, str]:
        """``killed``, ``time limit`` or ``survived``, and by what."""
        path = self.folder / mutant.path
        function = mutant.function
        order = known.order(function)
        job: dict[str, Any] = {"order": order, "waits": WAITS}
        try:
            self._write(path, mutant.text)
            if path.suffix == ".c" and not self._build(mutant.path):
                return "killed", "does not compile"
            if function is not None and function not in known.imported:
                answer = self._server(group).do(**job, patch={"text": mutant.text, "function": function})
            else:
                server = Server(self.folder, group, 120)
                try:
                    answer = server.do(**job)
                finally:
                    server.close()
        except ServerError as error:
            return "killed", f"not even imported: {error!s:.200}"
        finally:
            self._write(path, mutant.source)
            if path.suffix == ".c":
                self._build(mutant.path)
        if answer.get("failed"):
            known.kills[answer["failed"]] += 1
            return "killed", answer["failed"]
        if not answer or "ended" in answer:
            outcome = "time limit" if answer.get("ended") == "time limit" else "killed"
            return outcome, f"process ended: {answer.get('at', '')}"
        return "survived", ""

    def _server(self, group: Group) -> Server:
        if group not in self.servers:
            self.servers[group] = Server(self.folder, group)
        return self.servers[group]

    def _build(self, path: str) -> bool:
        """Whether the C runtime could be built after a change of one of its files. The commands that build all of it
        are found once."""
        if not self.build:
            built = subprocess.run(BUILD, cwd=self.folder, capture_output=True, check=False, text=True)
            if built.returncode:
                return False
            self.build = [shlex.split(line) for line in built.stdout.splitlines() if " -o " in line]
        for command in self.build:
            if ("-c" not in command or path in command) and subprocess.run(
                command, cwd=self.folder, capture_output=True, check=False
            ).returncode:
                return False
        made = self.folder / self.build[-1][self.build[-1].index("-o") + 1]
        shutil.copy2(made, made.with_suffix(".new"))  # a file in use must not be written to
        os.replace(made.with_suffix(".new"), self.folder / "weft/runtime" / made.name)
        return True

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if path.suffix == ".py":  # compiled code counts as new if time (in seconds) and size of the source are the same
            Path(cache_from_source(str(path))).unlink(missing_ok=True)


class Results:
    """What is known of mutants, by key, in a file; and of tests, in another one beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = json.loads(path.read_text())["mutants"] if path.exists() else {}
        self.beside = path.with_name("mutants-tests.json")
        self.tests: dict[str, Any] = json.loads(self.beside.read_text()) if self.beside.exists() else {}

    def remember(self) -> None:
        """Keep what is known of the tests for the next run."""
        self.beside.write_text(json.dumps(self.tests) + "\n")

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
        judged = sum(counts.values()) - counts["equivalent"] - counts["arbitrary"]
        return {**counts, "surviving share": round(counts["survived"] / judged, 4) if judged else 0.0}


def every_mutant(root: Path = ROOT, groups: Sequence[Group] = GROUPS) -> Iterator[tuple[Group, Mutant]]:
    for group in groups:
        for path in sorted(p for pattern in group.files for p in root.glob(pattern)):
            for mutant in mutants_of(str(path.relative_to(root)), path.read_text()):
                yield group, mutant


def names_of(mutant: Mutant) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys that a mutant may have in EQUIVALENT."""
    change = (mutant.path, *mutant.change)
    return change, (*change, str(mutant.number + 1))


def why_not_judged(mutant: Mutant) -> tuple[str, str] | None:
    """ "equivalent" or "arbitrary" and the reason, if no test could or should find a mutant; None for all others."""
    for name in names_of(mutant):
        if name in EQUIVALENT:
            return "equivalent", EQUIVALENT[name]
    why = ARBITRARY.get((mutant.path, mutant.change[0])) if mutant.kind == "constant" else None
    return None if why is None else ("arbitrary", why)


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
        shops = [Workshop(Path(place) / str(number), root) for number in range(jobs)]
        free: Queue[Workshop] = Queue()
        for shop in shops:
            free.put(shop)
        since, survived = time.monotonic(), 0
        known = {}
        for group in dict.fromkeys(g for g, m in todo if why_not_judged(m) is None):
            known[group] = shops[0].known(group, results.tests)
            results.remember()

        def judge(one: tuple[Group, Mutant]) -> tuple[Group, Mutant, str, str]:
            group, mutant = one
            if (listed := why_not_judged(mutant)) is not None:
                return group, mutant, *listed
            workshop = free.get()
            try:
                return group, mutant, *workshop.judge(group, mutant, known[group])
            finally:
                free.put(workshop)

        for done, (group, mutant, outcome, by) in enumerate(pool.map(judge, todo), 1):
            results.add(group, mutant, outcome, by)
            survived += outcome == "survived"
            if outcome == "survived":
                print(f"\r{'':80}\rsurvived: {mutant.path}:{mutant.line} ({mutant.kind})\n{mutant.diff()}", flush=True)
            print(f"\r{bar(done, len(todo), survived, since)}", end="", file=sys.stderr, flush=True)
        for shop in shops:
            shop.close()
    print(file=sys.stderr)


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
