"""Pictures for TensorBoard, drawn on a separate thread and rarely enough not to be noticed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.metrics.writer import EventWriter

DRAWING_SHARE = 0.05
"""Maximum share of the time that is spent drawing one kind of picture. A picture that comes too
soon is not drawn; the last one always is."""

Draw = Callable[[], tuple[bytes, tuple[int, int]]]
"""Returns PNG bytes and (width, height) in pixels; called on the drawing thread."""


class Pictures:
    """All pictures of one tag. What is passed to `offer` holds no tensor and no experiment."""

    def __init__(self, writer: EventWriter, tag: str) -> None:
        self._writer = writer
        self._tag = tag
        self._last: tuple[int, Draw] | None = None
        self._offered = -1
        self._not_before = 0.0

    def hold(self, seconds: float) -> None:
        """Draw nothing for ``seconds``, except the last picture."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def offer(self, step: int, draw: Draw) -> None:
        """Draw it, or keep it until its time has come or it is the last one."""
        if step == self._offered:
            return
        self._offered = step
        self._last = (step, draw)
        if time.monotonic() >= self._not_before:
            self.draw_last()

    def draw_last(self) -> None:
        """Queue the latest picture that was not drawn yet."""
        if self._last is None:
            return
        (step, draw), self._last = self._last, None
        self._not_before = math.inf  # until this one is done
        self._writer.picture(step, lambda: self._drawn(draw))

    def _drawn(self, draw: Draw) -> Any:
        from workbench.metrics.tensorboard_messages import image_summary

        start = time.monotonic()
        try:
            return image_summary(self._tag, *draw())
        finally:
            now = time.monotonic()
            self._not_before = now + (now - start) / DRAWING_SHARE
