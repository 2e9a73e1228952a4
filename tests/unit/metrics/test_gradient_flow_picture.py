"""The gradient flow as TensorBoard shows it."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from tests.unit.records.support import flow_of as flow
from tests.unit.records.support import gradient_flow as sample
from workbench.experiment import Experiment, RunError
from workbench.gradient_flow.figure import flow_figure
from workbench.metrics import attach, observer, pictures
from workbench.metrics.gradient_flow_picture import draw_flow
from workbench.records import GradientFlow

Read = Callable[[Path], EventAccumulator]
TAG = "train/gradient_flow"
VIOLET = np.array([0x43, 0x1C, 0x99]) / 255


def pixels(record: GradientFlow) -> np.ndarray:
    png, (width, height) = draw_flow(record)
    found = imread(BytesIO(png))
    assert found.shape == (height, width, 4)
    return found[..., :3]


def share(found: np.ndarray, colour: np.ndarray) -> float:
    return float((np.abs(found - colour).max(-1) < 0.02).mean())


def test_larger_norms_are_darker_and_gaps_are_hatched() -> None:
    ran = pixels(flow([[1e-4] * 40, [1.0] * 40, [1e-2] * 40]))
    assert 0.1 < share(ran, VIOLET) < 0.4
    gaps = pixels(flow([[1e-4] * 40, [math.nan] * 40, [1.0] * 40]))
    hatch = np.array([0xA6, 0xA6, 0xAE]) / 255
    assert share(gaps, hatch) > 20 * share(ran, hatch) + 0.005


def test_a_norm_that_is_not_finite_is_marked() -> None:
    red = np.array([0xB3, 0x26, 0x1E]) / 255
    fine = [[1.0] * 20, [2.0] * 20]
    assert share(pixels(flow(fine)), red) == 0
    fine[0][7] = math.inf
    assert share(pixels(flow(fine)), red) > 5e-5


@pytest.mark.parametrize("norm", [math.inf, 0.0])
def test_thousands_of_signs_are_one_artist(norm: float) -> None:
    axes = flow_figure(flow([[norm] * 79] * 24)).axes[0]
    assert sorted(len(line.get_xdata()) for line in axes.lines) == [0, 24 * 79]
    assert len(axes.texts) == 0


@pytest.mark.parametrize(
    "norms",
    [[[0.0]], [[math.nan] * 3], [[-1.0, 0.5]], [[1e-30, 1e30]] * 24, [[0.5] * 4096] * 24],
    ids=["zero", "none ran", "came late", "sixty decades", "full"],
)
def test_any_flow_can_be_drawn(norms: list[list[float]]) -> None:
    found = pixels(flow(norms))
    assert found.shape[1] <= 1000
    assert np.all(found[0, 0] == 1.0)


def test_no_column_and_hostile_names_can_be_drawn_on_any_thread() -> None:
    empty = dataclasses.replace(sample(), rows=(), step=np.empty(0), norm=np.empty(0))
    hostile = flow([[1.0, 2.0]] * 2, ["$\\frac{1}{", "a\n\x07" + "x" * 10_000])
    drawn: list[bytes] = []
    work = [draw_flow, draw_flow]
    thread = threading.Thread(
        target=lambda: drawn.extend(f(r)[0] for f, r in zip(work, [empty, hostile], strict=True))
    )
    thread.start()
    thread.join(120)
    assert [png[:4] for png in drawn] == [b"\x89PNG"] * 2


def make(tmp_path: Path, **options: Any) -> Experiment:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 8, generator=generator)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    data = (x, x[:, :3].argmax(1))
    return Experiment(model, data, batch_size=32, runs=tmp_path, device="cpu", **options)


def test_a_run_has_a_picture_an_epoch_and_one_at_its_end(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "DRAWING_SHARE", math.inf)
    monkeypatch.setattr(observer, "_SETTLED_S", 0)
    experiment = make(tmp_path)
    detach = attach(experiment)
    experiment.run(epochs=2, wait=True)
    experiment.run(steps=3, wait=True)
    detach()
    experiment.close()
    images = read(experiment.path).Images(TAG)
    steps = [image.step for image in images]
    assert steps == [8, 16, 19]
    assert images[-1].encoded_image_string.startswith(b"\x89PNG")


def test_a_run_that_fails_has_a_picture_of_the_step_that_failed(tmp_path: Path, read: Read) -> None:
    class Root(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = super().forward(x)
            return h if self.calls.pop() else (h * 0).sqrt()

    experiment = make(tmp_path)
    model = Root(8, 3)
    model.calls = [False, True, True]
    experiment.model = model
    detach = attach(experiment)
    experiment.run(steps=5)
    with pytest.raises(RunError, match="Gradients became NaN at step 3"):
        experiment.wait()
    assert experiment.status == "nan"
    detach()
    experiment.close()
    assert read(experiment.path).Images(TAG)[-1].step == 3


def test_a_short_run_is_not_slowed_by_a_picture_before_it_is_over(
    tmp_path: Path, read: Read
) -> None:
    experiment = make(tmp_path)
    detach = attach(experiment)
    experiment.run(epochs=3, wait=True)
    detach()
    experiment.close()
    assert [image.step for image in read(experiment.path).Images(TAG)] == [24]
