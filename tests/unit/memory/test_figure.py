"""The matplotlib figure shows the same numbers."""

from __future__ import annotations

from workbench.memory.describe import format_bytes
from workbench.memory.figure import to_figure


def test_the_figure_names_peak_categories_and_phases(step_record, tmp_path):
    figure = to_figure(step_record)
    (axes,) = figure.axes
    assert format_bytes(step_record.peak_bytes) in axes.get_title()
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert any(text.startswith("activations ") for text in legend)
    assert {"forward", "backward", "optimizer"} <= {text.get_text() for text in axes.texts}
    figure.savefig(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 5_000


def test_an_empty_figure_says_so(hand_record):
    (axes,) = to_figure(hand_record([])).axes
    assert axes.texts[0].get_text() == "Nothing was allocated or freed on cpu."


def test_dollar_signs_in_module_names_are_not_mathematics(hand_record, tmp_path):
    record = hand_record([(0, -1, 1, "", "a$b$_{")], [("forward", 0, 1)])
    to_figure(record).savefig(tmp_path / "memory.svg")
