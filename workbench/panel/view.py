"""The panel in a notebook: an anywidget that finds its experiment over the live channels.

The widget itself carries two small strings. Everything live travels over the comms the browser
opens (`hub.py`); where a host cannot open comms (Colab, marimo) the same messages travel over the
widget's own channel. Beside the widget every output holds a static picture and a text summary, so
that GitHub and nbconvert show something true without a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from workbench.panel.hub import hub
from workbench.panel.summary import static_html, text_summary

if TYPE_CHECKING:
    from workbench.experiment import Experiment

STATIC = Path(__file__).parent.parent / "static"


class PanelWidget(anywidget.AnyWidget):
    """The notebook's panel for one experiment, found by ``experiment`` (its id)."""

    _esm = STATIC / "panel.js"
    experiment = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)

    def __init__(self, experiment: str, name: str) -> None:
        super().__init__(experiment=experiment, name=name)
        self.on_msg(_on_widget_message)


def _on_widget_message(widget: PanelWidget, content: Any, _buffers: list[bytes]) -> None:
    """The fallback channel: the same messages a comm would carry."""
    if not isinstance(content, dict):
        return
    client = f"widget-{widget.model_id}"
    if content.get("type") == "connect":

        def send(data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
            widget.send(data, list(buffers) if buffers else None)

        hub().connect(client, send)
    else:
        hub().receive(client, content)


def display_bundle(experiment: Experiment, **options: Any) -> Any:
    """The mime bundle of an experiment: widget, static picture, text."""
    static = {"text/plain": text_summary(experiment), "text/html": static_html(experiment)}
    if not (STATIC / "panel.js").exists():
        hint = "panel.js is not built: run `make lab` (or `make front`) in the source checkout"
        return {**static, "text/html": f"<p>{hint}</p>{static['text/html']}"}, {}
    widget = PanelWidget(experiment=experiment.id, name=experiment.name)
    bundle = widget._repr_mimebundle_(**options)
    if bundle is None:
        return static, {}
    data, metadata = bundle
    return {**data, **static}, metadata
