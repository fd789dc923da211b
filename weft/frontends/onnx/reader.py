"""Reads ONNX files: bytes → ModelProto, and checks everything that later stages rely on.

Files may come from any source. The C++ part of ``onnx`` (checker, shape inference, version converter) is not used,
because it may abort the process on malformed input. Protobuf parsing itself is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.payloads import Array, read_apart
from weft.support.errors import Location, MissingExtra, ModelError

PROTOBUF_LIMIT = (1 << 31) - 1
"""The largest protobuf message, in bytes; larger models store weights in external files."""
_DAMAGED_HINT = "download or export it again, and compare its size"
NEWEST_IR = 64
"""Files with a higher IR version count as corrupt. No IR version so far has changes that an importer must refuse."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The folder ``path`` that names of external data start from, and the folders that files there may lie in after
    links are followed: itself and, where the model is a link too, that of its target (stores of downloaded models keep
    all files of a model in one place, with links to them)."""

    path: Path
    roots: tuple[Path, ...]
    mapped: bool = False
    """Whether external data may stay in its files, which must then not change while it is used."""

    @staticmethod
    def of(model: Path, mapped: bool = False) -> ModelFolder:
        """The folder of a model that can be read."""
        path = model.absolute().parent
        return ModelFolder(path, (path.resolve(), model.resolve().parent), mapped)


@dataclass(frozen=True, slots=True)
class ParsedModel:
    """A parsed model: ``name`` is used in messages, ``folder`` contains external data (None: there is no folder).

    ``payloads`` are raw bytes of initializers that were removed from ``model``, by the number of the initializer."""

    model: Any
    name: str
    folder: ModelFolder | None
    payloads: Mapping[int, Array] = field(default_factory=dict)


def onnx_package() -> ModuleType:
    """The ``onnx`` package, imported when first needed. Raises MissingExtra."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("onnx", "onnx", "importing ONNX models") from None
    return onnx


def read(model: Any, name: str | None = None, mapped: bool = False) -> ParsedModel:
    """``model`` (a path, the bytes of a file, or a ModelProto) parsed and checked as a whole. ``mapped``: large weights
    may stay in the file, or in files of external data, which must then not change while they are used.

    Raises ModelError if there is no such file, or it is truncated, corrupt or not an ONNX model.
    """
    onnx = onnx_package()
    folder: ModelFolder | None = None
    payloads: Mapping[int, Array] = {}
    if isinstance(model, (str, Path)):
        path = Path(model)
        data, payloads = _contents(path, mapped)
        name, folder = name or path.name, ModelFolder.of(path, mapped)
        proto = _parse(onnx, data, name)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        name = name or "model"
        proto = _parse(onnx, bytes(model), name)
    elif isinstance(model, onnx.ModelProto):
        name = name or model.graph.name or "model"
        proto = model
    else:
        raise ModelError(
            f"cannot read a model from {type(model).__name__}",
            code="M002",
            hint="give a path, bytes, a ModelProto, or a torch.nn.Module with example_inputs",
        )
    _check_whole(proto, name)
    return ParsedModel(proto, name, folder, payloads)


def _contents(path: Path, mapped: bool) -> tuple[bytes, Mapping[int, Array]]:
    """The message in a file, and the large payloads that were removed from it."""
    place = Location(file=str(path))
    try:
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise ModelError(
                f"the file has {size:,} bytes, more than a protobuf message can hold", code="M002", place=place,
                hint="store the weights as external data",
            )  # fmt: skip
        return read_apart(path, mapped) or (path.read_bytes(), {})
    except (OSError, ValueError) as why:  # ValueError: a path with a zero byte
        reason = getattr(why, "strerror", None) or why
        raise ModelError(f"cannot read the model: {reason}", code="M002", place=place) from None


def _parse(onnx: ModuleType, data: bytes, name: str) -> Any:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # stub

    place = Location(file=name)
    if not data:
        raise ModelError("the file is empty", code="M002", place=place, hint=_DAMAGED_HINT)
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(
            "the file is not an ONNX model, or it is truncated or corrupt (protobuf cannot parse it)",
            code="M002",
            place=place,
            hint=_DAMAGED_HINT,
        ) from None


def _check_whole(proto: Any, name: str) -> None:
    place = Location(file=name)
    if not proto.HasField("graph"):
        raise ModelError("the file holds no ONNX graph; is it another kind of file?", code="M002", place=place)
    if not 0 <= proto.ir_version <= NEWEST_IR:
        raise ModelError(f"the file claims the IR version {proto.ir_version}: it is corrupt", code="M002", place=place)
    if not proto.graph.output:
        raise ModelError("the graph has no outputs", code="M002", place=place)


def opsets(proto: Any) -> dict[str, int]:
    """Operator-set version by domain (``""`` is the standard one, also written ``ai.onnx``). Raises Malformed."""
    found: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if not 0 < entry.version < 1000:
            raise Malformed(f"the operator set '{domain or 'ai.onnx'}' has the version {entry.version}")
        if found.setdefault(domain, int(entry.version)) != entry.version:
            raise Malformed(
                f"the operator set '{domain or 'ai.onnx'}' has two versions, {found[domain]} and {entry.version}"
            )
    if "" not in found and getattr(proto, "ir_version", 3) < 3:
        found[""] = 1
    return found
