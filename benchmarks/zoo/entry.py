"""The description of an architecture of the zoo: data only, so that the lists can be read without PyTorch."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

REVISION = "3"
"""Part of every cached file's name: increase it when the export or the scaling of weights changes."""

NETS = Path(__file__).parent / "nets"


@dataclass(frozen=True)
class Input:
    """One input: ``kind`` is ``normal``, ``unit`` (uniform in [0, 1)), ``ones`` or ``ids`` (integers below ``high``).
    ``shape`` has the sizes to test and measure at; axes in ``open`` have a name instead of a size in the file."""

    name: str
    shape: tuple[int, ...]
    kind: str = "normal"
    high: int = 0
    open: Mapping[int, str] = field(default_factory=dict)

    def values(self, rng: np.random.Generator) -> Array:
        """float32, or int64 for ``ids`` and integer ``ones`` (those with ``high``)."""
        if self.kind == "ids":
            return rng.integers(0, self.high, self.shape)
        if self.kind == "ones":
            return np.ones(self.shape, np.int64 if self.high else np.float32)
        made = rng.random(self.shape) if self.kind == "unit" else rng.standard_normal(self.shape)
        return made.astype(np.float32)


@dataclass(frozen=True)
class Entry:
    """An architecture: class ``source`` of ``package`` made from ``config``.

    ``package`` is ``transformers``, ``diffusers`` (class and configuration), ``timm`` (name of a model and arguments of
    ``create_model``) or ``nets`` (``module:function`` of this package and its arguments). ``method`` names what is
    called instead of ``forward``. Entries with ``sample`` are compiled by every run of the tests.
    """

    name: str
    family: str
    package: str
    source: str
    inputs: tuple[Input, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    sample: bool = False
    method: str = "forward"

    @property
    def needs(self) -> tuple[str, ...]:
        """Python packages without which it cannot be built."""
        return ("torch", "onnx", "onnxscript", *(() if self.package == "nets" else (self.package,)))

    @property
    def key(self) -> str:
        """The name of its file: changes when the configuration, the inputs or the code of a hand-written net does."""
        text = repr((REVISION, self.package, self.source, self.inputs, sorted(self.config.items()), self.method))
        if self.package == "nets":
            text += ast.dump(ast.parse((NETS / f"{self.source.partition(':')[0]}.py").read_text()))
        return f"{self.name}-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"

    def feed(self, seed: int) -> dict[str, Array]:
        """Seeded values of all inputs; unrelated for different seeds."""
        rng = np.random.default_rng(seed)
        return {i.name: i.values(rng) for i in self.inputs}


def image(size: int = 128, channels: int = 3, batch: int = 1, name: str = "pixel_values") -> Input:
    return Input(name, (batch, channels, size, size))


def open_image(size: int = 128, name: str = "pixel_values") -> Input:
    """A batch of images; the size of the batch is open."""
    return Input(name, (1, 3, size, size), open={0: "batch"})


def ids(length: int = 64, high: int = 1000, name: str = "input_ids", batch: int = 1) -> Input:
    return Input(name, (batch, length), "ids", high)


def open_ids(length: int = 64, high: int = 1000, name: str = "input_ids") -> Input:
    """A batch of token sequences; the sizes of batch and sequence are open."""
    return Input(name, (1, length), "ids", high, {0: "batch", 1: "sequence"})


def only(entries: Sequence[Entry], names: Sequence[str] = (), families: Sequence[str] = ()) -> list[Entry]:
    """Those whose name contains one of ``names`` (with ``=`` before: is it) and whose family is one of ``families``."""

    def fits(entry: Entry) -> bool:
        return any(n[1:] == entry.name if n.startswith("=") else n in entry.name for n in names)

    return [e for e in entries if (not names or fits(e)) and (not families or e.family in families)]
