"""The HTTP interface of the server: thin, authenticated handlers.

Each handler authenticates the request, reads it, calls the domain code (`dashboards`, `paths`) and
writes JSON. Domain errors are not caught: `workbench.server.base` converts each to its status code
and one sentence. Runs and memory files have handlers of their own (`run_handlers`,
`memory_handlers`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web
from tornado.httputil import HTTPHeaders, ResponseStartLine
from tornado.iostream import StreamClosedError

from workbench.server.base import Api, ErrorsAsJson
from workbench.server.dashboards import Dashboard, Dashboards
from workbench.server.deleted_runs import DeletedRuns
from workbench.server.errors import BadRequestError, DashboardFailedError
from workbench.server.listing_process import RunLists
from workbench.server.memory_files import MemoryFiles
from workbench.server.memory_handlers import MemoryAskHandler, MemoryRecordHandler
from workbench.server.paths import contents_path, folder_inside, relative_to_root
from workbench.server.proxy import (
    BackendClosedError,
    Exchange,
    request_headers,
    response_headers,
    without_token,
)
from workbench.server.run_handlers import RestoreRunHandler, RunsHandler


class PathHandler(Api):
    """``GET api/path?of=<path>``: the path by which the contents service knows a file."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer ``{"path": <path> or null}``: null is outside the folder Jupyter serves."""
        requested = self.get_query_argument("of", strip=False)
        self.finish({"path": await asyncio.to_thread(contents_path, self.root, requested)})


