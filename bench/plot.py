"""Draw plots as SVG without a dependency: bars with spread, and lines. The text of a plot shows changes in a diff."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Bar", "bars", "lines"]

_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#64748b", "#dc2626", "#0e7490", "#be185d")
_WIDTH, _LEFT, _RIGHT = 820, 230, 110


@dataclass(frozen=True)
class Bar:
    """One bar: its value with the smallest and the largest measured, and its group, which gives the colour."""

    label: str
    value: float
    low: float
    high: float
    group: int = 0


def bars(title: str, rows: Sequence[Bar], limit: tuple[float, str] | None = None) -> str:
    """Horizontal bars; whiskers from the smallest to the largest. `limit`: a line at that value, with a word for it."""
    top = 46
    height = top + 24 * len(rows) + 16
    most = max([row.high for row in rows] + ([limit[0]] if limit else []), default=1) or 1
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    parts = [_text(12, 24, title, size=15, weight="bold")]
    for at, row in enumerate(rows):
        y = top + 24 * at
        end, low, high = (_LEFT + value * scale for value in (row.value, row.low, row.high))
        parts.append(_text(_LEFT - 8, y + 13, row.label, anchor="end"))
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="17" fill="{_COLOURS[row.group]}"/>')
        if row.low != row.high:
            whisker = f"M{low:.1f} {y + 8.5}H{high:.1f}M{low:.1f} {y + 5}v7M{high:.1f} {y + 5}v7"
            parts.append(f'<path d="{whisker}" stroke="#111" fill="none"/>')
        parts.append(_text(max(end, high) + 6, y + 13, f"{row.value:,.0f}"))
    if limit:
        x = _LEFT + limit[0] * scale
        parts.append(f'<path d="M{x:.1f} {top - 6}V{height - 10}" stroke="#dc2626" stroke-dasharray="4 3"/>')
        parts.append(_text(x + 4, top - 8, limit[1], fill="#dc2626"))
    return _svg(height, parts)


def lines(title: str, x_name: str, y_name: str, series: Mapping[str, Sequence[tuple[float, float]]], log: bool = False) -> str:
    """Lines from y = 0. `log`: a logarithmic x-axis, on which 0 stands where 10 does."""
    height, left, top, bottom = 390, 70, 60, 340
    points = [point for line in series.values() for point in line]
    along = [_along(x, log) for x, _ in points] or [0.0]
    low, high, most = min(along), max(along), max((y for _, y in points), default=1) or 1
    step = _step(most)
    most = math.ceil(most / step) * step

    def place(x: float, y: float) -> str:
        across = (_along(x, log) - low) / (high - low or 1) * (_WIDTH - left - 170)
        return f"{left + across:.1f} {bottom - y / most * (bottom - top):.1f}"

    parts = [_text(12, 24, title, size=15, weight="bold"), _text(left, bottom + 38, x_name), _text(12, top - 8, y_name)]
    for tick in range(round(most / step) + 1):
        y = bottom - tick * step / most * (bottom - top)
        parts.append(f'<path d="M{left} {y:.1f}H{_WIDTH - 170}" stroke="#e5e7eb"/>')
        parts.append(_text(left - 8, y + 4, f"{tick * step:,.6g}", anchor="end"))
    for mark in _marks(points, log):
        x = float(place(mark, 0).split()[0])
        parts.append(_text(x, bottom + 18, f"{mark:,.6g}", anchor="middle"))
    for at, (name, line) in enumerate(series.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        path = "L".join(place(x, y) for x, y in line)
        parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        if len(line) <= 30:
            dots = [place(x, y).split() for x, y in line]
            parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots]
        parts.append(_text(_WIDTH - 160, top + 10 + 20 * at, name, fill=colour, weight="bold"))
    return _svg(height, parts)


def _along(x: float, log: bool) -> float:
    return math.log10(max(x, 10)) if log else x


def _marks(points: Sequence[tuple[float, float]], log: bool) -> list[float]:
    highest = max((x for x, _ in points), default=1)
    if log:
        powers = [10.0**power for power in range(2, 12) if 10**power <= highest]
        return [*([0.0] if any(x == 0 for x, _ in points) else []), *powers]
    step = _step(highest)
    return [step * tick for tick in range(int(highest / step + 1e-9) + 1)]


def _step(most: float) -> float:
    """1, 2 or 5 times a power of ten, so that four to ten of them reach."""
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return float(next(step * power for step in (5, 2, 1) if step * power <= rough or step == 1))


def _text(
    x: float, y: float, text: str, anchor: str = "start", size: int = 12, weight: str = "normal", fill: str = "#111"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )


def _svg(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])
