"""A child process with everything it starts: its process group, ended as a whole.

A child's process id is its own until its exit status is queried; from then on it may be reused. So
the group is signalled only before that, and any processes that a child leaves in its group when it
ends are ended then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading

KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Signal that ends a process by force; Windows has none."""


class Group:
    """A process that leads a process group of its own (``start_new_session=True``).

    Args:
        popen: the process, whose status must not be queried elsewhere.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id of its leader, and id of the group."""
        return self.popen.pid

    @property
    def status(self) -> int | None:
        """Its exit status once it and everything it started has ended; None while it runs."""
        with self._reaping:
            if self.popen.returncode is None and self._is_zombie():
                self._send(KILL)
            return self.popen.poll()

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self.status is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group; does nothing once it has ended."""
        with self._reaping:
            if self.popen.returncode is None:
                self._send(number)

    def kill(self) -> None:
        """End all processes of the group by force."""
        self.signal(KILL)

    def _is_zombie(self) -> bool:
        """Whether it has ended and its status has not been queried yet."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13, Windows
            return False
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, look) is not None

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, number)
            else:  # Windows: its children end with the pipes that they write to
                self.popen.kill()
