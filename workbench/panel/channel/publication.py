"""Messages about an experiment that are sent without a request: whatever the browser lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.panel.channel import curves, state
from workbench.records import to_json

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.panel.channel.channel import Client


def changes(
    client: Client, experiment: Experiment
) -> Iterator[tuple[str, Sequence[bytes] | None, dict[str, Any]]]:
    """Yield messages as (kind, buffers, fields); each counts as sent to ``client`` once taken."""
    key = experiment.id
    described = to_json(state.describe(experiment))
    text = json.dumps(described, sort_keys=True)
    if client.states.get(key) != text:
        client.states[key] = text
        yield "state", None, {"state": described}
    update = curves.update(client, experiment)
    if update is not None:
        fields, buffers = update
        yield "curves", buffers, fields
    capture = state.latest_memory_capture(experiment)
    if capture is not None and client.charts.get(key) != capture:
        chart = state.chart_of(experiment, capture).to_bytes()
        client.charts[key] = capture
        yield "chart", [chart], {}
