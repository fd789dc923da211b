"""The report of a tuning run: one HTML file with no scripts, readable from disk, also of a run that was interrupted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from weft.support.files import replace_text, write_file
from weft.support.html import escape, html_table, preformatted
from weft.support.words import counted
from weft.tune import charts
from weft.tune.results import COLUMNS, KernelResult, TuningResult, by_time, microseconds, milliseconds_of
from weft.tune.search.history import Trial

MAX_CANDIDATES: Final = 12
"""Candidates of a knob that are shown: the best ones."""

_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em} h2{font-size:1.2em;margin-top:2.2em} h3{font-size:1em;margin:1.4em 0 .3em}
table{border-collapse:collapse;margin:.4em 0} td,th{padding:.1em 1em .1em 0;vertical-align:middle}
th{font-weight:600;border-bottom:1px solid #bbb} .big{font-size:1.25em} .knobs{display:flex;flex-wrap:wrap;gap:0 3em}
pre{font:12px/1.35 ui-monospace,monospace;overflow-x:auto}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}th{border-color:#555}a{color:#8bf}}
"""


def write_report(result: TuningResult, path: str | os.PathLike[str]) -> None:
    """Write the report of ``result`` to ``path``. Raises InputError I030 if it cannot be written."""
    page = report_page(result)
    write_file(os.fspath(path), lambda: replace_text(path, page))


def report_page(result: TuningResult) -> str:
    """The page: the model, the table of kernels, where the time went, and what was learned about each kernel."""
    title = f"Tuning {result.model}"
    kernels = by_time(result.kernels)
    parts = [
        f"<h1>{escape(title)}</h1>",
        _facts(result),
        _model(result),
        _layouts(result),
        _table(kernels),
        _time_spent(kernels),
    ]
    parts += [_kernel(i, k) for i, k in enumerate(kernels)]
    head = f'<meta charset="utf-8"/><title>{escape(title)}</title><style>{_STYLE}{charts.STYLE}</style>'
    body = "\n".join(p for p in parts if p)
    return _plain(f"<!doctype html>\n<html><head>{head}</head>\n<body>\n{body}\n</body></html>\n")


