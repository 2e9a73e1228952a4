"""Start of child processes that no interrupt can lose: the only module that starts them.

A kernel's interrupt becomes a ``KeyboardInterrupt`` between any two instructions of the main
thread, even between the fork inside ``subprocess.Popen`` and the moment the child's process id is
stored. The child is then lost: it keeps training, and once it ends it remains a zombie as long as
the kernel lives. So an interrupt is deferred until the child has an owner.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from workbench.processes.group import Group


@contextmanager
def interrupts_deferred() -> Generator[None]:
    """Defer an interrupt during this block, and raise it at its end.

    For blocks that take milliseconds. Only the main thread is ever interrupted; on another thread,
    and where Python does not handle interrupts, this does nothing.
    """
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


@contextmanager
def interrupts_kept_from_children() -> Generator[None]:
    """Shield processes that this thread starts in this block from all interrupts, permanently.

    A kernel's interrupt is sent to its whole process group. A process that works for something
    other than the current cell must not end by it; it inherits the signals that are blocked here.
    An interrupt of this process waits for the end of the block, so the block must be short.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Group:
    """Start a program that leads a process group of its own, and so ends with all it starts.

    An interrupt during the call is raised when it returns: a caller on a main thread that may be
    interrupted assigns the result within `interrupts_deferred`.

    Args:
        command: the program and its arguments; no shell.
        environment: the complete environment; None for that of this process.
        stdin: as for `subprocess.Popen`; by default there is nothing to read.
        stdout: as for `subprocess.Popen`.
        stderr: as for `subprocess.Popen`.
    """
    with interrupts_deferred():
        return Group(
            subprocess.Popen(  # noqa: S603 - callers' own programs
                command,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        )


def run_process(
    command: Sequence[str], *, timeout: float, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command as `subprocess.run` (no ``input``, ``check``); an interrupt ends the child.

    The child has no group of its own: what it starts is not ended with it.

    Args:
        command: the program and its arguments; no shell.
        timeout: seconds after which the process is killed.
        options: options of `subprocess.Popen`; ``capture_output`` as in `subprocess.run`.

    Raises:
        subprocess.TimeoutExpired: the process took longer than ``timeout``.
    """
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    process: subprocess.Popen[Any] | None = None
    try:
        with interrupts_deferred():
            process = subprocess.Popen(command, **options)  # noqa: S603 - callers' own programs
        output, errors = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
    finally:
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
