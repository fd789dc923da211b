"""Matrix products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Unsupported
from weft.frontends.common.sizes import arithmetic, divide_products
from weft.frontends.torch.converters.promotion import operand
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import BOOL

Converter = Callable[[AtenNode], Result]


def _product(a: str, b: str) -> Converter:
    return lambda node: matmul(node, node.data(a), node.data(b))


def matmul(node: AtenNode, a: GraphExpr, b: GraphExpr) -> GraphExpr:
    """The matrix product; vectors are rows on the left and columns on the right."""
    rank = a.tensor.rank, b.tensor.rank
    if rank[0] == 1:
        a = node.call("unsqueeze", a, axes=(0,))
    if rank[1] == 1:
        b = node.call("unsqueeze", b, axes=(1,))
    made = node.call("matmul", a, b)
    gone = [made.tensor.rank - 2] * (rank[0] == 1) + [made.tensor.rank - 1] * (rank[1] == 1)
    return node.call("squeeze", made, axes=tuple(gone)) if gone else made


def _linear(node: AtenNode) -> Result:
    x, weight = node.data("input"), node.data("weight")
    vector = x.tensor.rank == 1
    made = node.call("matmul", node.call("unsqueeze", x, axes=(0,)) if vector else x, weight, transpose_b=True) \
        if weight.tensor.rank == 2 else matmul(node, x, weight)  # fmt: skip
    if vector and weight.tensor.rank == 2:
        made = node.call("squeeze", made, axes=(0,))
    bias = node.optional("bias")
    return made if bias is None else node.call("add", made, bias)


def _scaled(node: AtenNode, x: GraphExpr, name: str) -> GraphExpr:
    factor = node.arguments.get(name, 1)
    return x if factor == 1 else node.call("mul", x, operand(node, factor, x.tensor.dtype))


def _added(a: str, b: str) -> Converter:
    """``beta · self + alpha · a · b``. With beta 0 the first is not read."""

    def convert(node: AtenNode) -> Result:
        made = _scaled(node, matmul(node, node.data(a), node.data(b)), "alpha")
        if node.arguments.get("beta", 1) == 0:
            return made
        return node.call("add", made, _scaled(node, node.data("self"), "beta"))

    return convert


def _einsum(node: AtenNode) -> Result:
    equation = str(node.value("equation")).replace(" ", "")
    if "->" not in equation:
        letters = [c for c in equation if c.isalpha()]
        single = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        equation += "->" + ("..." if "..." in equation else "") + single
    return node.call("einsum", *node.all_data("tensors"), equation=equation)


def _outer(node: AtenNode) -> Result:
    a, b = node.data("self"), node.data("vec2")
    return node.call("mul", node.call("unsqueeze", a, axes=(1,)), b)


def _convolution(node: AtenNode) -> Result:
    x, kernel, bias = node.data("input"), node.data("weight"), node.optional("bias")
    n = kernel.tensor.rank - 2
    batched = x.tensor.rank == n + 2
    if not batched:
        x = node.call("unsqueeze", x, axes=(0,))
    pads = node.numbers("padding", n)
    shared = {
        "strides": node.numbers("stride", n),
        "pads": (*pads, *pads),
        "dilations": node.numbers("dilation", n),
        "groups": int(node.number("groups")),
    }
    if node.value("transposed"):
        extra = node.numbers("output_padding", n)
        made = node.call("conv_transpose", x, kernel, output_padding=extra, **shared)
    else:
        made = node.call("conv", x, kernel, **shared)
    if bias is not None:
        made = node.call("add", made, node.reshaped(bias, (*bias.tensor.shape, *(1,) * n)))
    return made if batched else node.call("squeeze", made, axes=(0,))


def _attention(node: AtenNode) -> Result:
    query, key, value = (node.data(n) for n in ("query", "key", "value"))
    if float(node.arguments.get("dropout_p") or 0.0) > 0:
        raise Unsupported("the module is in training mode: module.eval() turns dropout off")
    mask = node.optional("attn_mask") if "attn_mask" in node.arguments else None
    if node.arguments.get("enable_gqa"):
        key, value = (_repeated(node, t, query) for t in (key, value))
    batch = query.tensor.shape[:-2]
    for t in (key, value):
        batch = _broadcast(batch, t.tensor.shape[:-2])
    query, key, value = (node.expanded(t, (*batch, *t.tensor.shape[-2:])) for t in (query, key, value))
    if mask is not None and mask.tensor.dtype != BOOL:
        mask = node.cast(mask, query.tensor.dtype)
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    made = node.call(
        "scaled_dot_product_attention", *operands, causal=bool(node.arguments.get("is_causal")), offset=0,
        scale=None if node.arguments.get("scale") is None else float(node.number("scale")),
    )  # fmt: skip
    return made if mask is None else _unseen_as_zero(node, made, mask)


def _unseen_as_zero(node: AtenNode, x: GraphExpr, mask: GraphExpr) -> GraphExpr:
    """The result of attention with 0 for queries that see no key, for which a softmax has no numbers."""
    last = mask.tensor.rank - 1
    if mask.tensor.dtype == BOOL:
        seen = node.cast(node.call("reduce_max", node.cast(mask, "uint8"), axes=(last,), keepdims=True), BOOL)
    else:
        most = node.call("reduce_max", mask, axes=(last,), keepdims=True)
        seen = node.call("not_equal", most, node.like(float("-inf"), most))
    if isinstance(seen, Constant) and seen.data.all():
        return x
    return node.call("where", seen, x, node.like(0, x))


def _broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The common shape of two that are equal or 1 in each dimension."""
    wide = (*(1,) * (len(b) - len(a)), *a), (*(1,) * (len(a) - len(b)), *b)
    return tuple(y if isinstance(x, int) and x == 1 else x for x, y in zip(*wide, strict=True))


