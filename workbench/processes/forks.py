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

_LONGEST_S = 60.0
"""How long a fork waits. A step may stand still for good, in a debugger; a compile does not."""


class Computing(ContextDecorator):
    """Entered by whatever thread computes a step, from its first operation to its last."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nobody computes, and nobody waits to fork: in a fork, where no other thread is."""
        self._changed = threading.Condition(threading.Lock())
        self._depths: dict[int, int] = {}
        self._num_forking = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._depths.get(me, 0)
            while self._num_forking and not depth:
                self._changed.wait()
            self._depths[me] = depth + 1

    def __exit__(self, *_error: object) -> None:
        me = threading.get_ident()
        with self._changed:
            self._depths[me] -= 1
            if not self._depths[me]:
                del self._depths[me]
                if self._num_forking:
                    self._changed.notify_all()

    @contextmanager
    def at_rest(self) -> Generator[None]:
        """For what forks: no other thread computes in this block, unless it has not come to an end.

        Two that fork at once, each within a step of its own, do not wait for each other.
        """
        me = threading.get_ident()
        mine = 0
        try:
            with self._changed:
                mine = self._depths.pop(me, 0)
                self._num_forking += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._depths, _LONGEST_S)
            yield
        finally:
            with self._changed:
                self._num_forking -= 1
                if mine:
                    self._depths[me] = mine
                self._changed.notify_all()


computing = Computing()
"""Of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=computing.forget)
