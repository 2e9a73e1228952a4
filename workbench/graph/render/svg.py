"""The static picture: one inline SVG without scripts, which any notebook viewer shows.

Neutral colours are ``currentColor`` at reduced opacity, because the page decides what is light and
what is dark: Jupyter's theme is not the operating system's, which is all that a media query could
detect. All styling is in attributes, not in ``<style>``: sanitizers drop it, and it would apply to
the whole page.
"""

from __future__ import annotations

import math
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from workbench.graph.capture.branch_columns import branch_lines
from workbench.graph.core.number_format import (
    compiled_line,
    diff_summary,
    heading,
    held_anyway,
    short,
    summary,
)
from workbench.graph.core.text_width import text_width
from workbench.graph.questions.compute_dtype import types_line
from workbench.graph.render.diff_style import (
    COLOURS,
    REMOVED,
    SAME,
    SIGNS,
    Mark,
    box_texts,
    link_state,
    mark_of,
)
from workbench.graph.render.layout import BOX_HEIGHT, BOX_WIDTH, Layout, Link, layout
from workbench.records import GraphDiff

if TYPE_CHECKING:
    from workbench.graph.render.module_boxes import Box
    from workbench.records import GraphRecord

BAR = "#7c5cd6"
"""Legible on white and on black (contrast 4.9 : 1 and 4.3 : 1)."""
_LINE = 18
"""Distance from one line of the heading to the next, px."""
_PX_PER_LETTER = 6.4


def graph_svg(record: GraphRecord) -> str:
    """Render ``record`` as SVG text, under 40 kB whatever its size.

    For a `GraphDiff` it is the union: removed parts dashed and "−", added ones solid and "+".
    """
    placed = layout(record)
    width = max(placed.width, 420)
    lines = heading_lines(record, int((width - 32) / _PX_PER_LETTER))
    width = max([width, *(32 + text_width(line, 12) for line in lines)])
    head = 12 + _LINE * (len(lines) + 1)
    height = placed.height + head
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" fill="currentColor" '
        'font-family="system-ui, sans-serif" font-size="12" style="max-width:100%;height:auto">',
        f"<title>Autograd graph of {_text(heading(record), 100)}</title>",
        f"<desc>{_text(' '.join(lines), 600)} {_text(held_anyway(record), 300)}</desc>",
        f'<text x="16" y="20" font-size="13" font-weight="600">{_text(heading(record), 60)}</text>',
        *(
            f'<text x="16" y="{20 + _LINE * number}" opacity="0.68">{escape(line)}</text>'
            for number, line in enumerate(lines, 1)
        ),
        f'<g transform="translate(0 {head})">',
        *(_link(placed, link, link_state(record, link)) for link in placed.links),
        *(_box(box, placed.max_bytes, mark_of(record, box)) for box in placed.boxes),
        "</g></svg>",
    ]
    return "".join(parts)


def heading_lines(record: GraphRecord, letters: int) -> list[str]:
    """Text below the title, in lines of about ``letters`` letters."""
    if not isinstance(record, GraphDiff):
        inside = compiled_line(record)
        texts = (inside, types_line(record))
        return [short(f"{summary(record)}.", 76), *(line for line in texts if line)]
    return [*wrap(short(record.sentence, 600), letters), diff_summary(record)]


def graph_html(record: GraphRecord) -> str:
    """The picture and the notes, as HTML that needs no style sheet."""
    anyway = "" if isinstance(record, GraphDiff) else held_anyway(record)
    texts = [note for note in (anyway, *branch_lines(record), *record.notes) if note]
    notes = "".join(
        f'<p style="margin:2px 16px;font-size:12px;opacity:0.75">{_text(note, 400)}</p>'
        for note in texts
    )
    return f'<div style="overflow-x:auto">{graph_svg(record)}</div>{notes}'


def _box(box: Box, largest: int, mark: Mark) -> str:
    label, detail = box_texts(box, mark)
    bar = (BOX_WIDTH - 16) * box.saved_bytes / largest
    colour = COLOURS.get(mark.state, "currentColor")
    outline = {
        SAME: ' stroke-opacity="0.45"',
        REMOVED: ' stroke-width="1.5" stroke-dasharray="5 3"',
    }.get(mark.state, ' stroke-width="2"')
    fill = "0.05" if mark.state == SAME else "0.12"
    parts = [
        f'<g transform="translate({box.x:g} {box.y:g})">'
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{colour}" '
        f'fill-opacity="{fill}" stroke="{colour}"{outline}/>'
        f'<text x="8" y="14" font-weight="600">{escape(label)}</text>'
        f'<text x="{BOX_WIDTH - 8}" y="14" font-size="11" text-anchor="end">{mark.size}</text>'
        f'<text x="8" y="28" font-size="11" opacity="0.68">{escape(detail)}</text>'
    ]
    if mark.counts:
        place = f'x="{BOX_WIDTH - 8}" y="28" font-size="11" text-anchor="end"'
        parts.append(f"<text {place}>{mark.counts}</text>")
    if bar:
        parts.append(f'<rect x="8" y="32" width="{bar:.1f}" height="3" fill="{BAR}"/>')
    if mark.state in SIGNS:
        parts.append(
            f'<circle r="8" fill="{colour}"/><text y="4" font-weight="700" fill="#fff" '
            f'text-anchor="middle">{SIGNS[mark.state]}</text>'
        )
    return "".join([*parts, "</g>"])


def _link(placed: Layout, link: Link, state: int) -> str:
    points = placed.route(link)
    (x, y), *rest = points
    end_x, end_y = points[-1]
    line = f"M{x:g} {y:g}" + "".join(f"L{px:g} {py:g}" for px, py in rest[:-1])
    line += f"L{end_x:g} {end_y - 5:g}"
    width = 1 + 4 * math.sqrt(link.num_bytes / placed.max_flow)
    arrow = f"M{end_x - 4:g} {end_y - 6:g}h8l-4 6z"
    colour = COLOURS.get(state, "currentColor")
    if state == REMOVED:  # a faint trace of a value that no longer flows
        strokes = [(max(width, 4), "0.17", ""), (1.5, "1", ' stroke-dasharray="5 3"')]
    else:
        strokes = [(width, "0.4" if state == SAME else "1", "")]
    drawn = "".join(
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-opacity="{opacity}" '
        f'stroke-width="{size:.1f}" stroke-linejoin="round"{dashes}/>'
        for size, opacity, dashes in strokes
    )
    return f'{drawn}<path d="{arrow}" fill="{colour}" opacity="{0.6 if state == SAME else 1}"/>'


def _text(text: str, width: int) -> str:
    return escape(short(text, width))
