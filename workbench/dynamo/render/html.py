"""The static form of a report for a cell: a bar of the phases, then region after region.

No script and no style sheet: sanitizers drop both. Colours are only beside words. Kernels lie in
``<details>``; of many the first are printed in full, so that a notebook stays small.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from workbench.records import CompiledKernel, CompileRecord, GraphBreak, Recompile

COLOURS = ("#2f6fb3", "#7c5cd6", "#b8651b", "#5b7f3a")
"""One per phase; each reads on white and on black."""
_MOST_CODE = 24_000
"""Characters of kernels' source in one output."""
_MOST_REGIONS = 40
_WIDTH = 640


def report_html(record: CompileRecord) -> str:
    """The report as HTML, under 40 kB of markup beside the kernels' source."""
    parts = [f"<div><strong>{escape(heading(record))}</strong><br>{escape(summary(record))}"]
    if record.regions:
        parts.append(f"<div>{phases_svg(record)}</div>")
    said = [caches(record), *switch_lines(record)]
    parts += [f"<div>{escape(line)}</div>" for line in said if line]
    budget = [_MOST_CODE]
    for row in range(min(len(record.regions), _MOST_REGIONS)):
        parts += _region(record, row, budget)
    if len(record.regions) > _MOST_REGIONS:
        parts.append(f"<p>{len(record.regions) - _MOST_REGIONS} more regions: print(report).</p>")
    parts += [f"<p>Note: {escape(note)}</p>" for note in more_notes(record)]
    return "\n".join([*parts, "</div>"])


def phases_svg(record: CompileRecord) -> str:
    """Time by phase as one bar with a legend."""
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


def _region(record: CompileRecord, row: int, budget: list[int]) -> Iterator[str]:
    region = record.regions[row]
    at = f" · {escape(label(record, region.source))}" if region.source >= 0 else ""
    yield f"<h4>{escape(region.label)}{at}</h4><p>{escape(region_summary(record, row))}</p>"
    breaks = [one for one in record.breaks if one.region == row]
    again = recompiles_of(record, row)
    if breaks or again:
        yield "<ul>"
        yield from (_break(record, one) for one in breaks)
        yield from (_recompile(record, one, count) for one, count in again)
        yield "</ul>"
    kernels = kernels_of(record, row)
    if kernels:
        yield f"<details><summary>{len(kernels)} kernels and library calls</summary>"
        yield from (_kernel(kernel, budget) for kernel in kernels)
        yield "</details>"


def _break(record: CompileRecord, one: GraphBreak) -> str:
    text = record.sources[one.source].text if one.source >= 0 else ""
    code = f"<br><code>{escape(text)}</code>" if text else ""
    why = f"<br>{escape(one.explanation)}" if one.explanation else ""
    do = "".join(f"<li>{escape(hint)}</li>" for hint in one.hints)
    kind = "Given up" if one.skipped else "Graph break"
    return (
        f"<li><strong>{kind}</strong>{_at(record, one.source)}: {escape(one.reason)}{code}{why}"
        f"{f'<ul>{do}</ul>' if do else ''}</li>"
    )


def _recompile(record: CompileRecord, one: Recompile, count: int) -> str:
    times = f" ({count} times)" if count > 1 else ""
    do = f"<br>{escape(one.remedy)}" if one.remedy else ""
    return (
        f"<li><strong>Recompiled</strong>{_at(record, one.source)}: {escape(one.words)}{times}"
        f"<br><code>{escape(one.guard)}</code>{do}</li>"
    )


def _at(record: CompileRecord, source: int) -> str:
    return f" at {escape(label(record, source))}" if source >= 0 else ""


def _kernel(kernel: CompiledKernel, budget: list[int]) -> str:
    line = escape(kernel_line(kernel))
    if not kernel.code:
        return f"<div>{line}</div>"
    if len(kernel.code) > budget[0]:
        return f"<div>{line} · its source: report.source({escape(repr(kernel.name))})</div>"
    budget[0] -= len(kernel.code)
    return f"<details><summary>{line}</summary><pre>{escape(kernel.code)}</pre></details>"
