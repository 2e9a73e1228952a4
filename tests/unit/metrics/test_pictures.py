"""How often a picture is drawn, and that a lost one is not waited for."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import DEADLINE_S, wait_until
from workbench.metrics.event_file import EventFile
from workbench.metrics.pictures import Draw, Pictures
from workbench.metrics.writer import EventWriter


class Canvas:
    """Drawings that name themselves when they are made."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def draw(self, name: str) -> Draw:
        def make() -> tuple[bytes, tuple[int, int]]:
            self.drawn.append(name)
            return b"png", (2, 2)

        return make


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[EventWriter]:
    made = EventWriter(tmp_path)
    yield made
    made.close()


def test_what_comes_too_soon_is_left_out_but_never_the_last(writer: EventWriter) -> None:
    canvas, pictures = Canvas(), Pictures(writer, "picture")
    pictures.offer(1, canvas.draw("first"))
    assert writer.flush()
    pictures.hold(3600)
    for step in (2, 3, 4):
        pictures.offer(step, canvas.draw(f"step {step}"))
    pictures.draw_last()
    pictures.draw_last()
    pictures.offer(4, canvas.draw("step 4 again"))
    pictures.draw_last()
    assert writer.flush()
    assert canvas.drawn == ["first", "step 4"]


def test_a_picture_that_is_drawn_keeps_no_point_from_the_disk(writer: EventWriter) -> None:
    """Whoever waits for points does not wait for a drawing, which may take seconds."""
    drawing, may_end = threading.Event(), threading.Event()

    def slow() -> tuple[bytes, tuple[int, int]]:
        drawing.set()
        assert may_end.wait(DEADLINE_S)
        return b"png", (2, 2)

    Pictures(writer, "picture").offer(1, slow)
    assert drawing.wait(DEADLINE_S)
    writer.write([("train/loss", np.arange(3), np.ones(3), np.ones(3))])
    assert writer.flush_points(DEADLINE_S)
    assert writer.flush(0.01) is False
    may_end.set()
    assert writer.flush(DEADLINE_S)


def test_a_picture_that_found_no_room_holds_up_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow disk is played by an `append` that waits."""
    monkeypatch.setattr("workbench.metrics.pictures.DRAWING_SHARE", math.inf)
    may_write, append = threading.Event(), EventFile.append

    def slow(self: EventFile, records: bytes) -> None:
        assert may_write.wait(DEADLINE_S)
        append(self, records)

    monkeypatch.setattr(EventFile, "append", slow)
    writer, canvas = EventWriter(tmp_path, capacity=1), Canvas()
    other, pictures = Pictures(writer, "other"), Pictures(writer, "picture")
    other.offer(1, canvas.draw("in the way"))
    wait_until(lambda: canvas.drawn, "the first drawing")
    pictures.offer(1, canvas.draw("lost"))
    wait_until(lambda: writer.dropped, "the loss of the second")
    may_write.set()
    assert writer.flush(DEADLINE_S)
    pictures.offer(2, canvas.draw("next"))
    assert writer.close()
    assert writer.dropped == 1
    assert canvas.drawn == ["in the way", "lost", "next"]
