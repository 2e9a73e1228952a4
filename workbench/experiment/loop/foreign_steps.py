"""Steps of an experiment's optimizer that the training did not take: a cell calls ``step()`` too.

A cell may do so on purpose, or run an earlier loop once more, and another experiment may train with
the same optimizer. The training then continues from the weights that this produced, and says so.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

_A_CELL = "a cell"
_training_threads: weakref.WeakValueDictionary[int, ForeignSteps] = weakref.WeakValueDictionary()
"""The counter of each thread that trains, by the id of the thread."""


class ForeignSteps:
    """Counts the steps of one optimizer that were taken on another thread than the training's.

    Args:
        optimizer: the optimizer that is watched, by a hook after its steps that costs less than 1
            us; the hook is removed with this object, or by `close`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._thread, self._name = 0, ""
        self._steps: Counter[str] = Counter()
        """Number of steps by the name of who took them."""
        register = getattr(optimizer, "register_step_post_hook", None)
        self.close = lambda: None
        if register is not None:  # an object that only resembles an optimizer has none
            this = weakref.ref(self)  # the optimizer may live longer

            def after_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
                counter = this()
                if counter is not None:
                    counter.stepped()

            self.close = weakref.finalize(self, register(after_step).remove)
            self.close.atexit = False

    def begin(self, next_step: int, name: str) -> str:
        """Let this thread train the experiment ``name``; return a note on steps since `end`."""
        who = self._taken()
        self._thread, self._name = get_ident(), name
        _training_threads[self._thread] = self
        if not who:
            return ""
        return (
            f"the optimizer was stepped {who} before step {next_step:,}, which continues with "
            "the resulting weights"
        )

    def end(self) -> None:
        """Record that no thread trains any more."""
        _training_threads.pop(self._thread, None)
        self._thread = 0

    @contextmanager
    def apart(self) -> Generator[None]:
        """Context whose steps are undone; then the thread that trained before trains, if any."""
        before, here = self._thread, get_ident()
        at_work = _training_threads.get(here)
        try:
            yield
        finally:
            self._thread = before
            _training_threads.pop(here, None)
            if at_work is not None:
                _training_threads[here] = at_work

    def note(self, next_step: int) -> str:
        """Return a note on steps of others while this thread trained, since the last note."""
        who = self._taken()
        if not who:
            return ""
        return (
            f"the optimizer was stepped {who} while it trained, before step {next_step:,}, with "
            "the gradients of that moment: pause first"
        )

    def stepped(self) -> None:
        """Record that the optimizer has taken a step."""
        here = get_ident()
        if here != self._thread:
            other = _training_threads.get(here)
            self._steps[_A_CELL if other is None else other._name] += 1

    def _taken(self) -> str:
        """How often and by whom since the last call: ``once by a cell``."""
        steps, self._steps = self._steps, Counter()
        return " and ".join(f"{_times(count)} by {who}" for who, count in steps.items())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
