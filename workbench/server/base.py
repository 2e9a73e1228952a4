"""Common base of the handlers: authorisation, and errors as JSON.

Domain code is independent of HTTP: it raises `workbench.server.errors`, and only
`ErrorsAsJson.write_error` converts each to its status code and ``{"message": <one sentence>}``.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any, cast

from jupyter_core.paths import is_hidden
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.services.contents.fileio import FileManagerMixin
from tornado import web

from workbench.server.dashboards import Dashboards
from workbench.server.deleted_runs import DeletedRuns
from workbench.server.errors import (
    BadRequestError,
    DashboardFailedError,
    MemoryFileError,
    MissingFileError,
    MissingFolderError,
    NoLocalFilesError,
    NotWritableError,
    OutsideRootError,
    QuestionError,
    RunInUseError,
    ServerEndsError,
    ServerError,
    TooManyDashboardsError,
    TooSlowError,
    UnknownDashboardError,
    UnsupportedPlatformError,
)
from workbench.server.listing_process import RunLists
from workbench.server.memory_files import MemoryFiles
from workbench.trust import printable

RESOURCE = "workbench"
"""Resource of an authoriser's query: ``is_authorized(handler, user, action, "workbench")``."""

_STATUS: dict[type[ServerError], int] = {
    BadRequestError: 400,
    OutsideRootError: 403,
    MissingFolderError: 404,
    MissingFileError: 404,
    MemoryFileError: 422,
    QuestionError: 400,
    TooSlowError: 504,
    ServerEndsError: 503,
    NoLocalFilesError: 501,
    RunInUseError: 409,
    NotWritableError: 403,
    UnknownDashboardError: 404,
    TooManyDashboardsError: 409,
    DashboardFailedError: 502,
    UnsupportedPlatformError: 501,
}


class ErrorsAsJson(JupyterHandler):
    """Base of every handler here: the domain objects, and errors as JSON."""

    auth_resource = RESOURCE

    def initialize(
        self,
        dashboards: Dashboards,
        memory_files: MemoryFiles,
        deleted_runs: DeletedRuns,
        run_lists: RunLists,
        root: Path,
    ) -> None:
        """Store the objects that the server manages, and its root folder."""
        self.dashboards = dashboards
        self.memory_files = memory_files
        self.deleted_runs = deleted_runs
        self.run_lists = run_lists
        self.root = root

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer ``{"message"}``, or a plain page if the user opened the URL in a tab."""
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
        """Log a refusal, which is not a crash, as a warning and without a traceback."""
        if isinstance(value, ServerError):
            self.log.warning("workbench: %s", printable(str(value)))
        else:
            super().log_exception(typ, value, tb)


class Api(ErrorsAsJson, APIHandler):
    """A JSON endpoint: 403 without a login, cross-origin refused, XSRF token on writes."""

    def body(self, example: str) -> dict[str, Any]:
        """Return the JSON object that was sent.

        Raises:
            BadRequestError: the body is not a JSON object; the message shows ``example``.
        """
        try:
            body = json.loads(self.request.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise BadRequestError(f"Expected JSON like {example}.")
        return cast("dict[str, Any]", body)

    def local_files(self, otherwise: str) -> FileManagerMixin:
        """Return the contents manager, if it manages files on this server's disk.

        Args:
            otherwise: What the user can do if it stores them elsewhere.

        Raises:
            NoLocalFilesError: the contents manager stores files elsewhere.
        """
        contents: Any = self.contents_manager
        if not isinstance(contents, FileManagerMixin):
            raise NoLocalFilesError(
                f"This Jupyter stores its files elsewhere ({type(contents).__name__}), {otherwise}"
            )
        return contents

    def refuse_hidden(self, path: Path, given: object, to_do: str) -> None:
        """Reject paths that the file browser does not show.

        Raises:
            MissingFileError: the path is hidden, and this server does not show hidden files.
        """
        contents: Any = self.contents_manager
        if not contents.allow_hidden and is_hidden(
            str(path), str(Path(contents.root_dir).resolve())
        ):
            raise MissingFileError(f"{given!r} is hidden; rename it to {to_do} it.")
