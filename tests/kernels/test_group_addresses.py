"""Fused groups find their cached kernels without lowering, and no other kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.api import compile_with_report
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.kernels import machine_code as kernel_build
from weft.kernels.cache import GroupAddress, KernelCache, group_address
from weft.lowering import group_to_tir
from weft.ops.catalogue import OPERATORS, op
from weft.pipeline import Options, compile_module, kernels, optimize
from weft.support.cache import DiskCache
from weft.target import Target

TARGET = Target("cpu")


def scaled(factor: float, shape: str = "4, 8", sizes: str = "") -> Module:
    return parse(
        f"""
def @main{sizes}(%x: f32[{shape}], %y: f32[{shape}]) -> f32[{shape}] {{
  %0: f32[{shape}] = mul(%x, {factor}f32)
  %out: f32[{shape}] = sub(%0, %y)
  return %out
}}""",
        OPERATORS,
    )


def address(module: Module) -> GroupAddress | None:
    fused = optimize(module, TARGET)
    (group,) = (e.target for e in post_order(fused.main) if isinstance(e, Call) and isinstance(e.target, Function))
    return group_address(group, TARGET, OPERATORS)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _counted(name: str, real: Callable[..., Any], called: list[str]) -> Callable[..., Any]:
    def counted(*args: Any, **more: Any) -> Any:
        called.append(name)
        return real(*args, **more)

    return counted


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))


@pytest.fixture
def no_lowering(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of what a warm compilation must not call."""
    called: list[str] = []
    steps = {
        kernels: ("unscheduled", "group_to_te"),
        group_to_tir: ("te_to_tir",),
        kernel_build: ("scheduled", "lowered"),
    }
    for module, names in steps.items():
        for name in names:
            monkeypatch.setattr(module, name, _counted(name, getattr(module, name), called))
    return called


def test_a_warm_compilation_lowers_and_schedules_nothing(no_lowering: list[str]) -> None:
    module = scaled(2.5)
    first, cold = compile_with_report(module)
    assert {"unscheduled", "scheduled", "lowered"} <= set(no_lowering) and cold.built == 1
    no_lowering.clear()
    second, warm = compile_with_report(module)
    assert not no_lowering and (warm.built, warm.cached) == (0, 1)
    x, y = numbers(4, 8), numbers(4, 8)[::-1].copy()
    np.testing.assert_array_equal(second(x, y), first(x, y))
    np.testing.assert_allclose(second(x, y), 2.5 * x - y, rtol=1e-5, atol=1e-6)


def test_equal_groups_of_one_model_are_lowered_once(no_lowering: list[str]) -> None:
    text = "\n".join(f"  %{i + 1}: f32[4, 4] = matmul(%{i}, %{i})" for i in range(6))
    module = parse(
        f"def @main(%x: f32[4, 4]) -> f32[4, 4] {{\n  %0: f32[4, 4] = matmul(%x, %x)\n{text}\n  return %6\n}}",
        OPERATORS,
    )
    _, report = compile_module(module, [TARGET], options=Options(max_ops=1))
    assert report.calls == 7 and no_lowering.count("unscheduled") == 1


def test_different_kernels_have_different_addresses() -> None:
    assert address(scaled(2.5)) == address(scaled(2.5))
    different = [scaled(2.5), scaled(2.500001), scaled(-0.0), scaled(0.0), scaled(2.5, "4, 9"), scaled(2.5, "8, 4")]
    made = {a.key for a in map(address, different) if a is not None}
    assert len(made) == len(different)


def test_open_sizes_are_found_by_their_place(no_lowering: list[str]) -> None:
    for first, second in (("n", "m"), ("m", "n"), ("rows", "columns")):
        exe, _ = compile_with_report(scaled(3.0, f"{first}, {second}", f"<{first}, {second}>"))
        x = numbers(3, 7)
        np.testing.assert_allclose(exe(x, x), 2 * x, rtol=1e-5)
    assert no_lowering.count("unscheduled") == 1, "names of sizes do not count"


def test_operators_that_are_not_of_the_catalogue_have_no_address() -> None:
    foreign = replace(op("exp"), compute=op("neg").compute)  # the same name, another meaning
    module = scaled(1.5)
    x = module.main.params[0]
    group = Function((x,), call(foreign, (x,)))
    assert group_address(group, TARGET, OPERATORS) is None
    assert group_address(Function((x,), call(op("exp"), (x,))), TARGET, OPERATORS) is not None


@pytest.mark.parametrize("damage", ["gone", "nonsense"])
def test_notes_without_a_kernel_are_of_no_harm(damage: str, tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, 1 << 20)
    module = scaled(4.0)
    compile_module(module, [TARGET], cache=KernelCache(disk))
    noted = address(module)
    assert noted is not None and len(disk.keys()) == 2
    if damage == "gone":
        (kernel,) = (k for k in set(disk.keys()) if k != noted.key)
        (tmp_path / kernel[:2] / f"{kernel}.entry").unlink()
    else:
        disk.put(noted.key, b"not a note")
    _, report = compile_module(module, [TARGET], cache=KernelCache(disk))
    assert (report.built, report.cached) == ((1, 0) if damage == "gone" else (0, 1))
