"""``api/runs...``: list the runs on disk, delete one and restore it.

Changing the disk needs the permission to write ``contents``, which a server may have given to only
some of its users, in addition to the permission to write ``workbench``.
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
    """``api/runs``: list the run directories below a folder, and delete one."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer ``{"runs", "truncated", "deleted"}`` of ``?root=``, which need not exist yet."""
        requested = self.get_query_argument("root", "")
        folder = folder_inside(self.root, requested, may_be_absent=True)
        found = await self.run_lists.list(folder)
        kept = [Path(one) for one in found["deleted"]]
        deleted = await asyncio.to_thread(self.deleted_runs.below, kept, self.root)
        self.finish({**found, "deleted": [asdict(run) for run in deleted]})

    @web.authenticated
    @authorized
    @_may_write_contents
    async def delete(self) -> None:
        """Delete the run at ``?path=``; 204 once it is moved away."""
        requested = self.get_query_argument("path", strip=False)
        root = _root(self)
        run = folder_itself(root, requested)
        self.refuse_hidden(run, requested, "delete")
        await asyncio.to_thread(self.deleted_runs.delete, run, root)
        self.set_status(204)
        self.finish()


class RestoreRunHandler(Api):
    """``POST api/runs/restore {"path"}``: restore a run that ``deleted`` of `RunsHandler` lists."""

    @web.authenticated
    @authorized
    @_may_write_contents
    async def post(self) -> None:
        """Answer ``{"path"}``, the path of the restored run."""
        root = _root(self)
        body = self.body('{"path": "runs/.workbench-deleted/.../name"}')
        run = folder_itself(root, body.get("path"))
        back = await asyncio.to_thread(self.deleted_runs.restore, run)
        self.finish({"path": relative_to_root(root, back)})


def _root(handler: Api) -> Path:
    found: Any = handler.local_files("where no run is deleted from here: delete it there.")
    return Path(found.root_dir)
