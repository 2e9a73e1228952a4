"""What an experiment reports about itself: status, message, markers, failure; and its observers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from workbench.experiment.report.events import Event, Observer, StatusChanged
from workbench.records import Failure, Marker
from workbench.records.panel import Status

log = logging.getLogger("workbench")

READY = "ready: model and data found, nothing has run yet"
MAX_MARKERS = 200


class Board:
    """Status of an experiment, written by whichever thread acts on it and read by all."""

    def __init__(self) -> None:
        self.status: Status = "idle"
        self.message = READY
        self.failure: Failure | None = None
        self.markers: tuple[Marker, ...] = ()
        self.started_at: float | None = None
        self.notes: list[str] = []
        """What the user should know about this experiment and could not see, one sentence each."""
        self.observers: list[Observer] = []
        self.step_observers: list[Observer] = []

    def subscribe(self, observer: Observer, *, every_step: bool = False) -> Callable[[], None]:
        """Pass every event to ``observer`` (steps only on request).

        Returns:
            A function that unsubscribes the observer.
        """
        wanted = [self.observers, self.step_observers] if every_step else [self.observers]
        for observers in wanted:
            observers.append(observer)

        def unsubscribe() -> None:
            for observers in wanted:
                if observer in observers:
                    observers.remove(observer)

        return unsubscribe

    def emit(self, event: Event, *, to_step_observers: bool = False) -> None:
        """Pass ``event`` to the observers; a faulty one is logged and cannot end a run."""
        for observer in tuple(self.step_observers if to_step_observers else self.observers):
            try:
                observer(event)
            except Exception:
                log.exception("an observer failed on %s", type(event).__name__)

    def change(
        self, status: Status, message: str, step: int, failure: Failure | None = None
    ) -> None:
        """Set a new status and notify the observers."""
        self.message = message
        self.failure = failure
        if status == "training" and self.status != "training":
            self.started_at = time.time()
        self.status = status
        self.emit(StatusChanged(step, status, message, failure))

    def say(self, message: str, step: int) -> None:
        """Change only the status line."""
        self.change(self.status, message, step, self.failure)

    def mark(self, step: int, text: str) -> None:
        """Draw a marker on the loss curve at ``step``; a later one at the same step joins it."""
        markers = list(self.markers)
        if markers and markers[-1].step == step:
            text = text if markers[-1].text == text else f"{markers[-1].text}, {text}"
            markers.pop()
        self.markers = (*markers, Marker(step=step, text=text))[-MAX_MARKERS:]
