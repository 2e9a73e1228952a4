"""Answers to a widget in a cell's output, about the record that the widget shows.

A widget sends ``{"type": "ask", "id", "question"}`` and receives ``{"type": "answer", "id"}`` with
``"answer"``, or with ``"error"``, one sentence. An answer runs a simulated allocator through the
whole recording: it is computed on a background thread, so that a cell can run meanwhile. The
questions are described in `workbench.memory.simulation.questions`. A question about another batch
may wait until the growth of the recorded step has been determined.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from workbench.display import send_bundle
from workbench.memory.background_thread import run_in_background
from workbench.memory.simulation.questions import answer, has_other_batch

if TYPE_CHECKING:
    from workbench.records import MemoryRecord

_one_at_a_time = threading.Lock()
"""Held while an allocator is simulated, which takes a core; not held while waiting for a step."""


def question_handler(
    record: MemoryRecord, determine_growth: Callable[[], MemoryRecord] | None = None
) -> Callable[[Any, Any], None]:
    """Return the handler to call with (widget, content) for each message of a widget.

    The widget shows ``record``. ``determine_growth`` returns the record with the growth of its
    blocks; it is called only if that matters.
    """
    lock = threading.Lock()

    def answer_to(question: object) -> dict[str, Any]:
        known = record
        if determine_growth is not None and has_other_batch(record, question):
            known = determine_growth()
        with _one_at_a_time:
            return answer(known, question)

    def received(widget: Any, content: Any) -> None:
        if not isinstance(content, dict):
            return
        message = cast("dict[str, Any]", content)
        if message.get("type") == "module":
            send_bundle(widget, str(message.get("name")), {"what_if", "flame"})
        elif message.get("type") == "ask":

            def done(found: dict[str, Any] | None, error: str) -> None:
                reply = {"error": error} if found is None else {"answer": found}
                widget.send({"type": "answer", "id": message.get("id"), **reply})

            run_in_background(lambda: answer_to(message.get("question")), lock, done)

    return received
