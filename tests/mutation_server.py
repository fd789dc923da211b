"""Runs tests of a tree again and again, each time with another function changed: what ``tests/mutate.py`` talks to.

``python mutation_server.py FD FOLDER FILES TESTS...`` imports the tests of FOLDER once, then answers jobs (one JSON
object a line) on the socket FD. Each job is done by a forked process, which ends at the first test that fails. That
spares the imports and the collection, most of the time that one mutant takes.

{"record": [...]}               the CPU seconds of each of these tests and the functions of FILES that it calls
{"order": [...], "patch": ...}  the tests in this order, with a function changed; the limits are CPU seconds of a test

Failing examples are not shrunk: that there is one is enough.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

Name = tuple[str, str, int]
"""Path of the file, qualified name and first line of a function."""
IMPORTED = "at import"


class Server:
    """A plugin of pytest that waits for jobs where tests would be run."""

    def __init__(self, stream: Any, folder: str, files: frozenset[str]) -> None:
        self.stream = stream
        self.folder = folder + os.sep
        self.files = {self.folder + f: f for f in files}
        self.called: set[Name] = set()
        self.failed = ""
        self.functions: dict[Name, list[FunctionType]] = {}

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        path = self.files.get(frame.f_code.co_filename)
        if path is not None:
            self.called.add((path, frame.f_code.co_qualname, frame.f_code.co_firstlineno))

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        import hypothesis  # not earlier: pytest wants to rewrite its assertions

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases, print_blob=False)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        imported = sorted(self.called)
        if session.testsfailed:
            self.tell({"failed": "collection"})
            return True
        gc.collect()
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename in self.files:
                code = found.__code__
                name = (self.files[code.co_filename], code.co_qualname, code.co_firstlineno)
                self.functions.setdefault(name, []).append(found)
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        self.tell({"imported": imported, "tests": list(items)})
        for line in self.stream:
            self.tell(self.fork(items, json.loads(line)))
        return True

    def tell(self, answer: dict[str, Any]) -> None:
        self.stream.write(json.dumps(answer) + "\n")
        self.stream.flush()

    def fork(self, items: dict[str, pytest.Item], job: dict[str, Any]) -> dict[str, Any]:
        """What the forked process wrote; ``{"ended": status}`` with the test it was at if that ended it."""
        with tempfile.TemporaryDirectory() as place:
            process = os.fork()
            if process == 0:
                os.setsid()
                os.environ["WEFT_CACHE_DIR"] = place
                try:
                    answer = (
                        self.record([items[n] for n in job["record"]])
                        if "record" in job
                        else self.tests(items, job, place)
                    )
                    with open(f"{place}/answer", "w") as file:
                        json.dump(answer, file)
                    os._exit(0)
                except BaseException as error:
                    with open(f"{place}/at", "a") as file:
                        file.write(f" {error!r}")
                    os._exit(1)
            limits, at, since = dict(job.get("order", ())), "", time.monotonic()
            while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
                if (now := _text(f"{place}/at")) != at:
                    at, since = now, time.monotonic()
                if time.monotonic() > since + job.get("waits", 1e9) + 5 * limits.get(at, 0):
                    os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                    return {"ended": "time limit", "at": _text(f"{place}/at")}
                time.sleep(0.005)
            if ended[1] == 0:
                return dict(json.loads(_text(f"{place}/answer")))
            if os.WIFSIGNALED(ended[1]) and os.WTERMSIG(ended[1]) == signal.SIGPROF:
                return {"ended": "time limit", "at": _text(f"{place}/at")}
            return {"ended": str(ended[1]), "at": _text(f"{place}/at")}

    def record(self, order: list[pytest.Item]) -> dict[str, Any]:
        tests: dict[str, Any] = {}
        for item, following in zip(order, [*order[1:], None], strict=True):
            self.called = set()
            before = _seconds()
            sys.settrace(self.trace)
            threading.settrace(self.trace)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            tests[item.nodeid] = {"seconds": _seconds() - before, "called": sorted(self.called)}
            if self.failed:
                return {"failed": self.failed}
        return {"tests": tests}

    def tests(self, items: dict[str, pytest.Item], job: dict[str, Any], place: str) -> dict[str, Any]:
        if job.get("patch"):
            self.patch(job["patch"])
        order = [(items[name], limit) for name, limit in job["order"] if name in items]
        followers = [item for item, _ in order[1:]]
        for (item, limit), following in zip(order, [*followers, None], strict=True):
            with open(f"{place}/at", "w") as file:
                file.write(item.nodeid)
            signal.setitimer(signal.ITIMER_PROF, limit)  # ends the process, whatever it is at
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                break
        return {"failed": self.failed}

    def patch(self, patch: dict[str, Any]) -> None:
        """The text of a file with another body of one function."""
        path, name, line = patch["function"]
        text = compile(patch["text"], self.folder + path, "exec", dont_inherit=True)
        (code,) = (c for c in codes(text) if (c.co_qualname, c.co_firstlineno) == (name, line))
        for function in self.functions[path, name, line]:
            function.__code__ = code


def _seconds() -> float:
    """CPU time, that of processes that were started and have ended included."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def codes(code: CodeType) -> Iterator[CodeType]:
    """Those of all functions and classes in a module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def main() -> None:
    number, folder, files, *tests = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder, *(p for p in sys.path if os.path.abspath(p) != here)]  # of the tree's tests, not of this one
    stream = socket.socket(fileno=int(number)).makefile("rw")
    server = Server(stream, folder, frozenset(files.split(",")))
    sys.settrace(server.trace)
    with tempfile.TemporaryDirectory() as place:
        options = ["-q", "-p", "no:cacheprovider", "--no-header", "--all-cases", f"--basetemp={place}/tests"]
        pytest.main([*options, *(f"{folder}/tests/{t}" for t in tests)], plugins=[server])


if __name__ == "__main__":
    main()
