"""A compiled model: program, machine code, constants and metadata, in one file.

File format (little-endian)::

    prefix     magic (8 bytes), format version (u32), header length (u32), file length (u64), BLAKE2b-128 of the
               prefix before it and of the header (16 bytes)
    header     JSON: the program, the table of sections, metadata
    sections   code objects and constants, each at a multiple of 64 bytes, padded with zeros

Each section has a BLAKE2b-128 digest in the header. Prefix, header and code are always verified. Constants are mapped,
not read; of a large one only samples are verified when loading, all of it with ``verify=True``.

A loader reads files of FORMAT_VERSION and refuses all other versions, before it reads anything else. It also refuses
unknown fields: it never ignores new information silently.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime.display import model_html, short_target
from weft.runtime.elements import numpy_dtype
from weft.runtime.metadata import metadata_of
from weft.runtime.program import ExecutableProgram
from weft.runtime.serialize import only, program_from_json, program_to_json
from weft.support.errors import MALFORMED, ArtifactError, UserError
from weft.support.files import replaced_file
from weft.support.memory import ALIGN
from weft.support.threads import MIN_BYTES, for_each
from weft.support.words import counted

MAGIC = b"\x89WEFT\r\n\x1a"  # like that of PNG: detects transfers that change line ends or the eighth bit
FORMAT_VERSION = 5
"""Increment with every change of the header's content (``tests/runtime/test_artifact_format.py`` detects changes)."""
ABI_VERSION = 1
HEADER = ("program", "codes", "sections", "target", "metadata", "abi_version")
SECTIONS = {"code": ("code", "format", "features"), "constant": ("dtype", "shape")}
"""Additional fields of a section by its kind; all sections have the fields of SECTION."""
SECTION = ("kind", "size", "digest", "quick")
_PREFIX = struct.Struct("<8sIIQ")
_DIGEST = 16
_MAX_HEADER = 1 << 30
_PIECE = 1 << 20
"""Bytes of a section that are hashed and written at once: they stay in a cache."""
Bytes = memoryview | bytes
# A large section's quick digest covers its ends and this many blocks between.
_BLOCK, _SAMPLES = 4096, 16


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like an artifact, whatever its name; False if it cannot be read."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Variant:
    """One version of a code object. ``format`` is the format of ``data``: ``"elf"``, a relocatable object for a CPU
    with ``features`` (LLVM's names), or a format that the device of the kernels lists."""

    features: frozenset[str]
    data: bytes
    format: str = "elf"


