"""A graph record on screen: interactive where widgets run, a picture and text everywhere."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.graph.describe import describe
from workbench.graph.figure import graph_figure
from workbench.graph.svg import graph_html
from workbench.graph.wording import heading, summary

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from matplotlib.figure import Figure

    from workbench.records import GraphRecord

STATIC = Path(__file__).parent.parent / "static"
_BUNDLE = "graph.js"


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
        static = {"text/plain": str(self), "text/html": graph_html(self._record)}
        if not (STATIC / _BUNDLE).exists():
            hint = f"{_BUNDLE} is not built, so the picture is static: run `make front`."
            return {**static, "text/html": f"{static['text/html']}<p>{hint}</p>"}, {}
        if not someone_is_looking():
            return static, {}
        widget: Any = _widget_class()(record=self._record.to_bytes())
        bundle = widget._repr_mimebundle_(**options)
        if bundle is None:
            return static, {}
        data, metadata = bundle
        return {**data, **static}, metadata


def someone_is_looking() -> bool:
    """Whether this cell was run by a front end with a person before it.

    nbclient, nbconvert and papermill write the state of every widget into the notebook. They cannot
    ask a person for input, and say so in each request they send to the kernel.
    """
    ipython = sys.modules.get("IPython")
    kernel: Any = getattr(ipython.get_ipython(), "kernel", None) if ipython is not None else None
    if kernel is None:
        return False
    request = cast("dict[str, Any]", kernel.get_parent("shell") or {})
    return bool(request.get("content", {}).get("allow_stdin", True))


@cache
def _widget_class() -> type[AnyWidget]:
    import anywidget
    import traitlets

    class GraphWidget(anywidget.AnyWidget):
        """Carries the bytes of one record to the browser, once."""

        _esm = STATIC / _BUNDLE
        record = traitlets.Bytes().tag(sync=True)
        error = traitlets.Unicode("").tag(sync=True)

    return GraphWidget
