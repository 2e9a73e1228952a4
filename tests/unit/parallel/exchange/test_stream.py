from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import IO, Any, cast

import pytest

from workbench.parallel.exchange.stream import Follower, Writer
from workbench.trust import NotAFileError, Seal, SealError


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
    for number, room in enumerate((0, 5, 60, 0, 40)):
        disk.room = room  # for 105 bytes in all: two lines and a bit
        writer.write({"number": number})
    assert [one["number"] for one in follower.new()] == [0, 1]
    writer.flush()
    assert list(follower.new()) == []
    disk.room = 90
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
    read = [one["number"] for one in Follower(tmp_path / "events").new()]
    assert len(read) == 2000
    for first in range(0, 4000, 1000):  # those of a thread in their order
        mine = [number for number in read if first <= number < first + 1000]
        assert mine == list(range(first, first + 500))


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    path, whole = tmp_path / "events", tmp_path / "whole" / "events"
    whole.parent.mkdir()
    writer, follower = Writer(whole), Follower(path)
    for number in (1, 2):
        writer.write({"number": number})
    writer.close()
    said = whole.read_bytes()
    path.write_bytes(said[:-10])
    assert list(follower.new()) == [{"number": 1}]
    assert list(follower.new()) == []
    with path.open("ab") as stream:
        stream.write(said[-10:])
    assert list(follower.new()) == [{"number": 2}]


def lines(path: Path, seal: Seal) -> list[bytes]:
    writer = Writer(path, seal)
    for number in range(3):
        writer.write({"number": number})
    writer.close()
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("what", ["added", "left out", "again", "changed", "of another file"])
def test_a_line_of_another_user_is_not_executed(what: str, tmp_path: Path) -> None:
    path, seal = tmp_path / "control", Seal.new()
    first, second, third = lines(path, seal)
    others = lines(tmp_path / "events", seal)
    (tmp_path / "control").write_bytes(
        {
            "added": first + b'{"number":1}\n' + second,
            "left out": first + third,
            "again": first + first,
            "changed": first + second.replace(b"1", b"7", 1),
            "of another file": first + others[1],
        }[what]
    )
    follower = Follower(path, seal)
    read: list[Any] = []
    with pytest.raises(SealError, match="line 2 does not have this session's seal"):
        read.extend(follower.new())
    with pytest.raises(SealError):
        list(follower.new())
    reader = Follower(path, seal)
    assert next(reader.new()) == {"number": 0}


def test_half_a_line_of_one_that_died_is_taken_away(tmp_path: Path) -> None:
    """A kernel that was killed while the disk was full: the ranks go on under the next one."""
    path, seal = tmp_path / "control", Seal.new()
    whole = lines(path, seal)
    path.write_bytes(b"".join(whole[:2]) + whole[2][:10])
    writer = Writer(path, seal)
    assert writer.count == 2
    writer.write({"number": 7})
    writer.close()
    assert [one["number"] for one in Follower(path, seal).new()] == [0, 1, 7]


def test_who_writes_later_goes_on_with_the_count(tmp_path: Path) -> None:
    path, seal = tmp_path / "control", Seal.new()
    lines(path, seal)
    lines(path, seal)
    assert [one["number"] for one in Follower(path, seal).new()] == [0, 1, 2, 0, 1, 2]


def test_a_pipe_or_a_link_in_the_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe-of-another-user").touch()
    follower = Follower(tmp_path / "pipe")
    follower._offset = -1  # as if it had grown: a pipe has no size
    with pytest.raises(NotAFileError, match="a named pipe"):
        list(follower.new())
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        Writer(tmp_path / "link")
    assert not (tmp_path / "target").exists()


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
