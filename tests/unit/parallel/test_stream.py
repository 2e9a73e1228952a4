from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import IO, Any, cast

import pytest

from workbench.parallel.stream import Follower, Writer


def test_what_is_written_is_read_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events"
    follower = Follower(path)
    assert list(follower.new()) == []
    writer = Writer(path)
    for number in range(3):
        writer.write({"number": number, "text": "ä\n", "value": float("inf")})
    assert [one["number"] for one in follower.new()] == [0, 1, 2]
    assert list(follower.new()) == []
    writer.write({"number": 3})
    assert list(follower.new()) == [{"number": 3}]
    writer.close()


class Disk:
    """A file on a disk with room for so many bytes at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.room = file, 0

    def write(self, data: bytearray) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def close(self) -> None:
        self.file.close()


def test_what_finds_no_room_is_kept_and_goes_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events"
    writer, follower = Writer(path), Follower(path)
    disk = Disk(writer._file)
    writer._file = cast("Any", disk)
    for number, room in enumerate((0, 5, 20, 0, 3)):
        disk.room = room  # for 28 bytes in all: two lines and a bit
        writer.write({"number": number})
    assert [one["number"] for one in follower.new()] == [0, 1]
    writer.flush()
    assert list(follower.new()) == []
    disk.room = 30
    writer.flush()
    assert [one["number"] for one in follower.new()] == [2, 3]
    disk.room = 1000
    writer.write({"number": 5})
    assert [one["number"] for one in follower.new()] == [4, 5]
    writer.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, a disk without room")
def test_a_disk_without_room_is_no_error(tmp_path: Path) -> None:
    writer = Writer(Path("/dev/full"))
    writer.write({"number": 1})
    writer.close()
    writer = Writer(tmp_path / "events")
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write({"number": 1})


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "events")

    def write(first: int) -> None:
        for number in range(first, first + 500):
            writer.write({"number": number, "text": "x" * 200})

    threads = [threading.Thread(target=write, args=(1000 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [one["number"] for one in Follower(tmp_path / "events").new()]
    assert len(told) == 2000
    for first in range(0, 4000, 1000):  # those of a thread in their order
        mine = [number for number in told if first <= number < first + 1000]
        assert mine == list(range(first, first + 500))


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events"
    follower = Follower(path)
    path.write_bytes(b'{"number":1}\n{"num')
    assert list(follower.new()) == [{"number": 1}]
    assert list(follower.new()) == []
    with path.open("ab") as stream:
        stream.write(b'ber":2}\n')
    assert list(follower.new()) == [{"number": 2}]


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "control")
    for number in range(4):
        writer.write({"number": number})
    follower = Follower(tmp_path / "control")
    assert len(list(follower.new(most=3))) == 3
    assert list(follower.new(most=3)) == []
    assert list(follower.new(most=4)) == [{"number": 3}]
    reader = follower.__class__(tmp_path / "control")
    for message in reader.new():  # who stops in the middle goes on behind what was taken
        assert message == {"number": 0}
        break
    assert next(reader.new()) == {"number": 1}
    writer.close()