@dataclass(frozen=True, slots=True)
class CodeObject:
    """The code of a kernel in one or more variants. For the CPU, the runtime considers the variants whose features the
    CPU has and selects the one with the most features (the first of equals). Another device gets the variant whose
    format it lists first."""

    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Artifact:
    """A compiled model.

    ``codes``: the code objects that the kernels of ``program`` refer to. ``constants``: compact arrays, by the index of
    the program's constant buffers. ``target``: the text of the target. ``metadata``: any JSON values (``model`` names
    the source; fields that Weft reads have the form in which it writes them).
    """

    program: ExecutableProgram
    codes: tuple[CodeObject, ...]
    constants: tuple[NDArray[Any], ...] = ()
    target: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    abi_version: int = ABI_VERSION

    def __repr__(self) -> str:
        return f"<Artifact {self.name}: {', '.join(self.facts)}>"

    def _repr_html_(self) -> str:
        return model_html(self.name, self.program, self.facts)

    @property
    def name(self) -> str:
        """The name of the model, or ``model``."""
        return str(self.metadata.get("model") or "model")

    @property
    def facts(self) -> tuple[str, ...]:
        """The number of kernels, the sizes of code and constants, and the target, for people."""
        return (
            counted(len(self.program.kernels), "kernel"),
            f"{self.code_bytes / 1e3:.0f} kB of code",
            f"{self.constant_bytes / 1e6:.1f} MB of constants",
            *filter(None, [short_target(self.target)]),
        )

    @property
    def code_bytes(self) -> int:
        """Bytes of all variants of all code objects."""
        return sum(len(v.data) for c in self.codes for v in c.variants)

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(c.nbytes for c in self.constants)

    def check_portable(self) -> None:
        """Raise ArtifactError A012 if the code calls functions by their addresses in this process."""
        called = self.metadata.get("in_process")
        if called:
            raise ArtifactError(
                f"'{self.name}' calls {', '.join(map(str, called))}, which only this process has: it cannot be saved",
                code="A012",
                hint="give the function as source: te.extern_function(name, c=…, llvm=…)",
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to ``path``; an existing file is replaced atomically and keeps its permissions. Raises
        ArtifactError A012 if its code calls functions of this process."""
        self.check_portable()
        sections: list[Bytes] = []
        table: list[dict[str, Any]] = []
        for i, code in enumerate(self.codes):
            for variant in code.variants:
                entry = {"kind": "code", "code": i, "format": variant.format, "features": sorted(variant.features)}
                _add_section(entry, variant.data, sections, table)
        for array in self.constants:
            entry = {"kind": "constant", "dtype": array.dtype.name, "shape": list(array.shape)}
            _add_section(entry, _bytes_of(array), sections, table)
        header = {
            "program": program_to_json(self.program),
            "codes": len(self.codes),
            "sections": table,
            "target": self.target,
            "metadata": dict(self.metadata),
            "abi_version": self.abi_version,
        }
        _write(Path(path), header, sections)

    @staticmethod
    def load(path: str | os.PathLike[str], verify: bool = False, mapped: bool = True) -> Artifact:
        """Read an artifact; its constants stay in the file and are mapped (``mapped=False``: they are read).

        A mapped file must not be changed or cut in place while the artifact is used: replace it by a
        rename, as :meth:`save` does. Raises ArtifactError if the file is not an artifact, damaged, truncated,
        changed meanwhile, or of a newer format. ``verify`` checks every byte of the constants, too.
        """
        if b"\0" in os.fsencode(path):
            raise ArtifactError(f"cannot read '{os.fsdecode(path)!r}': no path has a zero byte", code="A002")
        try:
            with open(path, "rb") as file:
                before = os.fstat(file.fileno())
                data: Any = b""
                if before.st_size:
                    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else file.read()
                made = _Reader(os.fspath(path), memoryview(data), verify).read()
                after = os.fstat(file.fileno())
        except OSError as error:
            raise ArtifactError(f"cannot read '{os.fsdecode(path)}': {error.strerror or error}", code="A002") from error
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ArtifactError(
                f"'{os.fsdecode(path)}' was changed while it was read", code="A005", hint="replace files by renaming"
            )
        return made


# ---- writing --------------------------------------------------------------------------------------------------------


def _bytes_of(array: NDArray[Any]) -> memoryview:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.nbytes else memoryview(b"")


def _add_section(entry: dict[str, Any], data: Bytes, sections: list[Bytes], table: list[dict[str, Any]]) -> None:
    """Add a section whose digests are still to be computed."""
    unknown = "0" * (2 * _DIGEST)
    table.append({**entry, "size": len(data), "digest": unknown, "quick": unknown})
    sections.append(data)


def digest(data: Bytes) -> str:
    """BLAKE2b-128 of all bytes."""
    return blake2b(data, digest_size=_DIGEST).hexdigest()


def quick_digest(data: Bytes) -> str:
    """BLAKE2b-128 of the length, both ends and evenly spaced blocks; of all bytes if these blocks cover the section."""
    if len(data) <= _BLOCK * _SAMPLES:
        return digest(data)
    state = blake2b(struct.pack("<Q", len(data)), digest_size=_DIGEST)
    for i in range(_SAMPLES):
        at = (len(data) - _BLOCK) * i // (_SAMPLES - 1)
        state.update(data[at : at + _BLOCK])
    return state.hexdigest()


def _aligned(position: int) -> int:
    return -(-position // ALIGN) * ALIGN


def _layout(start: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where sections begin, and the length of the file."""
    offsets, at = [], start
    for size in sizes:
        offsets.append(_aligned(at))
        at = offsets[-1] + size
    return offsets, at


def _write(path: Path, header: Mapping[str, Any], sections: Sequence[Bytes]) -> None:
    """Write a file, and the digests of its sections into its header. Where the file allows it, several threads write
    the sections and compute the digests from the same pieces, so that memory is read once; the header, whose length
    does not depend on the digests, comes last."""
    start = _PREFIX.size + _DIGEST + len(_encoded(header))
    offsets, length = _layout(start, [len(s) for s in sections])
    entries = list(zip(header["sections"], offsets, sections, strict=True))
    ends = [start, *(offset + len(data) for _, offset, data in entries)]
    try:
        with replaced_file(path) as file:
            if file.seekable() and hasattr(os, "pwrite"):
                at = partial(_write_section, file.fileno())
                _run([partial(at, end, *e) for end, e in zip(ends, entries, strict=False)], length)
                file.seek(0)
                file.write(_beginning(header, length))
            else:
                for entry, _, data in entries:
                    entry["digest"], entry["quick"] = digest(data), quick_digest(data)
                file.write(_beginning(header, length))
                for end, (_, offset, data) in zip(ends, entries, strict=False):
                    file.write(bytes(offset - end))
                    file.write(data)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}", code="A003") from error


def _run(jobs: Sequence[Callable[[], None]], nbytes: int) -> None:
    if nbytes >= MIN_BYTES:
        for_each(lambda job: job(), jobs)
    else:
        for job in jobs:
            job()


def _write_section(handle: int, end: int, entry: dict[str, Any], offset: int, data: Bytes) -> None:
    """Write a section, and zeros from the ``end`` of the one before it on; add its digests to its entry."""
    _write_at(handle, end, memoryview(bytes(offset - end)))
    state, view = blake2b(digest_size=_DIGEST), memoryview(data)
    for at in range(0, len(view), _PIECE):
        piece = view[at : at + _PIECE]
        state.update(piece)
        _write_at(handle, offset + at, piece)
    entry["digest"], entry["quick"] = state.hexdigest(), quick_digest(data)


