"""The static picture of a memory record: stacked areas over a step, the peak marked.

Self-contained, under 40 kB, readable on any background: text and lines have the colour of the
surrounding text, the fills are the category colours of every Workbench view.
"""

from __future__ import annotations

import html

import numpy as np
import numpy.typing as npt

from workbench.memory.reading.chart import category_names, to_chart
from workbench.memory.reading.text import (
    empty_sentence,
    format_bytes,
    format_span,
    is_empty,
    kind_of_peak,
    peak_sentence,
    prediction_lines,
    refusal_sentence,
    shorten,
)
from workbench.memory.render.limits import Limits, limits_of
from workbench.records import CATEGORIES, MemoryChart, MemoryRecord

COLOURS = ("#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#009E73", "#E69F00", "#8C8C8C")
"""One colour per `CATEGORIES` entry, the same everywhere."""

BAD = "#c9302c"
"""Colour of refused requests and of the GPU's limit; readable on light and dark."""

_POINTS = 200
_MOST_REFUSED = 20
_DASHED = 'stroke-dasharray="6 4"'
_LEFT, _TOP, _WIDE, _HIGH = 64, 30, 470, 170
_LEGEND = _LEFT + _WIDE + 20
_WIDTH, _HEIGHT = 760, _TOP + _HIGH + 42
FONT = "font-family:system-ui,sans-serif;font-size:12px;font-variant-numeric:tabular-nums"
"""Style of every picture of memory in a cell, and of the text around it."""


def static_html(record: MemoryRecord) -> str:
    """Return the picture with its sentence and notes, for ``text/html``."""
    refused = len(record.oom_event)
    sentences = [refusal_sentence(record, refused - 1)] if refused else []
    sentences += [peak_sentence(record), *prediction_lines(record)[1:2]]
    parts = [line[0].upper() + line[1:] for line in sentences]
    parts += [shorten(note, 300) for note in record.notes]
    text = "".join(f"<p style='margin:4px 0'>{html.escape(part)}</p>" for part in parts)
    return f"<div style='{FONT}'>{to_svg(record)}{text}</div>"


def to_svg(record: MemoryRecord) -> str:
    """Return the record as one inline ``<svg>``."""
    label = html.escape(peak_sentence(record), quote=True)
    if is_empty(record):
        body = _text(_WIDTH / 2, 30, html.escape(empty_sentence(record)), anchor="middle")
        return _frame(60, label, [body])
    chart = to_chart(record, _POINTS)
    limits = limits_of(record, chart)
    top = axis_top(limits.top)
    body = [*_grid(top), *_areas(_stacked(chart), top), *_reserved(chart, limits, top)]
    body += [
        *_gpu_limit(limits, top),
        *_interval(chart, limits, top),
        *_refused(chart, limits, top),
    ]
    body += [*_phases(chart), *_peak(chart, top, kind_of_peak(record)), *_legend(chart, limits)]
    return _frame(_HEIGHT, label, body)


def _frame(height: int, label: str, body: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" style="max-width:100%;{FONT}" fill="currentColor" role="img" '
        f'aria-label="{label}">'
    )
    return f"{head}<title>{label}</title>{''.join(body)}</svg>"


def _stacked(chart: MemoryChart) -> npt.NDArray[np.float64]:
    """Return ``[num_categories + 1, num_points]``: lower edge of each area, and the top."""
    layers = chart.bytes.reshape(len(CATEGORIES), chart.num_points).astype(np.float64)
    return np.vstack([np.zeros(chart.num_points), np.cumsum(layers, axis=0)])


def _areas(stacked: npt.NDArray[np.float64], top: float) -> list[str]:
    found: list[str] = []
    for row, colour in enumerate(COLOURS):
        if np.any(stacked[row + 1] > stacked[row]):
            there = _steps(stacked[row + 1], top)
            back = _steps(stacked[row], top)[::-1]
            path = "L".join(f"{x:.0f},{y:.1f}" for x, y in [*there, *back])
            found.append(
                f'<path d="M{path}Z" fill="{colour}"><title>{category_names()[row]}</title></path>'
            )
    return found


