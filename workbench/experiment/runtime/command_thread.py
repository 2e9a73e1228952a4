"""One thread at a time for a training, and the requests that are made meanwhile.

A `Worker` knows no steps: it starts a thread for work, lets only one work at a time, queues
commands while there is one, and lets others wait for its end. While no thread works, the caller
carries out its command itself. Work that takes long (`Worker.attend`) keeps the worker busy, but no
thread waits for its lock: what is requested meanwhile is queued. A second thread, the *pulse*,
beats ten times a second alongside the first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Literal, NamedTuple

from workbench.experiment.runtime import at_exit
from workbench.experiment.runtime.openmp import release_team
from workbench.processes import interrupts_deferred
from workbench.trust import error_message

PULSE_S = 0.1
_THREAD = "workbench-runner"
_LONG_S = 5.0
"""If a step takes longer, in seconds, the log says that it is waited for."""
_SOON_S = 0.1
"""Time in seconds after which a run that is waited for is requested again to end."""

log = logging.getLogger("workbench")

_at_work: dict[threading.Event, Worker] = {}
"""Worker of each thread, by the event that is set when the thread is done: the interpreter must
not end before that."""


class _WorkThread(NamedTuple):
    """The thread that works on the training, or that did so last."""

    thread: threading.Thread
    over: threading.Event
    is_ours: bool
    """Whether the thread was started for this and ends with it; otherwise it is a caller's."""


class _Long(NamedTuple):
    """A command that takes long: carried out without the lock."""

    work: Callable[[], None]

    def __call__(self) -> None:
        self.work()


class _Light(NamedTuple):
    """A command that can be carried out while a step is computed in other processes."""

    work: Callable[[], object]

    def __call__(self) -> None:
        self.work()


