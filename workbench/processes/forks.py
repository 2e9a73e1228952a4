"""Worker processes are forked while no experiment computes.

On Linux a `DataLoader` forks its workers. A fork has one thread, and every lock as it was at that
moment: one that another thread held, inside of torch as well, is never given back there, and the
worker that needs it waits for ever. So a fork of ours waits for the steps under way, and the next
ones wait for it; that costs a step's time at the beginning of an epoch, and nothing else.

What a cell of the user's own computes in the main thread is not waited for, as in plain PyTorch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import ContextDecorator, contextmanager

_LONGEST_S = 20.0
"""How long either waits for the other. A step may take longer (a compile) or stand still for good
(a debugger): then the fork is what it is in plain PyTorch."""


class Computing(ContextDecorator):
    """Entered by whatever thread computes a step, from its first operation to its last."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nobody computes and nobody forks: in a fork, where no other thread is."""
        self._changed = threading.Condition(threading.Lock())
        self._depths: dict[int, int] = {}
        self._forking: dict[int, int] = {}
        """By thread, how deep in steps of its own it is."""
        self._of_thread = threading.local()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._depths.get(me, 0)
            if self._forking and not depth:
                self._changed.wait_for(lambda: not self._forking, _LONGEST_S)
            self._depths[me] = depth + 1

    def __exit__(self, *_error: object) -> None:
        me = threading.get_ident()
        with self._changed:
            self._depths[me] -= 1
            if not self._depths[me]:
                del self._depths[me]
                if self._forking:
                    self._changed.notify_all()

    @contextmanager
    def forking(self) -> Generator[None]:
        """Where this thread may fork processes that go on in Python: each fork is at rest.

        A program that is started (``!ls``, a compiler) needs no lock of this process and waits for
        nothing.
        """
        self._of_thread.forks = True
        try:
            yield
        finally:
            self._of_thread.forks = False

    def before_fork(self) -> None:
        """Wait until no other thread computes.

        Two that fork at once, each within a step of its own, do not wait for each other.
        """
        if not getattr(self._of_thread, "forks", False):
            return
        me = threading.get_ident()
        with self._changed:
            self._forking[me] = self._depths.pop(me, 0)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._depths, _LONGEST_S)

    def after_fork(self) -> None:
        """In the process that forked: steps go on."""
        me = threading.get_ident()
        if me not in self._forking:
            return
        with self._changed:
            if depth := self._forking.pop(me):
                self._depths[me] = depth
            self._changed.notify_all()


computing = Computing()
"""Of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=computing.before_fork,
        after_in_parent=computing.after_fork,
        after_in_child=computing.forget,
    )
