"""Start of one TensorBoard process: start it, wait until it answers, end it for certain.

The child process is `workbench.server.tensorboard_process`. It leads a process group of its own, so
that ending the group also ends a data server it may have started.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.processes import Group, start_group
from workbench.server.errors import DashboardFailedError, UnsupportedPlatformError
from workbench.server.process_log import ProcessLog
from workbench.trust import private_socket_folder

_POLL_S = 0.02
_TERM_GRACE_S = 3.0
_KILL_GRACE_S = 3.0


@dataclass(frozen=True, kw_only=True)
class TensorBoardProcess:
    """A started process, the socket it listens on and the log it writes."""

    group: Group
    """The process and everything it starts."""
    socket: Path
    output: ProcessLog

    @property
    def alive(self) -> bool:
        """Whether the process is still running."""
        return self.group.alive

    def last_lines(self) -> str:
        """Return the last lines this process printed, oldest first; empty if it printed nothing."""
        return self.output.last_lines()

    async def stop(self) -> None:
        """End the process and all it started, and remove its socket; returns when they are gone."""
        if self.group.popen.stdin is not None:
            self.group.popen.stdin.close()
        for signal_number, grace_s in (
            (signal.SIGTERM, _TERM_GRACE_S),
            (signal.SIGKILL, _KILL_GRACE_S),
        ):
            self.group.signal(signal_number)
            if await self._ended_within(grace_s):
                break
        shutil.rmtree(self.socket.parent, ignore_errors=True)

    async def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        return not self.alive


async def launch(
    *,
    logdir: Path,
    path_prefix: str,
    log: Path,
    timeout_s: float,
    data_server: bool = False,
    arguments: Sequence[str] = (),
) -> TensorBoardProcess:
    """Start TensorBoard on ``logdir`` and return once its socket accepts connections.

    Raises:
        UnsupportedPlatformError: Python has no unix sockets on this platform (Windows).
        DashboardFailedError: the process ended or did not listen within ``timeout_s`` seconds; the
            message contains the last lines of its log.
    """
    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        raise UnsupportedPlatformError(
            "TensorBoard in a tab needs unix sockets, which Python lacks on Windows; run Jupyter "
            "in WSL, or start `tensorboard --logdir <folder>` in a terminal."
        )
    process = _start(logdir, path_prefix, log, data_server=data_server, arguments=arguments)
    try:
        await _until_listening(process, timeout_s)
    except BaseException:  # also when the request is cancelled half-way
        await process.stop()
        raise
    return process


def _start(
    logdir: Path, path_prefix: str, log: Path, *, data_server: bool, arguments: Sequence[str]
) -> TensorBoardProcess:
    path = private_socket_folder("workbench-tb-") / "socket"
    command = [sys.executable, "-P", "-m", "workbench.server.tensorboard_process"]
    command += ["--socket", str(path), f"--logdir={logdir}", f"--path-prefix={path_prefix}"]
    command += ["--data-server"] if data_server else []
    command += ["--", *arguments]
    group = start_group(
        command,
        stdin=subprocess.PIPE,  # held open: its end signals to the child that this process is gone
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return TensorBoardProcess(group=group, socket=path, output=ProcessLog(group.popen, log))


async def _until_listening(process: TensorBoardProcess, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not process.alive:
            code = process.group.status
            raise DashboardFailedError(
                f"TensorBoard did not start (exit status {code}). {_says(process)}"
            )
        if process.socket.exists():
            with contextlib.suppress(OSError):
                _reader, writer = await asyncio.open_unix_connection(process.socket)
                writer.close()
                return
        await asyncio.sleep(_POLL_S)
    raise DashboardFailedError(
        f"TensorBoard did not listen within {timeout_s:g} s and was stopped. {_says(process)}"
    )


def _says(process: TensorBoardProcess) -> str:
    if not process.alive:
        process.output.join(_KILL_GRACE_S)  # its last output may still be in the pipe
    lines = process.last_lines()
    if not lines:
        return "It printed nothing."
    return f"Its last lines:\n{lines}\n(more of them: {process.output.path})"
