from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from workbench.trust import csv_cell, harmless, harmless_json, printable

HOSTILE = (
    "\x1b[2J\x1b]52;c;cm0gLXJm\x07", "\x9b31m", "\u202eevil", "\u2066x\u2069", "a\x00b", "\ud800",
    "\x7f", "line\nline", "tab\tbed", "\r", "\ufeffbom", "\u2028",
)  # fmt: skip

PEOPLES = (
    "résumé", "a\u00a0b", "नमस्ते", "نوشته\u200cها", "👩\u200d💻", "数据", "a b", "",
    "модель", "naïve",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text), "one character for each"
    kept = harmless(f"a\n{text}\tb\n")
    assert kept.count("\n") == 2 + text.count("\n")
    assert all(part.isprintable() for line in kept.split("\n") for part in line.split("\t"))
    ET.fromstring(f"<a>{escape(kept)}</a>".encode())
    assert harmless_json({text: [text, 1, None, {"a": text}]}) == {
        harmless(text): [harmless(text), 1, None, {"a": harmless(text)}]
    }


@pytest.mark.parametrize("text", PEOPLES)
def test_what_people_write_stays(text: str) -> None:
    assert printable(text) == harmless(text) == csv_cell(text) == text


CELLS: list[tuple[str, str]] = json.loads(
    (Path(__file__).parents[3] / "extensions/views/test/fixtures/csv-cells.json").read_text("utf-8")
)
"""Texts, and the cells of a table that they become; the browser's tests hold its twin to them."""


@pytest.mark.parametrize(("text", "cell"), CELLS)
def test_a_cell_of_a_table_is_no_formula_and_a_number_stays_one(text: str, cell: str) -> None:
    assert csv_cell(text) == cell
