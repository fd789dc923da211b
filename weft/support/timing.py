"""Wall-clock time of named phases, nested."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Phase:
    """A phase that ran ``count`` times for ``seconds`` in all, its parts included."""

    name: str
    seconds: float = 0.0
    count: int = 0
    parts: dict[str, Phase] = field(default_factory=dict)

    def rows(self, depth: int = 0) -> Iterator[tuple[int, Phase]]:
        """The phase and its parts with their depth, the most expensive first."""
        yield depth, self
        for part in sorted(self.parts.values(), key=lambda p: -p.seconds):
            yield from part.rows(depth + 1)


class Timer:
    """Collects phases: ``with timer.phase("lower"): …``. Repeated phases of one name add up."""

    def __init__(self, name: str = "total") -> None:
        self.root = Phase(name)
        self._open = [self.root]

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        parts = self._open[-1].parts
        phase = parts.get(name)
        if phase is None:
            phase = parts[name] = Phase(name)
        self._open.append(phase)
        start = time.perf_counter()
        try:
            yield phase
        finally:
            spent = time.perf_counter() - start
            self._open.pop()
            phase.seconds += spent
            phase.count += 1
            if len(self._open) == 1:
                self.root.seconds += spent

    def report(self) -> str:
        """One line a phase: seconds, runs, name, indented by depth."""
        lines = []
        for depth, phase in self.root.rows():
            runs = f" ×{phase.count}" if phase.count > 1 else ""
            lines.append(f"{phase.seconds * 1e3:10.2f} ms  {'  ' * depth}{phase.name}{runs}")
        return "\n".join(lines)