def _steps(values: npt.NDArray[np.float64], top: float) -> list[tuple[float, float]]:
    """Return horizontal runs: memory is constant between events, corners are only at changes."""
    wide = _WIDE / len(values)
    corners: list[tuple[float, float]] = []
    for index, value in enumerate(values.tolist()):
        y = _y(value, top)
        if not corners or corners[-1][1] != y:
            if corners:
                corners.append((_LEFT + index * wide, corners[-1][1]))
            corners.append((_LEFT + index * wide, y))
    return [*corners, (_LEFT + _WIDE, corners[-1][1])]


def _grid(top: float) -> list[str]:
    found: list[str] = []
    for part in range(5):
        value = top * part / 4
        y = _y(value, top)
        found.append(
            f'<path d="M{_LEFT},{y:.1f}h{_WIDE}" stroke="currentColor" stroke-opacity=".18"/>'
        )
        found.append(_text(_LEFT - 6, y + 4, format_bytes(value), anchor="end", faint=True))
    return found


def _reserved(chart: MemoryChart, limits: Limits, top: float) -> list[str]:
    """Draw reserved bytes over time, or their maximum if only that is known."""
    if chart.reserved_bytes < 0:
        return []
    if limits.reserved is None:
        y = _y(chart.reserved_bytes, top)
        return [f'<path d="M{_LEFT},{y:.1f}h{_WIDE}" stroke="currentColor" {_DASHED}/>']
    path = "L".join(f"{x:.0f},{y:.1f}" for x, y in _steps(limits.reserved.astype(float), top))
    return [f'<path d="M{path}" fill="none" stroke="currentColor"/>']


def _gpu_limit(limits: Limits, top: float) -> list[str]:
    """Draw the GPU's usable memory; if it is above the picture, the legend names it."""
    if not limits.shows_gpu:
        return []
    y = _y(limits.gpu_bytes, top)
    return [f'<path d="M{_LEFT},{y:.1f}h{_WIDE}" stroke="{BAD}" {_DASHED}/>']


def _interval(chart: MemoryChart, limits: Limits, top: float) -> list[str]:
    """Draw the interval of the reserved bytes of a predicted peak, as a bracket."""
    if limits.interval is None:
        return []
    low, high = (_y(value, top) for value in limits.interval)
    x = _x(chart, chart.peak_point)
    path = f"M{x - 4:.1f},{high:.1f}h8M{x:.1f},{high:.1f}V{low:.1f}M{x - 4:.1f},{low:.1f}h8"
    return [f'<path d="{path}" stroke="currentColor" stroke-width="1.5"/>']


def _refused(chart: MemoryChart, limits: Limits, top: float) -> list[str]:
    """Draw a cross in a circle where memory ran out."""
    found: list[str] = []
    for refused in limits.refused[-_MOST_REFUSED:]:
        x, y = _x(chart, refused.point), _y(refused.level, top)
        title = f"out of memory: {format_bytes(refused.num_bytes)} requested"
        found.append(f"<g><title>{title}</title>{_cross(x, y, 7)}</g>")
    return found


def _x(chart: MemoryChart, point: int) -> float:
    """Return the middle of a point."""
    return _LEFT + (point + 0.5) * _WIDE / max(chart.num_points, 1)


def _phases(chart: MemoryChart) -> list[str]:
    found: list[str] = []
    y, wide = _TOP + _HIGH, _WIDE / max(chart.num_points, 1)
    taken = 0.0
    for phase in chart.phases:
        start, end = _LEFT + phase.start * wide, _LEFT + phase.end * wide
        found.append(f'<path d="M{start:.1f},{y}v8" stroke="currentColor" stroke-opacity=".5"/>')
        middle, half = (start + end) / 2, 3.6 * len(phase.name)
        if middle - half >= taken and end - start > half:
            found.append(_text(middle, y + 17, html.escape(phase.name), anchor="middle"))
            taken = middle + half
    axis = "time: allocations and frees in order"
    return [*found, _text(_LEFT + _WIDE / 2, y + 36, axis, anchor="middle", faint=True)]


