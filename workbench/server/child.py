"""A process that answers requests: start it, ask it, end it with all it started.

A request is a line of JSON on its stdin; an answer is a line of JSON, ``{"kind", "bytes"}``, and so
many bytes (`workbench.memory.files.file_process`, `workbench.server.runs_process`).
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
    """The process ended, or said what nobody understands."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    kind: str
    """``record``, ``overview``, ``answer``, ``outgrown`` or ``error`` of a file; ``runs``."""
    data: bytes
    reason: str = ""
    message: str = ""


class Child:
    """The process of one file, or of one folder.

    It leads a group of its own, so that ending the group ends the reader it may have started; and
    it ends by itself when our end of its stdin is closed, however we come to our end.

    Args:
        path: what it is about; its only argument.
        module: its program.
    """

    def __init__(self, path: Path, module: str = "workbench.memory.files.file_process") -> None:
        self.path = path
        self.turn = asyncio.Lock()
        """Held while one request is answered."""
        self.num_waiting = 0
        """Requests that are answered or wait for their turn."""
        self.last_request = time.monotonic()
        self.was_ended = False
        """Whether it was put to an end, and did not come to one by itself."""
        self._group = start_group(
            [sys.executable, "-P", "-m", module, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # a pool of threads for matrices, which nothing here multiplies
            environment={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._group.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._group.alive

    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one is being answered."""
        return 0.0 if self.num_waiting else time.monotonic() - self.last_request

    async def exchange(self, request: Mapping[str, Any]) -> Answer:
        """Ask, and wait for the answer. Cancelled, it leaves a process that must be ended.

        Raises:
            ChildEndedError: there was no answer.
        """
        return await asyncio.to_thread(self._exchange, json.dumps(request).encode() + b"\n")

    async def end(self) -> None:
        """End it and all it started; returns when it is gone."""
        self.was_ended = True
        self._group.kill()
        deadline = time.monotonic() + _END_S
        while self.alive and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._group.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._group.popen.stdin.close()

    def _exchange(self, line: bytes) -> Answer:
        """On a thread: pipes of a child cannot be waited for on every system's event loop."""
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
        """How it came to its end."""
        deadline = time.monotonic() + 1.0
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._group.popen.returncode in (-9, -6):  # killed, or a library that got no memory
            return "its reader was ended, which happens when memory runs out"
        return f"its reader ended without an answer (exit status {self._group.popen.returncode})"