def _write_at(handle: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def _encoded(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _beginning(header: Mapping[str, Any], length: int) -> bytes:
    """All that is before the first section of a file."""
    encoded = _encoded(header)
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(encoded), length)
    return prefix + blake2b(prefix + encoded, digest_size=_DIGEST).digest() + encoded


# ---- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, path: str, data: memoryview, verify: bool) -> None:
        self.path, self.data, self.verify = path, data, verify

    def read(self) -> Artifact:
        header, start = self.read_header()
        try:
            only(header, HEADER)
            sections = [only(s, (*SECTION, *SECTIONS[s["kind"]])) for s in header["sections"]]
            sizes = [_whole(s["size"]) for s in sections]
            offsets, end = _layout(start, sizes)
            if end != len(self.data):
                raise self.damaged("its sections do not fill it")
            if (codes := _whole(header["codes"])) > len(sections):
                raise ValueError("there are more code objects than sections")
            variants: list[list[Variant]] = [[] for _ in range(codes)]
            constants: list[NDArray[Any]] = []
            checks: list[Callable[[], None]] = []
            for entry, offset, size in zip(sections, offsets, sizes, strict=True):
                data = self.data[offset : offset + size]
                checks.append(partial(self.check, entry, data))
                if entry["kind"] == "code":
                    made = Variant(frozenset(_names(entry["features"])), bytes(data), str(entry["format"]))
                    variants[_whole(entry["code"])].append(made)
                else:
                    constants.append(_constant(entry, data))
            _run(checks, end if self.verify else 0)
            program = program_from_json(header["program"])
            return Artifact(
                program=program,
                codes=tuple(CodeObject(tuple(v)) for v in variants),
                constants=tuple(constants),
                target=str(header["target"]),
                metadata=metadata_of(header["metadata"], program),
                abi_version=_whole(header["abi_version"]),
            )
        except MALFORMED as error:
            raise self.damaged(f"its header is malformed: {error}") from error

    def read_header(self) -> tuple[dict[str, Any], int]:
        """The header, and where it ends."""
        head = _PREFIX.size + _DIGEST
        if len(self.data) < len(MAGIC) or self.data[: len(MAGIC)] != MAGIC:
            raise ArtifactError(
                f"'{self.path}' is not a compiled Weft model",
                code="A004",
                hint="compile a model with `weft compile`, or check how the file was copied",
            )
        if len(self.data) < head:
            raise self.damaged("it is cut off in its first bytes")
        _, version, length, total = _PREFIX.unpack(self.data[: _PREFIX.size])
        if version != FORMAT_VERSION:
            raise self.foreign_version(version)
        if total > len(self.data):
            raise self.damaged(f"it is cut off: {len(self.data)} of {total} bytes are there")
        header = self.data[head : head + length]
        check = blake2b(self.data[: _PREFIX.size], digest_size=_DIGEST)
        check.update(header)
        if length > _MAX_HEADER or check.digest() != self.data[_PREFIX.size : head]:
            raise self.damaged("its header does not have the right checksum")
        if total != len(self.data):
            raise self.damaged(f"it has {len(self.data) - total} bytes too many")
        try:
            value = json.loads(bytes(header))
        except MALFORMED as error:
            raise self.damaged(f"its header is malformed: {error}") from error
        if not isinstance(value, dict):
            raise self.damaged("its header is malformed")
        return value, head + length

    def check(self, entry: Mapping[str, Any], data: memoryview) -> None:
        full = self.verify or entry["kind"] == "code"
        if (digest(data) != entry["digest"]) if full else (quick_digest(data) != entry["quick"]):
            what = "machine code" if entry["kind"] == "code" else "a constant"
            raise self.damaged(f"{what} does not have the right checksum")

    def foreign_version(self, version: int) -> ArtifactError:
        newer = version > FORMAT_VERSION
        hint = "load it with the version of Weft that wrote it; if it is not newer, it is damaged"
        return ArtifactError(
            f"'{self.path}' has format {version}, this version of Weft reads format {FORMAT_VERSION}",
            code="A006",
            hint=hint if newer else "compile the model again",
        )

    def damaged(self, what: str) -> ArtifactError:
        return ArtifactError(f"'{self.path}' is damaged: {what}", code="A005", hint="compile the model again")


def _constant(entry: Mapping[str, Any], data: memoryview) -> NDArray[Any]:
    try:
        dtype = numpy_dtype(entry["dtype"])
    except UserError as error:
        raise ValueError(error.message) from error
    return np.frombuffer(data, dtype=np.uint8).view(dtype).reshape([_whole(d) for d in entry["shape"]])


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"{str(value)[:40]!r} is no list of names")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from 0 on")
    return value
