"""A widget's questions are answered on a background thread, by id, or with one sentence."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from workbench import display
from workbench.memory.widget_questions import question_handler


def widget() -> tuple[Any, queue.Queue[dict[str, Any]]]:
    """What sends, and what it sent."""
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    return SimpleNamespace(send=lambda content, _buffers=None: sent.put(content)), sent


def test_a_question_is_answered_on_another_thread(step_record) -> None:
    who: list[str] = []
    sender, sent = widget()
    whole = SimpleNamespace(
        send=lambda content: (who.append(threading.current_thread().name), sender.send(content))
    )
    question = {"kind": "what_if", "rows": [{"settings": ""}]}
    question_handler(step_record)(whole, {"type": "ask", "id": "a-1", "question": question})
    answer = sent.get(timeout=120)
    assert (answer["type"], answer["id"]) == ("answer", "a-1")
    (row,) = answer["answer"]["rows"]
    assert row["peak_bytes"] >= step_record.peak_bytes
    assert who == ["workbench-background"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"kind": "why"}, "known are 'what_if' and 'cards'"),
        ({"kind": "what_if", "rows": []}, "1 to 16 rows"),
        (3, "a question is an object"),
        (None, "a question is an object"),
    ],
)
def test_what_cannot_be_answered_is_said(step_record, question: Any, words: str) -> None:
    sender, sent = widget()
    question_handler(step_record)(sender, {"type": "ask", "id": 7, "question": question})
    answer = sent.get(timeout=120)
    assert answer["id"] == 7
    assert words in answer["error"]
    assert "answer" not in answer


def test_the_row_that_asks_is_sent_and_no_other_file(step_record, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(display, "STATIC", tmp_path)
    for name in ("what_if", "graph"):
        (tmp_path / f"{name}.js").write_text(name)
        (tmp_path / f"{name}.css").write_text(name)
    sent: list[Any] = []
    sender = SimpleNamespace(send=lambda content, buffers: sent.append((content["name"], buffers)))
    for name in ("what_if", "graph", "../view"):
        question_handler(step_record)(sender, {"type": "module", "name": name})
    assert sent == [("what_if", [b"what_if", b"what_if"]), ("graph", None), ("../view", None)]


def test_what_is_no_message_of_ours_is_nothing(step_record) -> None:
    sender, sent = widget()
    for content in (None, [], "ask", {}, {"type": "other"}):
        question_handler(step_record)(sender, content)
    assert sent.empty()


def test_another_batch_is_answered_by_what_knows_how_it_grows(step_record) -> None:
    asked: list[str] = []

    def determine_growth() -> Any:
        asked.append("")
        return step_record

    sender, sent = widget()
    ask = question_handler(step_record, determine_growth)
    for batch in (None, 64):
        question = {"kind": "what_if", "rows": [{"settings": "", "batch": batch}]}
        ask(sender, {"type": "ask", "id": "a", "question": question})
        assert "answer" in sent.get(timeout=120)
    assert len(asked) == 1


def test_who_waits_for_a_step_keeps_no_other_widget_waiting(step_record) -> None:
    waits = threading.Event()

    def determine_growth() -> Any:
        assert waits.wait(300)
        return step_record

    (sender, sent), (other, others) = widget(), widget()
    question = {"kind": "what_if", "rows": [{"settings": "", "batch": 64}]}
    question_handler(step_record, determine_growth)(
        sender, {"type": "ask", "id": "a", "question": question}
    )
    question_handler(step_record)(other, {"type": "ask", "id": "b", "question": {"kind": "cards"}})
    assert others.get(timeout=120)["id"] == "b"
    assert sent.empty()
    waits.set()
    assert sent.get(timeout=120)["id"] == "a"
