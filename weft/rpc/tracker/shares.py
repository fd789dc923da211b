"""How much each client has had of the boards, for fair shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

HALF_LIFE_SECONDS: Final = 600.0
"""Board-seconds count half after so long: who used much yesterday does not wait for it today."""
MIN_CHARGE: Final = 1.0
"""Board-seconds of the shortest lease, so that grants at one moment go round."""
_FORGOTTEN: Final = 0.01
"""Board-seconds that are not remembered."""


@dataclass(slots=True)
class _Account:
    seconds: float = 0.0
    at: float = 0.0
    served_at: dict[str, float] = field(default_factory=dict)
    """By key."""

    def served(self, key: str) -> float:
        return self.served_at.get(key, float("-inf"))


class Shares:
    """Board-seconds by the name of a client."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def used(self, name: str, now: float) -> float:
        """Board-seconds of ``name``, the older the less they count."""
        account = self._accounts.get(name)
        return 0.0 if account is None else account.seconds * 0.5 ** ((now - account.at) / HALF_LIFE_SECONDS)

    def served_at(self, name: str, key: str | None = None) -> float:
        """When ``name`` was given a board (with ``key``) last; minus infinity: never, or long ago."""
        account = self._accounts.get(name)
        if account is None:
            return float("-inf")
        return max(account.served_at.values(), default=float("-inf")) if key is None else account.served(key)

    def charge(self, name: str, seconds: float, now: float, new_key: str | None = None) -> None:
        """Add board-seconds; ``new_key``: a lease of a board with this key begins."""
        used = self.used(name, now)
        account = self._accounts.setdefault(name, _Account())
        account.seconds, account.at = used + seconds, now
        if new_key is not None:
            account.served_at[new_key] = now

    def forget(self, now: float) -> None:
        """Drop accounts that make no difference any more."""
        for name in [n for n in self._accounts if self.used(n, now) < _FORGOTTEN]:
            del self._accounts[name]

    def table(self, now: float) -> list[tuple[str, float]]:
        """Names and board-seconds, the most first."""
        return sorted(((n, self.used(n, now)) for n in self._accounts), key=lambda row: (-row[1], row[0]))
