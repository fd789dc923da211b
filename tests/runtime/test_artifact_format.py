"""The format of artifacts: the version of a file says which fields it has, and a loader refuses other fields."""

from __future__ import annotations

import json
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from small_artifacts import artifact, vector_program
from test_executor import CONSTANT, chain

from weft.runtime.artifact import (
    _DIGEST,
    _PREFIX,
    FORMAT_VERSION,
    HEADER,
    MAGIC,
    SECTION,
    SECTIONS,
    Artifact,
)
from weft.runtime.program import (
    BufferSpec,
    DeviceSpec,
    FunctionSpec,
    HostOperator,
    KernelRef,
    Launch,
    TensorSpec,
)
from weft.runtime.serialize import _FIELDS, _KINDS, _PROGRAM, program_from_json, program_to_json
from weft.runtime.sizes import BINARY
from weft.support.errors import ArtifactError

RECORDS = (TensorSpec, BufferSpec, KernelRef, FunctionSpec, HostOperator, DeviceSpec, Launch)


def format_description() -> str:
    """A text that describes the form of serialized programs: if it changes, the version of the format must change."""
    lines = ["program: " + " ".join(_PROGRAM)]
    lines += [f"{cls.__name__}: " + " ".join(f.name for f in fields(cls)) for cls in RECORDS]
    lines += ["kinds of buffers: " + " ".join(sorted(_KINDS)), "sizes: " + " ".join([*BINARY, "not"])]
    lines += [f"{kind}: " + ", ".join(f"{name} {form}" for name, form in of.items()) for kind, of in _FIELDS.items()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def saved(kernels: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "model.weft"
    artifact(chain("n"), kernels, (CONSTANT,)).save(path)
    return path


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    length = _PREFIX.unpack(data[: _PREFIX.size])[2]
    return json.loads(data[_PREFIX.size + _DIGEST :][:length])  # type: ignore[no-any-return]


def rewrite(path: Path, header: dict[str, Any], version: int = FORMAT_VERSION) -> None:
    """A file with this header and correct checksums, sections where they belong."""
    data = path.read_bytes()
    length = _PREFIX.unpack(data[: _PREFIX.size])[2]
    aligned = -(-(_PREFIX.size + _DIGEST + length) // 64) * 64
    text = json.dumps(header).encode()
    body = bytes(-(_PREFIX.size + _DIGEST + len(text)) % 64) + data[aligned:]
    prefix = _PREFIX.pack(MAGIC, version, len(text), _PREFIX.size + _DIGEST + len(text) + len(body))
    path.write_bytes(prefix + blake2b(prefix + text, digest_size=_DIGEST).digest() + text + body)


def test_the_version_names_the_format() -> None:
    """Whoever changes the form of a file raises FORMAT_VERSION, and writes down the new form."""
    sections = [f"{kind} section: {' '.join((*SECTION, *more))}" for kind, more in SECTIONS.items()]
    text = "\n".join([f"header: {' '.join(HEADER)}", *sections, format_description()])
    path = Path(__file__).parent / "golden" / f"artifact-format-{FORMAT_VERSION}.txt"
    assert path.exists() and path.read_text() == text, (
        f"the format of artifacts is not what version {FORMAT_VERSION} says: raise FORMAT_VERSION in "
        f"weft/runtime/artifact.py and write this text to golden/:\n{text}"
    )


def test_saved_headers_have_the_fields_that_the_version_lists(saved: Path) -> None:
    header = header_of(saved)
    assert tuple(header) == HEADER
    for section in header["sections"]:
        assert set(section) == {*SECTION, *SECTIONS[section["kind"]]}


@pytest.mark.parametrize("place", ["header", "section", "program"])
def test_unknown_fields_are_refused(saved: Path, place: str) -> None:
    header = header_of(saved)
    rewrite(saved, header)
    Artifact.load(saved, verify=True)
    {"header": header, "section": header["sections"][0], "program": header["program"]}[place]["fresh"] = 1
    rewrite(saved, header)
    with pytest.raises(ArtifactError, match="unknown field 'fresh'"):
        Artifact.load(saved)


@pytest.mark.parametrize("field", ["functions", "hosts", "types", "symbols", "instructions"])
def test_missing_fields_are_refused(field: str) -> None:
    value = program_to_json(vector_program("double_plus_one"))
    del value[field]
    with pytest.raises(ArtifactError, match="malformed"):
        program_from_json(value)


def test_unknown_instructions_are_refused() -> None:
    value = program_to_json(vector_program("double_plus_one"))
    for wrong in (["teleport", 1], [*value["instructions"][0], 0], value["instructions"][0][:-1]):
        with pytest.raises(ArtifactError, match="malformed"):
            program_from_json({**value, "instructions": [wrong]})


@pytest.mark.parametrize("place", ["abi_version", "codes", "code", "size"])
@pytest.mark.parametrize("number", [-1, 1.0, True, "1", None])
def test_numbers_of_the_header_are_whole(saved: Path, place: str, number: object) -> None:
    header = header_of(saved)
    code = next(s for s in header["sections"] if s["kind"] == "code")
    (header if place in header else code)[place] = number
    rewrite(saved, header)
    with pytest.raises(ArtifactError, match="is not a whole number from 0 on"):
        Artifact.load(saved)
