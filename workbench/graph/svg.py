"""The static picture: one inline SVG that any notebook reader shows, with no script.

Neutral colours are ``currentColor`` at some opacity, because the page decides what is light and
what is dark: Jupyter's theme is not the operating system's, which is all that a media query could
ask about. Everything is an attribute, no ``<style>``: sanitizers drop it, and it would apply to the
whole page.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from workbench.graph.layout import CARD_HEIGHT, CARD_WIDTH, Card, Layout, Link, layout
from workbench.graph.wording import byte_size, heading, held_anyway, short, summary

if TYPE_CHECKING:
    from workbench.records import GraphRecord

BAR = "#7c5cd6"
"""Reads on white and on black (4.9 : 1 and 4.3 : 1)."""
_HEAD = 48


def graph_svg(record: GraphRecord) -> str:
    """The picture of ``record`` as SVG text, under 40 kB whatever its size."""
    placed = layout(record)
    width = max(placed.width, 420)
    height = placed.height + _HEAD
    words = f"{summary(record)}."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" fill="currentColor" '
        'font-family="system-ui, sans-serif" font-size="12" style="max-width:100%;height:auto">',
        f"<title>Autograd graph of {_text(heading(record), 100)}</title>",
        f"<desc>{_text(words, 300)} {_text(held_anyway(record), 300)}</desc>",
        f'<text x="16" y="20" font-size="13" font-weight="600">{_text(heading(record), 60)}</text>',
        f'<text x="16" y="38" opacity="0.68">{_text(words, 76)}</text>',
        f'<g transform="translate(0 {_HEAD})">',
        *(_link(placed, link) for link in placed.links),
        *(_card(card, placed.max_bytes) for card in placed.cards),
        "</g></svg>",
    ]
    return "".join(parts)


def graph_html(record: GraphRecord) -> str:
    """The picture and the notes, as HTML that needs no style sheet."""
    said = [note for note in (held_anyway(record), *record.notes) if note]
    notes = "".join(
        f'<p style="margin:2px 16px;font-size:12px;opacity:0.75">{_text(note, 400)}</p>'
        for note in said
    )
    return f'<div style="overflow-x:auto">{graph_svg(record)}</div>{notes}'


def _card(card: Card, largest: int) -> str:
    label = f"{card.label} ↻" if card.repeats else card.label
    bar = (CARD_WIDTH - 16) * card.saved_bytes / largest
    size = byte_size(card.saved_bytes) if card.saved_bytes else ""
    parts = [
        f'<g transform="translate({card.x:g} {card.y:g})">'
        f'<rect width="{CARD_WIDTH}" height="{CARD_HEIGHT}" rx="6" fill="currentColor" '
        'fill-opacity="0.05" stroke="currentColor" stroke-opacity="0.45"/>'
        f'<text x="8" y="14" font-weight="600">{escape(label)}</text>'
        f'<text x="{CARD_WIDTH - 8}" y="14" font-size="11" text-anchor="end">{size}</text>'
        f'<text x="8" y="28" font-size="11" opacity="0.68">{escape(short(card.detail, 34))}</text>'
    ]
    if bar:
        parts.append(f'<rect x="8" y="32" width="{bar:.1f}" height="3" fill="{BAR}"/>')
    return "".join([*parts, "</g>"])


def _link(placed: Layout, link: Link) -> str:
    points = placed.route(link)
    (x, y), *rest = points
    end_x, end_y = points[-1]
    line = f"M{x:g} {y:g}" + "".join(f"L{px:g} {py:g}" for px, py in rest[:-1])
    line += f"L{end_x:g} {end_y - 5:g}"
    width = 1 + 4 * math.sqrt(link.num_bytes / placed.max_flow)
    arrow = f"M{end_x - 4:g} {end_y - 6:g}h8l-4 6z"
    return (
        f'<path d="{line}" fill="none" stroke="currentColor" stroke-opacity="0.4" '
        f'stroke-width="{width:.1f}" stroke-linejoin="round"/><path d="{arrow}" opacity="0.6"/>'
    )


def _text(text: str, width: int) -> str:
    return escape(short(text, width))