def _repeated(node: AtenNode, x: GraphExpr, query: GraphExpr) -> GraphExpr:
    """Keys or values, of which several heads of the query share one."""
    *batch, heads, length, width = x.tensor.shape
    times = divide_products([query.tensor.shape[-3]], [heads])
    if times == 1:
        return x
    wide = node.call("unsqueeze", x, axes=(x.tensor.rank - 2,))
    wide = node.expanded(wide, (*batch, heads, times, length, width))
    return node.reshaped(wide, (*batch, arithmetic("mul", heads, times), length, width))


def _attention_and_more(node: AtenNode) -> Result:
    """The fused kernels of PyTorch; of their results only the first is data that modules use."""
    return (_attention(node), *[None] * (len(node.said) - 1))


def _bilinear(node: AtenNode) -> Result:
    a, b, weight = (node.data(n) for n in ("input1", "input2", "weight"))
    made = node.call("einsum", a, weight, b, equation="...i,oij,...j->...o")
    bias = node.optional("bias")
    return made if bias is None else node.call("add", made, bias)


def _cdist_free(node: AtenNode) -> Result:
    """``x1`` and ``x2`` by pairs of rows: the Euclidean distance."""
    a, b = node.data("x1"), node.data("x2")
    p = float(node.number("p"))
    rank = a.tensor.rank
    apart = node.call("sub", node.call("unsqueeze", a, axes=(rank - 1,)), node.call("unsqueeze", b, axes=(rank - 2,)))
    if p not in (1.0, 2.0):
        raise Unsupported(f"distances of the norm {p:g} are not supported")
    return node.call(f"reduce_l{int(p)}", apart, axes=(rank,), keepdims=False)


CONTRACTION: dict[str, Converter] = {
    **dict.fromkeys(("mm", "mv"), lambda node: matmul(node, node.data("self"), node.data("mat2" if "mat2" in
                                                                                         node.arguments else "vec"))),
    **dict.fromkeys(("addmm", "sspaddmm"), _added("mat1", "mat2")),
    "_scaled_dot_product_flash_attention_for_cpu": _attention_and_more,
    "_scaled_dot_product_efficient_attention": _attention_and_more,
    "_cdist_forward": _cdist_free,
    "addbmm": lambda node: node.call("add", _scaled(node, node.data("self"), "beta"), _scaled(node, node.call(
        "reduce_sum", matmul(node, node.data("batch1"), node.data("batch2")), axes=(0,), keepdims=False), "alpha")),
    "addmv": _added("mat", "vec"),
    "baddbmm": _added("batch1", "batch2"),
    "bilinear": _bilinear,
    "bmm": _product("self", "mat2"),
    "cdist": _cdist_free,
    "convolution": _convolution,
    "dot": _product("self", "tensor"),
    "einsum": _einsum,
    "linear": _linear,
    "matmul": _product("self", "other"),
    "outer": _outer,
    "scaled_dot_product_attention": _attention,
    "vdot": _product("self", "other"),
}  # fmt: skip
