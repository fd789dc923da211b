"""Resampling whose places lie on a line of rational slope: whole numbers for float64, patterns for gathers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.ops.resize import COORDINATES, ROUNDINGS, _coordinate, _line, _nearest_table, _slope
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

MODES = [c for c in COORDINATES if c != "tf_crop_and_resize"]


def program(shape: tuple[int, ...], sizes: tuple[int, ...], **attrs: object) -> Program:
    resize, x = op("resize"), te.placeholder(shape, name="x")
    given = resize.complete({"sizes": sizes, **attrs})
    return te_to_tir("resized", [x], [resize.compute(given, TensorType.of(sizes, "float32"), x)])


@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(MODES), st.sampled_from(ROUNDINGS))
def test_a_line_goes_through_all_places(old: int, new: int, coordinates: str, rounding: str) -> None:
    attrs = op("resize").complete({"sizes": (new,), "coordinates": coordinates, "rounding": rounding})
    table = _nearest_table(attrs, 0, old, new)
    line = _line(table, old, new)
    if line is not None:
        a, b, c = line
        np.testing.assert_array_equal(np.clip((a * np.arange(new) + b) // c, 0, old - 1), table)
    if coordinates == "half_pixel" and (old % new == 0 or new % old == 0):
        assert line is not None  # limited at the ends, if need be
    if coordinates == "asymmetric" and rounding == "floor" and (old % new == 0 or new % old == 0):
        assert line is not None


@pytest.mark.parametrize("sizes", [(56, 84), (56, 112), (40, 60), (64, 80), (112, 64), (70, 98), (33, 77), (5, 50)])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel"])
def test_enlarged_and_reduced_pictures(sizes: tuple[int, int], coordinates: str) -> None:
    old, new = sizes
    x = np.random.default_rng(0).standard_normal((3, 9, old), dtype=np.float32)
    attrs = {"coordinates": coordinates, "rounding": "floor"}
    made = default_schedule(program(x.shape, (3, 13, new), **attrs), Target("cpu")).program
    resize = op("resize")
    want = resize.reference(resize.complete({"sizes": (3, 13, new), **attrs}), x)
    np.testing.assert_array_equal(run_program(made, [x])[0], want)


@pytest.mark.parametrize(("old", "new"), [(64, 96), (64, 128), (64, 80), (40, 160)])
@pytest.mark.parametrize(
    ("coordinates", "rounding"),
    [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "floor")],
)
def test_enlarged_pictures_are_read_in_order(old: int, new: int, coordinates: str, rounding: str) -> None:
    target = Target("x86-64-v4")
    made = program((8, old, old), (8, new, new), coordinates=coordinates, rounding=rounding)
    listing = assembly(emit_ir(tir_to_kernel(default_schedule(made, target).program, target), target), target)
    limited = coordinates == "half_pixel" and rounding == "floor"  # at the ends: which vectors are there is not known
    assert not [n for n in ("vgather",) * (not limited) + ("vdivpd", "vrndscale", "vcvt") if n in listing]


@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(MODES), st.sampled_from([None, 0.5, 1.65, 2.0]))
def test_coordinates_are_fractions_of_whole_numbers(old: int, new: int, coordinates: str, scale: float | None) -> None:
    given = {"scales": (scale,)} if scale else {}
    attrs = op("resize").complete({"sizes": (new,), "coordinates": coordinates, "mode": "linear", **given})
    slope = _slope(attrs, 0, old, new)
    if slope is not None:
        a, b, c = slope
        i = np.arange(new, dtype=np.float64)
        np.testing.assert_allclose((a * i + b) / c, _coordinate(attrs, 0, old, new, i) + 0 * i, atol=1e-9)
    if coordinates in ("half_pixel", "asymmetric") and min(old, new) > 1 and scale is None:
        assert slope is not None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("sizes", [(56, 84), (56, 112), (64, 32), (33, 77), (5, 50), (2, 9), (1, 7), (9, 1), (70, 3)])
@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_linear_between_all_neighbours(sizes: tuple[int, int], coordinates: str, target: str) -> None:
    old, new = sizes
    x = np.random.default_rng(0).standard_normal((3, 9, old), dtype=np.float32)
    attrs = {"coordinates": coordinates, "mode": "linear"}
    resize = op("resize")
    want = resize.reference(resize.complete({"sizes": (3, 13, new), **attrs}), x)
    made = default_schedule(program(x.shape, (3, 13, new), **attrs), Target(target)).program
    np.testing.assert_allclose(run_program(made, [x])[0], want, rtol=1e-5, atol=1e-5)


def test_a_nan_reaches_its_neighbours_and_no_others() -> None:
    x = np.ones((1, 1, 8), np.float32)
    x[0, 0, 3] = np.nan
    made = default_schedule(program(x.shape, (1, 1, 16), mode="linear"), Target("cpu")).program
    assert np.flatnonzero(np.isnan(run_program(made, [x])[0].ravel())).tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(("old", "new", "gathers"), [(64, 32, 0), (256, 384, 20), (1024, 1536, 20), (1024, 2048, 16)])
def test_linear_needs_no_doubles_and_gathers_at_the_ends_only(old: int, new: int, gathers: int) -> None:
    target = Target("x86-64-v4")
    made = program((8, old, old), (8, new, new), mode="linear")
    listing = assembly(emit_ir(tir_to_kernel(default_schedule(made, target).program, target), target), target)
    assert not [name for name in ("vdivpd", "vrndscale", "vcvttpd", "vcvtqq2pd") if name in listing]
    assert listing.count("vgather") <= gathers and "zmm" in listing
