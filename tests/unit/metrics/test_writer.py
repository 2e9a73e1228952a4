from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.waiting import DEADLINE_S, wait_until
from workbench.experiment.loop.scalars import Series
from workbench.metrics.event_file import EventFile
from workbench.metrics.tensorboard_messages import image_summary
from workbench.metrics.writer import EventWriter

Read = Callable[[Path], EventAccumulator]
MakeSeries = Callable[..., Series]


def steps(found: EventAccumulator, tag: str) -> list[int]:
    return [event.step for event in found.Scalars(tag)]


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "workbench-writer"]


def test_tensorboard_reads_back_what_was_written(
    tmp_path: Path, read: Read, make_series: MakeSeries
) -> None:
    writer = EventWriter(tmp_path / "run")
    writer.write([make_series("train/loss", 1, 500), make_series("train/accuracy", 5, 3)])
    writer.write([make_series("train/loss", 501, 20)])
    assert writer.close(DEADLINE_S)
    found = read(tmp_path / "run")
    assert steps(found, "train/loss") == list(range(1, 521))
    assert steps(found, "train/accuracy") == [5, 6, 7]
    last = found.Scalars("train/loss")[-1]
    assert (last.value, last.wall_time) == (260.0, 1.7e9 + 65)
    assert writer.dropped == 0


def test_points_are_readable_while_the_run_goes_on(
    tmp_path: Path, read: Read, make_series: MakeSeries
) -> None:
    writer = EventWriter(tmp_path)
    writer.write([make_series("train/loss", 1, 10)])
    assert writer.flush(DEADLINE_S)
    assert steps(read(tmp_path), "train/loss") == list(range(1, 11))
    writer.close(DEADLINE_S)


def test_a_pause_goes_on_in_the_same_file(
    tmp_path: Path, read: Read, make_series: MakeSeries
) -> None:
    writer = EventWriter(tmp_path)
    for start in (1, 11):
        writer.write([make_series("train/loss", start, 10)])
        assert writer.close(DEADLINE_S)
        assert threads() == []
    assert len(list(tmp_path.iterdir())) == 1
    assert steps(read(tmp_path), "train/loss") == list(range(1, 21))


