"""How far a comparison is: a bar under the cell in a notebook, a line in a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from workbench.html import fill
from workbench.records.source import shell

PROGRESS_MIME = "application/vnd.torch-workbench.progress+json"
"""Drawn by the JupyterLab extension, with a button that interrupts the kernel."""

_STATIC = (
    '<div role="status"><progress value="{{ share }}" max="1" style="width:240px" '
    'aria-label="comparison"></progress> {{ text }}<br><small>Interrupt the kernel '
    "(press I twice) to end it and keep what was measured.</small></div>"
)


class Progress(Protocol):
    """Told what is being done."""

    def __call__(self, what: str, share: float) -> None:
        """``share`` of all is done, 0 to 1."""
        ...

    def close(self) -> None:
        """Take it off the screen."""
        ...


class Silent:
    """Says nothing."""

    def __call__(self, what: str, share: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Line:
    """One line of a terminal, written over."""

    def __init__(self) -> None:
        self._width = 0

    def __call__(self, what: str, share: float) -> None:
        """Write it over the last one."""
        text = f"{share:4.0%}  {what}"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self) -> None:
        """Leave an empty line."""
        sys.stderr.write("\r" + " " * self._width + "\r")
        sys.stderr.flush()


class Bar:
    """A bar under the cell that is running; the kernel's Interrupt ends the comparison.

    In JupyterLab with the extension a button does so. The kernel is busy with the cell and hears
    no message, so the extension draws the button and interrupts from outside.
    """

    def __init__(self, display: Any) -> None:
        self._begun = time.monotonic()
        self._handle = display(_bundle("", 0.0, 0.0), raw=True, display_id=True)

    def __call__(self, what: str, share: float) -> None:
        """Draw it anew."""
        self._handle.update(_bundle(what, share, time.monotonic() - self._begun), raw=True)

    def close(self) -> None:
        """Take it off the cell."""
        self._handle.update({"text/plain": "", "text/html": ""}, raw=True)


def progress() -> Progress:
    """What suits where this runs."""
    if hasattr(shell(), "kernel"):
        from IPython.display import display

        return Bar(display)
    return Line() if sys.stderr.isatty() else Silent()


def _bundle(what: str, share: float, elapsed_s: float) -> dict[str, Any]:
    text = f"{share:.0%}  {what}"
    return {
        PROGRESS_MIME: {"what": what, "share": share, "elapsed": elapsed_s},
        "text/plain": f"{text} (interrupt the kernel to keep what was measured)",
        "text/html": fill(_STATIC, share=f"{share:.3f}", text=text),
    }
