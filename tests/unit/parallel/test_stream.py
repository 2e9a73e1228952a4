from __future__ import annotations

from pathlib import Path

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
