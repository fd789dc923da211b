"""The text of one LLVM function while it grows: temporaries, labels, and which expressions already have a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.expr.bounds import Interval
from weft.expr.nodes import Expr, Var
from weft.tir.nodes import Buffer


class LlvmFunction:
    """Lines of a function and the values known at the point of emission.

    A value may be reused wherever its definition dominates: values bound inside :meth:`scope` are forgotten at its end.
    Values that depend on memory are also forgotten when that memory may have changed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.label = "entry"
        self.pointers: dict[Buffer, str] = {}
        self.memo: dict[object, str] = {}
        self.reads: dict[object, frozenset[Buffer]] = {}
        self.data: set[Expr] = set()
        """Values that come from data, so that arithmetic on them may wrap around."""
        self.flags = "contract "
        self.native_half = True
        self.streamed: set[str] = set()
        """Names of the buffers that are written with non-temporal stores."""
        self.streams = False
        """Whether such a store was emitted: the function must wait for them before it returns."""
        self.x86 = True
        self.gathers_are_slow = False
        """Whether the target loads single elements faster than it gathers them."""
        self.features: frozenset[str] = frozenset()
        """Features of the target, by LLVM's names."""
        self.kind = "llvm"
        """Kind of the target, for the native code of plugins' intrinsics."""
        self.defined: dict[str, None] = {}
        """Texts that such code needs at the top of the module, in order; shared by its functions."""
        self.index = "i64"
        """The type in which addresses are computed: as wide as a pointer of the target."""
        self.ranges: dict[Var, Interval] = {}
        """Variables of loops with constant bounds, and their values; kept where ``index`` is narrower than int64."""
        self.storing: Expr | None = None
        """The value of the store that is being emitted."""
        self.roots = 0
        """Square roots of whole vectors emitted since the last beginning of a loop."""
        self._bound: list[object] = []
        self._readers: dict[Buffer, list[object]] = {}
        self._count = 0

    def fresh(self) -> int:
        self._count += 1
        return self._count

    def op(self, text: str) -> str:
        """Append ``%t = text`` and return the new temporary."""
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def entry_op(self, text: str) -> str:
        """Like :meth:`op`, in the entry block."""
        name = f"%t{self.fresh()}"
        self.entry.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}")

    def bind(self, key: Expr | tuple[object, ...], value: str, reads: frozenset[Buffer] = frozenset()) -> str:
        """Remember the value of an expression (or another key) until the scope ends."""
        self.memo[key] = value
        self._bound.append(key)
        if reads:
            self.reads[key] = reads
            for b in reads:
                self._readers.setdefault(b, []).append(key)
        return value

    def define(self, var: Var, value: str) -> None:
        self.bind(var, value)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A region whose values are not visible after it."""
        mark = len(self._bound)
        try:
            yield
        finally:
            for key in self._bound[mark:]:
                self.memo.pop(key, None)
            del self._bound[mark:]

    def wrote(self, buffer: Buffer) -> None:
        """Forget what was read from ``buffer``."""
        for key in self._readers.pop(buffer, ()):
            self.memo.pop(key, None)

    def forget_reads(self) -> None:
        """Forget everything that was read from memory (at the entry of a loop)."""
        for buffer in list(self._readers):
            self.wrote(buffer)

    def text(self, header: str) -> str:
        return "\n".join([f"define {header} {{", "entry:", *self.entry, "  br label %body", *self.lines, "}"])
