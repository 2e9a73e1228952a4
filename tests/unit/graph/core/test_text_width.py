"""Texts shortened to the room of a picture, whatever font it is drawn in."""

from __future__ import annotations

import pytest

from workbench.graph.core.text_width import fitted, text_width

matplotlib = pytest.importorskip("matplotlib")


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize(
    "text",
    ["bert.embeddings.LayerNorm", "132 KiB", "4×32×96 · 12 ops", "scaled_dot_product", "Wmij"],
)
def test_a_text_is_no_wider_than_said(text, bold):
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    drawn = TextPath((0, 0), text, size=12, prop=font).get_extents().width
    said = text_width(text, 12, bold=bold)
    assert drawn <= said + 1
    assert said <= 1.2 * drawn + 3


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("classifier", 120, "classifier"),
        ("bert.embeddings.LayerNorm", 120, "…LayerNorm"),
        ("bert.pooler.dense", 120, "…pooler.dense"),
        ("layer.0…11 × 12", 80, "laye… × 12"),
        ("scaled_dot_product_attention", 100, "scale…ention"),
    ],
)
def test_of_a_path_its_end_stays_and_of_others_both_ends(text, room, expected):
    assert fitted(text, room, 12, bold=True) == expected
    assert text_width(expected, 12, bold=True) <= room
