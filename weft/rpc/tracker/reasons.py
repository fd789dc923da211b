"""Why a request waits, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.rpc.tracker.board import Board, BoardState, GrantState
from weft.support.words import counted, did_you_mean

_MAX_BOARDS = 4
"""So many boards, and clients of one board, are told of one by one."""
_MAX_KEYS = 12


def seconds(value: float) -> str:
    """A time for people: ``12 s``, ``3 min``, ``2 h``."""
    value = max(0.0, value)
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"


def signature(key: str, boards: Iterable[Board], now: float) -> int:
    """A number that changes with what :func:`about_boards` tells, times apart."""
    mine = [(b.entry.endpoint, b.state(now), b.failure, len(b.grants)) for b in boards if b.suits(key)]
    return hash(tuple(mine) or tuple(b.entry.key for b in boards if b.is_known and b.link is not None))


def why(about: str, position: int, ahead: Sequence[str], settling: float) -> str:
    """Why a request waits at this ``position``. ``about`` tells of the boards; ``settling``: seconds until the tracker
    gives boards away."""
    parts = [about]
    if settling > 0:
        parts.append(f"the tracker has just started, and waits {seconds(settling)} for those who held boards before")
    if ahead:
        more = position - 1 - len(ahead)
        parts.append(f"ahead: {', '.join(ahead)}{f' and {more} more' if more > 0 else ''}")
    return "; ".join(parts)


def about_boards(key: str, boards: Sequence[Board], now: float) -> str:
    """What is known of the boards with ``key``: ``2 boards with the key 'pi4', 2 in use: a (ann for 12 s), b (bob for 3
    s)``; or which keys there are."""
    mine = [b for b in boards if b.suits(key)]
    if not mine:
        return _no_such_key(key, boards)
    by_state: dict[BoardState, list[Board]] = {}
    for board in mine:
        by_state.setdefault(board.state(now), []).append(board)
    told = []
    for state, some in by_state.items():
        listed = ", ".join(f"{b.entry.name}{detail(b, now)}" for b in some[:_MAX_BOARDS])
        more = f" and {len(some) - _MAX_BOARDS} more" if len(some) > _MAX_BOARDS else ""
        told.append(f"{len(some)} {state.value}: {listed}{more}")
    return f"{counted(len(mine), 'board')} with the key '{key}', {', '.join(told)}"


def _no_such_key(key: str, boards: Sequence[Board]) -> str:
    counts: dict[str, int] = {}
    for board in boards:
        if board.is_known and board.link is not None:
            counts[board.entry.key] = counts.get(board.entry.key, 0) + 1
    if not counts:
        return f"no board has the key '{key}', as no board is registered at all"
    listed = [f"{k} ({counted(n, 'board')})" for k, n in sorted(counts.items())]
    more = len(listed) - _MAX_KEYS
    there = f"there are: {', '.join(listed[:_MAX_KEYS])}{f' and {more} more' if more > 0 else ''}"
    return f"no board has the key '{key}'; {did_you_mean(key, counts, there)}"


def detail(board: Board, now: float) -> str:
    """What explains the state of a board, in brackets behind its name; empty where there is nothing to say."""
    state = board.state(now)
    if state is BoardState.BUSY:
        return f" ({', '.join(holders(board, now))})"
    if state is BoardState.RESTING:
        left = seconds(board.health.rests_until - now)
        return f" ({counted(board.health.lost_in_a_row, 'job')} lost in a row, for {left})"
    if state is BoardState.UNREACHABLE:
        return f" ({board.failure})"
    if state is BoardState.SILENT:
        return f" (not heard for {seconds(now - board.heard_at)})"
    if state is BoardState.GONE:
        return f" (for {seconds(now - board.gone_at)})"
    return ""


def holders(board: Board, now: float) -> list[str]:
    """Who has the board: ``ann for 12 s``."""
    words = {
        GrantState.OFFERED: "{} begins",
        GrantState.HELD: "{} for {}",
        GrantState.ADOPTED: "somebody whose client has not come back",
        GrantState.ENDING: "the session of {} is ending",
    }
    grants = list(board.grants.values())
    told = [words[g.state].format(g.name or "somebody", seconds(now - g.since)) for g in grants[:_MAX_BOARDS]]
    return told if len(grants) <= _MAX_BOARDS else [*told, f"{len(grants) - _MAX_BOARDS} more"]
