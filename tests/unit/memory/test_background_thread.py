"""Background work: on its own thread, one at a time, with exactly one report in every case."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from workbench.memory.background_thread import run_in_background

Heard = queue.Queue[tuple[Any, str, str]]


@pytest.fixture
def heard() -> Heard:
    """What was made, the sentence, and the thread that said so."""
    return queue.Queue()


def start(make: Any, turn: threading.Lock, heard: Heard) -> None:
    run_in_background(
        make, turn, lambda made, error: heard.put((made, error, threading.current_thread().name))
    )


def test_what_is_made_comes_from_a_thread_of_its_own(heard: Heard) -> None:
    start(lambda: 3, threading.Lock(), heard)
    assert heard.get(timeout=120) == (3, "", "workbench-background")
    assert heard.empty()


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("no such card"), "no such card"), (KeyError(), "KeyError")]
)
def test_what_goes_wrong_is_one_sentence(error: Exception, said: str, heard: Heard) -> None:
    turn = threading.Lock()

    def fail() -> None:
        raise error

    start(fail, turn, heard)
    assert heard.get(timeout=120)[:2] == (None, said)
    assert turn.acquire(timeout=120), "the next one has its turn"


def test_those_that_share_a_turn_are_made_one_at_a_time(heard: Heard) -> None:
    turn, may_end = threading.Lock(), threading.Event()
    begun = threading.Semaphore(0)

    def make() -> bool:
        begun.release()
        return may_end.wait(300)

    for _ in range(2):
        start(make, turn, heard)
    assert begun.acquire(timeout=120)
    assert not begun.acquire(timeout=0.1), "the second waits for the first"
    may_end.set()
    assert [heard.get(timeout=120)[0] for _ in range(2)] == [True, True]
