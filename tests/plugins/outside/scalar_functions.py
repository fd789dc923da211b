"""A package of somebody else: scalar functions, and operators that call them."""

from __future__ import annotations

import numpy as np

import weft
from weft import te
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.plugins import Intrinsic, NativeCode


def same(dtypes):
    return dtypes[0]


# By arithmetic: for all machines and types.

PLUS_PRODUCT = Intrinsic(
    "plus_product", 3, "float", same, lambda a, b, c: a + b * c, "a + b * c", expand=lambda a, b, c: a + b * c
)


def clipped_cube(x):
    cube = te.call("plus_product", te.const(0, x.dtype), x, x * x)
    return te.if_then_else(x > 1, te.const(1, x.dtype), cube)


CLIPPED_CUBE = Intrinsic(
    "clipped_cube",
    1,
    "float",
    same,
    lambda x: np.where(x > 1, 1, x * x * x).astype(x.dtype)[()],
    "x³, at most 1",
    expand=clipped_cube,
)

# By functions in the languages of two back ends, for one type.

_C = """\
#include <math.h>
static inline float cubic_root(float x) {
    return cbrtf(x);
}"""
_LLVM = """\
declare float @cbrtf(float)
define internal float @cubic_root(float %x) alwaysinline {
  %made = call float @cbrtf(float %x)
  ret float %made
}"""
CUBIC_ROOT = Intrinsic(
    "cubic_root",
    1,
    "float",
    same,
    np.cbrt,
    "the cubic root",
    codes=(
        NativeCode("c", "float32", "cubic_root({0})", _C),
        NativeCode("llvm", "float32", "call float @cubic_root(float {0})", _LLVM),
    ),
)

# A condition, by text without functions and with one that needs an intrinsic of LLVM.

_IS_LARGE = """\
define internal i1 @is_large(float %x) {
  %size = call float @llvm.fabs.f32(float %x)
  %made = fcmp ogt float %size, 1.0
  ret i1 %made
}"""
IS_LARGE = Intrinsic(
    "is_large",
    1,
    "float",
    lambda dtypes: "bool",
    lambda x: np.abs(x) > 1,
    "|x| > 1",
    expand=lambda x: te.abs(x) > 1,
    codes=(
        NativeCode("c", "float32", "{0} > 1.0f || {0} < -1.0f"),
        NativeCode("llvm", "float32", "call i1 @is_large(float {0})", _IS_LARGE),
    ),
)

# One text for numbers and for vectors.

SCALED_SUM = Intrinsic(
    "scaled_sum",
    2,
    "float",
    same,
    lambda x, y: x * y + y,
    "x * y + y",
    expand=lambda x, y: x * y + y,
    codes=(
        NativeCode("c", "float32", "{0} * {1} + {1}", vectors=True),
        NativeCode(
            "llvm", "float32", "call {type} @llvm.fma.{suffix}({type} {0}, {type} {1}, {type} {1})", vectors=True
        ),
    ),
)
SCALARS = (PLUS_PRODUCT, CLIPPED_CUBE, CUBIC_ROOT, IS_LARGE, SCALED_SUM)


def operator(name, element, reference):
    """An element-wise operator that computes ``element`` of each element."""

    def infer(attrs, *types):
        (x,) = rel.tensors(name, types, 1)
        return rel.want_kind(name, x, "float") or x

    def compute(attrs, out, x):
        return te.compute(out.shape, lambda *i: element(x[i]), name=name)

    def judged(attrs, x):
        return np.asarray(reference(x)).astype(x.dtype)

    case = Case((((3, 5), "float32"),), {})
    return OpDef(name, (), infer, judged, compute=compute, elementwise=True, cases=(case,), doc=name)


OPERATORS = (
    operator("cube_at_most_1", lambda x: te.call("clipped_cube", x), lambda x: np.minimum(x * x * x, 1)),
    operator("take_cubic_root", lambda x: te.call("cubic_root", x), np.cbrt),
    operator(
        "keep_large",
        lambda x: te.if_then_else(te.call("is_large", x), x, te.const(0, x.dtype)),
        lambda x: np.where(np.abs(x) > 1, x, 0),
    ),
    operator("scale_and_add", lambda x: te.call("scaled_sum", x, x), lambda x: x * x + x),
)
PLUGIN = weft.Plugin("scalar-functions", "0.3", operators=OPERATORS, scalar_intrinsics=SCALARS)
