"""Answers to a widget in a cell's output: questions of its record, and the part that asks them.

A widget sends ``{"type": "ask", "id", "question"}`` and is sent ``{"type": "answer", "id"}`` with
``"answer"``, or with ``"error"``, one sentence. An answer runs a simulated allocator through the
whole recording, which takes up to seconds: it is worked out on a thread of its own, so that a cell
can be run meanwhile. What a question is stands in `workbench.memory.simulation.questions`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from workbench.display import send_bundle

if TYPE_CHECKING:
    from workbench.records import MemoryRecord

log = logging.getLogger("workbench")

_one_at_a_time = threading.Lock()


def answering(record: MemoryRecord) -> Callable[[Any, Any], None]:
    """What to call with (widget, content) for every message of a widget that shows ``record``."""

    def received(widget: Any, content: Any) -> None:
        if not isinstance(content, dict):
            return
        message = cast("dict[str, Any]", content)
        if message.get("type") == "module":
            send_bundle(widget, str(message.get("name")), {"what_if", "flame"})
        elif message.get("type") == "ask":
            thread = threading.Thread(
                target=_answer, args=(widget, record, message), name="workbench-answer", daemon=True
            )
            thread.start()

    return received


def _answer(widget: Any, record: MemoryRecord, message: Mapping[str, Any]) -> None:
    answered = {"type": "answer", "id": message.get("id")}
    try:
        with _one_at_a_time:
            answered["answer"] = _answer_to(record, message.get("question"))
    except Exception as reason:  # whatever goes wrong is the answer
        log.debug("a widget's question failed", exc_info=True)
        answered["error"] = str(reason) or type(reason).__name__
    widget.send(answered)


def _answer_to(record: MemoryRecord, question: object) -> dict[str, Any]:
    from workbench.memory.simulation.questions import answer

    if not isinstance(question, dict):
        raise TypeError("a question is an object, as the memory view sends it")
    return answer(record, cast("dict[str, Any]", question))
