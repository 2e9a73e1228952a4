"""A child process with all that it starts: its process group, ended as one.

The number of a child is its own until somebody asks for its exit status; from then on it may be
another's. So the group is signalled before that alone, and what a child leaves behind in its group
when it ends is ended then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading

KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
"""What ends a process by force; Windows has no signal for it."""


class Group:
    """A process that leads a group of its own (``start_new_session=True``).

    Args:
        popen: whose status nobody else asks for.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        """The number of its leader, and of the group."""
        return self.popen.pid

    @property
    def status(self) -> int | None:
        """Its exit status once it has ended, and with it all it started; None while it runs."""
        with self._reaping:
            if self.popen.returncode is None and self._is_zombie():
                self._send(KILL)
            return self.popen.poll()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of them; nothing where it has ended."""
        with self._reaping:
            if self.popen.returncode is None:
                self._send(number)

    def kill(self) -> None:
        """End all of them by force."""
        self.signal(KILL)

    def _is_zombie(self) -> bool:
        """Whether it ended and nobody knows yet."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13, Windows
            return False
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, look) is not None

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, number)
            else:  # Windows: what it started ends with the pipes that it writes to
                self.popen.kill()