class DashboardsHandler(Api):
    """``api/tensorboard``: list the running dashboards, and start one."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer ``{"dashboards": [{"id", "logdir", "url"}]}``."""
        self.finish({"dashboards": [self._shown(board) for board in self.dashboards.running()]})

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Start, or find, the dashboard of ``{"logdir"}``; answer ``{"id", "logdir", "url"}``."""
        logdir = folder_inside(self.root, self._logdir())
        self.finish(self._shown(await self.dashboards.start(logdir)))

    def _logdir(self) -> object:
        body = self.body('{"logdir": "runs"}')
        if "logdir" not in body:
            raise BadRequestError('Expected a JSON object with "logdir", like {"logdir": "runs"}.')
        return body["logdir"]

    def _shown(self, board: Dashboard) -> dict[str, str]:
        logdir = relative_to_root(self.root, board.logdir)
        return {"id": board.id, "logdir": logdir, "url": board.url}


class DashboardHandler(Api):
    """``api/tensorboard/<id>``: one dashboard."""

    @web.authenticated
    @authorized
    async def delete(self, key: str) -> None:
        """Stop the dashboard; 204 once its process is gone."""
        await self.dashboards.stop(key)
        self.set_status(204)
        self.finish()


class ProxyHandler(ErrorsAsJson):
    """``tb/<id>/...``: requests of TensorBoard's own pages.

    TensorBoard does not know Jupyter's XSRF token, so these requests prove in another way that they
    come from this server's own pages: by the browser's ``Sec-Fetch-Site`` where it sends one (https
    and localhost), else the ``Referer``.
    """

    _exchange: Exchange | None = None
    _is_browser_gone = False

    async def prepare(self, **options: Any) -> None:
        """Reject other sites before anything is started or forwarded."""
        await super().prepare(**options)
        if not self._finished and not self._same_origin():
            raise web.HTTPError(403, "TensorBoard is shown on Jupyter's own pages only.")

    def check_xsrf_cookie(self) -> None:
        """Do nothing: `prepare` checks every method instead."""

    def _same_origin(self) -> bool:
        if self.current_user is not None and self.token_authenticated:
            return True  # a script that has the token, not a page that relies on a cookie
        site = self.request.headers.get("Sec-Fetch-Site")
        if site:
            is_read = self.request.method in {"GET", "HEAD"}
            return site == "same-origin" or (site == "none" and is_read)
        return self.check_referer()

    @web.authenticated
    @authorized
    async def get(self, key: str, rest: str) -> None:
        """Forward."""
        await self._forward(key, rest)

    @web.authenticated
    @authorized
    async def head(self, key: str, rest: str) -> None:
        """Forward."""
        await self._forward(key, rest)

    @web.authenticated
    @authorized
    async def post(self, key: str, rest: str) -> None:
        """Forward."""
        await self._forward(key, rest)

    async def _forward(self, key: str, rest: str) -> None:
        if not rest:
            path, mark, query = self.request.uri.partition("?")
            self.redirect(path + "/" + mark + query)
            return
        board = await self.dashboards.reach(key)
        self._exchange = Exchange(board.process.socket, self._begin, self._pass_on)
        request = self.request
        with board.in_use():
            try:
                await self._exchange.run(
                    request.method,
                    without_token(request.uri),
                    request_headers(request.headers, request.body),
                    request.body,
                )
            except BackendClosedError as error:
                self._broken(board, error)
                return
        self.finish()

    @property
    def content_security_policy(self) -> str:
        """Jupyter's own policy, except that only pages of the same origin may frame the page.

        A server of JupyterHub says ``frame-ancestors 'none'``, and the TensorBoard tab is a frame.
        Where users are to be isolated from each other on one hub, each has a domain
        (``JupyterHub.subdomain_host``), which is an origin of its own here too.
        """
        kept = [
            one
            for one in super().content_security_policy.split(";")
            if one.strip() and one.split()[0].lower() != "frame-ancestors"
        ]
        return "; ".join(["frame-ancestors 'self'", *map(str.strip, kept)])

    def _begin(self, start_line: ResponseStartLine, headers: HTTPHeaders) -> None:
        self.set_status(start_line.code, start_line.reason)
        self.clear_header("Content-Type")
        for name, value in response_headers(headers):
            self.add_header(name, value)  # both Content-Security-Policies apply: Jupyter's and its

    async def _pass_on(self, chunk: bytes) -> None:
        try:
            self.write(chunk)
            await self.flush()
        except StreamClosedError:
            self.on_connection_close()

    def _broken(self, board: Dashboard, error: BackendClosedError) -> None:
        if self._is_browser_gone:
            return
        if self._headers_written:
            self.detach().close()  # a short body must not look complete
            return
        raise DashboardFailedError(
            f"TensorBoard on {board.logdir} did not answer ({error}). "
            f"Its last lines:\n{board.process.last_lines()}"
        ) from error

    def on_connection_close(self) -> None:
        """Stop a request to TensorBoard whose answer is no longer read."""
        self._is_browser_gone = True
        if self._exchange is not None:
            self._exchange.close()

    def compute_etag(self) -> None:
        """Do nothing: TensorBoard's own headers control caching."""


def routes(
    dashboards: Dashboards,
    root: Path,
    memory_files: MemoryFiles,
    deleted_runs: DeletedRuns,
    run_lists: RunLists,
) -> list[tuple[str, type, dict[str, Any]]]:
    """Return every URL of the extension below the base URL, for tornado."""
    domain: dict[str, Any] = {
        "dashboards": dashboards,
        "memory_files": memory_files,
        "deleted_runs": deleted_runs,
        "run_lists": run_lists,
        "root": root,
    }
    return [
        (r"workbench/api/memory/record", MemoryRecordHandler, domain),
        (r"workbench/api/memory/ask", MemoryAskHandler, domain),
        (r"workbench/api/path", PathHandler, domain),
        (r"workbench/api/runs", RunsHandler, domain),
        (r"workbench/api/runs/restore", RestoreRunHandler, domain),
        (r"workbench/api/tensorboard", DashboardsHandler, domain),
        (r"workbench/api/tensorboard/([0-9a-f]{1,64})", DashboardHandler, domain),
        (r"workbench/tb/([0-9a-f]{1,64})((?:/.*)?)", ProxyHandler, domain),
    ]
