"""Progress of a comparison: a bar under the cell in a notebook, a line in a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from workbench.html import fill
from workbench.records.source import shell

PROGRESS_MIME = "application/vnd.torch-workbench.progress+json"
"""Mime type that the JupyterLab extension draws, with a button that interrupts the kernel."""

_STATIC = (
    '<div role="status"><progress value="{{ share }}" max="1" style="width:240px" '
    'aria-label="comparison"></progress> {{ text }}<br><small>Interrupt the kernel '
    "(press I twice) to end it and keep what was measured.</small></div>"
)


class Progress(Protocol):
    """Called with what is being done."""

    def __call__(self, what: str, share: float) -> None:
        """Show that ``what`` is being done and that ``share`` of all work is completed, 0 to 1."""
        ...

    def close(self) -> None:
        """Remove it from the screen."""
        ...


class Silent:
    """Shows nothing."""

    def __call__(self, what: str, share: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Line:
    """One line of a terminal, which is overwritten."""

    def __init__(self) -> None:
        self._width = 0

    def __call__(self, what: str, share: float) -> None:
        """Overwrite the last line."""
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

    In JupyterLab with the extension, a button does so too. The kernel is busy with the cell and
    receives no message, so the extension draws the button and interrupts from outside.
    """

    def __init__(self, display: Any) -> None:
        self._begun = time.monotonic()
        self._handle = display(_bundle("", 0.0, 0.0), raw=True, display_id=True)

    def __call__(self, what: str, share: float) -> None:
        """Redraw it."""
        self._handle.update(_bundle(what, share, time.monotonic() - self._begun), raw=True)

    def close(self) -> None:
        """Remove it from the cell."""
        self._handle.update({"text/plain": "", "text/html": ""}, raw=True)


def progress() -> Progress:
    """Return the progress display for this environment."""
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
