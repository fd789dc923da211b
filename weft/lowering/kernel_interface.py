"""What the program that calls a compiled kernel must know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.expr.nodes import Var
from weft.runtime.program import CallKernel, Launch, SizeExpr


@dataclass(frozen=True, slots=True)
class KernelInterface:
    """How to call a kernel, without its code.

    ``name`` is its symbol; ``sizes`` are the symbolic dimensions it takes, in order. ``workspace`` (bytes), ``flops``,
    ``bytes`` and the sizes in ``launch`` (None for CPUs) are expressions over ``s0, s1, …``: positions in ``sizes``.
    """

    name: str
    sizes: tuple[Var, ...]
    workspace: SizeExpr
    flops: SizeExpr
    bytes: SizeExpr
    launch: Launch | None = None

    def call(self, number: int, label: str, names: Mapping[Var, str]) -> CallKernel:
        """The call of this kernel, which is kernel ``number`` of the program, still without buffers.

        ``names`` are the names of symbolic dimensions at the call. Raises KeyError for a dimension without a name.
        """
        table = {f"s{i}": names[v] for i, v in enumerate(self.sizes)}

        def named(size: SizeExpr) -> SizeExpr:
            return tuple(table.get(word, word) if isinstance(word, str) else word for word in size)

        launch = self.launch
        if launch is not None:
            (gx, gy, gz), (bx, by, bz) = (tuple(map(named, sizes)) for sizes in (launch.grid, launch.block))
            launch = Launch((gx, gy, gz), (bx, by, bz), named(launch.shared_bytes))
        sizes = tuple((names[v],) for v in self.sizes)
        return CallKernel(number, (), sizes, label, named(self.flops), named(self.bytes), launch)
