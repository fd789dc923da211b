"""Random programs of operators that rules know mean the same after all rules together."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_kit import agree, k, o, rewritten, x

from weft.graph.nodes import GraphExpr

UNARY = ("neg", "relu", "abs", "sigmoid", "tanh", "identity", "softplus", "erf", "sqrt", "exp")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
SCALARS = (0.0, -0.0, 1.0, 0.5, 2.0, -3.0, 6.0)


class Programs:
    """Draws calls that use what was drawn before. Values stay in a range where no order of rounding matters much."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw = draw
        self.known: list[GraphExpr] = [x(1, 4, 3, 2, name="a"), x(2, 4, 3, 2, name="b")]

    def pick(self, values: object) -> object:
        return self.draw.draw(st.sampled_from(values))  # type: ignore[arg-type]

    def constant(self, shape: tuple[int, ...]) -> GraphExpr:
        seed = self.draw.draw(st.integers(0, 9))
        return k(np.random.default_rng(seed).uniform(0.5, 1.5, shape))

    def operand(self, e: GraphExpr) -> GraphExpr:
        """Something that broadcasts to ``e``."""
        shape = e.tensor.shape
        form = self.pick(("number", "channel", "last", "whole", "known"))
        if form == "number":
            return k(self.pick(SCALARS))
        if form == "channel" and len(shape) > 2:
            return self.constant((shape[1], *(1,) * (len(shape) - 2)))
        if form == "known":
            same = [v for v in self.known if v.tensor.shape == shape]
            if same:
                return same[self.draw.draw(st.integers(0, len(same) - 1))]
        return self.constant(shape[-1:] if form == "last" else shape)

    def step(self) -> GraphExpr:
        e: GraphExpr = self.known[self.draw.draw(st.integers(0, len(self.known) - 1))]
        shape = e.tensor.shape
        kind = self.pick(
            ("unary", "binary", "binary", "transpose", "reshape", "matmul", "product", "conv", "norm", "limit")
        )
        if kind == "binary":
            pair = (e, self.operand(e))
            return self.squash(o(str(self.pick(BINARY)), *(pair if self.pick((True, False)) else pair[::-1])))
        if kind == "transpose":
            return o("transpose", e, perm=self.pick(tuple(itertools.permutations(range(len(shape))))))
        if kind == "reshape":
            size = int(np.prod(shape))
            return o(
                "reshape",
                e,
                shape=self.pick([(size,), (shape[0], -1), (-1, shape[-1]), (1, *shape), (-1, 2, size // 4, 2)]),
            )
        if kind == "matmul" and len(shape) > 1:
            return o("matmul", e, self.constant((shape[-1], 3)))
        if kind == "product" and len(shape) > 1:
            return self.squash(o("matmul", e, o("tanh", e), transpose_b=True))
        if kind == "conv" and len(shape) == 4:
            padded = o("pad", e, pads=(0, 0, 1, 0, 0, 0, 0, 1)) if self.pick((True, False)) else e
            return self.squash(o("conv", padded, self.constant((2, shape[1], 1, 1))))
        if kind == "norm" and len(shape) > 1:
            return o("batch_norm", e, *(self.constant((shape[1],)) for _ in range(4)))
        if kind == "limit":
            return o("clip", e, min=self.pick((None, 0.0, -1.0)), max=self.pick((None, 1.0, 6.0)))
        return self.squash(o(str(self.pick(UNARY)), e))

    def squash(self, e: GraphExpr) -> GraphExpr:
        return o("clip", e, min=-8.0, max=8.0) if self.pick((True, False, False)) else e


@settings(max_examples=120)
@given(st.data())
def test_random_programs_keep_their_meaning(data: st.DataObject) -> None:
    programs = Programs(data)
    for _ in range(data.draw(st.integers(2, 9))):
        made = programs.step()
        if made.tensor.rank <= 5:
            programs.known.append(made)
    before, after = rewritten(programs.known[-1])
    agree(before, after, 0.5, 1.5)
