from __future__ import annotations

import threading
from io import BytesIO

import numpy as np
import pytest
from matplotlib.image import imread

from workbench.metrics.confusion_picture import accuracy_title, draw_confusion


@pytest.mark.parametrize("classes", [2, 10, 30, 200])
def test_the_picture_is_light_and_its_diagonal_dark(classes: int) -> None:
    png, (width, height) = draw_confusion(np.eye(classes, dtype=np.int64) * 9, "epoch 1")
    pixels = imread(BytesIO(png))
    assert pixels.shape == (height, width, 4)
    assert width <= 1000
    assert np.all(pixels[0, 0] == 1.0)
    dark = (pixels[..., :3].sum(-1) < 1.0).mean()
    assert 0.3 / classes < dark < 1.5 / classes + 0.05


def test_it_can_be_drawn_on_any_thread_without_pyplot() -> None:
    drawn: list[bytes] = []
    counts = np.array([[3, 1], [0, 4]])
    thread = threading.Thread(target=lambda: drawn.append(draw_confusion(counts, "x")[0]))
    thread.start()
    thread.join(120)
    assert drawn[0].startswith(b"\x89PNG")


def test_the_title_says_how_many_were_right() -> None:
    assert accuracy_title(np.array([[8, 2], [1, 9]]), 3) == "epoch 3: 85.0 % of 20 right"
    assert accuracy_title(np.zeros((2, 2), dtype=np.int64), 1) == "epoch 1: no samples"
