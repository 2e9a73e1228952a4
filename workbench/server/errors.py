"""What can go wrong on the server, each with the one sentence the person reads.

Nothing here knows HTTP: `workbench.server.handlers` alone maps these to status codes.
"""

from __future__ import annotations


class ServerError(Exception):
    """Base of everything the server refuses on purpose; ``str()`` is the sentence to show."""


class BadRequestError(ServerError):
    """The request is malformed: a missing field or a value of the wrong type."""


class OutsideRootError(ServerError):
    """The path, after resolving symbolic links, is not below the server's root."""


class MissingFolderError(ServerError):
    """There is no such folder, or it cannot be read."""


class UnknownDashboardError(ServerError):
    """No dashboard has this id."""


class TooManyDashboardsError(ServerError):
    """The cap is reached and every dashboard is in use."""


class DashboardFailedError(ServerError):
    """TensorBoard did not start, or ended by itself."""


class UnsupportedPlatformError(ServerError):
    """The operating system lacks something this needs."""


class MissingFileError(ServerError):
    """There is no such file, or it cannot be read."""


class MemoryFileError(ServerError):
    """The file is no allocator snapshot or memory record, or takes more than it may."""


class QuestionError(ServerError):
    """What was asked of a file is not there, or is no question."""


class TooSlowError(ServerError):
    """The answer took longer than anybody should wait."""


class ServerEndsError(ServerError):
    """The server is ending and begins nothing any more."""


class NoLocalFilesError(ServerError):
    """The server keeps its files elsewhere than on its disk."""


class RunInUseError(ServerError):
    """The run is being trained, so it is not deleted."""


class NotWritableError(ServerError):
    """The disk, or its permissions, refuse a change."""
