"""``api/runs...``: the runs on disk, deleting one and putting it back.

What changes the disk needs the right to write ``contents``, which a server may have given to some
of its people only, beside the right to write ``workbench``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from jupyter_server.auth.decorator import authorized
from tornado import web

from workbench.server.base import Api
from workbench.server.paths import folder_inside, folder_itself, relative_to_root

_Method = Callable[..., Awaitable[None]]

_may_write_contents = cast(
    "Callable[[_Method], _Method]", authorized(action="write", resource="contents")
)


class RunsHandler(Api):
    """``api/runs``: the run directories below a folder, and deleting one."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer ``{"runs", "truncated", "deleted"}`` of ``?root=``; none before it is made."""
        asked = self.get_query_argument("root", "")
        folder = folder_inside(self.root, asked, may_be_absent=True)
        found = await self.run_lists.list(folder)
        kept = [Path(one) for one in found["deleted"]]
        deleted = await asyncio.to_thread(self.deleted_runs.below, kept, self.root)
        self.finish({**found, "deleted": [asdict(run) for run in deleted]})

    @web.authenticated
    @authorized
    @_may_write_contents
    async def delete(self) -> None:
        """Delete the run at ``?path=``; 204 once it is out of the way."""
        asked = self.get_query_argument("path", strip=False)
        root = _root(self)
        run = folder_itself(root, asked)
        self.refuse_hidden(run, asked, "delete")
        await asyncio.to_thread(self.deleted_runs.delete, run, root)
        self.set_status(204)
        self.finish()


class RestoreRunHandler(Api):
    """``POST api/runs/restore {"path"}``: putting back what ``deleted`` of `RunsHandler` lists."""

    @web.authenticated
    @authorized
    @_may_write_contents
    async def post(self) -> None:
        """Answer ``{"path"}``, where the run is again."""
        root = _root(self)
        body = self.body('{"path": "runs/.workbench-deleted/.../name"}')
        run = folder_itself(root, body.get("path"))
        back = await asyncio.to_thread(self.deleted_runs.restore, run)
        self.finish({"path": relative_to_root(root, back)})


def _root(handler: Api) -> Path:
    found: Any = handler.local_files("where no run is deleted from here: delete it there.")
    return Path(found.root_dir)
