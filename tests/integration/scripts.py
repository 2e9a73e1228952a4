"""A person's script as a process: what it printed, its exit status, how it hears an interrupt."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.fork_server import Forked, ForkServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300


def environment() -> dict[str, str]:
    """Of a process that imports this checkout, wherever it is started."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def ended(server: ForkServer, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script, once it has ended as an interpreter does, in a process that had imported torch."""
    out, err = path.with_name("stdout"), path.with_name("stderr")
    process = server.script(path, *arguments, env=environment(), stdout=out, stderr=err)
    try:
        status = process.wait(DEADLINE_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, status, out.read_text(), err.read_text())


class Scripts:
    """Runs ``script.py`` of a folder, ``beginning`` first; its argument is a folder for runs."""

    def __init__(self, folder: Path, server: ForkServer, beginning: str) -> None:
        self._folder, self._server, self._beginning = folder, server, beginning

    def ended(self, text: str, *, forked: bool = True) -> subprocess.CompletedProcess[str]:
        """The script ``text``, once it has ended.

        ``forked``: from a process that has imported torch. Its end is an interpreter's own in
        either case.
        """
        path = self._written(text)
        if not forked:
            return subprocess.run(
                [sys.executable, str(path), str(self._folder / "runs")], capture_output=True,
                text=True, timeout=DEADLINE_S, env=environment(),
            )  # fmt: skip
        return ended(self._server, path, str(self._folder / "runs"))

    @contextmanager
    def running(self, text: str) -> Iterator[tuple[Forked, TextIO]]:
        """The script, at work, and what it writes to its standard error.

        It is killed where a test fails before it has ended.
        """
        err = self._folder / "stderr"
        os.mkfifo(err)
        process = self._begun(self._written(text), self._folder / "stdout", err)
        try:
            with err.open() as stderr:
                yield process, stderr
        finally:
            process.kill()

    def _begun(self, path: Path, stdout: Path, stderr: Path) -> Forked:
        runs = str(self._folder / "runs")
        return self._server.script(path, runs, env=environment(), stdout=stdout, stderr=stderr)

    def _written(self, text: str) -> Path:
        path = self._folder / "script.py"
        path.write_text(textwrap.dedent(self._beginning) + textwrap.dedent(text))
        return path
