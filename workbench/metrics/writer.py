"""A bounded queue and one thread that writes it to a TensorBoard event file.

Training must never wait for a disk. A caller that logs puts points in a queue under a lock that is
held for microseconds; the writer thread takes them out, encodes and writes them. A disk that is
slow, full or gone fills the queue; then the newest points are dropped and counted, and the count is
shown to the user. The thread keeps trying, so writing resumes when the disk does. It starts with
the first point and ends by itself when there has been nothing to write for a while.

Pictures are drawn on a second thread: the first one must write points whenever a caller waits for
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
from workbench.metrics.event_file import PREFIX, EventFile
from workbench.metrics.scalar_encoding import encode_series, merged
from workbench.metrics.tensorboard_messages import record, summary_event
from workbench.processes import interrupts_deferred

log = logging.getLogger("workbench")

CAPACITY = 200_000
"""Maximum number of queued points: about 5 MB, and some minutes of an ordinary run."""
MOST_PICTURES = 200
"""Maximum number of pictures that wait to be drawn."""
_RETRY_S = 1.0
"""Pause in seconds after a failed write."""
_GIVE_UP_S = 10.0
"""How many seconds after the end of a run a disk may fail before queued points are counted as
dropped."""
_IDLE_S = 5.0
"""How many seconds the thread stays without work."""
_DRAWN_S = 60.0
"""How many seconds closing a writer waits for pictures: importing matplotlib alone takes
seconds."""
_AT_ONCE_S = 1.0
"""How many seconds a program whose exit is interrupted waits for points to be written."""
_SCALARS_EVERY_S = 1.0
"""Minimum number of seconds from one encoding of scalars to the next; points that arrive meanwhile
are encoded together. Encoding costs a fixed half millisecond, during which it holds the
interpreter's lock that the training also needs."""

MakeSummary = Callable[[], Any]
"""Returns a ``tensorboard.Summary``."""
_Scalars = list[Series]
_Item = tuple[int, _Scalars | Callable[[], bytes]]
"""(number of points, the points themselves or a function that encodes them)"""

_open_writers: weakref.WeakSet[EventWriter] = weakref.WeakSet()


