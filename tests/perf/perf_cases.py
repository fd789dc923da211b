"""Kernels that performance depends on, as graphs: one small module each, weights made up."""

from __future__ import annotations

import warnings

from weft.graph.nodes import Module
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS

_CONV = "dilations=(1, 1)"

CASES: dict[str, str] = {
    "convolution 3x3": f"""
def @main(%x: f32[1, 64, 56, 56]) -> f32[1, 64, 56, 56] {{
  %0: f32[1, 64, 56, 56] = conv(%x, f32[64, 64, 3, 3]("w"), {_CONV}, pads=(1, 1, 1, 1), strides=(1, 1))
  %1: f32[1, 64, 56, 56] = add(%0, f32[64, 1, 1]("b"))
  %out: f32[1, 64, 56, 56] = relu(%1)
  return %out
}}""",
    "convolution 3x3, stride 2": f"""
def @main(%x: f32[1, 128, 56, 56]) -> f32[1, 128, 28, 28] {{
  %out: f32[1, 128, 28, 28] = conv(%x, f32[128, 128, 3, 3]("w"), {_CONV}, pads=(1, 1, 1, 1), strides=(2, 2))
  return %out
}}""",
    "convolution 1x1": f"""
def @main(%x: f32[1, 256, 14, 14]) -> f32[1, 1024, 14, 14] {{
  %0: f32[1, 1024, 14, 14] = conv(%x, f32[1024, 256, 1, 1]("w"), {_CONV}, pads=(0, 0, 0, 0), strides=(1, 1))
  %out: f32[1, 1024, 14, 14] = relu(%0)
  return %out
}}""",
    "convolution of a picture": f"""
def @main(%x: f32[1, 3, 224, 224]) -> f32[1, 64, 112, 112] {{
  %out: f32[1, 64, 112, 112] = conv(%x, f32[64, 3, 7, 7]("w"), {_CONV}, pads=(3, 3, 3, 3), strides=(2, 2))
  return %out
}}""",
    "convolution of each channel": f"""
def @main(%x: f32[1, 144, 56, 56]) -> f32[1, 144, 56, 56] {{
  %0: f32[1, 144, 56, 56] = conv(%x, f32[144, 1, 3, 3]("w"), {_CONV}, groups=144, pads=(1, 1, 1, 1), strides=(1, 1))
  %out: f32[1, 144, 56, 56] = clip(%0, max=6.0, min=0.0)
  return %out
}}""",
    "channels by themselves between products": f"""
def @main(%x: f32[1, 32, 28, 28]) -> f32[1, 32, 28, 28] {{
  %0: f32[1, 192, 28, 28] = conv(%x, f32[192, 32, 1, 1]("w"), {_CONV}, pads=(0, 0, 0, 0), strides=(1, 1))
  %1: f32[1, 192, 28, 28] = clip(%0, max=6.0, min=0.0)
  %2: f32[1, 192, 28, 28] = conv(%1, f32[192, 1, 3, 3]("d"), {_CONV}, groups=192, pads=(1, 1, 1, 1), strides=(1, 1))
  %3: f32[1, 192, 28, 28] = clip(%2, max=6.0, min=0.0)
  %4: f32[1, 32, 28, 28] = conv(%3, f32[32, 192, 1, 1]("v"), {_CONV}, pads=(0, 0, 0, 0), strides=(1, 1))
  %out: f32[1, 32, 28, 28] = add(%4, %x)
  return %out
}}""",
    "sums of rows at computed places": """
def @main(%x: f32[200, 64], %at: i64[1000, 1], %rows: f32[1000, 64]) -> f32[200, 64] {
  %out: f32[200, 64] = scatter_nd(%x, %at, %rows, reduction="add")
  return %out
}""",
    "max pool": f"""
def @main(%x: f32[1, 64, 112, 112]) -> f32[1, 64, 56, 56] {{
  %0: f32[1, 64, 112, 112] = conv(%x, f32[64, 64, 1, 1]("w"), {_CONV}, pads=(0, 0, 0, 0), strides=(1, 1))
  %out: f32[1, 64, 56, 56] = max_pool(%0, {_CONV}, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
  return %out
}}""",
    "matrix product with GELU": """
def @main(%x: f32[128, 768]) -> f32[128, 3072] {
  %0: f32[128, 3072] = matmul(%x, f32[768, 3072]("w"))
  %1: f32[128, 3072] = add(%0, f32[3072]("b"))
  %out: f32[128, 3072] = gelu(%1)
  return %out
}""",
    "one row times a matrix": """
def @main(%x: f32[1, 768]) -> f32[1, 2304] {
  %0: f32[1, 2304] = matmul(%x, f32[768, 2304]("w"))
  %out: f32[1, 2304] = add(%0, f32[2304]("b"))
  return %out
}""",
    "one decoding step": """
def @main(%x: f32[1, 1, 768], %old_k: f32[1, 12, 64, 64], %old_v: f32[1, 12, 64, 64]) -> f32[1, 1, 768] {
  %0: f32[1, 1, 768] = matmul(%x, f32[768, 768]("wq"))
  %1: f32[1, 1, 768] = add(%0, f32[768]("bq"))
  %2: f32[1, 12, 1, 64] = reshape(%1, shape=(1, 12, 1, 64))
  %3: f32[1, 1, 768] = matmul(%x, f32[768, 768]("wk"))
  %4: f32[1, 1, 768] = add(%3, f32[768]("bk"))
  %5: f32[1, 12, 1, 64] = reshape(%4, shape=(1, 12, 1, 64))
  %6: f32[1, 1, 768] = matmul(%x, f32[768, 768]("wv"))
  %7: f32[1, 1, 768] = add(%6, f32[768]("bv"))
  %8: f32[1, 12, 1, 64] = reshape(%7, shape=(1, 12, 1, 64))
  %k: f32[1, 12, 65, 64] = concat(%old_k, %5, axis=2)
  %v: f32[1, 12, 65, 64] = concat(%old_v, %8, axis=2)
  %9: f32[1, 12, 1, 65] = matmul(%2, %k, transpose_b=true)
  %10: f32[1, 12, 1, 65] = mul(%9, 0.125f32)
  %11: f32[1, 12, 1, 65] = softmax(%10, axis=3)
  %12: f32[1, 12, 1, 64] = matmul(%11, %v)
  %13: f32[1, 1, 768] = reshape(%12, shape=(1, 1, 768))
  %14: f32[1, 1, 768] = matmul(%13, f32[768, 768]("wo"))
  %out: f32[1, 1, 768] = add(%14, f32[768]("bo"))
  return %out
}""",
    "products of attention": """
def @main(%q: f32[12, 128, 64], %k: f32[12, 128, 64], %v: f32[12, 128, 64]) -> f32[12, 128, 64] {
  %0: f32[12, 128, 128] = matmul(%q, %k, transpose_b=true)
  %1: f32[12, 128, 128] = mul(%0, 0.125f32)
  %2: f32[12, 128, 128] = softmax(%1, axis=2)
  %out: f32[12, 128, 64] = matmul(%2, %v)
  return %out
}""",
    "attention, some places hidden": """
def @main(
  %q: f32[12, 128, 64], %k: f32[12, 128, 64], %v: f32[12, 128, 64], %seen: bool[1, 128, 128]
) -> f32[12, 128, 64] {
  %0: f32[12, 128, 128] = matmul(%q, %k, transpose_b=true)
  %1: f32[12, 128, 128] = mul(%0, 0.125f32)
  %2: f32[12, 128, 128] = where(%seen, %1, -inf_f32)
  %3: f32[12, 128, 128] = softmax(%2, axis=2)
  %out: f32[12, 128, 64] = matmul(%3, %v)
  return %out
}""",
    "attention, causal": """
def @main(%q: f32[12, 128, 64], %k: f32[12, 128, 64], %v: f32[12, 128, 64]) -> f32[12, 128, 64] {
  %0: f32[12, 128, 128] = matmul(%q, %k, transpose_b=true)
  %1: f32[12, 128, 128] = mul(%0, 0.125f32)
  %2: f32[12, 128, 128] = trilu(%1, fill=-inf, k=0, upper=false)
  %3: f32[12, 128, 128] = softmax(%2, axis=2)
  %out: f32[12, 128, 64] = matmul(%3, %v)
  return %out
}""",
    "layer norm": """
def @main(%x: f32[128, 768], %r: f32[128, 768]) -> f32[128, 768] {
  %0: f32[128, 768] = add(%x, %r)
  %out: f32[128, 768] = layer_norm(%0, f32[768]("g"), f32[768]("b"), axis=1, epsilon=0.000009999999747378752)
  return %out
}""",
    "element by element": """
def @main(%x: f32[64, 4096], %y: f32[64, 4096]) -> f32[64, 4096] {
  %0: f32[64, 4096] = sigmoid(%x)
  %1: f32[64, 4096] = mul(%0, %x)
  %out: f32[64, 4096] = add(%1, %y)
  return %out
}""",
    "transpose": """
def @main(%x: f32[1, 128, 12, 64]) -> f32[1, 12, 64, 128] {
  %out: f32[1, 12, 64, 128] = transpose(%x, perm=(0, 2, 3, 1))
  return %out
}""",
    "concat": """
def @main(%x: f32[1, 64, 28, 28], %y: f32[1, 32, 28, 28]) -> f32[1, 96, 28, 28] {
  %out: f32[1, 96, 28, 28] = concat(%x, %y, axis=1)
  return %out
}""",
    "product of two inputs": """
def @main(%x: f32[128, 1024], %y: f32[1024, 2048]) -> f32[128, 2048] {
  %out: f32[128, 2048] = matmul(%x, %y)
  return %out
}""",
    "product with a transposed input": """
def @main(%x: f32[96, 512], %y: f32[512, 512]) -> f32[96, 512] {
  %out: f32[96, 512] = matmul(%x, %y, transpose_b=true)
  return %out
}""",
    "larger than the caches": """
def @main(%x: f32[64, 262144]) -> f32[64, 262144] {
  %out: f32[64, 262144] = relu(%x)
  return %out
}""",
    "sum of columns": """
def @main(%x: f32[4096, 1024]) -> f32[1024] {
  %out: f32[1024] = reduce_sum(%x, axes=(0,), keepdims=false)
  return %out
}""",
    "mean of a middle axis": """
def @main(%x: f32[64, 128, 1024]) -> f32[64, 1024] {
  %out: f32[64, 1024] = reduce_mean(%x, axes=(1,), keepdims=false)
  return %out
}""",
    "mean of a middle axis in a cache": """
def @main(%x: f32[7, 32, 1024]) -> f32[7, 1024] {
  %out: f32[7, 1024] = reduce_mean(%x, axes=(1,), keepdims=false)
  return %out
}""",
    "mean of pictures": """
def @main(%x: f32[1, 512, 7, 7]) -> f32[1, 512] {
  %out: f32[1, 512] = reduce_mean(%x, axes=(2, 3), keepdims=false)
  return %out
}""",
    "average pool": """
def @main(%x: f32[1, 64, 28, 28]) -> f32[1, 64, 28, 28] {
  %out: f32[1, 64, 28, 28] = avg_pool(%x, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1))
  return %out
}""",
    "enlarged picture": """
def @main(%x: f32[1, 8, 48, 64]) -> f32[1, 8, 144, 192] {
  %out: f32[1, 8, 144, 192] = resize(%x, sizes=(1, 8, 144, 192))
  return %out
}""",
    "sum of rows": """
def @main(%x: f32[512, 2000]) -> f32[512] {
  %out: f32[512] = reduce_sum(%x, axes=(1,), keepdims=false)
  return %out
}""",
}


def module(name: str) -> Module:
    """The case's graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large constants are made up
        return parse(CASES[name], OPERATORS)
