"""The tracker's status as one HTML page, without scripts, pictures or anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.rpc.tracker.reasons import seconds
from weft.rpc.tracker.status import BoardRow, QueueRow, ShareRow, TrackerStatus
from weft.support.html import escape, html_table
from weft.support.words import counted

REFRESH_SECONDS: Final = 2
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em;margin-bottom:.2em} h2{font-size:1.15em;margin-top:2em} p{margin:.2em 0;color:#555}
table{border-collapse:collapse;width:100%} td,th{padding:.25em .9em .25em 0;text-align:left;vertical-align:top}
th{font-weight:600;border-bottom:1px solid #bbb} td{border-bottom:1px solid #eee}
.state{padding:.05em .6em;border-radius:.8em;white-space:nowrap;background:#ddd;color:#222}
.ready{background:#cfeccf;color:#143} .use{background:#d4e4fa;color:#124} .doubt{background:#fbe8bd;color:#430}
.bad{background:#f8d0d0;color:#611} small{color:#777} .bar{background:#89a;height:.6em;border-radius:.3em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}p,small{color:#aaa}th{border-color:#555}
td{border-color:#333}}
"""
_CLASSES: Final = {
    "ready": "ready",
    "in use": "use",
    "being checked": "doubt",
    "resting": "doubt",
    "silent": "bad",
    "unreachable": "bad",
    "gone": "bad",
}


def status_page(status: TrackerStatus, is_live: bool = False) -> str:
    """The page; ``is_live``: browsers load it again every two seconds."""
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if is_live else ""
    head = f'<meta charset="utf-8">{refresh}<title>Boards</title><style>{_STYLE}</style>'
    parts = ["<h1>Boards</h1>", f"<p>{escape(summary(status))}</p>"]
    for key in dict.fromkeys(b.key for b in status.boards):
        parts.append(_boards(key, [b for b in status.boards if b.key == key]))
    parts += [_queue(status.queue), _shares(status.shares)]
    body = "\n".join(p for p in parts if p)
    return f"<!doctype html>\n<html><head>{head}</head>\n<body>\n{body}\n</body></html>\n"


def summary(status: TrackerStatus) -> str:
    """One line: how many boards and requests there are."""
    ready = sum(b.state == "ready" for b in status.boards)
    line = f"{counted(len(status.boards), 'board')}, {ready} ready; {counted(len(status.queue), 'request')} waiting; "
    line += f"up for {seconds(status.up)}"
    return f"{line}; {status.left_out} more rows are not shown" if status.left_out else line


def holders_text(board: BoardRow) -> str:
    """Who has the board: ``ann for 12 s``; those on the way are named by their state."""
    told = []
    for holder in board.holders:
        state = "" if holder.state == "held" else f", {holder.state}"
        told.append(f"{holder.name} for {seconds(holder.held)}{state}")
    more = board.in_use - len(board.holders)
    return "; ".join(told) + (f" and {more} more" if more > 0 else "")


def jobs_text(board: BoardRow) -> str:
    """``40 done, 3 lost (12 % of late)``."""
    lost = f", {board.lost} lost ({board.rate:.0%} lately)" if board.lost else ""
    return f"{board.done} done{lost}"


def machine_text(board: BoardRow) -> str:
    """What the board is: architecture, cores and memory."""
    words = [board.info.get("architecture", ""), board.info.get("system", "")]
    if board.info.get("cores"):
        words.append(f"{board.info['cores']} cores")
    memory = board.info.get("memory", "")
    if memory.isdigit() and int(memory):
        words.append(f"{int(memory) / (1 << 30):.1f} GiB")
    return ", ".join(w for w in words if w)


def _boards(key: str, boards: Sequence[BoardRow]) -> str:
    rows = []
    for board in boards:
        made = f'<span class="state {_CLASSES.get(board.state, "")}">{escape(board.state)}</span>'
        reason = f"<br><small>{escape(board.reason)}</small>" if board.reason else ""
        about = " – ".join(escape(t) for t in (board.description, machine_text(board)) if t)
        rows.append(
            [
                f"{escape(board.name)}<br><small>{escape(board.endpoint)}</small>",
                made + reason,
                escape(holders_text(board)),
                f"{board.in_use} of {board.capacity}",
                escape(jobs_text(board)),
                f"{escape(seconds(board.heard))} ago",
                f"<small>{about}</small>",
            ]
        )
    columns = ["board", "state", "who has it", "sessions", "jobs", "heard", "what it is"]
    return f"<h2>{escape(key)}</h2>" + html_table(columns, rows)


def _queue(queue: Sequence[QueueRow]) -> str:
    if not queue:
        return "<h2>Queue</h2><p>Nobody waits.</p>"
    rows = []
    for row in queue:
        aged = f" <small>(counts as {row.level})</small>" if row.level != row.priority else ""
        place = str(row.position) if row.position else ""
        cells = [place, escape(row.key), escape(row.name), f"{row.priority}{aged}"]
        rows.append([*cells, escape(seconds(row.waited)), f"<small>{escape(row.reason)}</small>"])
    columns = ["place", "key", "who", "priority", "waits for", "why"]
    return "<h2>Queue</h2>" + html_table(columns, rows)


def _shares(shares: Sequence[ShareRow]) -> str:
    if not shares:
        return ""
    most = max(1.0, *(s.used for s in shares)) if len(shares) > 1 else max(1.0, shares[0].used)
    rows = [
        [escape(s.name), escape(seconds(s.used)), f'<div class="bar" style="width:{100 * s.used / most:.1f}%"></div>']
        for s in shares
    ]
    return "<h2>Shares</h2><p>Board time; the older the less it counts.</p>" + html_table(["who", "used", ""], rows)
