"""``api/memory/...``: the record of a file, and questions about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from workbench.server.base import Api
from workbench.server.child import Answer
from workbench.server.paths import file_inside


class _MemoryApi(Api):
    """Common base of both endpoints of memory files: which file, and the end of a wait."""

    _waiting: asyncio.Task[Answer] | None = None

    async def _ask(self, what: str) -> Answer | None:
        """Return the answer of the file's process; None if the browser gave up waiting."""
        body = self.body('{"path": "snapshot.pickle"}')
        path = self._file(body.pop("path", None))
        self._waiting = asyncio.ensure_future(self.memory_files.ask(path, {**body, "do": what}))
        try:
            return await self._waiting
        except asyncio.CancelledError:
            return None

    def _file(self, given: object) -> Path:
        """Return the file on disk that the contents manager knows by this path."""
        found: Any = self.local_files(
            "where no process can open them: download the file, and open it with wb.memory(path)."
        )
        path = file_inside(Path(found.root_dir), given)
        self.refuse_hidden(path, given, "open")
        return path

    def on_connection_close(self) -> None:
        """End the work for a tab that was closed."""
        if self._waiting is not None:
            self._waiting.cancel()


class MemoryRecordHandler(_MemoryApi):
    """``POST api/memory/record {"path", "device", "start", "end", "overview"}``."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Answer a record's bytes, or ``{"overview"}`` of a file that is too long to show whole."""
        answer = await self._ask("record")
        if answer is None:
            return
        if answer.kind == "record":
            self.finish(answer.data, set_content_type="application/octet-stream")
        else:
            self.finish({"overview": json.loads(answer.data)})


class MemoryAskHandler(_MemoryApi):
    """``POST api/memory/ask {"path", "device", "start", "end", "question"}``."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Answer ``{"answer"}``, the result of `workbench.memory.simulation.questions`."""
        answer = await self._ask("ask")
        if answer is not None:
            self.finish({"answer": json.loads(answer.data)})
