"""TensorBoard's messages and record framing: the only module that imports them.

Protobuf creates these classes at run time, so type checkers do not see them; here they become typed
functions.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

Event: Any = cast("Any", event_pb2).Event
SessionLog: Any = cast("Any", event_pb2).SessionLog
Summary: Any = cast("Any", summary_pb2).Summary


def record(data: bytes) -> bytes:
    """Return ``data`` framed with its length and checksums."""
    buffer = BytesIO()
    RecordWriter(buffer).write(data)
    return buffer.getvalue()


def version_event(wall_time: float) -> bytes:
    """Return the event every file begins with."""
    return Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString()


def restart_event(wall_time: float) -> bytes:
    """Return the event at which readers forget what they have read of a run."""
    log = SessionLog(status=SessionLog.START)
    return Event(wall_time=wall_time, step=0, session_log=log).SerializeToString()


def scalar_event(tag: str, step: int, value: float, wall_time: float) -> bytes:
    """Return one scalar point; ``value`` is stored as float32."""
    point = Summary.Value(tag=tag, simple_value=value)
    return summary_event(step, Summary(value=[point]), wall_time)


def summary_event(step: int, summary: Any, wall_time: float) -> bytes:
    """Return any ``tensorboard.Summary`` as an event."""
    return Event(wall_time=wall_time, step=step, summary=summary).SerializeToString()


def image_summary(tag: str, png: bytes, size: tuple[int, int]) -> Any:
    """Return an RGBA picture; ``size`` is (width, height) in pixels."""
    image = Summary.Image(width=size[0], height=size[1], colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=image)])
