"""``wb.tensorboard("runs")``: the dashboard of a log directory, inside JupyterLab.

The kernel starts no process and opens no port. The view requests a tab from JupyterLab, and the
Jupyter server runs TensorBoard behind its own login (`workbench/server`).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from workbench.display import MimeBundle, mime_bundle
from workbench.html import fill

_STATIC = (
    "<p>TensorBoard of <code>{{ folder }}</code>. "
    "Outside JupyterLab: <code>{{ command }}</code></p>"
)


class TensorBoardView:
    """A log directory; displaying it opens TensorBoard in a JupyterLab tab."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir

    def __str__(self) -> str:
        return f"TensorBoard of {self._shown}: outside JupyterLab run `{self.command}`"

    __repr__ = __str__

    @property
    def command(self) -> str:
        """Shell command that shows the same outside JupyterLab."""
        return f"tensorboard --logdir {shlex.quote(self._shown)}"

    @property
    def _shown(self) -> str:
        """The folder as seen from here: a stored notebook must not reveal paths of this machine."""
        here = Path.cwd()
        inside = self.logdir.is_relative_to(here)
        return str(self.logdir.relative_to(here)) if inside else str(self.logdir)

    def _repr_mimebundle_(self, **options: Any) -> MimeBundle:
        return mime_bundle(
            "tensorboard",
            {"logdir": str(self.logdir), "command": self.command, "opened": False},
            text=str(self),
            html=fill(_STATIC, folder=self._shown, command=self.command),
            options=options,
        )


def tensorboard(logdir: Any = "runs") -> TensorBoardView:
    """Show TensorBoard of a log directory in a JupyterLab tab.

    Args:
        logdir: a folder of runs (or one run), or an `Experiment`: its runs folder is shown whole,
            because TensorBoard names and compares runs by their folders.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    target = logdir if isinstance(logdir, (str, Path)) else logdir.path.parent
    path = Path(target).expanduser().resolve()
    if not path.is_dir():
        raise FileNotFoundError(
            f"no such folder: {path}; pass the folder given as runs=... (default 'runs')"
        )
    return TensorBoardView(path)
