"""A connection to a Ray cluster, and what runs in its processes."""

from __future__ import annotations

import importlib
import logging
import socket
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.runtime.threads import SYSTEM_FEATURES, cpu_features
from weft.schedule.dispatch import schedule_from_json
from weft.support.errors import MissingExtra, UserError
from weft.support.fingerprint import compiler_fingerprint
from weft.target import host
from weft.tune.measure.building import built_here
from weft.tune.measure.process_bench import ProcessBench
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits
from weft.tune.measure.worker import encoded
from weft.tune.record import Outcome, TrialRecord

LOCAL: Final = "local"
"""The address that starts a cluster on this machine, which ends with the connection."""
CONNECT_SECONDS: Final = 10.0
_HINT: Final = "`ray start --head` starts a cluster and prints its address; `local` is one on this machine only"


class RayCluster:
    """A connection to the cluster at ``address``: ``host:port``, ``ray://host:port``, ``auto`` for the one that this
    machine is part of, or ``local``. If this process is connected already, that connection is used, and stays.

    Raises MissingExtra without Ray, UserError U062 where no cluster answers.
    """

    def __init__(self, address: str) -> None:
        try:
            self.ray: ModuleType = importlib.import_module("ray")
        except ImportError:
            raise MissingExtra("ray", "ray", "a Ray cluster") from None
        self._owned = not self.ray.is_initialized()
        if not self._owned:
            return
        _check_answers(address)
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except ValueError:  # an existing cluster is not asked for a dashboard
            self._join(address)
        except (OSError, RuntimeError) as error:
            raise _unreachable(address, error) from None

    def _join(self, address: str) -> None:
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise _unreachable(address, error) from None

    def cpus(self) -> list[int]:
        """The processors of each node, the most first."""
        alive = [node for node in self.ray.nodes() if node["Alive"]]
        return sorted((int(node["Resources"].get("CPU", 0)) for node in alive), reverse=True)

    def nodes(self, cpus: int) -> list[str]:
        """The names that Ray has for the nodes with at least so many processors, the largest first."""
        alive = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= cpus]
        return [str(node["NodeID"]) for node in sorted(alive, key=lambda n: -n["Resources"]["CPU"])]

    def on_node(self, node: str) -> dict[str, Any]:
        """The options of an actor that is to run on this node."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        return {"scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(node, soft=False)}

    def close(self) -> None:
        """End the connection, unless somebody else made it."""
        if self._owned and self.ray.is_initialized():
            self.ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise UserError U062 where nobody accepts a connection at ``host:port``: Ray itself waits there for ever."""
    try:
        found = urlsplit(address if "://" in address else f"//{address}")
        if found.hostname is None or found.port is None:
            return  # `auto`, `local`: Ray knows where that is
        socket.create_connection((found.hostname, found.port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _unreachable(address, error) from None


def _unreachable(address: str, error: BaseException) -> UserError:
    why = str(error).strip().splitlines()
    return UserError(f"there is no Ray cluster at '{address}'{': ' + why[0] if why else ''}", code="U062", hint=_HINT)


class BenchActor:
    """What runs in an actor: one kernel at a time, in a process of its own there. Answers are values for JSON."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self._bench = ProcessBench(Limits(**limits))
        self._threads = 1

    def open(self, text: str, threads: int, sizes: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Begin with the kernel of a task's text; the record of its default schedule, an ``error``, or why this node is
        ``unfit`` for code of its target."""
        task = KernelTask.from_text(text)
        reason = _unfit(task)
        if reason:
            return {"unfit": reason}
        self._threads = threads
        try:
            return encoded(self._bench.open(Workload(task, threads, tuple(map(tuple, sizes)))))
        except UserError as error:
            return {"error": error.message}

    def trial(self, trace: str, code: bytes, best: str | None, best_seconds: float | None) -> dict[str, Any]:
        """Measure a schedule, which another process built, beside the best one."""
        beside = TrialRecord(None if best is None else schedule_from_json(best), Outcome.OK, best_seconds)
        return encoded(self._bench.trial(schedule_from_json(trace), beside, MachineCode.from_bytes(code)))

    def about(self) -> tuple[str, str]:
        """As :func:`about_node`."""
        return about_node()


def about_node() -> tuple[str, str]:
    """The name of this node, and the fingerprint of its compiler."""
    return socket.gethostname(), compiler_fingerprint()


def _unfit(task: KernelTask) -> str:
    """Why code for a target does not run here; empty if it does."""
    cpu, here = task.target.cpu, host().cpu
    wanted, own = (c.triple.split("-")[0] for c in (cpu, here))
    if wanted != own:
        return f"code for {wanted} does not run on this node, which is {own}"
    lacking = sorted(cpu.features - cpu_features() - SYSTEM_FEATURES)
    return f"this node lacks {', '.join(lacking)}" if lacking else ""


def build_text(text: str) -> bytes | tuple[str, str]:
    """Build the kernel of a task's text: its code, or the outcome and the reason why there is none."""
    made = built_here(KernelTask.from_text(text))
    return made.to_bytes() if isinstance(made, MachineCode) else (str(made[0]), made[1])