class EventWriter:
    """Writes summaries to ``folder`` asynchronously, on another thread. Safe from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = CAPACITY,
        on_drop: Callable[[int], None] | None = None,
        on_removed: Callable[[], None] | None = None,
    ) -> None:
        """Create a writer, with callbacks that are called on the given threads.

        Args:
            folder: folder of the event files.
            capacity: maximum number of queued points.
            on_drop: called with the total number of dropped points, on the thread that logged.
            on_removed: called when the current file was removed and a new one was begun; on the
                thread that writes.
        """
        self.forget()
        self.dropped = 0
        """Number of points lost so far."""
        self.error = ""
        """Why the last write failed; empty while the disk works."""
        self.folder = folder
        """Folder of the event files."""
        self._file = EventFile(folder)
        self._capacity = capacity
        self._on_drop = on_drop
        self._on_removed = on_removed
        self._num_refusals = 0
        self._scalars_due = 0.0
        """Time (`time.monotonic`) from which scalars may be encoded again."""
        _open_writers.add(self)

    def forget(self) -> None:
        """Reset queue and threads: in a fork, which must not write what its parent has queued."""
        self._items: deque[_Item] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._drawings: deque[Callable[[], bytes]] = deque()
        self._num_undrawn = 0
        self._drawing_thread: threading.Thread | None = None
        self._finishing = False
        self._flushing = 0

    def move(self, folder: Path) -> bool:
        """Write to another folder from now on; return whether it has event files already."""
        self.flush()
        self._file.close()
        self.folder, self._file = folder, EventFile(folder)
        return any(path.name.startswith(PREFIX) for path in folder.iterdir())

    def write(self, batch: Sequence[Series]) -> None:
        """Queue a batch of scalars (a sink of `ScalarLog`); never blocks, never raises."""
        self._put(sum(len(series[1]) for series in batch), list(batch))

    def summary(self, step: int, make: MakeSummary) -> None:
        """Queue any other quickly made summary; ``make`` builds it on the writer thread."""
        self._put(1, _encoder(step, make))

    def picture(self, step: int, make: MakeSummary) -> None:
        """Queue a slow summary; ``make`` builds it on a thread that is only for these."""
        with self._changed:
            fits = len(self._drawings) < MOST_PICTURES
            if fits:
                self._drawings.append(_encoder(step, make))
                self._num_undrawn += 1
            if self._drawing_thread is None:
                self._drawing_thread = threading.Thread(
                    target=self._draw, name="workbench-drawing", daemon=True
                )
                if not at_exit.started(self._drawing_thread):
                    self._drawing_thread = None
        if not fits:
            self._drop(1)

    def start(self) -> None:
        """Start a run: from now on the thread waits for more points instead of ending."""
        with self._changed:
            self._finishing = False

    def finish(self) -> None:
        """Finish a run: the thread may end when everything is written; returns immediately.

        Further points may follow, and are written.
        """
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all is drawn and on disk; False if that took longer than ``timeout`` s."""
        deadline = time.monotonic() + timeout
        with self._changed:
            drawn = self._changed.wait_for(lambda: not self._num_undrawn, timeout)
            return drawn and self._write_now(deadline - time.monotonic())

    def flush_points(self, timeout: float = 5.0) -> bool:
        """Wait until everything except pictures is on disk, as a caller that waits for a run does.

        Returns False if that took longer than ``timeout`` seconds, or if the disk fails.
        """
        self._write_without_thread()
        with self._changed:
            refusals = self._num_refusals
            return self._write_now(timeout, lambda: self._num_refusals > refusals)

    def _write_now(self, timeout: float, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Wake the thread, and wait until the queue is empty or given up. The lock is held."""
        self._flushing += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(lambda: self._waiting == 0 or given_up(), timeout)
        finally:
            self._flushing -= 1
        return self._waiting == 0

    def close(self, timeout: float = 5.0) -> bool:
        """Draw and write what is queued, end the threads; return False if the disk was too slow.

        Points that are still queued ``timeout`` seconds after the last picture was drawn count as
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
        """Draw what is queued on the current thread, if no drawing thread could be started."""
        with self._changed:
            if self._drawing_thread is not None or not self._drawings:
                return
            self._drawing_thread = threading.current_thread()
        self._draw()

    def _write_without_thread(self) -> None:
        """Write what is queued on the current thread, if no writer thread could be started."""
        with self._changed:
            if self._thread is not None or not self._items:
                return
            self._thread = threading.current_thread()  # no other thread writes meanwhile
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
                if len(self._items) == 1 or self._is_urgent():  # else it has been notified already
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
            with interrupts_deferred():  # a thread that is stored but not started writes nothing
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
            with contextlib.suppress(OSError):  # a network disk may report only now that it is full
                self._file.close()
            if self._retire():
                return

    def _take(self) -> tuple[int, Callable[[], bytes]] | None:
        """Return what is to be written next, or None if there is nothing to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._finishing, _IDLE_S)
            if not self._items:
                return None
            if not callable(self._items[0][1]):
                self._changed.wait_for(self._is_urgent, self._scalars_due - time.monotonic())
            return self._next() if self._items else None

    def _is_urgent(self) -> bool:
        """Whether a caller waits for what is queued, or the queue may soon be full."""
        return self._finishing or self._flushing > 0 or self._waiting > self._capacity // 2

    def _next(self) -> tuple[int, Callable[[], bytes]]:
        """Return the first item, with all scalars that follow it if it is scalars."""
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
        """Let the thread end, unless there is work again."""
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
                given_up = self._finishing and time.monotonic() - refused_since > _GIVE_UP_S
                lost = self._waiting if given_up else 0
                if given_up:
                    self._waiting = 0
                    self._items.clear()
                    self._changed.notify_all()
            if given_up:
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
        # a summary that cannot be drawn must not lose the points after it
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


def _write_pending() -> None:
    for writer in list(_open_writers):
        writer.flush_points(_AT_ONCE_S)


at_exit.register_for_interrupts(_write_pending)
at_exit.register(at_exit.Phase.WRITERS, _close_all)
at_exit.register_for_forks(_forget_all)
