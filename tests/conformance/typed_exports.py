"""Random modules of PyTorch with many operators and dtypes, for exports with two open sizes.

A module is a chain: each step takes a tensor of some dtype, of shape [n, m, WIDTH] with n and m open, and gives one of
that shape, perhaps of another dtype. Each step lists the dtypes that eager PyTorch takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

WIDTH = 6
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
FLOATS = ("float32", "float64")
WHOLE = ("int64", "int32")
NUMBERS = (*FLOATS, *WHOLE)
ALL = DTYPES


@dataclass(frozen=True)
class Step:
    """A function of one tensor, for tensors of these dtypes."""

    name: str
    dtypes: tuple[str, ...]
    run: Callable[[Any], Any]


def _modules(pick: random.Random) -> list[Step]:
    """Layers with weights; of float32 alone."""
    conv = torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=pick.choice([1, 2, 6]))
    flat = torch.nn.Conv2d(1, 2, 3, padding=1)
    lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)
    gru = torch.nn.GRU(WIDTH, 3, batch_first=True, bidirectional=True)
    table = torch.nn.Embedding(9, WIDTH)
    heads = torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    up = torch.nn.ConvTranspose1d(WIDTH, WIDTH, 3, padding=1)
    found: list[tuple[str, Callable[[Any], Any]]] = [
        ("linear", torch.nn.Linear(WIDTH, WIDTH)),
        ("layer_norm", torch.nn.LayerNorm(WIDTH)),
        ("conv1d", lambda x: conv(x.transpose(1, 2)).transpose(1, 2)),
        ("conv2d", lambda x: flat(x.unsqueeze(1)).sum(1)),
        ("conv_transpose", lambda x: up(x.transpose(1, 2)).transpose(1, 2)),
        ("lstm", lambda x: lstm(x)[0]),
        ("gru", lambda x: gru(x)[0]),
        ("embedding", lambda x: table((x.abs() * 3).to(torch.int64).clamp(0, 8)[:, :, 0])),
        ("attention", lambda x: heads(x, x, x, need_weights=False)[0]),
        ("sdpa", lambda x: F.scaled_dot_product_attention(x, x, x)),
        ("max_pool", lambda x: F.max_pool1d(x, 3, 1, 1)),
        ("avg_pool", lambda x: F.avg_pool1d(x, 3, 1, 1)),
        ("group_norm", lambda x: F.group_norm(x.transpose(1, 2), 3).transpose(1, 2)),
        ("interpolate", lambda x: F.interpolate(x, scale_factor=2.0, mode="linear")[:, :, ::2]),
        ("pixel", lambda x: F.pad(x, (1, 1), mode="reflect")[:, :, 1:-1] * 0.5),
    ]
    return [Step(name, ("float32",), run) for name, run in found]


def steps(pick: random.Random) -> list[Step]:
    """All steps; their numbers (axes, shifts, divisors) are drawn."""
    dim, cut, shift = pick.randrange(3), pick.choice([1, 2, 3]), pick.choice([-2, -1, 1, 2])
    target = pick.choice(("float32", "float64", "int64", "int32", "uint8", "int8", "bool", "float16"))
    order = torch.tensor(pick.sample(range(WIDTH), WIDTH))
    number = pick.choice([2, 3, 5, -3])
    return [
        *_modules(pick),
        Step("cast", ALL, lambda x: _safe(x, target)),
        Step("add", NUMBERS, lambda x: x + x.flip(dim)),
        Step("mul", NUMBERS, lambda x: x * number),
        Step("rsub", NUMBERS, lambda x: number - x),
        Step("div", FLOATS, lambda x: x / (x.abs() + 1)),
        Step("floor_div", NUMBERS, lambda x: torch.div(x, number, rounding_mode="floor")),
        Step("trunc_div", NUMBERS, lambda x: torch.div(x, number, rounding_mode="trunc")),
        Step("remainder", WHOLE, lambda x: torch.remainder(x, number)),
        Step("fmod", WHOLE, lambda x: torch.fmod(x, number)),
        Step("roll", ALL, lambda x: x.roll(shift, dim)),
        Step("flip", ALL, lambda x: x.flip(dim)),
        Step("cat", ALL, lambda x: torch.cat([x[cut:], x[:cut]])),
        Step("cat_back", ALL, lambda x: torch.cat([x[:, -cut:], x[:, :-cut]], 1)),
        Step("stack", NUMBERS, lambda x: torch.stack([x, x.flip(dim)]).amax(0)),
        Step("order", ALL, lambda x: x[:, :, order]),
        Step("index_select", ALL, lambda x: x.index_select(2, order)),
        Step("gather", NUMBERS, lambda x: x.gather(2, order.expand(x.shape))),
        Step("scatter", NUMBERS, lambda x: torch.zeros_like(x).scatter(2, order.expand(x.shape), x)),
        Step("cumsum", (*FLOATS, "int64"), lambda x: (x % 3).cumsum(dim)),
        Step("sort", ("float32", "int64"), lambda x: x.sort(2)[0]),
        Step("topk", ("float32", "int64"), lambda x: x.topk(WIDTH, 2, largest=cut == 1)[0]),
        Step("argmax", ("float32", "int64"), lambda x: x.argmax(2, keepdim=True).expand(x.shape)),
        Step("where", NUMBERS, lambda x: torch.where(x > 0, x, x * number)),
        Step("masked_fill", NUMBERS, lambda x: x.masked_fill(x > 1, 1)),
        Step("clamp", NUMBERS, lambda x: x.clamp(-2, 2)),
        Step("maximum", NUMBERS, lambda x: torch.maximum(x, x.flip(dim))),
        Step("eq", NUMBERS, lambda x: (x == x.flip(dim)).to(x.dtype) + x),
        Step("not", ("bool",), lambda x: ~x),
        Step("xor", ("bool",), lambda x: x ^ x.flip(dim)),
        Step("bits", ("int64", "int32", "uint8"), lambda x: (x & 7) | 16),
        Step("sum", NUMBERS, lambda x: x + x.sum(dim, keepdim=True).to(x.dtype)),
        Step("mean", FLOATS, lambda x: x - x.mean(2, keepdim=True)),
        Step("amin", NUMBERS, lambda x: x - x.amin(2, keepdim=True)),
        Step("var", ("float32",), lambda x: x * x.var(2, keepdim=True)),
        Step("norm", ("float32",), lambda x: x / (x.norm(dim=2, keepdim=True) + 1)),
        Step("softmax", FLOATS, lambda x: x.softmax(2)),
        Step("tanh", FLOATS, lambda x: x.tanh()),
        Step("exp", FLOATS, lambda x: (-x.abs()).exp()),
        Step("gelu", ("float32",), lambda x: F.gelu(x)),
        Step("silu", ("float32",), lambda x: F.silu(x)),
        Step("hardswish", ("float32",), lambda x: F.hardswish(x)),
        Step("erf", ("float32",), lambda x: x.erf()),
        Step("round", FLOATS, lambda x: (x * 4).round() / 4),
        Step("sign", NUMBERS, lambda x: x.sign() + x),
        Step("half", ("float16",), lambda x: x * 0.5),
        Step("abs", NUMBERS, lambda x: x.abs()),
        Step("neg", NUMBERS, lambda x: -x),
        Step("reshape", ALL, lambda x: x.reshape(-1, WIDTH).reshape(x.shape)),
        Step("transpose", ALL, lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0)),
        Step("repeat", NUMBERS, lambda x: x.repeat(2, 1, 1).reshape(2, *x.shape).sum(0).to(x.dtype)),
        Step("pad", NUMBERS, lambda x: F.pad(x, (1, 2), value=1)[:, :, 1:-2]),
        Step("unfold", FLOATS, lambda x: torch.stack([x[:, :, k : k + 2].sum(2) for k in (0, 1, 2, 3, 4, 3)], 2)),
        Step("split", ALL, lambda x: torch.cat(x.split([2, 3, 1], 2)[::-1], 2)),
        Step("chunk", ALL, lambda x: torch.cat(x.chunk(3, 2)[::-1], 2)),
        Step("tril", FLOATS, lambda x: x.tril(1 - cut)),
        Step("einsum", ("float32",), lambda x: torch.einsum("abc,adc->abd", x, x).tanh() @ x),
        Step("arange", NUMBERS, lambda x: x + torch.arange(x.shape[1], dtype=x.dtype).view(1, -1, 1) % 5),
        Step("ones", NUMBERS, lambda x: x + torch.ones(x.shape[0], 1, WIDTH, dtype=x.dtype)),
        Step("outer", NUMBERS, lambda x: x + (x[:, :, :1] > x[:, :, 1:2]).to(x.dtype)),
        Step("cdist", ("float32",), lambda x: (x.unsqueeze(2) - x.unsqueeze(1)).abs().sum(2) * 0.1),
    ]  # fmt: skip


def _safe(x: Any, target: str) -> Any:
    """``x`` as ``target``, without numbers that the target does not have: these are undefined."""
    kind = getattr(torch, target)
    if x.dtype.is_floating_point and not kind.is_floating_point and target != "bool":
        x = x.clamp(0 if target == "uint8" else -100, 100)
    elif not x.dtype.is_floating_point and x.dtype != torch.bool and target in ("uint8", "int8"):
        x = x.clamp(0 if target == "uint8" or x.dtype == torch.uint8 else -100, 100)
    return x.to(kind)


class Typed(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch has no stubs here
    """A chain of random steps from an input of ``dtype``; its results are some of the tensors on the way."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        pick = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype = pick.choice(("float32", "float32", "float64", "int64", "int32", "bool", "uint8"))
        self.steps: list[Step] = []
        now = self.dtype
        with torch.no_grad():
            probe = self.sample(3, 5, seed)
            for _ in range(pick.randint(2, 6)):
                fitting = [s for s in steps(pick) if now in s.dtypes]
                step = pick.choice(fitting)
                if now not in NUMBERS and pick.random() < 0.4:  # few steps take these
                    step = next(s for s in fitting if s.name == "cast")
                made = step.run(probe)
                assert made.shape == probe.shape, step.name
                probe, now = made, str(made.dtype).removeprefix("torch.")
                self.steps.append(step)
        self.shown = {pick.randrange(len(self.steps)) for _ in range(2)}

    def sample(self, n: int, m: int, seed: int) -> Any:
        """An input of this size."""
        source = torch.Generator().manual_seed(seed)
        x = torch.randn((n, m, WIDTH), generator=source) * 3
        if self.dtype == "bool":
            return x > 0
        return (x.abs() if self.dtype == "uint8" else x).to(getattr(torch, self.dtype))

    @property
    def names(self) -> list[str]:
        """The dtype of the input and the steps."""
        return [self.dtype, *(s.name for s in self.steps)]

    def forward(self, x: Any) -> Any:
        made = [x]
        for step in self.steps:
            made.append(step.run(made[-1]))
        return tuple(made[1 + i] for i in sorted(self.shown | {len(self.steps) - 1}))
