from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from workbench.metrics import writer
from workbench.panel.assembly import Experiment
from workbench.panel.summary import static_html, text_summary


def test_the_text_says_what_it_is_and_what_it_reached(experiment: Experiment) -> None:
    experiment.run(epochs=2, wait=True)
    text = text_summary(experiment)
    assert text.startswith("Experiment unit: finished\n  step 16 of 16")
    assert "val/accuracy: " in text
    assert "modes: fp32" in text


def test_before_the_first_step_there_is_text_and_no_empty_chart(experiment: Experiment) -> None:
    html = static_html(experiment)
    assert "<svg" not in html
    assert "Experiment unit: idle" in html


def test_the_picture_is_well_formed_small_and_plots_every_validation(
    experiment: Experiment,
) -> None:
    experiment.run(epochs=3, wait=True)
    html = static_html(experiment)
    svg = ET.fromstring(html[: html.index("<pre>")])
    assert len(html) < 40_000
    assert sum(1 for e in svg.iter() if e.tag.endswith("circle")) == 3


def test_a_hostile_name_stays_text(experiment: Experiment, tmp_path: Path) -> None:
    hostile = Experiment(
        experiment.model,
        (torch.randn(64, 8), torch.randint(0, 3, (64,))),
        name="<script>alert(1)</script>\n" + "x" * 10_000,
        runs=tmp_path,
    )
    hostile.run(steps=2, wait=True)
    html = static_html(hostile)
    assert "<script" not in html
    assert len(html) < 60_000


@pytest.mark.parametrize("scale", [-3.0, 0.0, 1e-13, 2e5])
def test_a_loss_of_any_size_or_sign_is_drawn_inside_its_axis(
    experiment: Experiment, tmp_path: Path, scale: float
) -> None:
    own = Experiment(
        experiment.model,
        (torch.randn(64, 8), torch.randint(0, 3, (64,))),
        loss=lambda logits, _labels: logits.sigmoid().mean() * scale,
        runs=tmp_path,
    )
    own.run(epochs=5, wait=True)
    html = static_html(own)
    svg = ET.fromstring(html[: html.index("<pre>")])
    line = next(e for e in svg.iter() if e.tag.endswith("polyline"))
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert len(heights) == 5
    assert 30 <= min(heights) <= max(heights) <= 190 - 26
    if scale:
        ticks = [e.text for e in svg.iter() if e.attrib.get("text-anchor") == "end"][:-1]
        assert len(set(ticks)) == len(ticks) >= 2


def test_what_could_not_be_written_is_in_the_printed_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_GIVE_UP_S", 0.0)  # its thread is waited for
    (tmp_path / "file").write_text("in the way")
    data = (torch.randn(64, 8), torch.randint(0, 3, (64,)))
    exp = Experiment(torch.nn.Linear(8, 3), data, name="a\nb", runs=tmp_path / "file" / "runs")
    exp.run(steps=2, wait=True)
    for text in (text_summary(exp), str(exp)):
        assert "  note: " in text
        assert text.startswith("Experiment a b: finished")
