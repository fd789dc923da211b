"""The page ``docs/operators.md``: every ONNX operator and how it is imported, every operator of the catalogue.

``python -m weft.frontends.onnx.documentation`` writes the page to standard output; a test checks that it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from weft.frontends.onnx.converters.table import converters_of
from weft.frontends.onnx.reader import onnx_package
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import OpDef

HEAD = """# Operators

This page is generated: `python -m weft.frontends.onnx.documentation > docs/operators.md`.

*direct*: Weft has a converter for the operator. *function*: the operator is imported through the function body that
the specification gives for it. *shapes*: the operator is also evaluated on shapes during import, so that its result may
decide shapes. The column of opsets lists the versions of the operator set in which the definition changed. The column
of dtypes lists those of the first operand in the newest version.
"""

# Operators that are refused, always or in some cases, and why.
NOTES: dict[str, str] = {
    "Dropout": "trains without `is_test` (1, 6) and since 12; docs/semantics.md says which numbers are drawn",
    "ImageDecoder": "by Pillow, on the host: pip install 'weft[images]'",
    "RegexFullMatch": "by RE2, on the host: pip install 'weft[text]'",
    "DFT": "lengths up to 16384",
    "STFT": "frames up to 16384",
    "Det": "up to 64 × 64",
    "CastMap": "maps are not supported",
    "DictVectorizer": "maps are not supported",
    "ZipMap": "gives the values as rows; the backend interface makes maps of them",
    "Gradient": "not through branches and loops; see docs/functions.md",
    "DeformConv": "two spatial dimensions",
}

# The same for operators of com.microsoft.
MICROSOFT_NOTES: dict[str, str] = {
    "Attention": "masks of four dimensions and do_rotary are refused",
    "CDist": "euclidean and sqeuclidean",
    "ConvTransposeWithDynamicPads": "pads known when compiled",
    "DecoderMaskedMultiHeadAttention": "without beam search",
    "DynamicQuantizeLSTM": "operands are quantized at each step, with one scale for the whole batch",
    "GatedRelativePositionBias": "without packed sequences",
    "GroupQueryAttention": "states of floats or 8 bits; local_window_size masks keys, the buffer keeps all of them",
    "Irfft": "one dimension, one-sided",
    "MatMulBnb4": "decoded when compiled",
    "MatMulNBits": "2, 4 and 8 bits; accuracy_level, a minimum, is always met",
    "MoE": "without sparse mixers",
    "MultiHeadAttention": "without beam search",
    "NGramRepeatBlock": "length of the sequence known when compiled",
    "QAttention": "do_rotary is refused",
    "QMoE": "weights of 2, 4 and 8 bits, decoded when compiled; without sparse mixers",
    "Rfft": "one dimension, one-sided",
    "UnfoldTensor": "the unfolded size known when compiled",
}

_GROUPS: dict[str, tuple[str, ...]] = {
    "floats": ("float16", "bfloat16", "float", "double"),
    "float8": ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    "float6": ("float6e2m3", "float6e3m2"),
    "float4": ("float4e2m1",),
    "integers": ("int8", "int16", "int32", "int64"),
    "unsigned": ("uint8", "uint16", "uint32", "uint64"),
    "4 bits": ("int4", "uint4"),
    "2 bits": ("int2", "uint2"),
    "bool": ("bool",),
}


def operators_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for domain, title in (("", "ai.onnx"), ("ai.onnx.ml", "ai.onnx.ml"), ("ai.onnx.preview.training", "training")):
        parts += [f"## {title}\n", *_table(("operator", "opsets", "imported", "dtypes", "notes"), _onnx_rows(domain))]
    microsoft = sorted(converters_of("com.microsoft"))
    parts += [
        "## com.microsoft\n",
        *_table(("operator", "notes"), ((m, MICROSOFT_NOTES.get(m, "")) for m in microsoft)),
    ]
    entries = [_catalogue_row(o) for o in sorted(OPERATORS.values(), key=lambda o: o.name)]
    parts += ["## Catalogue\n", "What models consist of once they are imported.\n"]
    parts += _table(("operator", "attributes", "meaning", "defined by"), entries)
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = tuple(head)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |" for row in rows]
    return [*lines, ""]


def _onnx_rows(domain: str) -> list[tuple[str, ...]]:
    from weft.frontends.onnx.shapes import SHAPE_RULES

    versions: dict[str, list[Any]] = {}
    for schema in onnx_package().defs.get_all_schemas_with_history():
        if schema.domain == domain:
            versions.setdefault(schema.name, []).append(schema)
    rows: list[tuple[str, ...]] = []
    for name, schemas in sorted(versions.items()):
        schemas.sort(key=lambda s: s.since_version)
        how = _how(domain, name, schemas)
        if not domain and name in SHAPE_RULES:
            how += ", shapes"
        opsets = ", ".join(str(s.since_version) for s in schemas)
        rows.append((name, opsets, how, _dtypes(schemas[-1]), NOTES.get(name, "")))
    return rows


def _how(domain: str, name: str, schemas: list[Any]) -> str:
    if name in converters_of(domain):
        return "direct"
    if any(s.has_function or s.has_context_dependent_function for s in schemas):
        return "function"
    return "no"


def _dtypes(schema: Any) -> str:
    if not schema.inputs:
        return ""
    allowed = {t.removeprefix("tensor(").removesuffix(")") for t in schema.inputs[0].types if t.startswith("tensor(")}
    words = []
    for group, members in _GROUPS.items():
        found = [m for m in members if m in allowed]
        words += [group] if len(found) == len(members) else found
    return ", ".join(words)


def _catalogue_row(entry: OpDef) -> tuple[str, ...]:
    names = ", ".join(a.name for a in entry.attributes)
    return entry.name, names, entry.doc, entry.source


if __name__ == "__main__":
    sys.stdout.write(operators_page())
