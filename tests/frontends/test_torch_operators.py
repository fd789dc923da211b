"""ATen operators: what the graph of a small module computes against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.graph import interpret

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Of(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def f(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = None) -> Any:
    made = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    return made.to(dtype or torch.float32)


def i(*shape: int, low: int = -4, high: int = 5, dtype: Any = None) -> Any:
    return torch.randint(low, high, shape, dtype=dtype or torch.int64)


def b(*shape: int) -> Any:
    return torch.randint(0, 2, shape).bool()


def flat(made: Any) -> list[Any]:
    if isinstance(made, (list, tuple)):
        return [x for m in made for x in flat(m)]
    return [] if made is None else [made]


def agree(module: Any, inputs: tuple[Any, ...], dynamic_shapes: Any = None, others: tuple[Any, ...] = ()) -> None:
    """The graph computes what PyTorch does, on ``inputs`` and on ``others``, with the same dtypes and shapes."""
    graph = weft.load(module, example_inputs=inputs, dynamic_shapes=dynamic_shapes)
    for given in (inputs, *others):
        arrays = [x.numpy() for x in flat(given)]
        wanted = flat(module(*given))
        found = interpret.run(graph, arrays)
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted, strict=True):
            expected = want.detach().numpy()
            assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape)
            near = 2e-3 if expected.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(got, expected, rtol=near, atol=near)


UNARY = [
    *("abs", "neg", "sign", "ceil", "floor", "trunc", "round", "frac", "square", "exp", "exp2", "expm1", "sin", "cos"),
    *("tan", "sinh", "cosh", "tanh", "asinh", "atan", "erf", "erfc", "sigmoid", "relu", "isnan", "isinf", "isfinite"),
    *("positive", "reciprocal", "sgn", "logical_not", "nan_to_num"),
]
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "acosh"]
BINARY = [
    *(
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "atan2",
        "fmod",
        "remainder",
        "floor_divide",
        "hypot",
        "copysign",
    ),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "xlogy"),
]
ACTIVATIONS = [
    *(
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "softsign",
        "hardtanh",
        "hardsigmoid",
    ),
    *("hardswish", "leaky_relu", "logsigmoid", "tanhshrink", "softshrink", "hardshrink"),
]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    agree(Of(getattr(torch, name)), (f(3, 5),))


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("frac", "nan_to_num", "positive")])
def test_unary_of_integers(name: str) -> None:
    """What PyTorch makes floats of integers."""
    agree(Of(getattr(torch, name)), (i(3, 5, low=1),))


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_above_zero(name: str) -> None:
    agree(Of(getattr(torch, name)), (f(3, 5, low=1.1, high=3.0),))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "pair",
    [
        lambda: (f(3, 4), f(4)),
        lambda: (f(2, 1, 3), f(4, 1, dtype=torch.float64)),
        lambda: (i(3, 4), f(4)),
        lambda: (f(3, 4, dtype=torch.float16), f(1)[0]),
        lambda: (f(2, 3), f(2, 3)[0, 0].double()),
    ],
    ids=["float", "double", "mixed", "half", "scalar"],
)
def test_binary(name: str, pair: Callable[[], tuple[Any, ...]]) -> None:
    torch.manual_seed(0)
    agree(Of(getattr(torch, name)), pair())


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("hypot", "copysign", "atan2")])
def test_binary_of_integers(name: str) -> None:
    torch.manual_seed(0)
    agree(Of(getattr(torch, name)), (i(4, 5, dtype=torch.int32), i(5, low=1)))


@pytest.mark.parametrize("number", [2, 2.5, -3])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "remainder", "fmod", "eq", "lt"])
def test_tensors_and_numbers(name: str, number: float) -> None:
    x = f(3, 4, low=0.5)
    agree(Of(lambda t: getattr(torch, name)(t, number)), (x,))
    if name != "pow":
        agree(Of(lambda t: getattr(torch, name)(t, number)), (i(3, 4),))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    agree(Of(getattr(F, name)), (f(3, 7, low=-5, high=5),))


ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add with alpha": (lambda a, b: torch.add(a, b, alpha=2), (f(3), f(3))),
    "rsub": (lambda a: 3 - a, (f(3),)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), (f(3), f(3), f(3))),
    "addcdiv": (lambda a, b, c: torch.addcdiv(a, b, c, value=2), (f(3), f(3), f(3, low=1))),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (f(3), f(3))),
    "where": (lambda c, a, b: torch.where(c, a, b), (b(3, 4), f(4), f(3, 1))),
    "where of a number": (lambda c, a: torch.where(c, a, 0), (b(3, 4), f(4))),
    "masked_fill": (lambda a, m: a.masked_fill(m, -1e9), (f(3, 4), b(4))),
    "clamp": (lambda a: a.clamp(-1, 1), (f(3, 4),)),
    "clamp below": (lambda a: a.clamp(min=0), (i(3, 4),)),
    "clamp by tensors": (lambda a, low, high: a.clamp(low, high), (f(3, 4), f(4, low=-1, high=0), f(4, low=0, high=1))),
    "div down": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (f(5), f(5))),
    "div to zero": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (i(5), i(5, low=1))),
    "casts": (lambda a: (a.int(), a.double(), a.half(), a.bool(), a.long()), (f(3, 4),)),
    "bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 1, a >> 1), (i(4, low=0), i(4, low=0))),
    "bools": (lambda a, b: (a & b, a | b, a ^ b, ~a, a + b, a * b), (b(4), b(4))),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), (f(3, 4),)),
    "elu": (lambda a: F.elu(a, 0.7), (f(3, 4),)),
    "prelu": (lambda a, w: F.prelu(a, w), (f(2, 3, 4), f(3))),
    "threshold": (lambda a: F.threshold(a, 0.1, 20.0), (f(3, 4),)),
    "glu": (lambda a: F.glu(a, 1), (f(3, 4),)),
    "round to decimals": (lambda a: torch.round(a, decimals=2), (f(3, 4),)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    function, inputs = ELEMENTWISE[name]
    agree(Of(function), inputs)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum of an axis": lambda x: x.sum(1),
    "sum of axes": lambda x: x.sum((0, -1), keepdim=True),
    "sum as double": lambda x: x.sum(1, dtype=torch.float64),
    "mean": lambda x: x.mean((1, 2)),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax((0, 2)),
    "amin": lambda x: x.amin(1, keepdim=True),
    "max": lambda x: x.max(),
    "max with places": lambda x: tuple(x.max(1)),
    "min with places": lambda x: tuple(x.min(-1, keepdim=True)),
    "argmax": lambda x: x.argmax(),
    "argmin of an axis": lambda x: x.argmin(1, keepdim=True),
    "any": lambda x: (x > 1).any(),
    "all of an axis": lambda x: (x > -1.5).all(1),
    "var": lambda x: x.var(1),
    "var with correction": lambda x: torch.var(x, (0, 1), correction=0, keepdim=True),
    "std": lambda x: x.std(),
    "var_mean": lambda x: torch.var_mean(x, 2),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "norm": lambda x: x.norm(dim=1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, (0, 2)),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "topk": lambda x: tuple(x.topk(2, 1)),
    "smallest": lambda x: tuple(x.topk(2, 2, largest=False)),
    "sort": lambda x: tuple(x.sort(1)),
    "sort downwards": lambda x: tuple(x.sort(-1, descending=True)),
    "argsort": lambda x: x.argsort(1),
    "count_nonzero": lambda x: (x > 0).count_nonzero(),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "aminmax": lambda x: tuple(x.aminmax()),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    torch.manual_seed(1)
    agree(Of(REDUCTIONS[name]), (f(3, 4, 5),))


@pytest.mark.parametrize(
    "name", ["sum", "sum of an axis", "prod", "amax", "max with places", "argmax", "cumsum", "sort"]
)
def test_reductions_of_integers(name: str) -> None:
    agree(Of(REDUCTIONS[name]), (torch.randperm(60).reshape(3, 4, 5) - 20,))


MOVEMENT: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(4, -1),
    "reshape": lambda x: x.reshape(2, 3, 2, 5),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, -1),
    "t": lambda x: x[0].t(),
    "movedim": lambda x: x.movedim(0, 2),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x[:1].squeeze(),
    "expand": lambda x: x[:, :1].expand(-1, 7, -1),
    "slice": lambda x: x[1:, ::2, -3:-1],
    "select": lambda x: (x[0], x[:, -1]),
    "cat": lambda x: torch.cat([x, x + 1], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "split": lambda x: x.split(3, 2),
    "split with sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(1),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "roll flat": lambda x: x.roll(3),
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "tile": lambda x: x.tile(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "pad negative": lambda x: F.pad(x, (-1, 1)),
    "reflect": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
    "circular": lambda x: F.pad(x, (2, 1), mode="circular"),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diagonal below": lambda x: x.diagonal(-1, 1, 2),
    "unfold": lambda x: x.unfold(2, 3, 2),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    "einsum": lambda x: torch.einsum("abc,abd->acd", x, x),
    "where made of sizes": lambda x: x + torch.arange(x.shape[1])[:, None],
    "slice_scatter": lambda x: torch.slice_scatter(x, torch.ones(3, 2, 5), 1, 1, 3),
    "select_scatter": lambda x: torch.select_scatter(x, torch.ones(3, 5), 1, 2),
    "in-place": lambda x: x.clone().mul_(2).add_(1),
    "assignment": lambda x: _assigned(x),
}


def _assigned(x: Any) -> Any:
    made = x.clone()
    made[:, 1] = 5.0
    made[0, :, ::2] = 7.0
    return made


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name: str) -> None:
    agree(Of(MOVEMENT[name]), (f(3, 4, 5),))


INDEXING: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "embedding": (lambda w, j: F.embedding(j, w), (f(6, 4), i(2, 3, low=0, high=6))),
    "index_select": (lambda x, j: x.index_select(1, j), (f(3, 4, 5), i(2, low=0, high=4))),
    "gather": (lambda x, j: x.gather(1, j), (f(3, 4, 5), i(2, 3, 5, low=0, high=4))),
    "one index": (lambda x, j: x[:, j], (f(3, 4, 5), i(2, 2, low=-4, high=4))),
    "two indices": (lambda x, j, k: x[j, k], (f(3, 4, 5), i(2, low=0, high=3), i(2, low=-4, high=4))),
    "inner indices": (lambda x, j, k: x[:, j, k], (f(3, 4, 5), i(2, 1, low=0, high=4), i(3, low=0, high=5))),
    "apart": (lambda x, j, k: x[j, :, k], (f(3, 4, 5), i(2, low=0, high=3), i(2, low=0, high=5))),
    "mask": (lambda x, m: x[m], (f(3, 4), b(3, 4))),
    "mask of rows": (lambda x, m: x[m] * 2, (f(3, 4), b(3))),
    "masked_select": (lambda x, m: x.masked_select(m), (f(3, 4), b(4))),
    "nonzero": (lambda x: (x > 0).nonzero(), (f(3, 4),)),
    "put": (lambda x, j, v: x.index_put((j,), v), (f(5, 3), torch.tensor([0, 3]), f(2, 3))),
    "put and add": (lambda x, j, v: x.index_put((j,), v, accumulate=True), (f(5, 3), i(4, low=0, high=5), f(4, 3))),
    "put inside": (lambda x, j, v: _put(x, j, v), (f(3, 5, 2), torch.tensor([1, 4]), f(3, 2, 2))),
    "put a number": (lambda x, m: _put_number(x, m), (f(3, 4), b(3, 4))),
    "scatter": (lambda x, j, v: x.scatter(1, j, v), (f(3, 5), torch.tensor([[0, 2], [1, 4], [3, 0]]), f(3, 3))),
    "scatter a number": (lambda x, j: x.scatter(1, j, 2.0), (f(3, 5), i(3, 2, low=0, high=5))),
    "scatter_add": (lambda x, j, v: x.scatter_add(0, j, v), (f(3, 5), i(2, 5, low=0, high=3), f(2, 5))),
    "scatter_reduce": (
        lambda x, j, v: x.scatter_reduce(1, j, v, "amax"),
        (f(3, 5), i(3, 4, low=0, high=5), f(3, 4)),
    ),
    "index_add": (lambda x, j, v: x.index_add(1, j, v, alpha=2), (f(3, 5), i(4, low=0, high=5), f(3, 4))),
    "one_hot": (lambda j: F.one_hot(j, 5), (i(3, 2, low=0, high=5),)),
}


def _put(x: Any, j: Any, v: Any) -> Any:
    made = x.clone()
    made[:, j] = v
    return made


def _put_number(x: Any, m: Any) -> Any:
    made = x.clone()
    made[m] = 3.0
    return made


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str) -> None:
    torch.manual_seed(2)
    function, inputs = INDEXING[name]
    agree(Of(function), inputs)


CREATION: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: x + torch.zeros(4),
    "ones_like": lambda x: torch.ones_like(x),
    "full": lambda x: x + torch.full((3, 4), 2.5),
    "full_like": lambda x: torch.full_like(x, 7, dtype=torch.int32),
    "new_zeros": lambda x: x.new_zeros(2, 3) + 1,
    "arange": lambda x: x + torch.arange(4),
    "arange of reals": lambda x: x + torch.arange(0.5, 2.5, 0.5),
    "eye": lambda x: x @ torch.eye(4),
    "linspace": lambda x: x + torch.linspace(0, 1, 4),
    "tensor": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    agree(Of(CREATION[name]), (f(3, 4),))


N = torch.nn
MODULES: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "linear": (lambda: N.Linear(5, 3), (f(2, 5),)),
    "linear of a vector": (lambda: N.Linear(5, 3, bias=False), (f(5),)),
    "bilinear": (lambda: N.Bilinear(3, 4, 2), (f(5, 3), f(5, 4))),
    "conv1d": (lambda: N.Conv1d(3, 4, 3, padding=1), (f(2, 3, 7),)),
    "conv2d": (lambda: N.Conv2d(4, 6, 3, 2, 1, groups=2), (f(2, 4, 7, 8),)),
    "conv2d same": (lambda: N.Conv2d(2, 3, 3, padding="same", dilation=2), (f(1, 2, 7, 8),)),
    "conv2d without samples": (lambda: N.Conv2d(2, 3, 3), (f(2, 7, 8),)),
    "conv3d": (lambda: N.Conv3d(2, 3, 3), (f(1, 2, 4, 5, 6),)),
    "conv_transpose1d": (lambda: N.ConvTranspose1d(3, 2, 3, 2), (f(1, 3, 5),)),
    "conv_transpose2d": (lambda: N.ConvTranspose2d(4, 2, 3, 2, 1, 1, groups=2), (f(1, 4, 5, 5),)),
    "max_pool1d": (lambda: N.MaxPool1d(3, 2), (f(1, 2, 9),)),
    "max_pool2d": (lambda: N.MaxPool2d(3, 2, 1), (f(1, 2, 8, 9),)),
    "max_pool2d ceil": (lambda: N.MaxPool2d(3, 2, ceil_mode=True), (f(1, 2, 8, 8),)),
    "max_pool2d places": (lambda: N.MaxPool2d(2, return_indices=True), (f(2, 3, 6, 8),)),
    "avg_pool2d": (lambda: N.AvgPool2d(3, 2, 1), (f(1, 2, 8, 9),)),
    "avg_pool2d of what is there": (lambda: N.AvgPool2d(3, 2, 1, count_include_pad=False), (f(1, 2, 8, 9),)),
    "adaptive_avg_pool2d 1": (lambda: N.AdaptiveAvgPool2d(1), (f(1, 2, 5, 7),)),
    "adaptive_avg_pool2d": (lambda: N.AdaptiveAvgPool2d((3, 4)), (f(1, 2, 7, 8),)),
    "adaptive_avg_pool1d": (lambda: N.AdaptiveAvgPool1d(3), (f(1, 2, 9),)),
    "adaptive_max_pool2d": (lambda: N.AdaptiveMaxPool2d((2, 3)), (f(1, 2, 5, 6),)),
    "batch_norm": (lambda: N.BatchNorm2d(3).eval(), (f(2, 3, 4, 4),)),
    "batch_norm1d": (lambda: N.BatchNorm1d(3).eval(), (f(2, 3),)),
    "layer_norm": (lambda: N.LayerNorm((4, 5)), (f(2, 4, 5),)),
    "layer_norm plain": (lambda: N.LayerNorm(5, elementwise_affine=False), (f(2, 4, 5),)),
    "rms_norm": (lambda: N.RMSNorm(5), (f(2, 4, 5),)),
    "group_norm": (lambda: N.GroupNorm(2, 4), (f(2, 4, 5),)),
    "instance_norm": (lambda: N.InstanceNorm2d(3, affine=True), (f(2, 3, 4, 5),)),
    "embedding": (lambda: N.Embedding(7, 4, padding_idx=0), (i(2, 3, low=0, high=7),)),
    "pixel_shuffle": (lambda: N.PixelShuffle(2), (f(1, 8, 3, 4),)),
    "pixel_unshuffle": (lambda: N.PixelUnshuffle(2), (f(1, 2, 4, 6),)),
    "channel_shuffle": (lambda: N.ChannelShuffle(2), (f(1, 6, 3, 4),)),
    "upsample nearest": (lambda: N.Upsample(scale_factor=2), (f(1, 2, 3, 4),)),
    "upsample to a size": (lambda: N.Upsample((5, 7)), (f(1, 2, 3, 4),)),
    "upsample exact": (lambda: N.Upsample((5, 3), mode="nearest-exact"), (f(1, 2, 3, 4),)),
    "upsample linear": (lambda: N.Upsample(scale_factor=1.5, mode="linear"), (f(1, 2, 5),)),
    "upsample bilinear": (lambda: N.Upsample((5, 7), mode="bilinear"), (f(1, 2, 3, 4),)),
    "upsample aligned": (lambda: N.Upsample((5, 7), mode="bilinear", align_corners=True), (f(1, 2, 3, 4),)),
    "upsample to one": (lambda: N.Upsample((1, 1), mode="bilinear"), (f(1, 2, 3, 4),)),
    "upsample bicubic": (lambda: N.Upsample((5, 7), mode="bicubic"), (f(1, 2, 3, 4),)),
    "upsample trilinear": (lambda: N.Upsample((3, 4, 5), mode="trilinear"), (f(1, 1, 2, 3, 4),)),
    "attention": (lambda: N.MultiheadAttention(8, 2, batch_first=True).eval(), (f(2, 5, 8), f(2, 5, 8), f(2, 5, 8))),
    "encoder layer": (lambda: N.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (f(2, 5, 8),)),
    "lstm": (lambda: N.LSTM(4, 3, batch_first=True), (f(2, 5, 4),)),
    "gru": (lambda: N.GRU(4, 3), (f(5, 2, 4),)),
    "fold of products": (lambda: Of(lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2)), (f(3, 4), f(4, 2), f(2))),
    "baddbmm": (lambda: Of(torch.baddbmm), (f(2, 3, 5), f(2, 3, 4), f(2, 4, 5))),
    "matmul of vectors": (lambda: Of(lambda a, b: (a @ b, a[0] @ b[:, 0], a[0] @ b, a @ b[:, 0])), (f(3, 4), f(4, 5))),
    "matmul of batches": (lambda: Of(torch.matmul), (f(2, 1, 3, 4), f(5, 4, 2))),
    "outer": (lambda: Of(torch.outer), (f(3), f(4))),
    "cdist": (lambda: Of(torch.cdist), (f(3, 4), f(5, 4))),
    "cosine": (lambda: N.CosineSimilarity(), (f(3, 4), f(3, 4))),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    torch.manual_seed(3)
    make, inputs = MODULES[name]
    agree(make(), inputs)


def test_edges_of_numbers() -> None:
    """Signed zeros, infinities, NaN."""
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan")])
    y, x = edges[:, None].expand(7, 7).contiguous(), edges[None].expand(7, 7).contiguous()
    agree(Of(torch.atan2), (y, x))
    agree(Of(lambda a, b: torch.copysign(a, b).sign()), (y, x))
    agree(Of(lambda a: (a.sign(), a.relu(), a.clamp(-1, 1), torch.nan_to_num(a, 1.0, 2.0, 3.0))), (edges,))


def test_queries_that_see_nothing_are_zero() -> None:
    mask = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    q, k, v = (f(1, 2, 3, 4) for _ in range(3))
    attention = F.scaled_dot_product_attention
    agree(Of(lambda q, k, v, m: attention(q, k, v, m)), (q, k, v, mask))
    agree(Of(lambda q, k, v, m: attention(q, k, v, torch.where(m, 0.0, float("-inf")))), (q, k, v, mask))


ATTENTIONS: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "masked": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    "added": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, torch.where(m, 0.0, -1e4), scale=0.3),
    "grouped": lambda q, k, v, m: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    agree(Of(ATTENTIONS[name]), (f(2, 2, 4, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), mask))
