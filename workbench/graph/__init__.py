"""The autograd graph of a live loss: every node, its module, its source line, what it saves.

``graph(...)`` is the verb, `GraphProbe` captures a step of an experiment, `GraphView` shows a
record, `diff` compares two, and `gradient_flow` follows an experiment over time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from workbench.graph.diff_view import GraphDiffView, diff
from workbench.graph.flow_view import GradientFlowView, gradient_flow
from workbench.graph.graph_root import NoGraphError
from workbench.graph.probe import GraphProbe
from workbench.graph.tool import graph
from workbench.graph.tracing import TracedGraph
from workbench.graph.view import GraphView

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
    """The package and the public verb share the name ``workbench.graph``.

    Importing the package binds that name to this module, whichever comes first; being callable,
    it then still answers ``wb.graph(loss)``.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> GraphView | GraphDiffView:
        return graph(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
