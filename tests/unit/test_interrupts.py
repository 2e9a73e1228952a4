"""What tests interrupt with: it reaches the code that is tested, and nothing else."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.interrupts import Interrupted, interrupted
from tests.waiting import DEADLINE_S


def stay(begun: threading.Event) -> None:
    begun.set()
    threading.Event().wait(DEADLINE_S)


def stay_and_return(begun: threading.Event) -> str:
    try:
        stay(begun)
    except KeyboardInterrupt:
        return "interrupted"
    return "not interrupted"


def test_it_ends_a_wait_of_code_that_is_at_work() -> None:
    begun = threading.Event()
    with pytest.raises(Interrupted):
        interrupted(begun.is_set, stay, begun)
    begun.clear()
    assert interrupted(begun.is_set, stay_and_return, begun) == "interrupted"


def test_code_that_was_over_before_is_told() -> None:
    with pytest.raises(AssertionError, match="over before it was interrupted"):
        interrupted(lambda: False, list)


def test_at_the_very_end_it_reaches_the_code_or_nobody() -> None:
    before = signal.getsignal(signal.SIGINT)
    for _ in range(100):
        begun = threading.Event()
        with pytest.raises((Interrupted, AssertionError)):
            interrupted(begun.is_set, begun.set)
        assert signal.getsignal(signal.SIGINT) is before


def test_what_cannot_be_asked_ends_the_code() -> None:
    with pytest.raises(ZeroDivisionError):
        interrupted(lambda: 1 / 0, stay, threading.Event())
