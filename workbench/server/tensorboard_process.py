"""TensorBoard on a unix socket, in a process of its own: ``python -m`` this module.

TensorBoard's command line can only listen on a TCP port, which every user of the machine can
connect to. Here the same application listens on a socket file with mode 0600 in a folder with mode
0700, so that it can be reached only by the Jupyter server of the same user, behind Jupyter's login.
By default, events are also read inside this process: TensorBoard's faster data server would listen
on a loopback port without a password (``--data-server`` accepts that).

The process ends with its parent. Its standard input is a pipe whose other end the parent holds and
never writes to: end of file means that the parent is gone, however it died. On Linux the kernel
also sends SIGTERM when the parent dies, in case a forked sibling has kept the pipe open.

Its pages are served below a prefix, but a few of their URLs begin at the root of the host: those of
the fonts, for example, which JupyterHub, and any proxy that forwards only the prefix, answers with
404. `assets` gives TensorBoard the same files with relative URLs.

Building the application without a port needs one private method of TensorBoard,
``TensorBoard._make_server``. It is used here and nowhere else; ``pyproject.toml`` pins
the minor version, and ``tests/unit/server/test_tensorboard_process.py`` fails when it moves.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import os
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workbench.server.paths import DELETED_FOLDER

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_EXIT_GRACE_S = 2.0
_RELATIVE: Mapping[str, tuple[bytes, bytes]] = {
    "index.html": (b"url(/font-roboto/", b"url(font-roboto/"),
    "index.js": (b'vs:"/tf-imports/vs"', b'vs:"tf-imports/vs"'),
}
"""Replacements in TensorBoard's files, so that nothing outside the prefix is requested."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of this process."""

    socket: Path
    logdir: str
    path_prefix: str
    """URL path under which the proxy serves the dashboard, without a slash at the end."""
    data_server: bool
    extra: tuple[str, ...]
    """Additional TensorBoard flags, e.g. ``--samples_per_plugin=images=100``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent is gone or SIGTERM arrives; returns the exit status."""
    options = parse(sys.argv[1:] if argv is None else argv)
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the parent's to handle

    def clean_up() -> None:
        with contextlib.suppress(OSError):
            options.socket.unlink(missing_ok=True)
            options.socket.parent.rmdir()

    die_with_parent(clean_up)
    try:  # the end may come as soon as the socket exists, before anything is served
        server: Any = make_server(options)
        server.serve_forever()
    finally:
        clean_up()
    return 0


def parse(argv: Sequence[str]) -> Options:
    """Parse the command line; arguments after ``--`` are passed to TensorBoard unchanged."""
    parser = argparse.ArgumentParser(prog="python -m workbench.server.tensorboard_process")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--path-prefix", required=True)
    parser.add_argument("--data-server", action="store_true")
    parser.add_argument("extra", nargs="*")
    found = parser.parse_args(argv)
    return Options(
        socket=found.socket,
        logdir=found.logdir,
        path_prefix=found.path_prefix,
        data_server=found.data_server,
        extra=tuple(found.extra),
    )


def make_server(options: Options) -> Any:
    """Build TensorBoard's application and bind it to the socket.

    Raises:
        SystemExit: this TensorBoard has no ``_make_server``; the message names the supported
            versions.
    """
    from tensorboard import default, program, version

    board: Any = program.TensorBoard(
        plugins=default.get_plugins(),
        assets_zip_provider=assets,
        server_class=_on_socket(options.socket),
    )
    if not callable(getattr(board, "_make_server", None)):
        raise SystemExit(
            f"TensorBoard {version.VERSION} has no TensorBoard._make_server, which Workbench needs "
            "to listen on a socket; install tensorboard>=2.21,<2.22."
        )
    board.configure(argv=tensorboard_flags(options))
    _skip_what_is_no_run()
    return board._make_server()


def _skip_what_is_no_run() -> None:
    """Skip deleted runs that the side panel keeps for a while, and anything that is not a file.

    TensorBoard looks into every folder, even if its name begins with a dot, and opens anything that
    is named like an event file: for example a named pipe whose other end is never opened.
    """
    from tensorboard.backend.event_processing import io_wrapper

    library: Any = io_wrapper
    walk: Callable[[str], Iterator[tuple[str, Any]]] = library.ListRecursivelyViaWalking

    list_files: Callable[[str], Iterator[str]] = library.ListDirectoryAbsolute

    def of_runs(top: str) -> Iterator[tuple[str, Any]]:
        for folder, files in walk(top):
            if DELETED_FOLDER not in Path(folder).parts:
                yield folder, (file for file in files if Path(file).is_file())

    def regular(folder: str) -> Iterator[str]:
        return (file for file in list_files(folder) if Path(file).is_file())

    library.ListRecursivelyViaWalking = of_runs
    library.ListDirectoryAbsolute = regular


def assets() -> IO[bytes]:
    """Return TensorBoard's own archive of its pages, with the URLs in them made relative.

    Raises:
        SystemExit: this TensorBoard has no such archive.
    """
    from tensorboard.assets import get_default_assets_zip_provider

    given = get_default_assets_zip_provider()
    if given is None:
        raise SystemExit("TensorBoard has no webfiles.zip next to it; install tensorboard again.")
    found = io.BytesIO()
    # stored, not compressed: it is read only once, right away
    with given() as file, zipfile.ZipFile(file) as own, zipfile.ZipFile(found, "w") as ours:
        for name in own.namelist():
            content = own.read(name)
            ours.writestr(name, content.replace(*_RELATIVE[name]) if name in _RELATIVE else content)
    found.seek(0)
    return found


def tensorboard_flags(options: Options) -> list[str]:
    """Return the command line that TensorBoard itself would have been started with."""
    return [
        "tensorboard",
        f"--logdir={options.logdir}",
        f"--path_prefix={options.path_prefix}",
        f"--load_fast={'auto' if options.data_server else 'false'}",
        *options.extra,
    ]


def die_with_parent(clean_up: Callable[[], None]) -> None:
    """Make this process end when its parent does, even after ``kill -9``.

    Args:
        clean_up: called first if the main thread does not end by itself in time.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    threading.Thread(
        target=_wait_for_parent, args=(clean_up,), name="parent-watch", daemon=True
    ).start()


def _wait_for_parent(clean_up: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_EXIT_GRACE_S)
    clean_up()
    os._exit(1)  # the main thread is stuck in a C call that never returns to Python


def _leave(_signal: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; let the clean-up run
    raise SystemExit(0)


def _on_socket(path: Path) -> Callable[[Any, Any], Any]:
    from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

    class KeepAliveHandler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Do not log requests: the log is for start-up and failures."""

    class SocketServer(ThreadedWSGIServer):
        daemon_threads = True

        def server_bind(self) -> None:
            """Create the socket file with mode 0600 from the start."""
            before = os.umask(0o177)
            try:
                super().server_bind()
            finally:
                os.umask(before)

    def build(app: Any, _flags: Any) -> SocketServer:
        return SocketServer(f"unix://{path}", 0, app, KeepAliveHandler)

    return build


if __name__ == "__main__":
    raise SystemExit(main())
