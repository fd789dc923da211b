"""The table of primitives, the methods of a schedule and the table of rules agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import weft.schedule
from weft.schedule import Schedule
from weft.schedule.documentation import primitives_page
from weft.schedule.errors import RULES
from weft.schedule.primitives.registry import PRIMITIVES
from weft.schedule.stage_notation import ClassicSchedule, Stage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "primitives.md"
SOURCES = [p.read_text() for p in Path(weft.schedule.__file__).parent.rglob("*.py") if "rules" not in p.parts]


def test_every_primitive_is_a_method_with_the_same_arguments() -> None:
    for name, primitive in PRIMITIVES.items():
        wanted = list(inspect.signature(primitive.run).parameters)[1:]
        given = list(inspect.signature(getattr(Schedule, name)).parameters)[1:]
        assert given[: len(wanted)] == wanted, name
        assert primitive.run.__doc__, name


def test_page_of_primitives_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bless"):
        PAGE.write_text(primitives_page())
    assert PAGE.read_text() == primitives_page(), "run pytest --bless and review docs/primitives.md"


ARCHITECTURE = [
    "split",
    "tile",
    "fuse",
    "reorder",
    "parallel",
    "vectorize",
    "unroll",
    "bind",
    "partition",
    "compute_at",
    "reverse_compute_at",
    "compute_inline",
    "reverse_compute_inline",
    "compute_root",
    "cache_read",
    "cache_write",
    "set_scope",
    "store_at",
    "fold_storage",
    "storage_align",
    "double_buffer",
    "pipeline",
    "prefetch",
    "stream",
    "rfactor",
    "decompose_reduction",
    "transform_layout",
    "pad_einsum",
    "blockize",
    "tensorize",
    "merge",
    "reindex",
    "cache_index",
    "cache_operand",
    "cache_state",
    "transform_block_layout",
    "reorder_block_iter_var",
    "decompose_padding",
    "unsafe_set_dtype",
    "read_at",
    "write_at",
    "virtual_thread",
    "annotate",
    "get_block",
    "get_loops",
    "get_producers",
    "get_consumers",
    "sample_tile",
    "sample_choice",
    "sample_location",
]
STAGE = [
    "split",
    "tile",
    "fuse",
    "reorder",
    "parallel",
    "vectorize",
    "unroll",
    "bind",
    "compute_at",
    "compute_inline",
    "compute_root",
    "tensorize",
    "pragma",
    "prefetch",
    "storage_align",
    "double_buffer",
    "rolling_buffer",
    "set_scope",
    "set_store_predicate",
    "transform_layout",
    "stream",
    "pad_einsum",
]
WHOLE = ["cache_read", "cache_write", "rfactor", "create_group"]


def test_both_notations_have_the_listed_methods() -> None:
    for owner, names in ((Schedule, ARCHITECTURE), (Stage, STAGE), (ClassicSchedule, WHOLE)):
        assert not [n for n in names if not callable(getattr(owner, n, None))]


def test_every_refusal_has_a_rule_and_every_rule_a_refusal() -> None:
    used = {code for text in SOURCES for code in re.findall(r'"(S\d{3})"(?!:)', text)}
    assert used <= set(RULES)
    assert set(RULES) <= used
