"""The static form of a comparison for a cell: the verdict, a table, bars of the speed.

The best variant is marked by a word, not by colour.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.compare.text import COLUMNS, footing, models, remarks, row, variants_of, verdict
from workbench.html import markup, render

if TYPE_CHECKING:
    from workbench.records.compare import ComparedArm, CompareRecord

COLOUR = {"faster": "#2f7d4f", "slower": "#b3462f"}
NEUTRAL = "#6b7684"
_WIDTH, _LABEL, _LINE = 640, 190, 24


def comparison_html(record: CompareRecord) -> str:
    """Return the comparison as HTML."""
    return render(
        "compare/comparison.html",
        title=record.title,
        columns=COLUMNS,
        models=[_model(record, model) for model in models(record)],
        footing=footing(record),
    )


def _model(record: CompareRecord, model: str) -> dict[str, Any]:
    variants = variants_of(record, model)
    return {
        "verdict": _capital(verdict(record, model)),
        "speed": markup(speed_svg(variants)),
        "rows": [row(variant) for variant in variants],
        "remarks": remarks(variants),
    }


def speed_svg(variants: list[ComparedArm]) -> str:
    """Draw the speed against the baseline with its interval on a log scale, a line per variant."""
    ends = [end for variant in variants for end in (variant.speedup_low, variant.speedup_high)]
    ends = [end for end in ends if math.isfinite(end) and end > 0] or [1.0]
    low, high = min(0.8, *ends), max(1.25, *ends)
    height = _LINE * len(variants) + 26

    def x(ratio: float) -> float:
        span = math.log(high) - math.log(low)
        inside = min(max(ratio, low), high)
        return _LABEL + (_WIDTH - _LABEL - 16) * (math.log(inside) - math.log(low)) / span

    marks: list[str] = []
    for ratio in _ticks(low, high):
        dash = "" if ratio == 1 else ' stroke-dasharray="2 3"'
        marks.append(
            f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="4" y2="{height - 22}" '
            f'stroke="currentColor" stroke-opacity="0.35"{dash}/>'
            f'<text x="{x(ratio):.1f}" y="{height - 8}" text-anchor="middle">{ratio:g}×</text>'
        )
    for number, variant in enumerate(variants):
        y = 4 + _LINE * number + _LINE / 2
        marks.append(
            f'<text x="{_LABEL - 12}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(variant.modes)}</text>"
        )
        if math.isnan(variant.speedup_low):
            why = "not measured" if math.isnan(variant.step_s) else "too few rounds"
            marks.append(f'<text x="{_LABEL}" y="{y + 4:.1f}" fill-opacity="0.7">{why}</text>')
            continue
        colour = COLOUR.get(variant.verdict, NEUTRAL)
        marks.append(
            f'<line x1="{x(variant.speedup_low):.1f}" x2="{x(variant.speedup_high):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{x(variant.speedup):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" fill="currentColor" font-family="system-ui, sans-serif" '
        f'font-size="12"><title>Speed against {escape(variants[0].modes)}: right is faster</title>'
        f"{''.join(marks)}</svg>"
    )


def _ticks(low: float, high: float) -> list[float]:
    found = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    return [ratio for ratio in found if low <= ratio <= high]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
