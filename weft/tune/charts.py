"""Charts as inline SVG: lines in axes, and bars. They need no script and take the colours of the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from weft.support.html import escape

WIDTH: Final = 620
HEIGHT: Final = 200
LEFT: Final = 56
BOTTOM: Final = 36
TOP: Final = 10
RIGHT: Final = 12
MAX_DOTS: Final = 2000
"""Of more points than these, evenly spread ones are drawn."""
BAR_WIDTH: Final = 220
BAR_HEIGHT: Final = 10

STYLE: Final = """
svg{display:block} svg text{font:11px system-ui,sans-serif;fill:#666} .axis{stroke:#bbb;stroke-width:1;fill:none}
.grid{stroke:#e4e4e4;stroke-width:1} .line{stroke:#2a6fb0;stroke-width:2;fill:none} .dot{fill:#9bb8d3}
.mark{stroke:#c58a1b;stroke-width:1;stroke-dasharray:4 3} .first{fill:#2a6fb0} .second{fill:#e0a458}
@media(prefers-color-scheme:dark){svg text{fill:#aaa}.axis{stroke:#666}.grid{stroke:#333}.line{stroke:#6fb1ec}
.dot{fill:#41617f}.first{fill:#6fb1ec}.second{fill:#c98f45}}
"""

Point = tuple[float, float]


def step_chart(
    title: str, x: str, y: str, steps: Sequence[Point], dots: Sequence[Point] = (), mark: float | None = None
) -> str:
    """A line that stays until its next point, over numbers that are not below 0. ``dots`` are drawn beside it; a
    dashed line stands at ``mark``. ``title`` is read out, ``x`` and ``y`` are the names of the axes."""
    if not steps:
        return ""
    shown = dots[:: max(1, -(-len(dots) // MAX_DOTS))]
    right = max([p[0] for p in (*steps, *shown)]) or 1.0
    top = max([p[1] for p in (*steps, *shown)]) * 1.05 or 1.0

    def place(p: Point) -> tuple[str, str]:
        across = LEFT + p[0] / right * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - p[1] / top * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f}", f"{down:.1f}"

    parts = [_axes(right, top, x, y)]
    parts += [f'<circle class="dot" cx="{a}" cy="{b}" r="2"/>' for a, b in map(place, shown)]
    if mark is not None and 0 < mark < right:
        at = place((mark, 0.0))[0]
        parts.append(f'<path class="mark" d="M{at},{TOP} V{HEIGHT - BOTTOM}"/>')
    first, *rest = map(place, steps)
    drawn = "".join(f" H{a} V{b}" for a, b in rest)
    parts.append(f'<path class="line" d="M{first[0]},{first[1]}{drawn} H{WIDTH - RIGHT}"/>')
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _axes(right: float, top: float, x: str, y: str) -> str:
    """Axes from 0 to the two limits, with their names and a few numbers."""
    wide, high, floor = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - TOP, HEIGHT - BOTTOM
    made = []
    for value in ticks(top):
        at = floor - value / top * high
        made.append(f'<path class="grid" d="M{LEFT},{at:.1f} H{WIDTH - RIGHT}"/>')
        made.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for value in ticks(right):
        at = LEFT + value / right * wide
        made.append(f'<text x="{at:.1f}" y="{floor + 14}" text-anchor="middle">{value:.4g}</text>')
    made.append(f'<path class="axis" d="M{LEFT},{TOP} V{floor} H{WIDTH - RIGHT}"/>')
    made.append(f'<text x="{LEFT + wide / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>')
    turned = f"rotate(-90 12 {TOP + high / 2:.0f})"
    made.append(f'<text x="12" y="{TOP + high / 2:.0f}" text-anchor="middle" transform="{turned}">{escape(y)}</text>')
    return "".join(made)


def ticks(limit: float) -> list[float]:
    """Three to six round numbers from 0 to ``limit``, which is above 0."""
    rough = limit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    return [i * step for i in range(int(limit / step + 1e-9) + 1)]


def bar(first: float, second: float, limit: float) -> str:
    """A bar of two parts, of which ``limit`` would take the whole width."""
    scale = BAR_WIDTH / limit if limit > 0 else 0.0
    a, b = max(0.0, first * scale), max(0.0, second * scale)
    return (
        f'<svg width="{BAR_WIDTH}" height="{BAR_HEIGHT}"><rect class="first" width="{a:.1f}" height="{BAR_HEIGHT}"/>'
        f'<rect class="second" x="{a:.1f}" width="{b:.1f}" height="{BAR_HEIGHT}"/></svg>'
    )
