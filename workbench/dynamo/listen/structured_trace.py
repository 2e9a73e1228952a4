"""Torch's structured trace as files for `tlparse`: every stage of each graph, which no report has.

The files are what ``TORCH_TRACE`` writes. If tlparse is installed
(``pip install "torch-workbench[tlparse]"``) it creates pages from them in the same folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workbench.processes import run_process
from workbench.torch_private.dynamo import TRACE_LOGGER, trace_handler

PAGES = "tlparse"
"""Folder of tlparse's pages, within that of the trace."""
PIP_LINE = 'pip install "torch-workbench[tlparse]"'
_LONGEST_S = 300.0


def trace_folder(path: str | Path) -> Path:
    """Return the folder for a trace, made if it does not exist.

    Raises:
        ValueError: it is not empty; other traces in it would be read together with this one.
    """
    folder = Path(path).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"trace= takes a new or an empty folder, and {str(path)!r} holds files")
    return folder


@contextmanager
def written_to(folder: Path | None) -> Generator[None]:
    """Write all that is compiled in the block to ``folder``; does nothing if ``folder`` is None."""
    if folder is None:
        yield
        return
    handler, logger = trace_handler(str(folder)), logging.getLogger(TRACE_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def read_by_tlparse(folder: Path) -> str:
    """Run tlparse on the trace in ``folder``; returns where its pages are, or what is missing."""
    logs = sorted(folder.glob("*.log"))
    if not logs:
        return f"No trace was written to {folder}: nothing was compiled."
    beside = str(Path(sys.executable).parent)
    found = shutil.which("tlparse", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    raw = f"The raw trace is in {folder}"
    if found is None:
        return f"{raw}; tlparse makes pages of it: {PIP_LINE}, then `tlparse {logs[0]}`."
    pages = folder / PAGES
    command = [found, "--overwrite", "--no-browser", "-o", str(pages), str(logs[0])]
    try:
        done = run_process(command, capture_output=True, text=True, timeout=_LONGEST_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{raw}; tlparse could not read it: {error}."
    if done.returncode or not (pages / "index.html").exists():
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return f"{raw}; tlparse could not read it: {last}"
    return f"{raw}; tlparse's pages begin at {pages / 'index.html'}."
