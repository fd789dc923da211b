"""Derivatives and optimizer steps of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.node import Node, Omitted, Result
from weft.graph.visit import substitute
from weft.ops.gradients import gradients

Step = Callable[[Node, Traced, Traced, "list[Traced]"], "list[Traced]"]


def _for_each(count: int, step: Step) -> Callable[[Node], Result]:
    """A converter that applies ``step(node, rate, time, [weight, gradient, state …])`` to each weight. ``step`` returns
    the new weight and states. A node lists ``count`` operands for each weight: all weights, then all gradients, …"""

    def convert(node: Node) -> Result:
        rate, time = operand(node, 0), operand(node, 1)
        tensors = [operand(node, i) for i in range(2, len(node.inputs))]
        weights, rest = divmod(len(tensors), count)
        if rest or not weights:
            raise Malformed(f"it takes two inputs and {count} for each weight, not {len(node.inputs)}")
        made = [step(node, rate, time, tensors[i::weights]) for i in range(weights)]
        return [one[k].x for k in range(count - 1) for one in made]

    return convert


def _regularized(node: Node, weight: Traced, gradient: Traced) -> Traced:
    return weight * node.real("norm_coefficient", 0.0) + gradient


def _momentum(node: Node, rate: Traced, time: Traced, tensors: list[Traced]) -> list[Traced]:
    weight, gradient, velocity = tensors
    mode, alpha = node.text("mode"), node.real("alpha")
    if mode not in ("standard", "nesterov"):
        raise Malformed(f"its mode is '{mode}'")
    gradient = _regularized(node, weight, gradient)
    beta = (time > 0).choose(rate * 0.0 + node.real("beta"), 1.0)
    velocity = velocity * alpha + gradient * beta
    change = velocity if mode == "standard" else gradient + velocity * alpha
    return [weight - rate * change, velocity]


def _adagrad(node: Node, rate: Traced, time: Traced, tensors: list[Traced]) -> list[Traced]:
    weight, gradient, squares = tensors
    rate = rate / (time.to(rate.dtype) * node.real("decay_factor", 0.0) + 1.0)
    gradient = _regularized(node, weight, gradient)
    squares = squares + gradient * gradient
    return [weight - rate * gradient / (squares.call("sqrt") + node.real("epsilon", 0.0)), squares]


def _adam(node: Node, rate: Traced, time: Traced, tensors: list[Traced]) -> list[Traced]:
    weight, gradient, mean, squares = tensors
    alpha, beta = node.real("alpha", 0.9), node.real("beta", 0.999)
    gradient = _regularized(node, weight, gradient)
    mean = mean * alpha + gradient * (1 - alpha)
    squares = squares * beta + gradient * gradient * (1 - beta)
    steps, one = time.to(rate.dtype), rate * 0.0
    corrected = rate * (1.0 - (one + beta).call("pow", steps)).call("sqrt") / (1.0 - (one + alpha).call("pow", steps))
    rate = (time > 0).choose(corrected, rate)
    weight = weight - rate * mean / (squares.call("sqrt") + node.real("epsilon", 0.0))
    return [weight * (1.0 - node.real("norm_coefficient_post", 0.0)), mean, squares]


def _gradient(node: Node) -> Result:
    """The derivatives of the tensor named ``y`` by the tensors named ``xs``, at the values of the operands for the
    tensors named ``xs`` and ``zs``."""
    xs, names = node.texts("xs"), (*node.texts("xs"), *node.texts("zs"))
    if not xs or len(names) != len(node.inputs):
        raise Malformed(f"it has {len(node.inputs)} operands for the {len(names)} names in xs and zs")
    found = [node.scope.find(n) for n in (node.text("y"), *names)]
    if any(v is None or isinstance(v, Omitted) for v in found):
        raise Malformed("a tensor that it names could not be computed")
    y, *known = (node.as_data(v) for v in found if v is not None and not isinstance(v, Omitted))
    made = gradients(y, known[: len(xs)])
    given = {k: v for k, v in zip(known, node.all_data(), strict=True) if k is not v}
    return [substitute(g, given) for g in made] if given else made


TRAINING: dict[str, Callable[[Node], Result]] = {
    "Adagrad": _for_each(3, _adagrad),
    "Adam": _for_each(4, _adam),
    "Gradient": _gradient,
    "Momentum": _for_each(3, _momentum),
}
