"""A graph record on screen: interactive where widgets run, a picture and text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import mime_bundle
from workbench.graph.describe import describe
from workbench.graph.figure import graph_figure
from workbench.graph.svg import graph_html
from workbench.graph.wording import heading, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records import GraphRecord


class GraphView:
    """What `workbench.graph` returns: ``.record``, ``.save(path)``, ``.figure()``, a display."""

    def __init__(self, record: GraphRecord | None) -> None:
        self._record = record

    @property
    def has_record(self) -> bool:
        """Whether there is a graph to show yet."""
        return self._record is not None

    @property
    def record(self) -> GraphRecord:
        """The record.

        Raises:
            RuntimeError: no loss has been captured yet.
        """
        if self._record is None:
            raise RuntimeError(
                "no graph is captured yet: call loss.backward() inside the `with wb.graph(model):` "
                "block, or wb.graph(loss) after it"
            )
        return self._record

    def save(self, path: str | Path) -> Path:
        """Write the record to ``path`` (open it again with ``wb.graph(path)``); returns it."""
        return self.record.save(path)

    def figure(self) -> Figure:
        """The static picture as a matplotlib figure."""
        return graph_figure(self.record)

    def show(self, record: GraphRecord) -> None:
        """Show ``record`` from now on."""
        self._record = record

    def __str__(self) -> str:
        return "Graph, no loss captured yet." if self._record is None else describe(self._record)

    def __repr__(self) -> str:
        if self._record is None:
            return str(self)
        return f"{heading(self._record)}; {summary(self._record)}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; only the last two where no widget can run."""
        if self._record is None:
            return {"text/plain": str(self)}, {}
        return mime_bundle(
            "graph",
            {"record": self._record.to_bytes(), "error": ""},
            text=str(self),
            html=graph_html(self._record),
            options=options,
        )
