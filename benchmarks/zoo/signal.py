"""Weights that carry signal: activations of about unit scale everywhere, as training would leave them.

Fresh weights of deep nets often make activations vanish: all outputs are then the same for all inputs, and a compiler
that forgets half of the model still agrees with its peers. Here one run over an input scales each layer when it is
reached: weights of products and convolutions so that what they compute has a standard deviation of 1, running
statistics of batch normalization to those of what arrives. :func:`spread` says whether it worked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
MAX_VANISHING_MAGNITUDE = 1e-3
"""A parameter without larger values is replaced: initializers use zeros and tiny scales of residuals."""

MIN_SAMPLES = 16
"""Fewest values from which statistics of a channel are computed; with fewer, the running statistics are random."""

MIN_OUTPUT_SPREAD = 0.02
"""Two inputs must change each output by this share of its largest magnitude."""


def give_signal(model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Scale the weights of ``model`` in place, in the order in which a run over ``inputs`` reaches them."""
    with torch.no_grad():
        _start(model)
        done: set[int] = set()
        hooks = [h for m in model.modules() for h in _watch(m, done)]
        try:
            model(*inputs)
        finally:
            for hook in hooks:
                hook.remove()


def _start(model: nn.Module) -> None:
    """Values that do not vanish, and affine parameters of normalizations that are not all alike."""
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if not p.is_floating_point() or not p.numel():
                continue
            if isinstance(module, nn.Embedding):
                p.normal_(0, 1)
            elif "Norm" in type(module).__name__ and p.dim() == 1:
                p.add_(torch.empty_like(p).uniform_(-0.3, 0.3))
            elif p.abs().max() < MAX_VANISHING_MAGNITUDE:
                p.normal_(0, 0.1 if name == "bias" else 0.3)


def _watch(module: nn.Module, done: set[int]) -> list[Any]:
    if isinstance(module, BATCH_NORMS):
        return [module.register_forward_pre_hook(lambda m, args: _as_trained(m, args[0]))]
    if isinstance(module, PRODUCTS) or type(module).__name__ == "Conv1D":
        return [module.register_forward_hook(lambda m, args, y: _unit(m, y, done))]
    return []


def _as_trained(norm: Any, x: torch.Tensor) -> None:
    """Set running statistics to those of ``x`` with channels at axis 1, off by a little."""
    if norm.running_mean is None:
        return
    samples = x.numel() // x.shape[1]
    noise = torch.empty_like(norm.running_mean)
    if samples < MIN_SAMPLES:
        norm.running_mean.copy_(noise.uniform_(-0.1, 0.1))
        norm.running_var.copy_(noise.uniform_(0.5, 1.5))
        return
    axes = [a for a in range(x.dim()) if a != 1]
    norm.running_mean.copy_(x.mean(axes) + noise.uniform_(-0.1, 0.1))
    var = x.var(axes)
    norm.running_var.copy_(torch.maximum(var, 0.05 * var.mean() + 1e-6) * noise.uniform_(0.8, 1.2))


def _unit(module: Any, y: torch.Tensor, done: set[int]) -> torch.Tensor | None:
    """Scale weights so that ``y`` gets a standard deviation of 1; a weight used twice is scaled once."""
    scaled = _scale_of(module)
    if scaled is None or id(scaled) in done:
        return None
    done.add(id(scaled))
    bias = getattr(module, "bias", None)
    if bias is not None:
        shape = [1, -1] + [1] * (y.dim() - 2) if isinstance(module, PRODUCTS[1:]) and y.dim() > 2 else [-1]
        y = y - bias.view(shape)
    deviation = float(y.std()) if y.numel() > 1 else float(y.abs().max())
    if not 1e-12 < deviation < 1e12:
        return None if bias is None else y + bias.view(shape)
    scaled.mul_(1 / deviation)
    return y / deviation if bias is None else y / deviation + bias.view(shape)


def _scale_of(module: Any) -> torch.Tensor | None:
    """The parameter that the layer's result is proportional to: the weight, or its magnitude if it is normalized."""
    if "parametrizations" in module._modules:
        magnitude: torch.Tensor = module.parametrizations.weight.original0
        return magnitude
    for name in ("weight_g", "weight"):
        if name in module._parameters:
            return module._parameters[name]
    return None


def spread(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> list[float]:
    """For each output, the largest difference between the results for two inputs over the largest magnitude; an output
    that is not finite, or not of floats but constant, has 0."""
    found = []
    for a, b in zip(first, second, strict=True):
        x, y = a.double(), b.double()
        finite = bool(torch.isfinite(x).all() and torch.isfinite(y).all())
        gap = float((x - y).abs().max()) if x.shape == y.shape and x.numel() else 0.0
        found.append(gap / max(float(x.abs().max()), 1e-30) if finite and x.numel() else 0.0)
    return found
