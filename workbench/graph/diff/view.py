"""The diff of two captures on screen, ``diff(a, b)``: interactive where widgets run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import mime_bundle
from workbench.graph.core.number_format import diff_summary
from workbench.graph.diff.diff import diff_records
from workbench.graph.diff.text import describe_diff
from workbench.graph.render.export import save
from workbench.graph.render.figure import graph_figure
from workbench.graph.render.svg import graph_html
from workbench.records import GraphRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records import GraphDiff


class GraphDiffView:
    """A diff for display, as `diff` returns it: ``.record``, ``.save(path)``, ``.figure()``."""

    def __init__(self, record: GraphDiff) -> None:
        self.record = record
        """The `GraphDiff`."""

    def save(self, path: str | Path) -> Path:
        """Write the diff to ``path`` in the format given by its suffix and return the path.

        Raises:
            ValueError: the suffix is not known to `workbench.graph.render.export.save`.
        """
        return save(self.record, path)

    def figure(self) -> Figure:
        """The union of both graphs as a matplotlib figure."""
        return graph_figure(self.record)

    def __str__(self) -> str:
        return describe_diff(self.record)

    def __repr__(self) -> str:
        return f"{self.record.title}: {diff_summary(self.record)}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; only the last two where no widget can run."""
        return mime_bundle(
            "diff",
            {"record": self.record.to_bytes(), "error": ""},
            text=str(self),
            html=graph_html(self.record),
            options=options,
        )


def diff(a: Any, b: Any) -> GraphDiffView:
    """Show what changed from capture ``a`` to capture ``b``.

    Args:
        a: a `GraphRecord`, or a view that has one in ``.record``.
        b: likewise.

    Raises:
        TypeError: one of them is neither, or is a diff itself.
        RuntimeError: one of them is a view that has captured nothing yet.
    """
    return GraphDiffView(diff_records(_record_of(a), _record_of(b)))


def _record_of(value: Any) -> GraphRecord:
    record = value if isinstance(value, GraphRecord) else getattr(value, "record", None)
    if not isinstance(record, GraphRecord):
        raise TypeError(
            f"diff() got {type(value).__name__}; it takes two captured graphs: GraphRecords or "
            "what wb.graph(...) returned"
        )
    return record
