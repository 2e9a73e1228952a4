"""The server's HTTP face: thin, authenticated handlers, and the one place errors become HTTP.

Each handler checks who asks, reads the request, calls the domain code (`dashboards`, `runs`,
`paths`) and writes JSON. Domain errors are not caught: `_Errors.write_error` turns each into its
status code and ``{"message": <one sentence>}``.
"""

from __future__ import annotations

import asyncio
import html
import json
from pathlib import Path
from typing import Any, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web
from tornado.httputil import HTTPHeaders, ResponseStartLine
from tornado.iostream import StreamClosedError

from workbench.records import to_json
from workbench.server.dashboards import Dashboard, Dashboards
from workbench.server.errors import (
    BadRequestError,
    DashboardFailedError,
    MissingFolderError,
    OutsideRootError,
    ServerError,
    TooManyDashboardsError,
    UnknownDashboardError,
    UnsupportedPlatformError,
)
from workbench.server.paths import folder_inside, relative_to_root
from workbench.server.proxy import (
    BackendClosedError,
    Exchange,
    request_headers,
    response_headers,
    without_token,
)
from workbench.server.runs import list_runs

RESOURCE = "workbench"
"""What an authoriser is asked about: ``is_authorized(handler, user, action, "workbench")``."""

_STATUS: dict[type[ServerError], int] = {
    BadRequestError: 400,
    OutsideRootError: 403,
    MissingFolderError: 404,
    UnknownDashboardError: 404,
    TooManyDashboardsError: 409,
    DashboardFailedError: 502,
    UnsupportedPlatformError: 501,
}


class _Errors(JupyterHandler):
    """What every handler here shares: the domain objects, and errors as JSON."""

    auth_resource = RESOURCE

    def initialize(self, dashboards: Dashboards, root: Path) -> None:
        """Take the server's dashboards and its root folder."""
        self.dashboards = dashboards
        self.root = root

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer ``{"message"}``, or a plain page where a person looks at it in a tab."""
        error = cast("tuple[Any, Any, Any]", kwargs.get("exc_info", (None, None, None)))[1]
        if isinstance(error, ServerError):
            self.set_status(_STATUS[type(error)])
            message = str(error)
        elif isinstance(error, web.HTTPError) and error.log_message:
            message = error.log_message
        else:
            message = f"The server could not answer ({status_code} {self._reason})."
        if "text/html" in self.request.headers.get("Accept", ""):
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(f"<!doctype html><title>Workbench</title><pre>{html.escape(message)}</pre>")
        else:
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps({"message": message}))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A refusal is no crash: it is logged as a warning and without a traceback."""
        if isinstance(value, ServerError):
            self.log.warning("workbench: %s", value)
        else:
            super().log_exception(typ, value, tb)


class _Api(_Errors, APIHandler):
    """A JSON endpoint: 403 without a login, cross-origin refused, XSRF token on writes."""


class RunsHandler(_Api):
    """``GET api/runs?root=<path>``: the run directories below a folder."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer ``{"runs": [RunSummary], "truncated": bool}``; none before there is a folder."""
        asked = self.get_query_argument("root", "")
        folder = folder_inside(self.root, asked, may_be_absent=True)
        runs, truncated = await asyncio.to_thread(list_runs, folder, self.root)
        self.finish({"runs": [to_json(run) for run in runs], "truncated": truncated})


class DashboardsHandler(_Api):
    """``api/tensorboard``: the dashboards that run, and starting one."""

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
        try:
            body = json.loads(self.request.body)
        except ValueError as error:
            raise BadRequestError('Expected JSON like {"logdir": "runs"}.') from error
        if not isinstance(body, dict) or "logdir" not in body:
            raise BadRequestError('Expected a JSON object with "logdir", like {"logdir": "runs"}.')
        return cast("dict[str, object]", body)["logdir"]

    def _shown(self, board: Dashboard) -> dict[str, str]:
        logdir = relative_to_root(self.root, board.logdir)
        return {"id": board.id, "logdir": logdir, "url": board.url}


class DashboardHandler(_Api):
    """``api/tensorboard/<id>``: one dashboard."""

    @web.authenticated
    @authorized
    async def delete(self, key: str) -> None:
        """Stop it; 204 once its process is gone."""
        await self.dashboards.stop(key)
        self.set_status(204)
        self.finish()


class ProxyHandler(_Errors):
    """``tb/<id>/...``: what TensorBoard's own pages ask for.

    TensorBoard knows nothing of Jupyter's XSRF token, so these requests prove in another way that
    they come from this server's own pages: the browser's ``Sec-Fetch-Site`` where it sends one
    (https and localhost), else the ``Referer``.
    """

    _exchange: Exchange | None = None
    _is_browser_gone = False

    async def prepare(self, **options: Any) -> None:
        """Refuse other sites before anything is started or forwarded."""
        await super().prepare(**options)
        if not self._finished and not self._same_origin():
            raise web.HTTPError(403, "TensorBoard is shown on Jupyter's own pages only.")

    def check_xsrf_cookie(self) -> None:
        """Replaced by `prepare`, which checks every method."""

    def _same_origin(self) -> bool:
        if self.current_user is not None and self.token_authenticated:
            return True  # a script that holds the token, not a page that rides on a cookie
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

    def _begin(self, start_line: ResponseStartLine, headers: HTTPHeaders) -> None:
        self.set_status(start_line.code, start_line.reason)
        self.clear_header("Content-Type")
        for name, value in response_headers(headers):
            self.add_header(name, value)  # both Content-Security-Policies hold: Jupyter's and its

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
        """Stop asking TensorBoard for what nobody reads."""
        self._is_browser_gone = True
        if self._exchange is not None:
            self._exchange.close()

    def compute_etag(self) -> None:
        """TensorBoard's own headers decide about caching."""


def routes(dashboards: Dashboards, root: Path) -> list[tuple[str, type, dict[str, Any]]]:
    """Every URL of the extension below the base URL, for tornado."""
    shared: dict[str, Any] = {"dashboards": dashboards, "root": root}
    return [
        (r"workbench/api/runs", RunsHandler, shared),
        (r"workbench/api/tensorboard", DashboardsHandler, shared),
        (r"workbench/api/tensorboard/([0-9a-f]{1,64})", DashboardHandler, shared),
        (r"workbench/tb/([0-9a-f]{1,64})((?:/.*)?)", ProxyHandler, shared),
    ]