def test_a_slow_disk_drops_points_and_never_blocks(
    tmp_path: Path, read: Read, make_series: MakeSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow disk is played by an `append` that waits: this machine's is not slow enough."""
    may_write = threading.Event()
    written: list[int] = []
    append = EventFile.append

    def slow(self: EventFile, records: bytes) -> None:
        may_write.wait(300)
        append(self, records)
        written.append(len(records))

    monkeypatch.setattr(EventFile, "append", slow)
    reported: list[int] = []
    writer = EventWriter(tmp_path, capacity=100, on_drop=reported.append)
    for batch in range(10):
        writer.write([make_series("train/loss", 30 * batch, 30)])
    assert not written, "none of them waited for the disk"
    assert writer.dropped == reported[-1] == 210
    assert writer.close(timeout=0.2) is False
    assert writer.dropped == reported[-1] == 300
    may_write.set()
    writer.write([make_series("train/loss", 1000, 5)])
    assert writer.close(DEADLINE_S)
    assert steps(read(tmp_path), "train/loss")[-5:] == list(range(1000, 1005))


def test_a_folder_that_cannot_be_made_costs_points_only_once_the_queue_is_full(
    tmp_path: Path, read: Read, make_series: MakeSeries
) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file where the folder should be")
    writer = EventWriter(blocked / "run", capacity=20)
    writer.write([make_series("train/loss", 1, 20)])
    wait_until(lambda: "runs" in writer.error)
    writer.write([make_series("train/loss", 21, 20)])
    assert writer.dropped == 20
    blocked.unlink()
    assert writer.flush(DEADLINE_S)
    assert writer.error == ""
    writer.write([make_series("train/loss", 41, 5)])
    assert writer.close(DEADLINE_S)
    assert steps(read(blocked / "run"), "train/loss") == [*range(1, 21), *range(41, 46)]


SCRIPT = """
    import resource, sys, time
    from pathlib import Path
    import numpy as np
    from workbench.metrics.writer import EventWriter

    def series(start, count):
        steps = np.arange(start, start + count)
        return "train/loss", steps, steps / 2, 1.7e9 + steps / 8

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    writer = EventWriter(Path(sys.argv[1]), capacity=600)
    for batch in range(10):
        writer.write([series(100 * batch, 100)])
    deadline = time.monotonic() + 120
    while not writer.error and time.monotonic() < deadline:
        time.sleep(0.01)
    print(writer.dropped, writer.error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert writer.flush(120)
    writer.write([series(5000, 100)])
    assert writer.close(120)
    print(writer.dropped)

    n = np.arange(5000)
    EventWriter(Path(sys.argv[2])).write([("train/loss", n, n / 2, 1.7e9 + n)])
"""


@dataclass(frozen=True)
class Script:
    """What `SCRIPT` said, and where it wrote."""

    full: Path
    """Written to while the kernel refused to let a file grow."""
    at_once: Path
    """Written to last."""
    said: str


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    full, at_once = (tmp_path_factory.mktemp(name) for name in ("full", "at-once"))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(full), str(at_once)],
        capture_output=True,
        text=True,
        timeout=480,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Script(full, at_once, done.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX notion")
def test_a_full_disk_cuts_no_record_short_and_writing_goes_on_when_there_is_room(
    script: Script, read: Read
) -> None:
    """The kernel refuses to let the file grow, in the middle of a record, as a full disk does."""
    first, last = script.said.strip().splitlines()
    dropped, error = first.split(" ", 1)
    assert "too large" in error
    assert int(dropped) == int(last) > 0
    found = steps(read(script.full), "train/loss")
    assert len(found) == 1100 - int(dropped)
    assert found[-100:] == list(range(5000, 5100))
    assert found == sorted(set(found))


def test_only_scalars_are_gathered_and_only_after_the_first(
    tmp_path: Path, read: Read, make_series: MakeSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first chart waits for nothing: not for more points, not for the summaries before it."""
    monkeypatch.setattr("workbench.metrics.writer._SCALARS_EVERY_S", 3600.0)
    written: list[int] = []
    more = threading.Condition()
    append = EventFile.append

    def counted(self: EventFile, records: bytes) -> None:
        append(self, records)
        with more:
            written.append(len(records))
            more.notify_all()

    def wait_for(count: int) -> None:
        with more:
            more.wait_for(lambda: len(written) >= count, timeout=120)
        assert len(written) == count

    monkeypatch.setattr(EventFile, "append", counted)
    writer = EventWriter(tmp_path)
    writer.start()
    for step in range(8):
        writer.summary(step, lambda: image_summary("picture", b"png", (4, 5)))
    writer.write([make_series("train/loss", 1, 3)])
    wait_for(9)
    for start in (4, 7, 10):
        writer.write([make_series("train/loss", start, 3)])
    assert writer.flush(DEADLINE_S)
    wait_for(10)
    assert steps(read(tmp_path), "train/loss") == list(range(1, 13))
    assert writer.close(DEADLINE_S)


def test_a_summary_is_made_on_the_writer_thread(tmp_path: Path, read: Read) -> None:
    made_on: list[str] = []

    def make() -> Any:
        made_on.append(threading.current_thread().name)
        return image_summary("picture", b"png", (4, 5))

    writer = EventWriter(tmp_path)
    writer.summary(7, make)
    assert writer.close(DEADLINE_S)
    (image,) = read(tmp_path).Images("picture")
    assert (image.step, image.width, image.height) == (7, 4, 5)
    assert made_on == ["workbench-writer"]


def test_a_picture_that_fails_costs_itself_only(
    tmp_path: Path, read: Read, make_series: MakeSeries
) -> None:
    writer = EventWriter(tmp_path)
    writer.summary(1, lambda: 1 / 0)
    writer.write([make_series("train/loss", 1, 3)])
    assert writer.close(DEADLINE_S)
    assert steps(read(tmp_path), "train/loss") == [1, 2, 3]


def test_the_thread_ends_with_the_run_and_comes_back_with_the_next_point(
    tmp_path: Path, make_series: MakeSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.metrics.writer._IDLE_S", 600.0)
    writer = EventWriter(tmp_path)
    writer.start()
    writer.write([make_series("train/loss", 1, 3)])
    assert threads() == ["workbench-writer"]
    writer.flush(DEADLINE_S)
    (thread,) = (one for one in threading.enumerate() if one.name == "workbench-writer")
    writer.finish()
    thread.join(120)
    assert threads() == []
    writer.write([make_series("train/loss", 4, 3)])
    assert writer.close(DEADLINE_S)
    assert threads() == []


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX notion")
def test_a_script_that_ends_at_once_loses_nothing(script: Script, read: Read) -> None:
    assert len(steps(read(script.at_once), "train/loss")) == 5000


def test_how_long_a_disk_refused_while_the_run_went_on_does_not_count_when_it_is_over(
    tmp_path: Path, read: Read, make_series: MakeSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of refusals is played by a clock that is put forward."""
    hour = [0.0]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + hour[0])
    monkeypatch.setattr("workbench.metrics.writer.time", clock)
    monkeypatch.setattr("workbench.metrics.writer._RETRY_S", 0.01)
    monkeypatch.setattr("workbench.metrics.writer._GIVE_UP_S", 600.0)
    refused = threading.Semaphore(0)
    append = EventFile.append

    def counted(self: EventFile, records: bytes) -> None:
        try:
            append(self, records)
        except OSError:
            refused.release()
            raise

    def two_more_refusals() -> bool:
        return all(refused.acquire(timeout=120) for _ in range(2))

    monkeypatch.setattr(EventFile, "append", counted)
    blocked = tmp_path / "runs"
    blocked.write_text("a file where the folder should be")
    writer = EventWriter(blocked / "run")
    writer.start()
    writer.write([make_series("train/loss", 1, 5)])
    assert two_more_refusals()
    hour[0] = 3600.0
    assert two_more_refusals()
    writer.finish()
    assert two_more_refusals()
    blocked.unlink()
    assert writer.flush(DEADLINE_S)
    assert writer.dropped == 0
    assert steps(read(blocked / "run"), "train/loss") == [1, 2, 3, 4, 5]
    assert writer.close(DEADLINE_S)


def test_after_a_run_a_disk_that_never_takes_the_points_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.metrics.writer._GIVE_UP_S", 0.2)
    monkeypatch.setattr("workbench.metrics.writer._RETRY_S", 0.05)
    (tmp_path / "file").write_text("in the way")
    reported: list[int] = []
    writer = EventWriter(tmp_path / "file" / "run", on_drop=reported.append)
    writer.write([("train/loss", np.arange(5), np.ones(5), np.full(5, time.time()))])
    writer.finish()
    assert writer.flush(DEADLINE_S)
    assert writer.dropped == 5
    assert reported == [5]
