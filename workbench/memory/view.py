"""A memory record on screen: interactive where widgets run, a picture and text everywhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.memory.describe import describe
from workbench.memory.figure import to_figure
from workbench.memory.svg import static_html
from workbench.records import MemoryRecord

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from matplotlib.figure import Figure

STATIC = Path(__file__).parent.parent / "static"
_BUNDLE = "memory.js"


class MemoryView:
    """What `workbench.memory` returns: ``.record``, ``.save(path)``, ``.figure()``, a display."""

    def __init__(self, record: MemoryRecord | None) -> None:
        self._record = record

    @property
    def has_record(self) -> bool:
        """Whether there is something to show yet."""
        return self._record is not None

    @property
    def record(self) -> MemoryRecord:
        """The record.

        Raises:
            RuntimeError: the recording has not ended.
        """
        if self._record is None:
            raise RuntimeError(
                "nothing is recorded yet: read it after the `with wb.memory()` block"
            )
        return self._record

    def save(self, path: str | Path) -> Path:
        """Write the record to ``path`` (open it again with ``wb.memory(path)``); returns it."""
        return self.record.save(path)

    def figure(self) -> Figure:
        """The chart as a matplotlib figure."""
        return to_figure(self.record)

    def show(self, record: MemoryRecord) -> None:
        """Show ``record`` from now on."""
        self._record = record

    def __str__(self) -> str:
        if self._record is None:
            return "Memory recording, not ended yet."
        return describe(self._record)

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; without the built bundle or a record the last two."""
        if self._record is None:
            return {"text/plain": str(self)}, {}
        static = {"text/plain": str(self), "text/html": static_html(self._record)}
        if not (STATIC / _BUNDLE).exists():
            hint = f"{_BUNDLE} is not built, so the picture is static: run `make front`."
            return {**static, "text/html": f"{static['text/html']}<p>{hint}</p>"}, {}
        bundle = _widget_class()(record=self._record.to_bytes())._repr_mimebundle_(**options)  # pyright: ignore[reportPrivateUsage] - the display protocol's name
        if bundle is None:
            return static, {}
        data, metadata = bundle
        return {**data, **static}, metadata


@cache
def _widget_class() -> type[AnyWidget]:
    import anywidget
    import traitlets

    class MemoryWidget(anywidget.AnyWidget):
        """Carries the bytes of one record to the browser, once."""

        _esm = STATIC / _BUNDLE
        record = traitlets.Bytes().tag(sync=True)
        error = traitlets.Unicode("").tag(sync=True)

    return MemoryWidget
