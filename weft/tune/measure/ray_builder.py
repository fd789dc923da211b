"""Kernels are built by the processes of a Ray cluster."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.tune.measure.bench import first_line
from weft.tune.measure.builder import Built
from weft.tune.measure.building import START_SECONDS
from weft.tune.measure.ray_cluster import RayCluster, build_text
from weft.tune.record import Outcome


class RayBuilder:
    """A :class:`~weft.tune.measure.builder.Builder` that has ``count`` kernels built at once, each within ``seconds``
    and on ``cpus`` processors that are reserved for it (0: on what is there)."""

    def __init__(self, cluster: RayCluster, count: int, seconds: float, cpus: int = 1) -> None:
        self._ray, self._seconds = cluster.ray, seconds
        self._build = cluster.ray.remote(num_cpus=cpus, max_retries=0)(build_text)
        self._pool = ThreadPoolExecutor(count, "building on a cluster")
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        """What is being built; guarded by the lock."""
        self._closed = False

    def build(self, task: KernelTask, seconds: float | None = None) -> Future[Built]:
        """Have ``task`` built."""
        return self._pool.submit(self._built, task, START_SECONDS + min(self._seconds, seconds or self._seconds))

    def close(self) -> None:
        """Have nothing built any more."""
        self._closed = True
        with self._lock:
            running = list(self._running)
        for asked in running:
            self._cancel(asked)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _built(self, task: KernelTask, seconds: float) -> Built:
        errors = self._ray.exceptions
        asked: Any = None
        try:
            asked = self._build.remote(task.to_text())
            with self._lock:
                self._running.add(asked)
            if self._closed:  # close may have looked before
                self._cancel(asked)
            answer = self._ray.get(asked, timeout=seconds)
            return MachineCode.from_bytes(answer) if isinstance(answer, bytes) else (Outcome(answer[0]), answer[1])
        except errors.GetTimeoutError:
            self._cancel(asked)
            return Outcome.TIMEOUT, f"it is not built within {seconds:.3g} seconds"
        except errors.RayTaskError as error:
            return Outcome.FAILED, first_line(error.cause)
        except (errors.RayError, OSError):
            return Outcome.FAILED, "the process that builds it ended"
        except Exception as error:  # an annotation without a text, or a mistake: nobody else would tell of the kernel
            return Outcome.FAILED, first_line(error)
        finally:
            with self._lock:
                self._running.discard(asked)

    def _cancel(self, asked: Any) -> None:
        self._ray.cancel(asked, force=True)
