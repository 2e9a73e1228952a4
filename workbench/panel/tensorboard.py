"""``wb.tensorboard("runs")``: the dashboard of a log directory, inside JupyterLab.

The kernel starts nothing and opens no port. The view asks JupyterLab for a tab, and the Jupyter
server runs TensorBoard behind its own login (`workbench/server`).
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

STATIC = Path(__file__).parent.parent / "static"


class TensorBoardWidget(anywidget.AnyWidget):
    """Asks the page for a TensorBoard tab of ``logdir`` (an absolute path) when it is displayed."""

    _esm = STATIC / "tensorboard.js"
    logdir = traitlets.Unicode().tag(sync=True)


class TensorBoardView:
    """A log directory; displaying it opens TensorBoard in a JupyterLab tab."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir

    def __str__(self) -> str:
        return f"TensorBoard of {self.logdir}: outside JupyterLab run `{self.command}`"

    __repr__ = __str__

    @property
    def command(self) -> str:
        """The shell command that shows the same outside JupyterLab."""
        return f"tensorboard --logdir '{self.logdir}'"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        static = {
            "text/plain": str(self),
            "text/html": f"<p>TensorBoard of <code>{escape(str(self.logdir))}</code>. "
            f"Outside JupyterLab: <code>{escape(self.command)}</code></p>",
        }
        if not (STATIC / "tensorboard.js").exists():
            return static, {}
        bundle = TensorBoardWidget(logdir=str(self.logdir))._repr_mimebundle_(**options)
        if bundle is None:
            return static, {}
        data, metadata = bundle
        return {**data, **static}, metadata


def tensorboard(logdir: Any = "runs") -> TensorBoardView:
    """Show TensorBoard of a log directory in a JupyterLab tab.

    Args:
        logdir: a folder of runs (or one run), or an `Experiment`, whose runs folder is shown.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    target = getattr(logdir, "path", logdir)
    path = Path(target).expanduser().resolve()
    if not path.is_dir():
        raise FileNotFoundError(
            f"no such folder: {path}; pass the folder given as runs=... (default 'runs')"
        )
    return TensorBoardView(path)
