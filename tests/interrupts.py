"""Interrupts as Ctrl-C gives them: of code that is seen to be at work, and never after it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Literal, TypeVar

from tests.waiting import DEADLINE_S

T = TypeVar("T")

_LOOK_S = 0.01


class Interrupted(Exception):  # noqa: N818 - it is what the test asks for
    """The interrupt came through the code; as an exception that ends no run of tests."""


def interrupted(seen: Callable[[], object], work: Callable[..., T], *args: Any, **given: Any) -> T:
    """What ``work(*args, **given)`` returns though it is interrupted once ``seen()`` is true.

    The interrupt is a real signal, so it also ends a wait of this thread, and it is raised in
    ``work`` or not at all.

    Raises:
        Interrupted: it came through.
        AssertionError: ``work`` was over before, or was never seen at work.
    """
    return _Interrupt(seen).of(work, args, given)


class _Interrupt:
    def __init__(self, seen: Callable[[], object]) -> None:
        self._seen = seen
        self._over = threading.Event()
        self._state: Literal["ready", "sent", "raised"] = "ready"
        """The watcher alone leaves the first, this thread alone the second."""
        self._fault: BaseException | None = None
        """Why it was sent though nothing was seen: a test must not hang for it."""

    def of(self, work: Callable[..., T], args: tuple[Any, ...], given: Mapping[str, Any]) -> T:
        before = signal.signal(signal.SIGINT, self._hear)
        watcher = threading.Thread(target=self._watch, name="interrupts")
        watcher.start()
        try:
            result = _at_work(work, args, given)
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from error
        finally:
            self._over.set()
            watcher.join()
            while self._state == "sent":  # it is on its way to this thread
                time.sleep(_LOOK_S)
            signal.signal(signal.SIGINT, before)
            if self._fault is not None:
                raise self._fault
        assert self._state == "raised", "it was over before it was interrupted"
        return result

    def _watch(self) -> None:
        try:
            self._wait_until_seen()
        except BaseException as error:  # the test fails with it
            self._fault = error
        while not self._over.is_set() and self._state != "raised":
            if self._state == "ready":  # again, where it came before the code was at work
                self._state = "sent"
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self._over.wait(_LOOK_S)

    def _wait_until_seen(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._over.is_set() and not self._seen():
            assert time.monotonic() < deadline, f"not seen at work within {DEADLINE_S:g} s"
            self._over.wait(_LOOK_S)

    def _hear(self, _number: int, frame: FrameType | None) -> None:
        """On the main thread, between two instructions of whatever it does."""
        if self._state != "sent":  # somebody ends the tests
            raise KeyboardInterrupt
        is_at_work = _is_at_work(frame)
        self._state = "raised" if is_at_work else "ready"
        if is_at_work:
            raise KeyboardInterrupt


def _at_work(work: Callable[..., T], args: tuple[Any, ...], given: Mapping[str, Any]) -> T:
    return work(*args, **given)


def _is_at_work(frame: FrameType | None) -> bool:
    """Whether what `_at_work` calls is being carried out in ``frame``."""
    while frame is not None and frame.f_back is not None:
        if frame.f_back.f_code is _at_work.__code__:
            return True
        frame = frame.f_back
    return False
