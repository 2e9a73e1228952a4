"""The panel in a notebook: a widget that finds its experiment over the live channels.

The widget itself carries two small strings. Everything live travels over the comms the browser
opens (`panel/channel/hub.py`); where a host cannot open comms (Colab) the same messages travel over
the widget's own channel. In JupyterLab with the extension the same two strings travel in a mime
type of our own, and the extension draws the panel: a reload then needs no widget to be handed back.
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
"""What the JupyterLab extension draws, over its own connection, in place of the widget."""

_VIEWS = frozenset({"graph", "diff", "memory", "what_if", "flame"})


def display_bundle(experiment: Experiment, **options: Any) -> MimeBundle:
    """The mime bundle of an experiment: widget, static picture, text."""
    traits = {"experiment": experiment.id, "name": experiment.name[:200]}
    return mime_bundle(
        "panel",
        traits,
        text=text_summary(experiment),
        html=static_html(experiment),
        options=options,
        on_message=_on_widget_message,
        beside={LAB_MIME: traits},
    )


def _on_widget_message(widget: Any, content: Any) -> None:
    """The fallback channel: the same messages a comm would carry."""
    if not isinstance(content, dict):
        return
    if content.get("type") == "module":
        # where the page has no tabs to open it in
        send_bundle(widget, str(content.get("name")), _VIEWS)
        return
    client = f"widget-{widget.model_id}"
    if content.get("type") == "connect":

        def send(data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
            widget.send(data, list(buffers) if buffers else None)

        hub().connect(client, send)
    else:
        hub().receive(client, content)
