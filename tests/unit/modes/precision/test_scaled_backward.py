"""A scaled backward reports its scale to its listeners."""

from __future__ import annotations

import sys
import threading
import time

import torch

from workbench.modes.precision import scaled_backward


class Heard:
    def __init__(self) -> None:
        self.scales: list[float] = []

    def scaled_by(self, scale) -> None:
        self.scales.append(scale())


def test_it_reports_to_listeners_until_they_end() -> None:
    leaf, heard = torch.ones(1, requires_grad=True), Heard()
    scaled_backward.listen(heard)
    scaled_backward.backward((leaf * 2).sum(), lambda: 8.0)
    scaled_backward.listen_no_more(heard)
    scaled_backward.listen_no_more(heard)
    scaled_backward.backward((leaf * 2).sum(), lambda: 4.0)
    assert heard.scales == [8.0]


def test_others_may_begin_to_listen_meanwhile() -> None:
    """A capture on another thread does not end a loop's backward."""
    interval = sys.getswitchinterval()
    leaf, stop = torch.ones(1, requires_grad=True), threading.Event()

    def listen_in_turn() -> None:
        kept: list[Heard] = []
        while not stop.is_set():
            kept.append(Heard())
            scaled_backward.listen(kept[-1])
            if len(kept) > 50:
                kept.clear()

    thread = threading.Thread(target=listen_in_turn)
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            scaled_backward.backward((leaf * 2).sum(), lambda: 1.0)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
