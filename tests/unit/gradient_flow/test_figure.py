"""The picture of a gradient flow is drawn on the writer's thread, beside those of other runs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.mathtext import MathTextParser

from tests.unit.records.support import gradient_flow
from workbench.gradient_flow.figure import flow_figure
from workbench.metrics.confusion_picture import draw_confusion


def test_no_picture_needs_the_parser_that_all_threads_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads in it at once: ``Expected end of text, found '$'``."""
    parsed: list[Any] = []
    parse = MathTextParser.parse

    def seen(parser: MathTextParser[Any], text: str, *args: Any, **options: Any) -> Any:
        parsed.append(text)
        return parse(parser, text, *args, **options)

    monkeypatch.setattr(MathTextParser, "parse", seen)
    record = gradient_flow()
    norms = [[0.0, math.inf, math.nan, 1e-12, 1.0] for _ in record.rows]
    record = dataclasses.replace(record, step=np.arange(1, 6), norm=np.ravel(norms))
    FigureCanvasAgg(flow_figure(record)).draw()
    draw_confusion(np.eye(3, dtype=np.int64), "epoch 1: 100.0 % of 3 right")
    assert parsed == []


def test_a_zero_is_drawn_as_a_0_in_the_middle_of_its_cell() -> None:
    record = gradient_flow()
    norms = np.zeros((len(record.rows), 1))
    figure = flow_figure(dataclasses.replace(record, step=np.arange(1, 2), norm=np.ravel(norms)))
    marker: Any = figure.axes[0].lines[-1].get_marker()
    box = marker.get_extents()
    assert np.allclose(np.add(box.min, box.max), 0, atol=1e-9)
    assert box.height > box.width
    assert len(marker.vertices) > 20, "a ring of curves, not a dot"