def _plain(text: str) -> str:
    """``text`` without the characters that HTML and UTF-8 cannot hold, which names in models may have."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _facts(result: TuningResult) -> str:
    scheduler = result.scheduler
    earlier = result.trials - result.new_trials
    trials = counted(result.new_trials, "trial") + (f", {earlier} in earlier runs" if earlier else "")
    facts: dict[str, Any] = {
        **result.facts,
        "database": result.database,
        "trials": trials,
        "time": f"{scheduler.searched:.0f} s of search",
        "ended because": result.ended,
    }
    rows = [[escape(name), escape(value)] for name, value in facts.items()]
    notes = "".join(f"<p>{escape(note)}</p>" for note in result.notes)
    return html_table(["", ""], rows) + notes


def _model(result: TuningResult) -> str:
    """The times before and after, and the time of all kernels over the time of the search."""
    whole = result.scheduler.whole_curve
    steps = [(s, total * 1e3) for s, total in whole]
    chart = charts.step_chart("Time of all kernels during the search", "seconds", "ms, estimated", steps)
    facts = f'<p class="big">{escape(result.summary())}</p>'
    if result.verdicts is not None:
        alone = sum(k.calls * k.before for k in result.kernels), sum(k.calls * k.after for k in result.kernels)
        facts += (
            f"<p>All kernels, measured alone: {milliseconds_of(alone[0])} → {milliseconds_of(alone[1])}. "
            "The model was measured with and without the schedules, in turns.</p>"
        )
    elif result.interrupted:
        facts += "<p>The search was interrupted before the schedules were measured again and checked in the model.</p>"
    return f"<h2>Model</h2>{facts}{chart}"


def _layouts(result: TuningResult) -> str:
    """What the joint search for layouts found, and why it is used or not."""
    outcome = result.layouts
    if outcome is None:
        return ""
    rows = [
        [
            escape(c.call),
            escape(c.before),
            escape(c.after),
            microseconds(c.seconds_before),
            microseconds(c.seconds_after),
        ]
        for c in outcome.changes
    ]
    columns = ["call", "estimated layouts", "measured layouts", "µs, estimated", "µs, measured"]
    table = html_table(columns, rows, (3, 4)) if rows else ""
    return f"<h2>Layouts</h2><p>{escape(outcome.summary())}. {escape(outcome.measured())}.</p>{table}"


def _table(kernels: Sequence[KernelResult]) -> str:
    limit = max((k.calls * k.before for k in kernels), default=0.0)
    rows = []
    for number, k in enumerate(kernels):
        cells = [escape(c) for c in k.row()]
        cells[0] = f'<a href="#kernel{number}">{cells[0]}</a>'
        now, gone = k.calls * k.after, k.calls * (k.before - k.after)
        rows.append([*cells[:-1], charts.bar(now, max(0.0, gone), limit), cells[-1]])
    columns = [*COLUMNS[:-1], "time now, time saved", COLUMNS[-1]]
    return "<h2>Kernels</h2>" + html_table(columns, rows, (1, 2, 3, 4, 5))


def _time_spent(kernels: Sequence[KernelResult]) -> str:
    spent = [(k, k.search.tuner.progress) for k in kernels if k.search.new_trials]
    if not spent:
        return ""
    limit = max(p.search + p.measure for _, p in spent)
    rows = [
        [escape(k.name), f"{p.search:.1f} s", f"{p.measure:.1f} s", charts.bar(p.search, p.measure, limit)]
        for k, p in spent
    ]
    total = sum(p.search for _, p in spent), sum(p.measure for _, p in spent)
    rows.append(["all", f"{total[0]:.1f} s", f"{total[1]:.1f} s", ""])
    return "<h2>Where the time went</h2>" + html_table(["kernel", "search", "measuring", ""], rows, (1, 2))


def _kernel(number: int, kernel: KernelResult) -> str:
    """What was learned about one kernel."""
    parts = [f'<h2 id="kernel{number}">{escape(kernel.name)}</h2>', f"<p>{escape(kernel)}</p>"]
    if not kernel.search.baseline:
        return "".join(parts)
    trials = kernel.search.tuner.history.trials
    if trials:
        parts.append(_curve(kernel, trials))
        parts.append(_outcomes(trials))
        parts.append(_knobs(kernel, trials))
    if kernel.trace is not None:
        parts.append(f"<h3>The schedule</h3>{preformatted(kernel.schedule)}")
    return "\n".join(p for p in parts if p)


def _curve(kernel: KernelResult, trials: Sequence[Trial]) -> str:
    best, steps = 1.0, [(0.0, 1.0)]
    for i, t in enumerate(trials, 1):
        if t.record.ok and t.score > best:
            best = t.score
            steps.append((float(i), best))
    dots = [(float(i), t.score) for i, t in enumerate(trials, 1) if t.score > 0]
    known = len(trials) - kernel.search.new_trials
    title = f"Best speed of {kernel.name} after each trial"
    chart = charts.step_chart(title, "trials", "× the default", [*steps, (float(len(trials)), best)], dots, known)
    note = f"<p>The first {counted(known, 'trial')} are from earlier runs.</p>" if known > 0 else ""
    return chart + note


def _outcomes(trials: Sequence[Trial]) -> str:
    """How often trials failed in which way, with an example."""
    times = Counter(str(t.record.outcome) for t in trials if not t.record.ok)
    if not times:
        return ""
    examples = {str(t.record.outcome): t.record.message for t in reversed(trials)}
    rows = [[escape(kind), str(n), escape(examples[kind])] for kind, n in times.most_common()]
    return "<h3>Trials without a time that counts</h3>" + html_table(["outcome", "trials", "for example"], rows, (1,))


def _knobs(kernel: KernelResult, trials: Sequence[Trial]) -> str:
    """For each knob that was moved: the best speed that was reached with each of its candidates."""
    parts = []
    for number in sorted({t.point.sketch for t in trials}):
        sketch = kernel.search.tuner.space.sketch(number)
        own = [t for t in trials if t.point.sketch == number]
        made = [_knob(k.name, k.values, [(t.point.positions[i], t.score) for t in own])
                for i, k in enumerate(sketch.knobs)]  # fmt: skip
        shown = "".join(made)
        if shown:
            title = f"Decisions of the sketch '{escape(sketch.name)}': the best speed with each"
            parts.append(f'<h3>{title}</h3><div class="knobs">{shown}</div>')
    return "".join(parts)


def _knob(name: str, values: Sequence[Any], tried: Sequence[tuple[int, float]]) -> str:
    best: dict[int, float] = {}
    for position, score in tried:
        best[position] = max(best.get(position, 0.0), score)
    if len(best) < 2:
        return ""
    shown = sorted(sorted(best, key=lambda p: -best[p])[:MAX_CANDIDATES])
    limit = max(best.values())
    rows = [
        [escape(_value(values[p])), charts.bar(best[p], 0.0, limit), f"{best[p]:.2f}×" if best[p] else "failed"]
        for p in shown
    ]
    left = len(values) - len(shown)
    note = f"<p>{counted(left, 'other candidate')} tried less well or not at all</p>" if left else ""
    return f"<div>{html_table([escape(name), '', 'best'], rows, (2,))}{note}</div>"


def _value(value: Any) -> str:
    return " × ".join(map(str, value)) if isinstance(value, tuple) else str(value)
