"""One thread at a time at a training, and what is asked of it meanwhile.

A `Worker` knows no steps: it begins a thread for work, lets only one be at work, queues commands
while there is one, and lets others wait for its end. While no thread works, the caller carries out
its command itself. Work that takes long (`Worker.attend`) keeps it busy, but nobody waits for its
lock: what is asked for meanwhile is queued. A second thread, the *pulse*, beats ten times a second
beside the first.
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
"""A step that takes longer is said to be waited for."""
_SOON_S = 0.1
"""After so long a run that is waited for is asked to end again."""

log = logging.getLogger("workbench")

_at_work: dict[threading.Event, Worker] = {}
"""By what is set when a thread is done, whose it is: the interpreter must not end before it."""


class _Stretch(NamedTuple):
    """Who is at the training, or was last."""

    thread: threading.Thread
    over: threading.Event
    is_ours: bool
    """Whether the thread was begun for it and ends with it; else it is a caller's."""


class _Long(NamedTuple):
    """A command that takes long: carried out without the lock."""

    work: Callable[[], None]

    def __call__(self) -> None:
        self.work()


class _Light(NamedTuple):
    """A command that can be carried out while a step is computed elsewhere."""

    work: Callable[[], object]

    def __call__(self) -> None:
        self.work()


class Worker:
    """Does one piece of work at a time, and carries out commands between two.

    Args:
        beat: called ten times a second while a thread works, and once at its end.
        say: told the fault of a command that nobody waits for any more.
    """

    def __init__(self, beat: Callable[[], None], say: Callable[[str], None]) -> None:
        self._beat = beat
        self._say = say
        self._turn = threading.RLock()
        """Held by who begins or ends a piece of work, or acts where there is none; before the gate.

        Observers are called with it, so nobody may need it who only wants something asked for.
        """
        self._gate = threading.RLock()
        """Held for a moment: to ask for something, or to look at what was asked for."""
        self._commands: deque[Callable[[], object]] = deque()
        self._afterwards: deque[Callable[[], object]] = deque()
        """What begins anew once the work under way is over."""
        self._asked: Literal["", "pause", "stop"] = ""
        self.why = ""
        """Why it was asked to pause or stop, where it was not a person who did."""
        self._leaves = self._is_abandoned = False
        """Set without a lock, and so apart from what is asked for and taken back."""
        self._active = False
        self._aside = False
        self._is_over = False
        """Whether the work under way has found that it ends: it hears of nothing more."""
        self._goes_on = False
        """Whether it was told to go on after it had found that."""
        self._closing: int | None = None
        """The thread that tells of the end of the work, and then does what came too late for it."""
        self._stretch: _Stretch | None = None

    @property
    def active(self) -> bool:
        """Whether something is at work."""
        return self._active

    @property
    def at_work_until(self) -> threading.Event | None:
        """What is set when the work under way has ended; None before the first."""
        return None if self._stretch is None else self._stretch.over

    @property
    def is_current(self) -> bool:
        """Whether the thread that is at work is the one that asks."""
        stretch = self._stretch
        here = threading.current_thread()
        return self._active and stretch is not None and stretch.thread is here

    @property
    def rehearsing(self) -> bool:
        """Whether something is computed that is no step of a run: a capture, trials, `attend`."""
        return self._active and self._aside

    def submit(self, command: Callable[[], object], *, light: bool = False) -> None:
        """Carry out ``command``, which is short, at the next step boundary; else at once.

        Args:
            command: what is to be done.
            light: whether it touches neither model nor data: then the training need not come home
                for it from where its steps are computed.
        """
        queued = _Light(command) if light else command
        if not self._queue(self._commands, queued):
            with self._turn:
                if not self._queue(self._commands, queued):
                    command()

    def afterwards(self, command: Callable[[], object]) -> None:
        """Carry out ``command`` once the work under way is over; at once where there is none.

        A later `halt` takes it back, and so does `go_on`.
        """
        if not self._queue(self._afterwards, command):
            with self._turn:
                if not self._queue(self._afterwards, command):
                    command()

    def refuse_inside(self) -> None:
        """Who is about to wait for the work must not be the thread that does it.

        Raises:
            RuntimeError: it is (in a callback of a step): it would wait for itself.
        """
        if self.is_current:
            raise RuntimeError(
                "asked from inside a step, on the thread that trains: ask from a cell or another "
                "thread, or once the run has ended"
            )

    def attend(self, work: Callable[[], None]) -> None:
        """Do ``work``, which takes long, at the next step boundary; else at once, on this thread.

        The worker is busy meanwhile as in a rehearsal; what is asked of it waits in the queue, and
        who asks does not wait.
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
                    before = mine = self._stretch
                    if before is None or before.over.is_set() or before.thread is not here:
                        mine = self._stretch = _Stretch(here, threading.Event(), is_ours=False)
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
        """What the work under way was asked to do at the next step boundary, if anything."""
        return "stop" if self._leaves or self._is_abandoned else self._asked

    def halt(self, how: Literal["pause", "stop"], why: str = "") -> None:
        """Pause or stop at the next step boundary; nothing happens where nothing runs.

        Args:
            how: which of both.
            why: for the status line, where it was not a person who asked for it.
        """
        with self._gate:
            self._afterwards.clear()
            self._goes_on = False
            if self._active and self._asked != "stop":
                self._asked, self.why = how, why

    def go_on(self, anew: Callable[[], object]) -> bool:
        """Take a pause back that was asked for; False where nothing runs any more.

        Args:
            anew: what goes on where the work under way has paused already and is about to tell so;
                done after that, unless another halt comes.
        """
        with self._gate:
            if not self._is_busy():
                return False
            if self._asked == "pause":
                self._asked = ""
            self._afterwards.clear()
            if self._is_over or self._aside or not self._active:
                self._afterwards.append(anew)
                self._goes_on = True
            return True

    def abandon(self) -> None:
        """`halt` for a finalizer: it may run on any thread, inside any lock, and so takes none."""
        self._is_abandoned = True

    def ask_to_leave(self) -> None:
        """Stop at the next step boundary because the interpreter ends."""
        self._leaves = True

    def leave(self) -> None:
        """`ask_to_leave`, and wait until that is done."""
        began, is_said = time.monotonic(), False
        while self._active or not self.join(0):
            self.ask_to_leave()  # again: a run that began at the same moment has not heard of it
            self.join(_SOON_S)
            if not is_said and time.monotonic() - began > _LONG_S:
                is_said = True
                log.warning("waiting for %s to end; an interrupt ends without it", self.doing())

    def doing(self) -> str:
        """What is waited for, in a sentence."""
        return "what runs in the background"

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no thread of this worker is left; False if ``timeout`` seconds passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        last: _Stretch | None = None
        while self._stretch is not last:  # a step asked for at the very end begins a new thread
            last = self._stretch
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
        """Be busy; ``aside``: with what is no run. Held: the turn and the gate."""
        self._active, self._asked, self._aside = True, "", aside
        self._leaves = self._is_over = self._goes_on = False

    def _is_busy(self) -> bool:
        """Whether what is asked for now waits: for a step boundary, or the end's being told.

        The thread that tells it is not kept waiting. Held: the gate.
        """
        return self._active or self._closing not in (None, threading.get_ident())

    def _queue(self, queue: deque[Callable[[], object]], command: Callable[[], object]) -> bool:
        """Have ``command`` wait in ``queue``; False where there is nothing to wait for."""
        with self._gate:
            if is_busy := self._is_busy():
                queue.append(command)
            return is_busy

    def _begin(self, context: Context, work: Callable[[], None]) -> None:
        """Do ``work`` on a new thread, whose prints go where ``context`` says. Held: the turn.

        Raises:
            RuntimeError: the system starts no thread; it remains to `_finish`.
        """
        release_team()
        over, before = threading.Event(), self._stretch
        thread = threading.Thread(
            target=context.run,
            args=(self._work, work, before, over),
            name=_THREAD,
            daemon=True,
        )
        self._stretch = _Stretch(thread, over, is_ours=True)
        _at_work[over] = self
        if not at_exit.started(thread):
            del _at_work[over]
            self._stretch = before
            raise RuntimeError(
                f"no thread can be started: this process has {threading.active_count():,}, and the "
                "system allows no more (or the program ends)"
            )

    def _work(
        self, work: Callable[[], None], before: _Stretch | None, over: threading.Event
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
        """Between two steps: what was asked for. A fault of it is no step's, and is said."""
        while self._commands:
            self._said(self._commands.popleft())

    def _carry_out_light(self) -> bool:
        """Carry out what can be before the training is home; whether nothing else waits."""
        while self._commands and isinstance(self._commands[0], _Light):
            self._said(self._commands.popleft())
        return not self._commands

    def _finish(self, tell: Callable[[], None] | None = None) -> None:
        """The work is over: ``tell`` it, then carry out what came too late for a step."""
        work = self._closed(tell)
        while work is not None:
            try:
                self._said(work)
            except BaseException:  # an interrupt of the kernel: whoever waits would wait for ever
                self._finish()
                raise
            work = self._closed()

    def _closed(self, tell: Callable[[], None] | None = None) -> Callable[[], object] | None:
        """Be busy no more, ``tell`` it, and do what came too late.

        The gate is free meanwhile: an observer may wait for a thread that asks for something.

        Returns:
            Work that takes long, with which the worker is busy already; None where there is none.
        """
        with self._turn:
            with self._gate:
                self._active = self._aside = False
                self._closing = threading.get_ident()
            try:
                if tell is not None:
                    tell()
            finally:
                work = self._late()
            return work

    def _late(self) -> Callable[[], object] | None:
        """Carry out what came too late for a step; work that takes long is given back instead.

        Held: the turn. Where one of the commands has begun a new run, that does the rest.
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
                self._said(command)
            except BaseException:  # an interrupt of the kernel: whoever waits would wait for ever
                self._closing = None
                raise

    def _said(self, command: Callable[[], object]) -> None:
        """Carry out a command that nobody waits for any more; its fault is said, not raised."""
        try:
            command()
        except at_exit.EndingError:
            pass  # who asked for it asked for a run, and there is nobody to tell
        except Exception as error:
            log.exception("what was asked for at a step boundary failed")
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
            worker.ask_to_leave()  # all of them, before the first is waited for
        for worker in workers:
            worker.leave()
    for thread in threading.enumerate():
        if thread.name == _THREAD and thread is not threading.current_thread():
            thread.join()


at_exit.register(at_exit.Phase.RUNS, _leave_all)
at_exit.register_for_forks(_at_work.clear)
