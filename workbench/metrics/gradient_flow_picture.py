"""The gradient flow of a run as a picture for TensorBoard, drawn on the thread for pictures."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.records import GradientFlow


def draw_flow(record: GradientFlow) -> tuple[bytes, tuple[int, int]]:
    """Return PNG bytes and (width, height) in pixels of the heat map: modules by steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from workbench.gradient_flow.figure import flow_figure

    canvas = FigureCanvasAgg(flow_figure(record))
    buffer = BytesIO()
    canvas.print_png(buffer)
    width, height = canvas.get_width_height()
    return buffer.getvalue(), (width, height)
