"""Commands that are answered with data and change nothing: a capture's record, the gradient flow.

Each returns the message to send before the reply, or None if there is nothing to send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.panel.channel.commands import CommandError
from workbench.panel.channel.gradient_flow import flow_since

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import CaptureInfo


@dataclass(frozen=True)
class Answer:
    """A message of its own kind, with at most one buffer."""

    kind: str
    data: bytes | None
    fields: dict[str, Any]


def held(experiment: Experiment, args: Mapping[str, Any]) -> CaptureInfo:
    """Return the capture that ``args`` names.

    Raises:
        CommandError: the experiment no longer holds it.
    """
    wanted = str(args.get("capture", ""))
    info = next((one for one in experiment.captures.infos() if one.id == wanted), None)
    if info is None:
        raise CommandError("this capture is no longer held: capture the next step")
    return info


def fetch(experiment: Experiment, args: Mapping[str, Any]) -> Answer:
    """Return one record, as it is held."""
    info = held(experiment, args)
    data = experiment.captures.get(info.id).to_bytes()
    return Answer("record", data, {"capture": info.id, "kind": info.kind})


def flow(experiment: Experiment, args: Mapping[str, Any]) -> Answer | None:
    """Return the gradient flow after what the browser already has."""
    found = flow_since(experiment, args)
    return Answer("flow", found[1], {"known": found[0]}) if found is not None else None


QUESTIONS: dict[str, Callable[[Experiment, Mapping[str, Any]], Answer | None]] = {
    "fetch": fetch,
    "flow": flow,
}
