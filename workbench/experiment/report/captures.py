"""The records an experiment has captured, newest first, bounded in number and in bytes."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace

from workbench.records import CaptureInfo, Record
from workbench.records.panel import CaptureKind

MAX_CAPTURES = 20
MAX_BYTES = 64 * 2**20


class CaptureStore:
    """Records by id. The oldest are dropped past `MAX_CAPTURES` or `MAX_BYTES`."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[CaptureInfo, Record]] = {}
        self._lock = threading.Lock()

    def add(
        self,
        kind: CaptureKind,
        step: int,
        record: Record,
        summary: str = "",
        *,
        against_step: int | None = None,
    ) -> str:
        """Keep ``record`` and return its id."""
        info = CaptureInfo(
            id=uuid.uuid4().hex[:12],
            kind=kind,
            step=step,
            against_step=against_step,
            num_bytes=len(record.to_bytes()),
            created_at=time.time(),
            summary=summary,
        )
        with self._lock:
            self._held[info.id] = (info, record)
            self._make_room()
        return info.id

    def replace(self, capture_id: str, record: Record) -> None:
        """Keep ``record`` under an id that is known; one whose record was dropped stays so."""
        num_bytes = len(record.to_bytes())
        with self._lock:
            held = self._held.get(capture_id)
            if held is not None:
                self._held[capture_id] = (replace(held[0], num_bytes=num_bytes), record)

    def infos(self) -> tuple[CaptureInfo, ...]:
        """Information about the records that are held, newest first."""
        with self._lock:
            return tuple(info for info, _ in reversed(self._held.values()))

    def get(self, capture_id: str) -> Record:
        """Return the record called ``capture_id``.

        Raises:
            KeyError: it is not held (any more); the message lists what is. The id is empty if a
                failure has no record.
        """
        if not capture_id:
            raise KeyError("this failure has no record: the step was not recorded")
        with self._lock:
            held = self._held.get(capture_id)
            if held is None:
                known = ", ".join(self._held) or "none"
                raise KeyError(f"no capture {capture_id!r} is held; held are: {known}")
            return held[1]

    def _make_room(self) -> None:
        total = sum(info.num_bytes for info, _ in self._held.values())
        while len(self._held) > 1 and (len(self._held) > MAX_CAPTURES or total > MAX_BYTES):
            oldest = next(iter(self._held))
            total -= self._held.pop(oldest)[0].num_bytes
