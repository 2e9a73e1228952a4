"""A backward whose gradients carry a scale, which is reported to whatever inspects gradients then.

A gradient scaler multiplies the loss, so whatever is measured during that backward is too large by
this factor. Code that measures (a graph's watch) cannot see it: a factor of 65,536 may be a scale
or a weight of the loss. So it listens here, and is given the scale inside the very backward that
carries it, before any node below the product runs, on whatever thread the engine runs it. Without a
listener, a backward is what it was.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Listener(Protocol):
    """An object that measures gradients."""

    def scaled_by(self, scale: Callable[[], float]) -> None:
        """Called when the backward that runs now carries a scale; querying it may read the device.

        Called on the engine's thread. The answer holds until that backward has ended.
        """
        ...


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
_lock = threading.RLock()
"""Protects `_listeners`: a graph may be captured on one thread while a loop trains on another,
and a finalizer may run in between."""


def listen(listener: Listener) -> None:
    """Report scales to ``listener`` from now on; it is not kept alive."""
    with _lock:
        _listeners.add(listener)


def listen_no_more(listener: Listener) -> None:
    """Undo `listen`; idempotent."""
    with _lock:
        _listeners.discard(listener)


def backward(scaled: torch.Tensor, scale: Callable[[], float]) -> None:
    """Run backward from ``scaled``, which is a loss times ``scale()``."""
    if _listeners:
        with _lock:
            listeners = list(_listeners)

        def report(_: torch.Tensor) -> None:
            if torch.compiler.is_compiling():  # compiled autograd: nothing is measured there
                return
            for listener in listeners:
                listener.scaled_by(scale)

        scaled.register_hook(report)
    scaled.backward()
