from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import torch

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
