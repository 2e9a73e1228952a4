"""The matplotlib figure shows the same numbers."""

from __future__ import annotations

from dataclasses import replace

from workbench.memory.reading.text import format_bytes
from workbench.memory.render.figure import to_figure


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


def test_a_prediction_its_gpu_and_what_it_refused_are_in_the_figure(refused_record, tmp_path):
    record = replace(refused_record, peak_interval=(100 << 20, 120 << 20), card="$5 card")
    figure = to_figure(record)
    (axes,) = figure.axes
    assert axes.get_title().startswith("predicted peak ")
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert r"\$5 card 40.0 MiB usable" in legend
    assert any(text.startswith("refused ") for text in legend)
    assert any(text.startswith("reserved ") for text in legend)
    figure.savefig(tmp_path / "memory.pdf")
