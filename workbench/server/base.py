"""What every handler shares: who may ask, and errors as JSON.

Domain code knows no HTTP: it raises `workbench.server.errors`, and `ErrorsAsJson.write_error` alone
turns each into its status code and ``{"message": <one sentence>}``.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any, cast

from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web

from workbench.server.dashboards import Dashboards
from workbench.server.errors import (
    BadRequestError,
    DashboardFailedError,
    MemoryFileError,
    MissingFileError,
    MissingFolderError,
    NoLocalFilesError,
    OutsideRootError,
    QuestionError,
    ServerEndsError,
    ServerError,
    TooManyDashboardsError,
    TooSlowError,
    UnknownDashboardError,
    UnsupportedPlatformError,
)
from workbench.server.memory_files import MemoryFiles

RESOURCE = "workbench"
"""What an authoriser is asked about: ``is_authorized(handler, user, action, "workbench")``."""

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
    UnknownDashboardError: 404,
    TooManyDashboardsError: 409,
    DashboardFailedError: 502,
    UnsupportedPlatformError: 501,
}


class ErrorsAsJson(JupyterHandler):
    """What every handler here shares: the domain objects, and errors as JSON."""

    auth_resource = RESOURCE

    def initialize(self, dashboards: Dashboards, memory_files: MemoryFiles, root: Path) -> None:
        """Take the server's dashboards, its readers of memory files and its root folder."""
        self.dashboards = dashboards
        self.memory_files = memory_files
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


class Api(ErrorsAsJson, APIHandler):
    """A JSON endpoint: 403 without a login, cross-origin refused, XSRF token on writes."""
