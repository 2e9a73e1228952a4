"""Errors of the server, each with the one sentence that the user reads.

Nothing here depends on HTTP: only `workbench.server.handlers` maps these to status codes.
"""

from __future__ import annotations


class ServerError(Exception):
    """Base of all deliberate refusals of the server; ``str()`` is the sentence to show."""


class BadRequestError(ServerError):
    """The request is malformed: a missing field or a value of the wrong type."""


class OutsideRootError(ServerError):
    """The path, after resolving symbolic links, is not below the server's root."""


class MissingFolderError(ServerError):
    """There is no such folder, or it cannot be read."""


class UnknownDashboardError(ServerError):
    """No dashboard has this id."""


class TooManyDashboardsError(ServerError):
    """The limit is reached and every dashboard is in use."""


class DashboardFailedError(ServerError):
    """TensorBoard did not start, or ended by itself."""


class UnsupportedPlatformError(ServerError):
    """The operating system lacks a required feature."""


class MissingFileError(ServerError):
    """There is no such file, or it cannot be read."""


class MemoryFileError(ServerError):
    """The file is not an allocator snapshot or memory record, or needs more than is allowed."""


class QuestionError(ServerError):
    """The requested part of a file does not exist, or the question is not valid."""


class TooSlowError(ServerError):
    """The answer took longer than a user should have to wait."""


class ServerEndsError(ServerError):
    """The server is ending and starts nothing new."""


class NoLocalFilesError(ServerError):
    """The server stores its files elsewhere than on its disk."""


class RunInUseError(ServerError):
    """The run is being trained, so it is not deleted."""


class NotWritableError(ServerError):
    """The disk, or its permissions, reject a change."""
