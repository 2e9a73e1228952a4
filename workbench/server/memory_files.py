"""Memory files opened by browsers: one process per file, few at a time, none left behind.

A snapshot is a pickle, which can make its reader execute anything: the server itself never opens
one. `workbench.memory.files.file_process` does, in a process of its own that stays alive for a
while, so that the next question about the same file is answered immediately. At most ``limit`` of
them run. For one more file, the process that has been idle for longest is ended; if all are busy,
the request waits.

A client that gives up in the middle of an answer (a tab that was closed, a question that takes too
long) ends the process, as nothing else would stop its work; the next request starts a new one. A
client that gives up while others are being answered ends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.records.file import LARGEST_BYTES
from workbench.server.child import Answer, Child, ChildEndedError
from workbench.server.errors import (
    MemoryFileError,
    MissingFileError,
    QuestionError,
    ServerEndsError,
    ServerError,
    TooSlowError,
)

_ERRORS: dict[str, type[ServerError]] = {
    "absent": MissingFileError,
    "unreadable": MemoryFileError,
    "unrecorded": MemoryFileError,
    "refused": QuestionError,
}


@dataclass(frozen=True, kw_only=True)
class MemoryFileSettings:
    """Settings for opening files. Each is a trait of the server extension."""

    limit: int = 2
    """Maximum number of processes at a time."""
    idle_stop_s: float = 120.0
    """Seconds without a request after which a process ends."""
    timeout_s: float = 120.0
    """Longest wait for an answer in seconds, plus one second for every MiB of the file."""


class MemoryFiles:
    """All memory files of one server. Everything runs on its event loop."""

    def __init__(self, settings: MemoryFileSettings) -> None:
        self.settings = settings
        self._children: dict[Path, Child] = {}
        self._room = asyncio.Condition()
        self._closed = False

    def running(self) -> list[Child]:
        """Return the running processes."""
        return [child for child in self._children.values() if child.alive]

    async def ask(self, path: Path, request: Mapping[str, Any]) -> Answer:
        """Query the process of a file, starting it if there is none.

        Args:
            path: the file, resolved and known to be where the browser may look.
            request: see `workbench.memory.files.file_process`.

        Raises:
            MissingFileError: the file is gone.
            MemoryFileError: it is not a snapshot or record, or needs more resources than allowed.
            QuestionError: what was requested does not exist.
            TooSlowError: the answer takes longer than ``timeout_s`` plus the time for the file's
                size.
            ServerEndsError: `stop_all` was called, before or meanwhile.
        """
        while True:
            seconds = self._longest_wait_s(path)
            child = await self._enter(path)
            try:
                answer = await self._exchange(child, request, seconds)
                if answer.kind == "outgrown":  # the next one starts with limits for that size
                    await child.end()
                    continue
            except ChildEndedError as error:
                if child.was_ended:  # by another client that gave up waiting for its answer
                    continue
                raise MemoryFileError(f"{path.name} could not be read: {error}.") from None
            finally:
                await self._leave(child)
            if answer.kind == "error":
                raise _ERRORS.get(answer.reason, MemoryFileError)(answer.message)
            return answer

    def _longest_wait_s(self, path: Path) -> float:
        try:
            size = path.lstat().st_size  # links were resolved before: any link was created since
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(f"There is no file {path.name} any more.") from None
        if size > LARGEST_BYTES:
            raise MemoryFileError(
                f"{path.name} has {size / 2**30:.1f} GiB; files up to {LARGEST_BYTES / 2**30:g} "
                "GiB are opened: record fewer events (max_entries=) or without stacks."
            )
        return self.settings.timeout_s + size / 2**20

    async def _exchange(self, child: Child, request: Mapping[str, Any], seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds), child.turn:
                try:
                    return await child.exchange(request)
                except asyncio.CancelledError:  # no client waits for the answer any more
                    await child.end()
                    raise
        except TimeoutError:
            raise _too_slow(child, seconds) from None

    async def stop_idle(self) -> None:
        """End processes without a request for ``idle_stop_s`` seconds, and drop the ended ones."""
        for path, child in list(self._children.items()):
            if not child.alive or child.idle_s() >= self.settings.idle_stop_s:
                if self._children.get(path) is child:  # not another one, started meanwhile
                    del self._children[path]
                await child.end()
        async with self._room:
            self._room.notify_all()

    async def stop_all(self) -> None:
        """End every process permanently; returns when they are gone.

        Callers that wait for an answer, or for a free place, are notified.
        """
        self._closed = True
        children, self._children = list(self._children.values()), {}
        await asyncio.gather(*(child.end() for child in children))
        async with self._room:
            self._room.notify_all()

    async def _enter(self, path: Path) -> Child:
        """Return the file's process, which is not ended before `_leave` is called."""
        async with self._room:
            while True:
                child = self._children.get(path)
                if child is None or not child.alive:
                    child = await self._start(path)
                if child is not None:
                    child.num_waiting += 1
                    return child
                await self._room.wait()

    async def _start(self, path: Path) -> Child | None:
        """Start a process; return None while all places are taken by busy ones.

        Raises:
            ServerEndsError: no process is started any more.
        """
        dead = self._children.pop(path, None)
        if dead is not None:
            await dead.end()
        while len(self._children) >= self.settings.limit:
            idle = [one for one in self._children.values() if not one.num_waiting]
            if not idle:
                return None
            longest = max(idle, key=Child.idle_s)
            await self._children.pop(longest.path).end()
        if self._closed:  # perhaps while waiting for the processes above to end
            raise ServerEndsError(f"This server is ending; open {path.name} again when it is back.")
        self._children[path] = child = Child(path)
        return child

    async def _leave(self, child: Child) -> None:
        child.num_waiting -= 1
        child.last_request = time.monotonic()
        async with self._room:
            self._room.notify_all()


def _too_slow(child: Child, seconds: float) -> TooSlowError:
    """Return why there was no answer in time: a slow file, or other questions about it."""
    name = child.path.name
    if not child.was_ended:
        return TooSlowError(
            f"The reader of {name} was busy with other questions for {seconds:.0f} s; ask again "
            "when these are answered."
        )
    return TooSlowError(
        f"{name} was not read within {seconds:.0f} s, so its reader was ended; "
        "record fewer events (max_entries=), or open it in a notebook with wb.memory(path)."
    )
