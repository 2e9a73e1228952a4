"""Static form of a report for a cell: a bar of the phases, then one region after another.

Colours only accompany words. Kernels are in ``<details>``; of many, the first are printed in full,
so that a notebook stays small.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from workbench.dynamo.render.text import (
    caches,
    heading,
    kernel_line,
    kernels_of,
    label,
    more_notes,
    phase_names,
    recompiles_of,
    region_summary,
    seconds,
    summary,
    switch_lines,
)
from workbench.html import markup, render

if TYPE_CHECKING:
    from workbench.records import CompiledKernel, CompileRecord, GraphBreak, Recompile

COLOURS = ("#2f6fb3", "#7c5cd6", "#b8651b", "#5b7f3a")
"""One per phase; each is readable on white and on black."""
_MOST_CODE = 24_000
"""Maximum number of characters of kernels' source in one output."""
_MOST_REGIONS = 40
_WIDTH = 640


def report_html(record: CompileRecord) -> str:
    """Return the report as HTML, under 40 kB of markup plus the kernels' source."""
    budget = _Budget()
    said = [caches(record), *switch_lines(record)]
    rows = range(min(len(record.regions), _MOST_REGIONS))
    return render(
        "dynamo/render/report.html",
        heading=heading(record),
        summary=summary(record),
        phases=markup(phases_svg(record)) if record.regions else "",
        lines=[line for line in said if line],
        regions=[_region(record, row, budget) for row in rows],
        num_more=len(record.regions) - len(rows),
        notes=more_notes(record),
    )


def phases_svg(record: CompileRecord) -> str:
    """Return the time by phase as one bar with a legend."""
    times, names = record.seconds, phase_names(record)
    total = sum(times)
    x, cells = 0.0, list[str]()
    for number, (name, time) in enumerate(zip(names, times, strict=True)):
        width = _WIDTH * time / total if total else 0.0
        left = 8 + number * _WIDTH / len(names)
        cells += [
            f'<rect x="{x:.1f}" y="4" width="{width:.1f}" height="14" fill="{COLOURS[number]}"/>',
            f'<rect x="{left - 8:.0f}" y="26" width="10" height="10" fill="{COLOURS[number]}"/>',
            f'<text x="{left + 6:.0f}" y="35">{escape(name)} {seconds(time)}</text>',
        ]
        x += width
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 42" width="{_WIDTH}" '
        'height="42" role="img" fill="currentColor" font-family="system-ui, sans-serif" '
        f'font-size="12"><title>Time of compiling by phase, {seconds(total)} in all</title>'
        f"{''.join(cells)}</svg>"
    )


class _Budget:
    """How much more source is printed in full."""

    def __init__(self) -> None:
        self._left = _MOST_CODE

    def takes(self, code: str) -> bool:
        """Return whether ``code`` fits; if so, it is counted."""
        if len(code) > self._left:
            return False
        self._left -= len(code)
        return True


def _region(record: CompileRecord, row: int, budget: _Budget) -> dict[str, Any]:
    region = record.regions[row]
    return {
        "label": region.label,
        "place": _place(record, region.source),
        "summary": region_summary(record, row),
        "breaks": [_break(record, one) for one in record.breaks if one.region == row],
        "recompiles": [_recompile(record, *one) for one in recompiles_of(record, row)],
        "kernels": [_kernel(kernel, budget) for kernel in kernels_of(record, row)],
    }


def _break(record: CompileRecord, one: GraphBreak) -> dict[str, Any]:
    return {
        "skipped": one.skipped,
        "place": _place(record, one.source),
        "reason": one.reason,
        "code": record.sources[one.source].text if one.source >= 0 else "",
        "explanation": one.explanation,
        "hints": one.hints,
    }


def _recompile(record: CompileRecord, one: Recompile, count: int) -> dict[str, Any]:
    return {
        "place": _place(record, one.source),
        "words": one.words,
        "count": count,
        "guard": one.guard,
        "remedy": one.remedy,
    }


def _place(record: CompileRecord, source: int) -> str:
    return label(record, source) if source >= 0 else ""


def _kernel(kernel: CompiledKernel, budget: _Budget) -> dict[str, str]:
    line = kernel_line(kernel)
    if kernel.code and not budget.takes(kernel.code):
        return {"line": f"{line} · its source: report.source({kernel.name!r})", "code": ""}
    return {"line": line, "code": kernel.code}
