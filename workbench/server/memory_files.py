"""Memory files that browsers look at: one process a file, few at a time, none left behind.

A snapshot is a pickle, which may ask its reader for anything: the server itself never opens one.
`workbench.memory.files.file_process` does, in a process of its own that stays for a while, so that
the next question of the same file is answered at once. At most ``limit`` of them run. A file more
puts the one to an end that was not asked anything for longest; where all are at work, it waits.

Who gives up in the middle of an answer (a tab that was closed, a question that takes too long) ends
the process, as nothing else would stop it at its work; the next request starts another one. Who
gives up while others are answered ends nothing.
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
    """How files are opened. Each is a trait of the server extension."""

    limit: int = 2
    """Most processes at one time."""
    idle_stop_s: float = 120.0
    """Seconds without a request after which a process ends."""
    timeout_s: float = 120.0
    """Longest wait for an answer, and a second more for every MiB of the file."""


class MemoryFiles:
    """All memory files of one server. Everything runs on its event loop."""

    def __init__(self, settings: MemoryFileSettings) -> None:
        self.settings = settings
        self._children: dict[Path, Child] = {}
        self._room = asyncio.Condition()
        self._closed = False

    def running(self) -> list[Child]:
        """The processes that run."""
        return [child for child in self._children.values() if child.alive]

    async def ask(self, path: Path, request: Mapping[str, Any]) -> Answer:
        """What the process of a file answers, started if there is none.

        Args:
            path: the file, resolved and known to lie where the browser may look.
            request: see `workbench.memory.files.file_process`.

        Raises:
            MissingFileError: the file is gone.
            MemoryFileError: it is no snapshot or record, or takes more than it may.
            QuestionError: what was asked for is not there.
            TooSlowError: the answer takes longer than ``timeout_s`` and what its size adds.
            ServerEndsError: `stop_all` was called, before or meanwhile.
        """
        while True:
            seconds = self._longest_wait_s(path)
            child = await self._enter(path)
            try:
                answer = await self._exchange(child, request, seconds)
                if answer.kind == "outgrown":  # another one begins with bounds for that size
                    await child.end()
                    continue
            except ChildEndedError as error:
                if child.was_ended:  # by somebody else, who gave up waiting for its answer
                    continue
                raise MemoryFileError(f"{path.name} could not be read: {error}.") from None
            finally:
                await self._leave(child)
            if answer.kind == "error":
                raise _ERRORS.get(answer.reason, MemoryFileError)(answer.message)
            return answer

    def _longest_wait_s(self, path: Path) -> float:
        try:
            size = path.lstat().st_size  # with all links resolved: one was put there since
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
                except asyncio.CancelledError:  # nobody waits for the answer any more
                    await child.end()
                    raise
        except TimeoutError:
            raise _too_slow(child, seconds) from None

    async def stop_idle(self) -> None:
        """End every process without a request for ``idle_stop_s`` seconds, and forget the dead."""
        for path, child in list(self._children.items()):
            if not child.alive or child.idle_s() >= self.settings.idle_stop_s:
                if self._children.get(path) is child:  # not another one, started meanwhile
                    del self._children[path]
                await child.end()
        async with self._room:
            self._room.notify_all()

    async def stop_all(self) -> None:
        """End every process, for good; returns when they are gone.

        Who waits for an answer, or for a place, is told so.
        """
        self._closed = True
        children, self._children = list(self._children.values()), {}
        await asyncio.gather(*(child.end() for child in children))
        async with self._room:
            self._room.notify_all()

    async def _enter(self, path: Path) -> Child:
        """The file's process, which nobody puts to an end before `_leave`."""
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
        """A new process; None while all places are taken by others at work.

        Raises:
            ServerEndsError: nothing starts any more.
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
        if self._closed:  # perhaps while we waited for those above to end
            raise ServerEndsError(f"This server is ending; open {path.name} again when it is back.")
        self._children[path] = child = Child(path)
        return child

    async def _leave(self, child: Child) -> None:
        child.num_waiting -= 1
        child.last_request = time.monotonic()
        async with self._room:
            self._room.notify_all()


def _too_slow(child: Child, seconds: float) -> TooSlowError:
    """Why there is no answer in time: the file takes so long, or what others asked of it did."""
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
