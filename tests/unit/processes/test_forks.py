from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.waiting import DEADLINE_S, wait_until
from workbench.processes import forks
from workbench.processes.forks import Computing


def begun(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@contextmanager
def forked(computing: Computing) -> Iterator[None]:
    """What `os.fork` does, from the one hook to the other."""
    with computing.forking():
        computing.before_fork()
        try:
            yield
        finally:
            computing.after_fork()


def waiting(computing: Computing) -> int:
    """How many threads wait for each other."""
    return len(computing._changed._waiters)  # type: ignore[attr-defined]


def test_a_fork_waits_for_the_step_and_the_next_step_for_the_fork() -> None:
    computing, order = Computing(), list[str]()
    in_step, step_ends, fork_ends = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        with computing:
            in_step.set()
            step_ends.wait(DEADLINE_S)
            order.append("step")

    def fork() -> None:
        with forked(computing):
            order.append("fork")
            fork_ends.wait(DEADLINE_S)

    def next_step() -> None:
        with computing:
            order.append("next step")

    threads = [begun(step)]
    assert in_step.wait(DEADLINE_S)
    threads.append(begun(fork))
    wait_until(lambda: waiting(computing) == 1)
    threads.append(begun(next_step))
    wait_until(lambda: waiting(computing) == 2)
    step_ends.set()
    wait_until(lambda: "fork" in order)
    wait_until(lambda: waiting(computing) == 1)
    fork_ends.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == ["step", "fork", "next step"]


def test_two_that_fork_within_their_steps_do_not_wait_for_each_other() -> None:
    computing, both = Computing(), threading.Barrier(2)

    def step() -> None:
        with computing:
            both.wait(DEADLINE_S)  # each is in its step
            with forked(computing):
                both.wait(DEADLINE_S)  # each is at its fork

    threads = [begun(step), begun(step)]
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not both.broken
    assert computing._depths == computing._forking == {}


def test_a_step_within_a_step_ends_with_the_outer_one() -> None:
    computing = Computing()
    with computing:
        with pytest.raises(ValueError, match="in the inner one"), computing:
            raise ValueError("in the inner one")
        assert list(computing._depths.values()) == [1]
    assert computing._depths == {}


def test_a_step_that_stands_still_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forks, "_LONGEST_S", 0.01)
    computing, in_step, goes_on = Computing(), threading.Event(), threading.Event()

    def step() -> None:
        with computing:
            in_step.set()
            goes_on.wait(DEADLINE_S)

    thread = begun(step)
    assert in_step.wait(DEADLINE_S)
    with forked(computing):
        assert list(computing._depths.values()) == [1]
        with computing:  # nor does a step wait for ever for a fork
            pass
    goes_on.set()
    thread.join(DEADLINE_S)


def test_a_program_that_is_started_waits_for_nothing() -> None:
    computing, in_step, goes_on = Computing(), threading.Event(), threading.Event()

    def step() -> None:
        with computing:
            in_step.set()
            goes_on.wait(DEADLINE_S)

    thread = begun(step)
    assert in_step.wait(DEADLINE_S)
    computing.before_fork()
    computing.after_fork()
    assert thread.is_alive()
    goes_on.set()
    thread.join(DEADLINE_S)
