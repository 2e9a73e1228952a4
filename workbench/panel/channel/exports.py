"""Export of a capture to another format for a browser: a picture, Graphviz, Model Explorer.

A picture of a large graph takes seconds to draw, so each export runs in the background
(`workbench.panel.channel.background_work`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from workbench.panel.channel.background_work import Task
from workbench.panel.channel.commands import CommandError
from workbench.panel.channel.questions import Answer, held

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import GraphRecord, MemoryRecord, Record

MAX_BYTES = 64 * 2**20
"""Same limit as for the captures that an experiment keeps; a browser saves the export over the same
connection."""

FORMATS: dict[str, tuple[str, ...]] = {
    "graph": ("svg", "png", "pdf", "dot", "json"),
    "diff": ("svg", "png", "pdf", "dot", "json"),
    "memory": ("png", "pdf"),
}
"""Formats that a capture of each kind can be exported to, in addition to the record itself."""

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Export:
    """A requested export of a capture; its fields are already validated."""

    capture: str
    kind: str
    format: str
    record: Record


def export(experiment: Experiment, args: Mapping[str, Any]) -> Task:
    """Read the arguments of an ``export`` command.

    Raises:
        CommandError: see `requested`.
    """
    wanted = requested(experiment, args)
    fields = {"capture": wanted.capture, "format": wanted.format}
    return Task(lambda: Answer("file", make(wanted), fields), _one_at_a_time)


def requested(experiment: Experiment, args: Mapping[str, Any]) -> Export:
    """Return which capture is to be exported to which format.

    Raises:
        CommandError: the capture is no longer held, or its kind has no such format.
    """
    info, form = held(experiment, args), args.get("format")
    valid = FORMATS[info.kind]
    if form not in valid:
        raise CommandError(
            f"a {info.kind} cannot be written as {str(form)[:64]!r}; valid: {', '.join(valid)}"
        )
    record = experiment.captures.get(info.id)
    return Export(info.id, info.kind, str(form), record)


def make(export: Export) -> bytes:
    """Encode a capture in its new format.

    Raises:
        CommandError: the result is larger than `MAX_BYTES`.
    """
    if export.kind == "memory":
        from workbench.memory.render.figure import picture

        data = picture(cast("MemoryRecord", export.record), export.format)
    else:
        from workbench.graph.render.export import encode

        data = encode(cast("GraphRecord", export.record), f".{export.format}")
    if len(data) > MAX_BYTES:
        raise CommandError(
            f"the {export.format.upper()} is {len(data) / 2**20:,.0f} MiB and at most "
            f"{MAX_BYTES // 2**20} MiB are sent to a browser: write it with the view's .save(path)"
        )
    return data
