"""The autograd graph of a live loss: every node, its module, its source line, what it saves.

``graph(...)`` is the entry point, `GraphProbe` captures a step of an experiment, `GraphView` shows
a record, `diff` compares two, and `gradient_flow` follows an experiment over time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from workbench.gradient_flow.view import GradientFlowView, gradient_flow
from workbench.graph.api import graph
from workbench.graph.core.graph_root import NoGraphError
from workbench.graph.diff.view import GraphDiffView, diff
from workbench.graph.probe import GraphProbe
from workbench.graph.view import GraphView
from workbench.graph.with_block import TracedGraph

__all__ = [
    "GradientFlowView",
    "GraphDiffView",
    "GraphProbe",
    "GraphView",
    "NoGraphError",
    "TracedGraph",
    "diff",
    "gradient_flow",
    "graph",
]


class _Callable(ModuleType):
    """A callable module: the package and the public function share the name ``workbench.graph``.

    Importing the package binds that name to this module, whichever comes first; because the module
    is callable, ``wb.graph(loss)`` still works then.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> GraphView | GraphDiffView:
        return graph(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
