"""Golden texts of a dozen fused groups on a fixed target: te, tir, traces as Python and as JSON, kernel form.

``pytest --bless`` rewrites them; the diff is what a change of rules or lowering does to code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import representative

from weft.kernels.machine_code import scheduled
from weft.pipeline.kernels import unscheduled
from weft.pipeline.stages import kernel_stages
from weft.schedule import Schedule, Trace
from weft.target import Target
from weft.tir.text import to_text

STAGES = ("te", "tir", "trace", "kernel")
TARGET = Target(representative.TARGET)


def texts(name: str) -> Iterator[tuple[str, str]]:
    """Stage and text of all groups of a graph."""
    groups = representative.groups(name, TARGET)
    found: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for group in groups:
        wanted = (s for s in kernel_stages(group, TARGET) if s.name in STAGES)
        for stage, _ in zip(wanted, STAGES, strict=False):  # what follows is machine code, and is not made
            found[stage.name].append(stage.text.strip("\n"))
    for stage, parts in found.items():
        yield stage, "\n\n".join(parts) + "\n"
    traces = [scheduled(unscheduled(group)[0], TARGET).trace for group in groups]
    yield "trace.json", "[\n" + ",\n".join(map(readable, traces)) + "\n]\n"


def readable(trace: Trace) -> str:
    """The JSON of a trace, a line for each instruction."""
    data = json.loads(trace.to_json())
    rows = ",\n".join("  " + json.dumps(row) for row in data.pop("instructions"))
    return json.dumps(data)[:-1] + ', "instructions": [\n' + rows + "\n]}"


@pytest.mark.parametrize("name", representative.GRAPHS)
def test_texts_of_groups(name: str, golden: Callable[[str, str], None]) -> None:
    for stage, text in texts(name):
        golden(f"{name}-{stage}" + ("" if "." in stage else ".txt"), text)


@pytest.mark.parametrize("name", representative.GRAPHS)
def test_traces_of_groups_are_read_back(name: str) -> None:
    text = dict(texts(name))["trace.json"]
    for group, data in zip(representative.groups(name, TARGET), json.loads(text), strict=True):
        program = unscheduled(group)[0]
        replayed = Schedule(program).replay(Trace.from_json(json.dumps(data)))
        assert to_text(replayed.program) == to_text(scheduled(program, TARGET).program)