class Worker:
    """Does one piece of work at a time, and carries out commands in between.

    Args:
        beat: called ten times a second while a thread works, and once at its end.
        say: called with the error of a command that no caller waits for any more.
    """

    def __init__(self, beat: Callable[[], None], say: Callable[[str], None]) -> None:
        self._beat = beat
        self._say = say
        self._turn = threading.RLock()
        """Held while work begins or ends, or is done by a caller if there is none; acquired
        before the gate.

        Observers are called while it is held, so it must not be needed merely to request something.
        """
        self._gate = threading.RLock()
        """Held briefly: to request something, or to check what was requested."""
        self._commands: deque[Callable[[], object]] = deque()
        self._afterwards: deque[Callable[[], object]] = deque()
        """Commands that are carried out once the work in progress is over."""
        self._requested: Literal["", "pause", "stop"] = ""
        self.why = ""
        """Why a pause or stop was requested, if it was not the user who did so."""
        self._leaves = self._is_abandoned = False
        """Set without a lock, and therefore separate from requests that can be taken back."""
        self._active = False
        self._aside = False
        self._is_over = False
        """Whether the work in progress has reached its end: it takes no more commands."""
        self._goes_on = False
        """Whether it was requested to continue after that."""
        self._closing: int | None = None
        """The thread that reports the end of the work, and then carries out what came too late
        for it."""
        self._work_thread: _WorkThread | None = None

    @property
    def active(self) -> bool:
        """Whether work is in progress."""
        return self._active

    @property
    def at_work_until(self) -> threading.Event | None:
        """Event that is set when the work in progress has ended; None before the first work."""
        return None if self._work_thread is None else self._work_thread.over

    @property
    def is_current(self) -> bool:
        """Whether the thread that works is the calling thread."""
        working = self._work_thread
        here = threading.current_thread()
        return self._active and working is not None and working.thread is here

    @property
    def rehearsing(self) -> bool:
        """Whether what is computed is not a step of a run: a capture, trials, `attend`."""
        return self._active and self._aside

    def submit(self, command: Callable[[], object], *, light: bool = False) -> None:
        """Carry out ``command``, which is short, at the next step boundary, or at once if idle.

        Args:
            command: what is to be done.
            light: whether it touches neither model nor data: then the training need not return for
                it from the processes that compute its steps.
        """
        queued = _Light(command) if light else command
        if not self._queue(self._commands, queued):
            with self._turn:
                if not self._queue(self._commands, queued):
                    command()

    def afterwards(self, command: Callable[[], object]) -> None:
        """Carry out ``command`` once the work in progress is over; at once if there is none.

        A later `halt` cancels it, and so does `go_on`.
        """
        if not self._queue(self._afterwards, command):
            with self._turn:
                if not self._queue(self._afterwards, command):
                    command()

    def refuse_inside(self) -> None:
        """Refuse to wait for the work on the thread that does it.

        Raises:
            RuntimeError: this is that thread (in a callback of a step): it would wait for itself.
        """
        if self.is_current:
            raise RuntimeError(
                "called inside a step, on the thread that trains: call it from a cell or another "
                "thread, or once the run has ended"
            )

    def attend(self, work: Callable[[], None]) -> None:
        """Do ``work``, which takes long, at the next step boundary, or at once on this thread.

        The worker is busy meanwhile, as in a rehearsal; requests wait in the queue, and their
        callers do not wait.
        """
        here = threading.current_thread()
        if self._queue(self._commands, _Long(work)):
            return
        before = mine = None
        is_busy = False
        try:
            with self._turn, interrupts_deferred():
                if self._queue(self._commands, _Long(work)):
                    return
                with self._gate:
                    before = mine = self._work_thread
                    if before is None or before.over.is_set() or before.thread is not here:
                        over = threading.Event()
                        mine = self._work_thread = _WorkThread(here, over, is_ours=False)
                    self._occupy(aside=True)
                    is_busy = True
            if before is not None and mine is not before:
                before.over.wait()
            work()
        finally:
            if is_busy:
                self._finish()
            if mine is not None and mine is not before:
                mine.over.set()

    @property
    def halted(self) -> Literal["", "pause", "stop"]:
        """What the work in progress is requested to do at the next step boundary, if anything."""
        return "stop" if self._leaves or self._is_abandoned else self._requested

    def halt(self, how: Literal["pause", "stop"], why: str = "") -> None:
        """Pause or stop at the next step boundary; does nothing if nothing is running.

        Args:
            how: which of both.
            why: reason for the status line, if it was not the user who requested it.
        """
        with self._gate:
            self._afterwards.clear()
            self._goes_on = False
            if self._active and self._requested != "stop":
                self._requested, self.why = how, why

    def go_on(self, anew: Callable[[], object]) -> bool:
        """Cancel a pause that was requested; return False if nothing is running any more.

        Args:
            anew: what continues if the work in progress has already paused and is about to report
                it; called after that, unless another halt comes.
        """
        with self._gate:
            if not self._is_busy():
                return False
            if self._requested == "pause":
                self._requested = ""
            self._afterwards.clear()
            if self._is_over or self._aside or not self._active:
                self._afterwards.append(anew)
                self._goes_on = True
            return True

    def abandon(self) -> None:
        """`halt` for a finalizer: it may run on any thread, inside any lock, and acquires none."""
        self._is_abandoned = True

    def request_end(self) -> None:
        """Stop at the next step boundary because the interpreter ends."""
        self._leaves = True

    def leave(self) -> None:
        """Call `request_end`, and wait until that is done."""
        began, is_said = time.monotonic(), False
        while self._active or not self.join(0):
            self.request_end()  # again: a run that began at the same moment has missed it
            self.join(_SOON_S)
            if not is_said and time.monotonic() - began > _LONG_S:
                is_said = True
                log.warning("waiting for %s to end; an interrupt ends without it", self.doing())

    def doing(self) -> str:
        """Description of what is waited for."""
        return "what runs in the background"

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no thread of this worker is left; False if ``timeout`` seconds passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        last: _WorkThread | None = None
        while self._work_thread is not last:  # a step requested at the very end begins a new thread
            last = self._work_thread
            if last is None or last.thread is threading.current_thread():
                return True
            # an interrupt inside Thread.join marks a live thread as ended (bpo-45274): wait first
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not last.over.wait(left):
                return False
            if last.is_ours:
                last.thread.join()
        return True

    # -- inside -----------------------------------------------------------------------------

    def _occupy(self, *, aside: bool) -> None:
        """Become busy; ``aside``: with what is no run. The caller holds the turn and the gate."""
        self._active, self._requested, self._aside = True, "", aside
        self._leaves = self._is_over = self._goes_on = False

    def _is_busy(self) -> bool:
        """Whether a request of now has to wait: for a step boundary, or until the end is reported.

        The thread that reports it does not wait. The caller holds the gate.
        """
        return self._active or self._closing not in (None, threading.get_ident())

    def _queue(self, queue: deque[Callable[[], object]], command: Callable[[], object]) -> bool:
        """Add ``command`` to ``queue``; return False if there is nothing to wait for."""
        with self._gate:
            if is_busy := self._is_busy():
                queue.append(command)
            return is_busy

    def _begin(self, context: Context, work: Callable[[], None]) -> None:
        """Do ``work`` on a new thread, whose prints go where ``context`` says; the turn is held.

        Raises:
            RuntimeError: the system starts no thread; the caller still has to `_finish`.
        """
        release_team()
        over, before = threading.Event(), self._work_thread
        thread = threading.Thread(
            target=context.run,
            args=(self._work, work, before, over),
            name=_THREAD,
            daemon=True,
        )
        self._work_thread = _WorkThread(thread, over, is_ours=True)
        _at_work[over] = self
        if not at_exit.started(thread):
            del _at_work[over]
            self._work_thread = before
            raise RuntimeError(
                f"no thread can be started: this process has {threading.active_count():,}, and the "
                "system allows no more (or the program ends)"
            )

    def _work(
        self, work: Callable[[], None], before: _WorkThread | None, over: threading.Event
    ) -> None:
        if before is not None:
            before.over.wait()
        ended = threading.Event()
        pulse = threading.Thread(
            target=_pulse, args=(ended, self._beat), name="workbench-pulse", daemon=True
        )
        beats = at_exit.started(pulse)
        try:
            work()
        finally:
            ended.set()
            if beats:
                pulse.join()
            quietly(self._beat)
            _at_work.pop(over, None)
            over.set()

    def _carry_out(self) -> None:
        """Execute commands between two steps. An error in one is no step's, and is reported."""
        while self._commands:
            self._execute(self._commands.popleft())

    def _carry_out_light(self) -> bool:
        """Execute what does not need the training here; return whether nothing else waits."""
        while self._commands and isinstance(self._commands[0], _Light):
            self._execute(self._commands.popleft())
        return not self._commands

    def _finish(self, report: Callable[[], None] | None = None) -> None:
        """End the work: call ``report``, then execute what came too late for a step."""
        work = self._closed(report)
        while work is not None:
            try:
                self._execute(work)
            except BaseException:  # an interrupt of the kernel: others would wait for ever
                self._finish()
                raise
            work = self._closed()

    def _closed(self, report: Callable[[], None] | None = None) -> Callable[[], object] | None:
        """Stop being busy, call ``report``, and execute what came too late.

        The gate is free meanwhile: an observer may wait for a thread that requests something.

        Returns:
            Work that takes long, with which the worker is already busy; None if there is none.
        """
        with self._turn:
            with self._gate:
                self._active = self._aside = False
                self._closing = threading.get_ident()
            try:
                if report is not None:
                    report()
            finally:
                work = self._late()
            return work

    def _late(self) -> Callable[[], object] | None:
        """Carry out what came too late for a step; work that takes long is returned instead.

        The caller holds the turn. If one of the commands has begun a new run, that run does the
        rest.
        """
        while True:
            with self._gate:
                is_long = bool(self._commands) and isinstance(self._commands[0], _Long)
                if self._commands and not (is_long and self._active):
                    command = self._commands.popleft()
                elif not self._commands and self._afterwards and not self._active:
                    command = self._afterwards.popleft()
                else:
                    self._closing = None
                    return None
                if is_long:
                    self._closing = None
                    self._occupy(aside=True)
                    return command
            try:
                self._execute(command)
            except BaseException:  # an interrupt of the kernel: others would wait for ever
                self._closing = None
                raise

    def _execute(self, command: Callable[[], object]) -> None:
        """Execute a command that no caller waits for; an error in it is reported, not raised."""
        try:
            command()
        except at_exit.EndingError:
            pass  # a run was requested, and there is no one to notify
        except Exception as error:
            log.exception("a command at a step boundary failed")
            self._say(f"{type(error).__name__}: {error_message(error)}")


def quietly(action: Callable[[], object]) -> None:
    """Do what may fail (after a CUDA assert everything does) without leaving a run half ended."""
    try:
        action()
    except at_exit.EndingError:
        pass
    except BaseException:  # user code may raise SystemExit as well
        log.exception(
            "%s failed while a run was under way", getattr(action, "__qualname__", action)
        )


def _pulse(ended: threading.Event, beat: Callable[[], None]) -> None:
    while not ended.wait(PULSE_S):
        quietly(beat)


def _leave_all() -> None:
    """End every run of this process, and wait for its threads."""
    while workers := list(_at_work.values()):
        for worker in workers:
            worker.request_end()  # all of them, before the first is waited for
        for worker in workers:
            worker.leave()
    for thread in threading.enumerate():
        if thread.name == _THREAD and thread is not threading.current_thread():
            thread.join()


at_exit.register(at_exit.Phase.RUNS, _leave_all)
at_exit.register_for_forks(_at_work.clear)
