"""A memory file in a process of its own: ``python -m workbench.memory.files.file_process <path>``.

The Jupyter server opens files for a browser, and must neither hold nor run what is in them. So a
process reads the file (`workbench.allocator.snapshot.decode` unpickles in another process), makes
the record and stays: the next range of the same file, or a question about it, then needs no second
reading. It holds one device and one range at a time, and reads again when the file has been
rewritten; a file that is larger than the limits allow is left to another process.

A request is a line of JSON on stdin: ``{"do": "record" | "ask", "device", "start", "end",
"overview", "question"}``. The answer is a line of JSON, ``{"kind", "bytes"}``, followed by that
many bytes: a record, or JSON. If a request cannot be served, the answer is ``{"kind": "error",
"reason", "message", "bytes": 0}``; for a file that has outgrown the limits it is ``{"kind":
"outgrown", "bytes": 0}``: end this process, and start another.

The process leads a process group of its own, and the end of stdin ends all of it: however the
server ended, nothing is left behind.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from workbench.allocator.snapshot.decode import read_open
from workbench.memory.files.replayed_snapshot import replayed_record
from workbench.memory.files.selection import event_range, is_long, overview
from workbench.memory.files.snapshot import is_snapshot, record_in
from workbench.memory.reading.text import format_bytes
from workbench.records import MemoryRecord, RecordError
from workbench.trust import OpenFile, printable

MEMORY_BASE, MEMORY_PER_BYTE = 3 << 30, 24
"""Limit of the address space of the process and its readers, by the size of the file when the
process starts: a trace takes 4 to 9 times its size as dictionaries, and its columns and record take
its size."""


class _Failed(NamedTuple):
    """Why there is no answer."""

    reason: str
    """``absent``, ``unreadable``, ``unrecorded`` or ``refused``."""
    message: str


class _Whole(NamedTuple):
    """One device of the file."""

    record: MemoryRecord
    device: int = 0
    devices: tuple[int, ...] = ()
    """All devices that the file contains; empty for a saved record."""


class MemoryFile:
    """A snapshot or a saved record, read once and kept."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.most_bytes = most_bytes
        """Size of the file up to which the limits of this process are sufficient."""
        self._stamp: object = None
        self._busiest: int | None = None
        self._whole: _Whole | None = None
        self._part: tuple[tuple[int, int], MemoryRecord] | None = None

    def answer(self, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the kind of an answer, and its bytes.

        Raises:
            FileNotFoundError: the file no longer exists.
            RecordError: it is neither snapshot nor record, or has no such device or range.
            ValueError: the question cannot be answered.
            _OutgrownError: it is now larger than ``most_bytes``.
        """
        whole = self._read(_index(request, "device"))
        start, end = _index(request, "start"), _index(request, "end")
        is_open = start is None and end is None
        if request.get("do") == "ask":
            return "answer", _json(self._answer_to(whole, start, end, request.get("question")))
        is_undecided = len(whole.devices) > 1 and request.get("device") is None
        if request.get("overview") or (is_open and (is_undecided or is_long(whole.record))):
            seen = {"title": printable(self.path.name), "devices": list(whole.devices)}
            return "overview", _json(seen | overview(whole.record))
        return "record", self._range(whole, start, end).to_bytes()

    def _answer_to(
        self, whole: _Whole, start: int | None, end: int | None, question: object
    ) -> Any:
        from workbench.memory.simulation.questions import answer

        return answer(self._range(whole, start, end), question)

    def _range(self, whole: _Whole, start: int | None, end: int | None) -> MemoryRecord:
        """Return a range; the last one is kept."""
        last = len(whole.record.event_time_us)
        key = (start or 0, last if end is None else end)
        if key == (0, last) and not is_long(whole.record):
            return whole.record
        if self._part is None or self._part[0] != key:
            self._part = key, event_range(whole.record, *key)
        return self._part[1]

    def _read(self, device: int | None) -> _Whole:
        """Return one device, by default the busiest; kept until another one is requested."""
        # the path was checked with all its links resolved: a link that is there now was added later
        with OpenFile.beneath(self.path.anchor, self.path) as file:
            return self._whole_of(file, device)

    def _whole_of(self, file: OpenFile, device: int | None) -> _Whole:
        stat = file.stat
        if stat.st_size > self.most_bytes:
            raise _OutgrownError
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if stamp != self._stamp:
            self._stamp, self._whole, self._part, self._busiest = stamp, None, None, None
        wanted = self._busiest if device is None else device
        if self._whole is None or (self._whole.devices and wanted != self._whole.device):
            self._whole = self._part = None  # before the next one takes as much
            self._whole = self._load(file, wanted)
            if device is None:
                self._busiest = self._whole.device
        return self._whole

    def _load(self, file: OpenFile, device: int | None) -> _Whole:
        if not is_snapshot(file):
            return _Whole(record_in(file, MemoryRecord))
        snapshot = read_open(file, device)
        if not snapshot.num_events and not snapshot.other_devices:
            held = format_bytes(int(snapshot.segment_bytes.sum()))
            raise _UnrecordedError(
                f"{file.name} holds {held} in {len(snapshot.segment_bytes):,} segments and no "
                "events: recording was never started. Call "
                "torch.cuda.memory._record_memory_history() before the code that is to be seen, "
                "and take the snapshot again"
            )
        record = replayed_record(snapshot, title=file.name)
        devices = tuple(sorted((snapshot.device, *snapshot.other_devices)))
        return _Whole(record, snapshot.device, devices)


class _UnrecordedError(RecordError):
    """A snapshot without a trace."""


class _OutgrownError(Exception):
    """The file is larger than this process may read."""


def main(arguments: list[str]) -> int:
    """Answer until stdin ends; return the exit status."""
    path = Path(arguments[0]).absolute()
    size = 0
    with suppress(OSError), OpenFile.beneath(path.anchor, path) as file:
        size = file.size
    _limit(MEMORY_BASE + MEMORY_PER_BYTE * size)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints can get between the answers
    file, requests = MemoryFile(path, size), _requests()
    while True:
        _reply(file, requests.get(), out)


def _limit(memory: int) -> None:
    """Limit the address space of this process; time is limited by the caller."""
    with suppress(OSError), Path("/proc/self/oom_score_adj").open("w") as score:
        score.write("1000")  # if memory still runs out, Linux ends this process first
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, bound in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        least = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        with suppress(ValueError):  # macOS maps more than this before a program begins
            resource.setrlimit(kind, (least, least))


def _requests() -> queue.SimpleQueue[dict[str, Any]]:
    """Read requests on a thread of its own: it must see the end of stdin also during other work."""
    found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            found.put(json.loads(line))
        _end()

    threading.Thread(target=listen, name="requests", daemon=True).start()
    return found


def _end() -> None:
    """End this process and the reader it may have started."""
    with suppress(AttributeError, OSError):  # Windows has no groups
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _reply(file: MemoryFile, request: dict[str, Any], out: BinaryIO) -> None:
    try:
        kind, data = file.answer(request)
        header: dict[str, Any] = {"kind": kind, "bytes": len(data)}
    except _OutgrownError:
        header, data = {"kind": "outgrown", "bytes": 0}, b""
    except Exception as error:  # noqa: BLE001 - every failure is an answer
        reason, message = _why(file, error)
        header, data = {"kind": "error", "bytes": 0, "reason": reason, "message": message}, b""
    out.write(json.dumps(header).encode() + b"\n")
    out.write(data)
    out.flush()


def _why(file: MemoryFile, error: Exception) -> _Failed:
    name = printable(file.path.name)
    if isinstance(error, FileNotFoundError):
        return _Failed("absent", f"There is no file {name} any more.")
    if isinstance(error, _UnrecordedError):
        return _Failed("unrecorded", _sentence(error))
    if isinstance(error, RecordError | OSError):
        return _Failed("unreadable", _sentence(error) + _remedy(str(error)))
    if isinstance(error, MemoryError):
        return _Failed("unreadable", f"{name} takes more memory than a file of its size may.")
    if isinstance(error, ValueError | KeyError | TypeError):
        return _Failed("refused", _sentence(error))
    return _Failed("unreadable", f"{name} could not be shown: {_sentence(error)}")


def _remedy(message: str) -> str:
    """Return what to do about a file that is not a snapshot; other messages already say it."""
    if "not a CUDA allocator snapshot" not in message:
        return ""
    return " No code of it was run. torch.cuda.memory._dump_snapshot(path) writes a snapshot."


def _sentence(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = printable(" ".join(said.split())[:600]) or type(error).__name__
    return text if text.endswith(".") else f"{text}."


def _index(request: Mapping[str, Any], name: str) -> int | None:
    value = request.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < 2**31):
        raise ValueError(f"{name} must be a whole number from 0 on, got {value!r}")
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
