"""The index page of a dump: one HTML file with no scripts, readable from disk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.graph.nodes import Call, Function, GraphExpr, Module, Project, Tuple
from weft.graph.text import type_text
from weft.graph.visit import post_order
from weft.support.html import escape, html_table
from weft.view.written import KernelStages, Written

_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em} h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse} td,th{padding:0 .8em 0 0;text-align:left;vertical-align:top;white-space:nowrap}
th{font-weight:600;border-bottom:1px solid #bbb} td.wide{white-space:normal}
code,.type{font-family:ui-monospace,monospace;font-size:12px;color:#555} .failed{color:#b00}
.flow{display:flex} .flow td,.flow th{height:24px;line-height:24px} .flow svg{flex:none}
path{fill:none;stroke:#89a;stroke-width:1.2}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}code,.type{color:#aaa}a{color:#8bf}th{border-color:#555}}
"""
_ROW_PIXELS = 24


def index_page(title: str, dump: Written, facts: Mapping[str, Any]) -> str:
    """The page for a dump: facts, the stages of the graph, the flow of fused groups, the stages of each kernel."""
    parts = [f"<h1>{escape(title)}</h1>", _facts(facts), _graph_stages(dump)]
    if dump.last is not None:
        parts.append(_flow(dump, dump.last))
    parts.append(_kernels(dump))
    body = "\n".join(p for p in parts if p)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html><head>{head}</head>\n<body>\n{body}\n</body></html>\n"


def _link(dump: Written, path: Path, text: str) -> str:
    return f'<a href="{escape(os.path.relpath(path, dump.directory))}">{escape(text)}</a>'


def _size(path: Path) -> str:
    count = path.stat().st_size
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _facts(facts: Mapping[str, Any]) -> str:
    rows = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in value.items())
        rows.append([escape(name.replace("_", " ")), escape(value)])
    return html_table(["compilation", ""], rows) if rows else ""


def _graph_stages(dump: Written) -> str:
    if not dump.graphs:
        return ""
    rows = []
    for stage in dump.graphs:
        side = stage.path.with_suffix(".npz")
        constants = _size(side) if side.exists() else ""
        name = _link(dump, stage.path, stage.path.stem)
        rows.append([name, str(stage.operators), str(stage.groups), _size(stage.path), constants])
    columns = ["after", "operator calls", "fused groups", "text", "constants"]
    return "<h2>Graph</h2>" + html_table(columns, rows, (1, 2, 3, 4))


def _flow(dump: Written, module: Module) -> str:
    """The calls in order, with arcs from each call to the later calls that use its result."""
    order = [e for e in post_order(module.main, into_functions=False) if isinstance(e, Call)]
    place = {e: i for i, e in enumerate(order)}
    rows, arcs = [], []
    for i, e in enumerate(order):
        kernel = dump.kernel_of.get(e.target) if isinstance(e.target, Function) else None
        label = _kernel_link(kernel) if kernel else ""
        operators = " + ".join(escape(n) for n in _operators(e))
        origin = ", ".join(e.origin.names[:2])
        rows.append(
            [str(i), label, operators, f'<span class="type">{escape(type_text(e.type))}</span>', escape(origin)]
        )
        arcs += [(place[a], i) for a in _producers(e) if a in place and i - place[a] > 1]
    table = html_table(["", "kernel", "operators", "result", "from"], rows, (0,))
    return f'<h2>Calls in order</h2><div class="flow">{_arcs(arcs, len(rows))}{table}</div>'


def _arcs(arcs: Sequence[tuple[int, int]], rows: int) -> str:
    if not arcs:
        return ""
    width = 70

    def path(start: int, end: int) -> str:
        y0, y1 = (_ROW_PIXELS * (k + 1.5) for k in (start, end))
        bend = max(4.0, width - 8.0 * (end - start))
        return f'<path d="M{width},{y0} C{bend},{y0} {bend},{y1} {width},{y1}"/>'

    shapes = "".join(path(a, b) for a, b in arcs)
    return f'<svg width="{width + 6}" height="{_ROW_PIXELS * (rows + 2)}">{shapes}</svg>'


def _producers(e: Call) -> list[GraphExpr]:
    """The calls whose results are arguments of ``e``, directly or through tuples and fields."""
    found: list[GraphExpr] = []
    pending: list[GraphExpr] = list(e.args)
    while pending:
        a = pending.pop()
        if isinstance(a, Tuple):
            pending += a.fields
        elif isinstance(a, Project):
            pending.append(a.value)
        else:
            found.append(a)
    return found


def _operators(e: Call) -> list[str]:
    if not isinstance(e.target, Function):
        return [str(getattr(e.target, "name", ""))]
    return [str(getattr(c.target, "name", "")) for c in post_order(e.target.body) if isinstance(c, Call)]


def _kernel_link(kernel: KernelStages) -> str:
    return f'<a href="#{escape(kernel.folder.name)}">{escape(kernel.folder.name)}</a>'


def _kernels(dump: Written) -> str:
    rows = []
    for kernel in dump.kernels:
        links = " ".join(_link(dump, path, stage) for stage, path in kernel.paths.items())
        if kernel.failed:
            links += f' <span class="failed">{escape(kernel.failed.splitlines()[0])}</span>'
        name = f'<span id="{escape(kernel.folder.name)}">{escape(kernel.folder.name)}</span>'
        rows.append([name, links, f"<code>{escape(kernel.target)}</code>"])
    return "<h2>Kernels</h2>" + html_table(["kernel", "stages", "target"], rows) if rows else ""
