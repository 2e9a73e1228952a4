"""One TensorBoard process per log directory: start, find, suspend, wake, stop.

A dashboard's id is a digest of its canonical log directory, so the same directory always has the
same URL, even after the server was restarted: a tab that JupyterLab restores still points to the
right place. Two concurrent requests start only one process, because starting holds a lock per id.

A dashboard without any request in ``idle_stop_s`` is put to *sleep*: its process ends, its URL
remains, and the next request starts it again. A dashboard that the user *stopped* is removed.

Everything runs on the server's event loop; nothing here is called from another thread. (On Linux
this matters: the kernel's parent-death signal follows the thread that started the process.)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from workbench.server.errors import (
    DashboardFailedError,
    TooManyDashboardsError,
    UnknownDashboardError,
)
from workbench.server.spawn import TensorBoardProcess, launch

_BUSY_S = 60.0  # a dashboard with a request this recent is not put to sleep for another
_REMEMBERED = 100

StartProcess = Callable[..., Awaitable[TensorBoardProcess]]


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """Settings of dashboards. Each is a trait of the server extension."""

    base_url: str
    """The server's base URL, with a slash at both ends."""
    log_folder: Path
    """Folder where each process writes its output; created if missing, with mode 0700."""
    idle_stop_s: float = 1800.0
    """Seconds without a request after which a process ends; 0 keeps it running forever."""
    limit: int = 4
    """Maximum number of processes at a time."""
    start_timeout_s: float = 60.0
    data_server: bool = False
    """Whether events are read in TensorBoard's own data server, which opens a loopback TCP port."""
    arguments: Sequence[str] = ()
    """Additional TensorBoard flags."""


@dataclass(kw_only=True)
class Dashboard:
    """A running TensorBoard."""

    id: str
    logdir: Path
    url: str
    """Absolute URL path, with a slash at the end."""
    process: TensorBoardProcess
    last_request: float = field(default_factory=time.monotonic)
    open_requests: int = 0

    def idle_s(self) -> float:
        """Return the seconds since the last request; 0 while one is being answered."""
        return 0.0 if self.open_requests else time.monotonic() - self.last_request

    @contextlib.contextmanager
    def in_use(self) -> Generator[None]:
        """Count a request as open while it is answered."""
        self.open_requests += 1
        try:
            yield
        finally:
            self.open_requests -= 1
            self.last_request = time.monotonic()


def dashboard_id(logdir: Path) -> str:
    """Return the id of the dashboard of a canonical log directory: 16 hexadecimal digits."""
    return hashlib.sha256(str(logdir).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Dashboards:
    """All dashboards of one server.

    Args:
        settings: How dashboards run.
        start_process: Starts one process; tests that need another backend replace it.
    """

    def __init__(self, settings: DashboardSettings, start_process: StartProcess = launch) -> None:
        self.settings = settings
        self._start_process = start_process
        self._running: dict[str, Dashboard] = {}
        self._asleep: dict[str, Path] = {}
        self._starting: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    def running(self) -> list[Dashboard]:
        """Return the dashboards whose process is running, in the order of their start."""
        return [board for board in self._running.values() if board.process.alive]

    async def start(self, logdir: Path) -> Dashboard:
        """Return the dashboard of a canonical log directory, starting it if it does not run.

        Raises:
            TooManyDashboardsError: the limit is reached and all are in use.
            DashboardFailedError: TensorBoard did not start.
        """
        key = dashboard_id(logdir)
        async with self._lock(key):
            board = self._running.get(key)
            if board is None or not board.process.alive:
                board = await self._launch(key, logdir)
            board.last_request = time.monotonic()
            return board

    async def reach(self, key: str) -> Dashboard:
        """Return the dashboard with this id, waking it if it sleeps.

        Raises:
            UnknownDashboardError: it was never started, or was stopped.
            DashboardFailedError: its process ended by itself.
        """
        if key in self._asleep:
            return await self.start(self._asleep[key])
        board = self._running.get(key)
        if board is None:
            raise UnknownDashboardError(
                "This TensorBoard is not running; open it again from the Workbench side panel."
            )
        if not board.process.alive:
            code = board.process.group.status
            raise DashboardFailedError(
                f"TensorBoard on {board.logdir} ended by itself (exit status {code}); open it "
                f"again. Its last lines:\n{board.process.last_lines()}"
            )
        return board

    async def stop(self, key: str) -> None:
        """End a dashboard and remove it; returns when its process is gone.

        Raises:
            UnknownDashboardError: there is no such dashboard.
        """
        async with self._lock(key):
            asleep = self._asleep.pop(key, None)
            board = self._running.pop(key, None)
            if board is not None:
                await board.process.stop()
            elif asleep is None:
                known = ", ".join(self._running) or "none"
                raise UnknownDashboardError(f"No TensorBoard {key!r} is running; running: {known}.")

    async def stop_all(self) -> None:
        """End every dashboard; returns when all processes are gone."""
        await asyncio.gather(*(self.stop(key) for key in list(self._running)))

    async def sleep_idle(self) -> None:
        """Put to sleep every dashboard without a request for ``idle_stop_s`` seconds."""
        limit_s = self.settings.idle_stop_s
        for board in [b for b in self._running.values() if 0 < limit_s <= b.idle_s()]:
            await self._sleep(board)

    async def _sleep(self, board: Dashboard) -> None:
        async with self._lock(board.id):
            if self._running.get(board.id) is not board or board.open_requests:
                return
            del self._running[board.id]
            self._asleep[board.id] = board.logdir
            while len(self._asleep) > _REMEMBERED:
                del self._asleep[next(iter(self._asleep))]
            await board.process.stop()

    async def _launch(self, key: str, logdir: Path) -> Dashboard:
        await self._make_room(key)
        self._starting.add(key)
        try:
            url = f"{self.settings.base_url}workbench/tb/{key}"
            process = await self._start_process(
                logdir=logdir,
                path_prefix=unquote(url),  # a hub user `a@b` is `a%40b` in the base URL
                log=self.settings.log_folder / f"tensorboard-{key}.log",
                timeout_s=self.settings.start_timeout_s,
                data_server=self.settings.data_server,
                arguments=self.settings.arguments,
            )
        finally:
            self._starting.discard(key)
        board = Dashboard(id=key, logdir=logdir, url=url + "/", process=process)
        self._running[key] = board
        self._asleep.pop(key, None)
        return board

    async def _make_room(self, key: str) -> None:
        while True:
            others = [board for board in self.running() if board.id != key]
            if len(others) + len(self._starting - {key}) < self.settings.limit:
                return
            longest = max(others, key=Dashboard.idle_s, default=None)
            if longest is None or longest.idle_s() < _BUSY_S:
                names = ", ".join(str(board.logdir) for board in others)
                raise TooManyDashboardsError(
                    f"{self.settings.limit} TensorBoards run and all are in use ({names}); stop "
                    "one, or open the folder above your runs, which shows them all in one."
                )
            await self._sleep(longest)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())
