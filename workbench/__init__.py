"""Workbench: see what PyTorch does with your model, inside JupyterLab.

``import workbench as wb`` loads neither torch nor IPython: every public name is resolved on first
use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.compare import compare
    from workbench.dtypes import dtypes
    from workbench.dynamo import compile_ahead, compile_report
    from workbench.experiment import Experiment, Run, load_weights
    from workbench.graph import graph
    from workbench.memory import memory
    from workbench.modes import Modes
    from workbench.panel import open_record as open  # noqa: A004 - the public verb is wb.open
    from workbench.panel import tensorboard
    from workbench.parallel.attach import attach

__version__ = "0.1.0"

__all__ = [
    "Experiment",
    "Modes",
    "Run",
    "attach",
    "compare",
    "compile_ahead",
    "compile_report",
    "dtypes",
    "graph",
    "load_weights",
    "memory",
    "open",
    "tensorboard",
]

_HOMES = {
    "Experiment": ("workbench.panel.assembly", "Experiment"),
    "Modes": ("workbench.modes", "Modes"),
    "Run": ("workbench.experiment", "Run"),
    "attach": ("workbench.panel.attach", "attach"),
    "compare": ("workbench.compare", "compare"),
    "compile_ahead": ("workbench.dynamo", "compile_ahead"),
    "compile_report": ("workbench.dynamo", "compile_report"),
    "dtypes": ("workbench.dtypes", "dtypes"),
    "graph": ("workbench.graph", "graph"),
    "load_weights": ("workbench.experiment", "load_weights"),
    "memory": ("workbench.memory", "memory"),
    "open": ("workbench.panel", "open_record"),
    "tensorboard": ("workbench.panel", "tensorboard"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}; it has: {__all__}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _jupyter_labextension_paths() -> list[dict[str, str]]:  # pyright: ignore[reportUnusedFunction] - JupyterLab calls it
    return [{"src": "labextension", "dest": "torch-workbench"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction] - Jupyter calls it
    from workbench.server.extension import WorkbenchServer

    return [{"module": "workbench.server", "app": WorkbenchServer}]


class _Package(ModuleType):
    """Keeps ``wb.graph`` the function once the package ``workbench.graph`` is imported too.

    The import system binds every imported subpackage to its name here. If that name is public, the
    public object is kept; ``from workbench.graph import ...`` still finds the package.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
