"""Lists of runs, made by one process that is queried repeatedly (`listing_program`)."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, cast

from workbench.server.child import Child, ChildEndedError
from workbench.server.errors import ServerEndsError, TooSlowError

_PROGRAM = "workbench.server.listing_program"
_IDLE_STOP_S = 300.0
_TIMEOUT_S = 30.0
"""Timeout in seconds, three times what the process's own time limits add up to: after that, the
disk does not answer."""


class RunLists:
    """Manages the process that lists runs. Everything runs on the server's event loop."""

    def __init__(self, root: Path, timeout_s: float = _TIMEOUT_S) -> None:
        self._root, self._timeout_s = root, timeout_s
        self._child: Child | None = None
        self._closed = False

    @property
    def child(self) -> Child | None:
        """The process; None while there are no requests."""
        return self._child

    async def list(self, folder: Path) -> dict[str, Any]:
        """Return ``{"runs", "truncated", "deleted"}`` of a folder inside the root.

        Raises:
            TooSlowError: there was no answer in time; the process was ended.
            ServerEndsError: `stop` was called.
        """
        for _attempt in range(2):
            if self._closed:
                raise ServerEndsError("This server is ending; try again when it is back.")
            if self._child is None or not self._child.alive:
                self._child = Child(self._root, _PROGRAM)
            child = self._child
            child.num_waiting += 1
            try:
                async with child.turn, asyncio.timeout(self._timeout_s):
                    answer = await self._exchange(child, {"folder": str(folder)})
                return cast("dict[str, Any]", json.loads(answer))
            except ChildEndedError:  # ended by another request, or by the system
                continue
            except TimeoutError:
                break
            finally:
                child.num_waiting -= 1
                child.last_request = time.monotonic()
        raise TooSlowError(
            f"The runs in {folder.name or folder} were not listed within {self._timeout_s:.0f} s: "
            "the disk does not answer, there are too many, or reading them ended the process that "
            "does; choose a folder further down."
        )

    async def _exchange(self, child: Child, request: dict[str, str]) -> bytes:
        try:
            return (await child.exchange(request)).data
        except asyncio.CancelledError:  # it is in the middle of an answer that is no longer read
            await self._give_up(child)
            raise

    async def stop_idle(self) -> None:
        """End a process that has had no request for a while."""
        child = self._child
        if child is not None and (not child.alive or child.idle_s() >= _IDLE_STOP_S):
            await self._give_up(child)

    async def stop(self) -> None:
        """End the process permanently."""
        self._closed = True
        if self._child is not None:
            await self._give_up(self._child)

    async def _give_up(self, child: Child) -> None:
        if self._child is child:
            self._child = None
        await child.end()
