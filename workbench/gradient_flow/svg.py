"""The static heat map: one inline SVG without scripts, which any notebook viewer shows.

Like the other static pictures it does not know the theme: neutral colours are ``currentColor`` at
reduced opacity, and the scale is one violet of increasing opacity, so that larger values stand out
on white and on black.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.gradient_flow.heat_map import NUM_LEVELS, HeatMap, heat_map_of
from workbench.trust import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.records import GradientFlow

VIOLET = "#7c5cd6"
_BAD = "#d0453b"
_ROW, _LEFT, _TOP, _WIDTH = 16, 176, 46, 640
_CELLS = (1600, 800, 400)
"""Numbers of cells in the whole picture to try, largest first."""
_MAX_BYTES = 38_000
_MAX_LABEL = 26
_MAX_ROWS = 40


def flow_svg(record: GradientFlow) -> str:
    """Render the heat map of ``record`` as SVG text, under 40 kB whatever its size."""
    found = ""
    for cells in _CELLS:
        found = _drawn(record, cells)
        if len(found) <= _MAX_BYTES:
            break
    return found


def _drawn(record: GradientFlow, num_cells: int) -> str:
    rows = record.rows[:_MAX_ROWS]
    heat_map = heat_map_of(record, max(8, num_cells // max(len(rows), 1)))
    height = _TOP + max(len(rows), 1) * _ROW + 40
    width = _LEFT + _WIDTH + 16
    title = _short(" ".join(record.title.split()), 70)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" fill="currentColor" font-family="system-ui, sans-serif" '
        'font-size="11" style="max-width:100%;height:auto">',
        f"<title>{escape(title)}</title>",
        f'<text x="16" y="20" font-size="13" font-weight="600">{escape(title)}</text>',
        f'<text x="16" y="36" opacity="0.68">{escape(_about(record, heat_map))}</text>',
    ]
    for at, row in enumerate(rows):
        label = escape(_short(row.label, _MAX_LABEL))
        parts.append(
            f'<text x="{_LEFT - 8}" y="{_TOP + at * _ROW + 12}" text-anchor="end">{label}</text>'
        )
    if heat_map.norm.size:
        parts += _cells(heat_map, len(rows))
        parts += _steps(heat_map, _TOP + len(rows) * _ROW + 12)
    return "".join([*parts, "</svg>"])


def _about(record: GradientFlow, heat_map: HeatMap) -> str:
    if not len(record.step):
        return "No step was sampled yet."
    low, high = heat_map.limits
    text = f"Gradient norm {low:.3g} (pale) to {high:.3g} (full), log scale.".replace("-", "−")
    if np.nansum(heat_map.missing) > 0:
        text += " Stripes: no gradient, did not run."
    if np.isposinf(heat_map.norm).any():
        text += " ✕: not finite."
    hidden = len(record.rows) - _MAX_ROWS
    return text + (f" {hidden} more modules are not drawn." if hidden > 0 else "")


def _cells(heat_map: HeatMap, num_rows: int) -> Iterator[str]:
    """One path per level of the scale, and one each for zeros, gaps and non-finite values."""
    wide = _WIDTH / heat_map.norm.shape[1]
    levels = heat_map.levels()
    for level in range(NUM_LEVELS):
        boxes = _boxes(levels[:num_rows] == level, wide)
        if boxes:
            opacity = 0.1 + 0.9 * level / (NUM_LEVELS - 1)
            yield f'<path fill="{VIOLET}" fill-opacity="{opacity:.2f}" d="{boxes}"/>'
    zeros = _boxes(heat_map.norm[:num_rows] == 0, wide)
    if zeros:
        yield f'<path fill="none" stroke="currentColor" stroke-opacity="0.4" d="{zeros}"/>'
    missing = np.nan_to_num(heat_map.missing[:num_rows])
    for wanted, tall in ((missing == 1, _ROW - 1), ((missing > 0) & (missing < 1), 6)):
        lines = _lines(wanted, wide, _ROW - 1 - tall / 2)
        if lines:
            yield (
                f'<path fill="none" stroke="currentColor" stroke-opacity="0.35" '
                f'stroke-width="{tall}" stroke-dasharray="1 2.5" d="{lines}"/>'
            )
    marks = "".join(
        f"M{_LEFT + (cell + 0.5) * wide - 4:.1f} {_TOP + row * _ROW + 4}l8 8m0-8l-8 8"
        for row, cell in zip(*np.nonzero(np.isposinf(heat_map.norm[:num_rows])), strict=True)
    )
    if marks:
        yield f'<path fill="none" stroke="{_BAD}" stroke-width="2" d="{marks}"/>'


def _runs(wanted: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """(row, first cell, cell after the last) of each run of wanted cells."""
    for row, flags in enumerate(wanted):
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
        yield from ((row, int(start), int(end)) for start, end in list(pairwise(edges))[::2])


def _boxes(wanted: npt.NDArray[np.bool_], wide: float) -> str:
    return "".join(
        f"M{_LEFT + start * wide:.1f} {_TOP + row * _ROW}h{(end - start) * wide:.1f}v{_ROW - 1}"
        f"h{-(end - start) * wide:.1f}z"
        for row, start, end in _runs(wanted)
    )


def _lines(wanted: npt.NDArray[np.bool_], wide: float, y: float) -> str:
    """Lines dashed into stripes: a pattern would need an id, and a page has many pictures."""
    return "".join(
        f"M{_LEFT + start * wide:.1f} {_TOP + row * _ROW + y:g}h{(end - start) * wide:.1f}"
        for row, start, end in _runs(wanted)
    )


def _steps(heat_map: HeatMap, y: int) -> list[str]:
    count = len(heat_map.first_step)
    wide = _WIDTH / count
    ticks = np.unique(np.linspace(0, count - 1, min(count, 8)).round().astype(int))
    return [
        f'<text x="{_LEFT + (at + 0.5) * wide:.1f}" y="{y}" text-anchor="middle" opacity="0.68">'
        f"{heat_map.first_step[at]:,}</text>"
        for at in ticks
    ]


def _short(text: str, most: int) -> str:
    line = printable(text[:1000])
    return line if len(line) <= most else f"{line[: most // 3]}…{line[-(most - most // 3 - 1) :]}"
