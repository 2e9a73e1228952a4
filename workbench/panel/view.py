"""The panel in a notebook: a widget that finds its experiment over the live channels.

The widget itself carries two small strings. All live data is sent over the comms that the browser
opens (`panel/channel/hub.py`); where a host cannot open comms (Colab) the same messages are sent
over the widget's own channel. In JupyterLab with the extension the same two strings are sent in a
custom mime type, and the extension draws the panel: after a reload no widget has to be restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.display import MimeBundle, mime_bundle, send_bundle
from workbench.panel.channel.hub import hub
from workbench.panel.summary import static_html, text_summary

if TYPE_CHECKING:
    from workbench.experiment import Experiment

LAB_MIME = "application/vnd.torch-workbench.panel+json"
"""Mime type that the JupyterLab extension draws, over its own connection, instead of the widget."""

_VIEWS = frozenset({"graph", "diff", "memory", "what_if", "flame"})


def display_bundle(experiment: Experiment, **options: Any) -> MimeBundle:
    """Return the mime bundle of an experiment: widget, static picture, text."""
    traits = {"experiment": experiment.id, "name": experiment.name[:200]}
    return mime_bundle(
        "panel",
        traits,
        text=text_summary(experiment),
        html=static_html(experiment),
        options=options,
        on_message=_on_widget_message,
        extra={LAB_MIME: traits},
    )


def _on_widget_message(widget: Any, content: Any) -> None:
    """Handle the fallback channel, which carries the same messages as a comm."""
    if not isinstance(content, dict):
        return
    if content.get("type") == "module":
        # for a page that has no tabs to open the view in
        send_bundle(widget, str(content.get("name")), _VIEWS)
        return
    client = f"widget-{widget.model_id}"
    if content.get("type") == "connect":

        def send(data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
            widget.send(data, list(buffers) if buffers else None)

        hub().connect(client, send)
    else:
        hub().receive(client, content)
