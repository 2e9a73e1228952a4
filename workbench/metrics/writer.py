"""A bounded queue and one thread that writes it to a TensorBoard event file.

Training must never wait for a disk. Whoever logs puts points in a queue under a lock that is held
for microseconds; the writer thread takes them out, encodes and writes them. A disk that is slow,
full or gone fills the queue; then the newest points are dropped and counted, and the count is shown
to the person. The thread keeps trying, so writing goes on when the disk does. It starts with
the first point and ends by itself when there has been nothing to write for a while.

Pictures are drawn on a second thread: the first one must write points whenever somebody waits for
them (`EventWriter.flush_points`), and drawing takes up to seconds.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.experiment.loop.scalars import Series
from workbench.experiment.runtime import at_exit
from workbench.metrics.encoding import encode_series, merged
from workbench.metrics.eventfile import EventFile
from workbench.metrics.protos import record, summary_event
from workbench.processes import interrupts_deferred

log = logging.getLogger("workbench")

CAPACITY = 200_000
"""Points that may wait: about 5 MB, and some minutes of an ordinary run."""
_RETRY_S = 1.0
"""Pause after a failed write."""
_GIVE_UP_S = 10.0
"""How long a disk may refuse after a run is over before what waits is counted as dropped."""
_IDLE_S = 5.0
"""How long the thread stays without work."""
_DRAWN_S = 60.0
"""How long a writer that is closed waits for pictures: importing matplotlib alone takes seconds."""
_AT_ONCE_S = 1.0
"""How long a program whose end is interrupted waits for points to be written."""
_SCALARS_EVERY_S = 1.0
"""At least so long from one encoding of scalars to the next; what came meanwhile goes together.
Encoding costs a fixed half millisecond, during which it holds the interpreter's lock that the
training needs as well."""

MakeSummary = Callable[[], Any]
"""Returns a ``tensorboard.Summary``."""
_Scalars = list[Series]
_Item = tuple[int, _Scalars | Callable[[], bytes]]
"""(number of points, the points themselves or what encodes them)"""

_open_writers: weakref.WeakSet[EventWriter] = weakref.WeakSet()


class EventWriter:
    """Writes what it is given to ``folder``, later and elsewhere. Safe from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = CAPACITY,
        on_drop: Callable[[int], None] | None = None,
        on_removed: Callable[[], None] | None = None,
    ) -> None:
        """What it tells, and on which thread.

        Args:
            folder: for the event files.
            capacity: points that may wait.
            on_drop: is told the total number of dropped points, on the thread that logged.
            on_removed: somebody has removed the file under way, and a new one was begun; on the
                thread that writes.
        """
        self.forget()
        self.dropped = 0
        """Points lost so far."""
        self.error = ""
        """Why the last write failed; empty while the disk is fine."""
        self.folder = folder
        """Where the event files are."""
        self._file = EventFile(folder)
        self._capacity = capacity
        self._on_drop = on_drop
        self._on_removed = on_removed
        self._num_refusals = 0
        self._scalars_due = 0.0
        """From this time on (`time.monotonic`) scalars may be encoded again."""
        _open_writers.add(self)

    def forget(self) -> None:
        """Nothing waits and nobody writes: in a fork, where what waits is not its to write."""
        self._items: deque[_Item] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._drawings: deque[Callable[[], bytes]] = deque()
        self._num_undrawn = 0
        self._drawing_thread: threading.Thread | None = None
        self._finishing = False
        self._flushing = 0

    def write(self, batch: Sequence[Series]) -> None:
        """Queue a batch of scalars (a sink of `ScalarLog`); never blocks, never raises."""
        self._put(sum(len(series[1]) for series in batch), list(batch))

    def summary(self, step: int, make: MakeSummary) -> None:
        """Queue any other summary that is quickly made; ``make`` builds it on the writer thread."""
        self._put(1, _encoder(step, make))

    def picture(self, step: int, make: MakeSummary) -> None:
        """Queue a summary that takes its time; ``make`` builds it on a thread for these alone."""
        with self._changed:
            self._drawings.append(_encoder(step, make))
            self._num_undrawn += 1
            if self._drawing_thread is None:
                self._drawing_thread = threading.Thread(
                    target=self._draw, name="workbench-drawing", daemon=True
                )
                if not at_exit.started(self._drawing_thread):
                    self._drawing_thread = None

    def start(self) -> None:
        """A run begins: from now on the thread waits for more instead of ending when it can."""
        with self._changed:
            self._finishing = False

    def finish(self) -> None:
        """A run is over: let the thread end whenever all is written; returns at once.

        More may follow, and is written.
        """
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all is drawn and on disk; False when that took longer than ``timeout`` s."""
        deadline = time.monotonic() + timeout
        with self._changed:
            drawn = self._changed.wait_for(lambda: not self._num_undrawn, timeout)
            return drawn and self._write_now(deadline - time.monotonic())

    def flush_points(self, timeout: float = 5.0) -> bool:
        """Wait until all but pictures is on disk, as whoever waits for a run does.

        False when that took longer than ``timeout`` seconds, or where the disk refuses.
        """
        self._write_without_thread()
        with self._changed:
            refusals = self._num_refusals
            return self._write_now(timeout, lambda: self._num_refusals > refusals)

    def _write_now(self, timeout: float, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Hurry the thread, and wait until nothing waits or that is given up. Held: the lock."""
        self._flushing += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(lambda: self._waiting == 0 or given_up(), timeout)
        finally:
            self._flushing -= 1
        return self._waiting == 0

    def close(self, timeout: float = 5.0) -> bool:
        """Draw and write what waits, end the threads; False when the disk did not let it in time.

        What is still waiting ``timeout`` seconds after the last picture was drawn counts as
        dropped.
        """
        self.finish()
        dropped = self.dropped
        self._draw_without_thread()
        self._write_without_thread()
        with self._changed:
            drawn = self._changed.wait_for(lambda: not self._num_undrawn, _DRAWN_S)
            done = self._write_now(timeout) and drawn and self.dropped == dropped
            lost, self._waiting = self._waiting + len(self._drawings), 0
            self._num_undrawn -= len(self._drawings)
            self._drawings.clear()
            self._items.clear()
            threads = self._drawing_thread, self._thread
            self._changed.notify_all()
        if lost:
            self._drop(lost)
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join(timeout if done else 0.0)
        return done

    def _draw_without_thread(self) -> None:
        """Draw what waits on this thread, where none could be started for it."""
        with self._changed:
            if self._drawing_thread is not None or not self._drawings:
                return
            self._drawing_thread = threading.current_thread()
        self._draw()

    def _write_without_thread(self) -> None:
        """Write what waits on this thread, where none could be started for it."""
        with self._changed:
            if self._thread is not None or not self._items:
                return
            self._thread = threading.current_thread()  # nobody else writes meanwhile
            waited_for, self._finishing = self._finishing, True
        try:
            self._run()
        finally:
            with self._changed:
                self._finishing = waited_for

    def _put(self, count: int, content: _Scalars | Callable[[], bytes]) -> None:
        if count == 0:
            return
        with self._changed:
            fits = self._waiting + count <= self._capacity
            if fits:
                self._items.append((count, content))
                self._waiting += count
                self._ensure_thread()
                if len(self._items) == 1 or self._in_a_hurry():  # else it knows of some already
                    self._changed.notify_all()
        if not fits:
            self._drop(count)

    def _drop(self, count: int) -> None:
        with self._changed:
            self.dropped += count
        if self._on_drop is not None:
            self._on_drop(self.dropped)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            with interrupts_deferred():  # one that is known and was never started writes nothing
                thread = threading.Thread(target=self._run, name="workbench-writer", daemon=True)
                if at_exit.started(thread):
                    self._thread = thread

    def _draw(self) -> None:
        while True:
            with self._changed:
                if not self._drawings:
                    self._drawing_thread = None
                    return
                make = self._drawings.popleft()
            records = _encoded(make)
            if records:
                self._put(1, lambda records=records: records)
            with self._changed:
                self._num_undrawn -= 1
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            taken = self._take()
            if taken is not None:
                self._write_until_done(taken)
                continue
            with contextlib.suppress(OSError):  # a network disk may say only now that it is full
                self._file.close()
            if self._retire():
                return

    def _take(self) -> tuple[int, Callable[[], bytes]] | None:
        """What is to be written next, or None when there is nothing to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._finishing, _IDLE_S)
            if not self._items:
                return None
            if not callable(self._items[0][1]):
                self._changed.wait_for(self._in_a_hurry, self._scalars_due - time.monotonic())
            return self._next() if self._items else None

    def _in_a_hurry(self) -> bool:
        """Whether somebody waits for what is queued, or the queue may soon be full."""
        return self._finishing or self._flushing > 0 or self._waiting > self._capacity // 2

    def _next(self) -> tuple[int, Callable[[], bytes]]:
        """The first item, with all scalars that follow it if it is scalars."""
        count, content = self._items.popleft()
        if callable(content):
            return count, content
        batches = [content]
        while self._items and not callable(more := self._items[0][1]):
            count += self._items.popleft()[0]
            batches.append(more)
        self._scalars_due = time.monotonic() + _SCALARS_EVERY_S
        return count, lambda: b"".join(map(encode_series, merged(batches)))

    def _retire(self) -> bool:
        """End the thread, unless there is work again."""
        with self._changed:
            if self._items:
                return False
            self._thread = None
            return True

    def _write_until_done(self, item: tuple[int, Callable[[], bytes]]) -> None:
        count, encode = item
        records, refused_since = _encoded(encode), time.monotonic()
        while records and not self._write(records):
            with self._changed:
                self._num_refusals += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting == 0, _RETRY_S)
                if self._waiting == 0:  # closed: these points were counted as dropped
                    return
                if not self._finishing:
                    refused_since = time.monotonic()
                hopeless = self._finishing and time.monotonic() - refused_since > _GIVE_UP_S
                lost = self._waiting if hopeless else 0
                if hopeless:
                    self._waiting = 0
                    self._items.clear()
                    self._changed.notify_all()
            if hopeless:
                self._drop(lost)
                return
        with self._changed:
            self._waiting = max(self._waiting - count, 0)
            self._changed.notify_all()

    def _write(self, records: bytes) -> bool:
        removed = self._file.removed
        try:
            self._file.append(records)
        except OSError as error:
            self.error = str(error)
            return False
        finally:
            if self._file.removed > removed and self._on_removed is not None:
                self._on_removed()
        self.error = ""
        return True


def _encoded(encode: Callable[[], bytes]) -> bytes:
    try:
        return encode()
    except Exception:
        # a summary that cannot be drawn is no reason to lose the points behind it
        log.exception("a summary could not be made for TensorBoard")
        return b""


def _encoder(step: int, make: MakeSummary) -> Callable[[], bytes]:
    at = time.time()
    return lambda: record(summary_event(max(step, 0), make(), at))


def _close_all() -> None:
    for writer in list(_open_writers):
        before = writer.dropped
        if writer.close():
            continue
        lost = writer.dropped - before
        log.warning(
            "%s of a run %s not written to %s: %s",
            f"{lost:,} points" if lost else "a picture",
            "were" if lost else "was",
            writer.folder,
            writer.error or ("the disk takes too long" if lost else "it takes too long to draw"),
        )


def _forget_all() -> None:
    for writer in list(_open_writers):
        writer.forget()
    _open_writers.clear()


def _write_what_waits() -> None:
    for writer in list(_open_writers):
        writer.flush_points(_AT_ONCE_S)


at_exit.register_for_interrupts(_write_what_waits)
at_exit.register(at_exit.Phase.WRITERS, _close_all)
at_exit.register_for_forks(_forget_all)
