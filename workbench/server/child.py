"""A child process that answers requests: start it, query it, end it with all it started.

A request is a line of JSON on its stdin; an answer is a line of JSON, ``{"kind", "bytes"}``,
followed by that many bytes (`workbench.memory.files.file_process`,
`workbench.server.listing_program`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.processes import start_group

_LONGEST_HEADER = 1 << 16
_LARGEST_ANSWER = 2 << 30
_END_S = 5.0


class ChildEndedError(Exception):
    """The process ended, or sent an answer that cannot be parsed."""


@dataclass(frozen=True)
class Answer:
    """An answer of the process."""

    kind: str
    """``record``, ``overview``, ``answer``, ``outgrown`` or ``error`` for a file; ``runs`` for a
    folder."""
    data: bytes
    reason: str = ""
    message: str = ""


class Child:
    """The process of one file or of one folder.

    It leads a process group of its own, so that ending the group also ends a reader that it may
    have started. It ends by itself when this side of its stdin is closed, however this process
    ends.

    Args:
        path: the file or folder; the only argument of the program.
        module: module that is run as its program.
    """

    def __init__(self, path: Path, module: str = "workbench.memory.files.file_process") -> None:
        self.path = path
        self.turn = asyncio.Lock()
        """Held while a request is answered."""
        self.num_waiting = 0
        """Number of requests that are being answered or wait for their turn."""
        self.last_request = time.monotonic()
        self.was_ended = False
        """Whether it was ended by `end`, and not by itself."""
        self._group = start_group(
            [sys.executable, "-P", "-m", module, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # no thread pool for matrix products: nothing here multiplies matrices
            environment={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._group.pid

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self._group.alive

    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one is being answered."""
        return 0.0 if self.num_waiting else time.monotonic() - self.last_request

    async def exchange(self, request: Mapping[str, Any]) -> Answer:
        """Send a request and wait for the answer; if cancelled, the process must be ended.

        Raises:
            ChildEndedError: there was no answer.
        """
        return await asyncio.to_thread(self._exchange, json.dumps(request).encode() + b"\n")

    async def end(self) -> None:
        """End it and everything it started; returns when it is gone."""
        self.was_ended = True
        self._group.kill()
        deadline = time.monotonic() + _END_S
        while self.alive and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._group.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._group.popen.stdin.close()

    def _exchange(self, line: bytes) -> Answer:
        """Exchange on a thread: not every system's event loop can wait for the pipes of a child."""
        stdin, stdout = self._group.popen.stdin, self._group.popen.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            stdin.write(line)
            stdin.flush()
            header = json.loads(stdout.readline(_LONGEST_HEADER))
            size = int(header["bytes"])
            data = stdout.read(size) if 0 <= size <= _LARGEST_ANSWER else b""
        except (OSError, ValueError, KeyError, TypeError):
            raise ChildEndedError(self._ended()) from None
        if len(data) != size:
            raise ChildEndedError(self._ended())
        return Answer(header["kind"], data, header.get("reason", ""), header.get("message", ""))

    def _ended(self) -> str:
        """Return how it ended."""
        deadline = time.monotonic() + 1.0
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._group.popen.returncode in (-9, -6):  # killed, or aborted by a failed allocation
            return "its reader was ended, which happens when memory runs out"
        return f"its reader ended without an answer (exit status {self._group.popen.returncode})"
