"""Event files of a run that is continued from a checkpoint: one curve, without a stale tail.

A run that is killed has logged more steps than its last checkpoint has, and logs them again. Of two
values for a step TensorBoard shows both, or one, depending on how it reads; and a tag that is not
written again keeps its old end for ever. So what was logged after the checkpoint is taken out of
the files: the rest is copied into a new one, which then replaces them.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from workbench.metrics.event_file import PREFIX
from workbench.metrics.scalar_encoding import checksum
from workbench.metrics.tensorboard_messages import Event, record, restart_event, version_event
from workbench.trust import open_regular, whole_file

_MARK = "-until-step-"
"""In the name of a file that was cut; it comes before names of hosts, which follow the time in the
names of others."""
_MOST_BYTES = 1 << 31
"""Maximum size of one event; a larger number is damage."""


def cut_events(folder: Path, step: int) -> int:
    """Remove events after ``step`` from the event files of a run; return how many there were.

    The new file has a later name than those that it replaces, and begins with a restart at step 0:
    a TensorBoard that has read the old ones reads it, and forgets what it had read. Nothing may
    write to the run meanwhile. If the process is killed, events may be there twice, and the next
    call removes them.

    Raises:
        OSError: the files cannot be read or written; they are as they were.
    """
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(folder))
    files = sorted(path for path in folder.iterdir() if path.name.startswith(PREFIX))
    twice = len(files) > 1 and any(_MARK in path.name for path in files)
    if not twice and not any(_is_late(path, step) for path in files):
        return 0
    removed, seen = 0, set[bytes]()
    place = folder / f"{PREFIX}{_now(files):010d}.{_MARK}{step}"
    with whole_file(place) as out:
        out.write(record(version_event(time.time())))
        out.write(record(restart_event(time.time())))
        for path in files:
            for one, at in _records(path):
                if at > step:
                    removed += 1
                    continue
                if twice:
                    digest = blake2b(one, digest_size=16).digest()
                    if digest in seen:
                        continue
                    seen.add(digest)
                out.write(one)
        out.flush()
        os.fsync(out.fileno())
    for path in files:
        path.unlink()
    return removed


def _now(files: list[Path]) -> int:
    """A time in seconds that is later than those in the names of the files."""
    stamps = [path.name.removeprefix(PREFIX).partition(".")[0] for path in files]
    last = max((int(one) for one in stamps if one.isdecimal()), default=0)
    return max(int(time.time()), last + 1)


def _is_late(path: Path, step: int) -> bool:
    return any(at > step for _, at in _records(path))


def _records(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield every whole record of a file, except restarts, and the step at which it was logged."""
    with open_regular(path) as file:
        while (one := _next_record(file)) is not None:
            try:
                event = Event.FromString(one[12:-4])
            except Exception:  # noqa: BLE001 - protobuf has an error of its own, which is not public
                return  # TensorBoard stops here, too
            if not event.HasField("session_log") and not event.file_version:
                yield one, event.step


def _next_record(file: BinaryIO) -> bytes | None:
    head = file.read(12)
    if len(head) < 12 or checksum(head[:8]) != head[8:]:
        return None
    (length,) = struct.unpack("<Q", head[:8])
    if length > _MOST_BYTES:
        return None
    rest = file.read(length + 4)
    return head + rest if len(rest) == length + 4 else None
