"""Whole models on one node of a Ray cluster, where they run in turns and their kernels are timed."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft.rpc.errors import LinkError
from weft.runtime import Artifact, Executable
from weft.support.errors import UserError, WeftError
from weft.support.fingerprint import compiler_fingerprint
from weft.tune.measure.process_bench import START_SECONDS
from weft.tune.measure.ray_cluster import RayCluster, about_node
from weft.tune.measure.runner import RunnerGone
from weft.tune.turns import in_turns, kernels_in_turns

NODE_SECONDS: Final = 3 * START_SECONDS
"""A node that starts no process for so long is busy with something else."""
_FILE: Final = "model.weft"


class ModelActor:
    """What runs in an actor: models, by number. What is wrong with a model or its inputs is raised."""

    def __init__(self) -> None:
        self._models: dict[int, Executable] = {}

    def about(self) -> tuple[str, str]:
        """As :func:`~weft.tune.measure.ray_cluster.about_node`."""
        return about_node()

    def load(self, number: int, content: bytes, threads: int) -> None:
        """Load the content of an artifact's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            path.write_bytes(content)
            self._models[number] = Executable(Artifact.load(path, mapped=False), threads)

    def run(self, number: int, inputs: Sequence[Any]) -> Any:
        """Run a model once."""
        return self._models[number](*inputs)

    def in_turns(self, numbers: Sequence[int], inputs: Sequence[Any]) -> list[float]:
        """As :func:`weft.tune.turns.in_turns`."""
        return in_turns([self._models[n] for n in numbers], inputs)

    def kernels_in_turns(self, numbers: Sequence[int], inputs: Sequence[Any]) -> list[dict[str, float]]:
        """As :func:`weft.tune.turns.kernels_in_turns`."""
        return kernels_in_turns([self._models[n] for n in numbers], inputs)

    def free(self, number: int) -> None:
        """Forget a model."""
        self._models.pop(number, None)


class ClusterModel:
    """A model in the actor of a node."""

    def __init__(self, models: RayModels, actor: Any, number: int) -> None:
        self._models, self._actor, self.number = models, actor, number
        weakref.finalize(self, models.free, actor, number)

    def __call__(self, *inputs: Any) -> Any:
        """Run the model once. Raises what the model raises, and LinkError if the actor is lost."""
        return self._models.asked(self._actor.run.remote(self.number, inputs))

    def in_turns(self, others: Sequence[ClusterModel], inputs: Sequence[Any]) -> list[float]:
        """As :func:`weft.tune.turns.in_turns`, on the node."""
        return list(self._models.asked(self._actor.in_turns.remote(self._numbers(others), inputs)))

    def kernels_in_turns(self, others: Sequence[ClusterModel], inputs: Sequence[Any]) -> list[dict[str, float]]:
        """As :func:`weft.tune.turns.kernels_in_turns`, on the node."""
        return list(self._models.asked(self._actor.kernels_in_turns.remote(self._numbers(others), inputs)))

    def _numbers(self, others: Sequence[ClusterModel]) -> list[int]:
        return [self.number, *(m.number for m in others)]


class RayModels:
    """Models that run with ``threads`` threads, all on the first node that can run them."""

    def __init__(self, cluster: RayCluster, threads: int) -> None:
        self._cluster, self.threads = cluster, threads
        self._make: Callable[[Mapping[str, Any]], Any] = lambda options: cluster.ray.remote(ModelActor).options(
            num_cpus=threads, max_restarts=0, **options
        )
        self._actor: Any = None
        self._name, self._count = "", 0

    def load(self, artifact: Artifact) -> ClusterModel:
        """Load a model. Raises RunnerGone (U041) where no node can run it."""
        content = self._cluster.ray.put(_content(artifact))
        if self._actor is not None:
            return self._loaded(content)
        why = f"none has {self.threads} processors"
        for node in self._cluster.nodes(self.threads):
            try:
                self._start(node)
                return self._loaded(content)
            except WeftError as error:
                why = error.message
                self.close()
        raise RunnerGone(
            f"no node of the Ray cluster runs the model: {why}",
            code="U041",
            hint="nodes should be machines of one kind, with the same version of Weft",
        )

    def asked(self, asked: Any, seconds: float | None = None) -> Any:
        """The answer of the actor. Raises what it raises, and LinkError if it is lost."""
        errors = self._cluster.ray.exceptions
        try:
            return self._cluster.ray.get(asked, timeout=seconds)
        except errors.RayTaskError as error:
            if isinstance(error.cause, WeftError):
                raise error.cause from None
            raise
        except errors.GetTimeoutError:
            self.close()
            raise LinkError(f"{self._name} starts no process within {seconds:g} seconds") from None
        except (errors.RayError, OSError):
            self.close()
            raise LinkError(f"the process on {self._name} ended") from None

    def free(self, actor: Any, number: int) -> None:
        """Let the actor forget a model, if it is still there."""
        if actor is self._actor and self._cluster.ray.is_initialized():
            actor.free.remote(number)

    def close(self) -> None:
        """End the actor."""
        actor, self._actor = self._actor, None
        if actor is not None and self._cluster.ray.is_initialized():
            self._cluster.ray.kill(actor)

    def _start(self, node: str) -> None:
        """Start the actor on a node. Raises UserError where that is another version of Weft, LinkError."""
        self._name = "a node"
        self._actor = self._make(self._cluster.on_node(node)).remote()
        self._name, fingerprint = self.asked(self._actor.about.remote(), NODE_SECONDS)
        if fingerprint != compiler_fingerprint():
            raise UserError(f"{self._name} has another version of Weft", code="U041")

    def _loaded(self, content: Any) -> ClusterModel:
        self._count += 1
        self.asked(self._actor.load.remote(self._count, content, self.threads))
        return ClusterModel(self, self._actor, self._count)


def _content(artifact: Artifact) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        artifact.save(path)
        return path.read_bytes()