def _peak(chart: MemoryChart, top: float, kind: str) -> list[str]:
    x = _x(chart, chart.peak_point)
    y = _y(chart.peak_bytes, top)
    label = f"{kind} {format_bytes(chart.peak_bytes)}"
    where = shorten(chart.peak_label, 40)
    anchor = "start" if x < _LEFT + _WIDE / 2 else "end"
    text = f"<tspan font-weight='600'>{label}</tspan> {html.escape(where)}"
    return [
        f'<path d="M{x - 5:.1f},{y - 9:.1f}h10l-5,8z"/>',
        f'<path d="M{x:.1f},{y - 8:.1f}V{_TOP - 6}" stroke="currentColor"/>',
        _text(x + (5 if anchor == "start" else -5), _TOP - 8, text, anchor=anchor),
    ]


def _legend(chart: MemoryChart, limits: Limits) -> list[str]:
    found = [_text(_LEGEND, _TOP - 8, "at the peak", faint=True)]
    y = _TOP + 10
    for row in reversed(range(len(CATEGORIES))):
        value = chart.at_peak[row]
        used = np.any(chart.bytes.reshape(len(CATEGORIES), -1)[row])
        if value or used:
            sign = f'<rect x="{_LEGEND}" y="{y - 9}" width="10" height="10" fill="{COLOURS[row]}"/>'
            found += [sign, *_entry(y, category_names()[row], format_bytes(value))]
            y += 19
    for sign, name, value in _limit_entries(chart, limits):
        found += [
            f'<g transform="translate({_LEGEND},{y - 4})">{sign}</g>',
            *_entry(y, name, value),
        ]
        y += 19
    return found


def _limit_entries(chart: MemoryChart, limits: Limits) -> list[tuple[str, str, str]]:
    """Return symbol, name and value of each line and mark that is not an area."""
    found: list[tuple[str, str, str]] = []
    if chart.reserved_bytes >= 0:
        dash = _DASHED if limits.reserved is None else ""
        sign = f'<path d="M-1,0h12" stroke="currentColor" {dash}/>'
        low, high = limits.interval or (0, 0)
        span = format_span(low, high) if limits.interval else ""
        found.append((sign, "reserved", span or format_bytes(chart.reserved_bytes)))
    if limits.gpu_bytes >= 0:
        line = f'<path d="M-1,0h12" stroke="{BAD}" {_DASHED}/>'
        sign = line if limits.shows_gpu else '<text x="1" y="4">↑</text>'
        name = html.escape(shorten(limits.gpu, 18))
        found.append((sign, name, f"{format_bytes(limits.gpu_bytes)} usable"))
    if limits.refused:
        requested = format_bytes(limits.refused[-1].num_bytes)
        found.append((_cross(5, 0, 5), "refused", requested))
    return found


def _entry(y: float, name: str, value: str) -> list[str]:
    return [_text(_LEGEND + 16, y, name), _text(_WIDTH - 4, y, value, anchor="end")]


def _cross(x: float, y: float, radius: float) -> str:
    half = radius * 0.45
    path = f"M{x - half:.1f},{y - half:.1f}l{2 * half:.1f},{2 * half:.1f}m0,-{2 * half:.1f}"
    path += f"l-{2 * half:.1f},{2 * half:.1f}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{BAD}"/>'
        f'<path d="{path}" stroke="#fff" stroke-width="1.5"/>'
    )


def _text(x: float, y: float, content: str, *, anchor: str = "start", faint: bool = False) -> str:
    """Return a text element; ``content`` is markup, escaped by the caller."""
    opacity = ' fill-opacity=".68"' if faint else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{opacity}>{content}</text>'


def _y(value: float, top: float) -> float:
    return round(_TOP + _HIGH * (1 - value / top), 1)


def axis_top(value: float) -> float:
    """Return the end of an axis that shows ``value``: its quarters are round in their unit."""
    unit = 1024.0 ** int(np.log2(max(value, 1)) // 10)
    wanted = value * 1.02 / unit
    steps = (10**power * step for power in range(4) for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8))
    return next((step for step in steps if step >= wanted), 2048) * unit
