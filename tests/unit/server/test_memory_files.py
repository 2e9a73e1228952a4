"""Who may end a reader of a memory file, and when none may begin; the readers are real processes.

A reader is kept at work by stopping it (``SIGSTOP``), so that others wait for as long as they must.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import children_of, children_running, command_of, is_alive
from tests.waiting import wait_until
from workbench.allocator.snapshot.decode import LARGEST_BYTES
from workbench.memory.files.file_process import MEMORY_BASE, MEMORY_PER_BYTE
from workbench.records import MemoryRecord
from workbench.server.child import Answer, Child
from workbench.server.errors import MemoryFileError, MissingFileError, ServerEndsError, TooSlowError
from workbench.server.memory_files import MemoryFiles, MemoryFileSettings

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")

OPEN = {"do": "record"}


def written(file: Path, num_events: int = 20) -> Path:
    """A snapshot of so many events."""
    trace = [
        {"action": "alloc", "addr": 0x7F0000000000 + at * 512, "size": 512, "stream": 0,
         "time_us": 1 + at}
        for at in range(num_events)
    ]  # fmt: skip
    file.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return file


def run(work: Callable[[MemoryFiles], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Do ``work`` on an event loop, with readers that are all ended afterwards."""

    async def main() -> None:
        files = MemoryFiles(MemoryFileSettings(**settings))
        try:
            async with asyncio.timeout(240):
                await work(files)
        finally:
            await files.stop_all()

    asyncio.run(main())


async def busy(files: MemoryFiles, path: Path) -> tuple[Child, asyncio.Task[Answer]]:
    """The reader of a file, in the middle of an answer until it is let go on."""
    await files.ask(path, OPEN)
    (child,) = files.running()
    os.kill(child.pid, signal.SIGSTOP)
    asked = asyncio.create_task(files.ask(path, OPEN))
    await until(child.turn.locked)
    return child, asked


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def readers() -> list[psutil.Process]:
    """The readers that this process started and that are left."""
    return children_running("workbench.memory.files.file_process", recursive=False)


def suspended_unpickler() -> tuple[psutil.Process, psutil.Process] | None:
    """A reader and the process that unpickles for it, which is stopped at once.

    Not before it runs a program of its own: until then it holds what its reader answers through.
    """
    for reader in readers():
        for child in children_of(reader, recursive=False):
            if command_of(child) in ([], command_of(reader)):
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()
                return reader, child
    return None


def test_who_gives_up_waiting_for_their_turn_leaves_the_reader_to_the_other(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pickle")

    async def work(files: MemoryFiles) -> None:
        child, first = await busy(files, path)
        second = asyncio.create_task(files.ask(path, OPEN))
        await until(lambda: child.num_waiting == 2)
        second.cancel()
        await asyncio.wait([second])
        assert second.cancelled()
        os.kill(child.pid, signal.SIGCONT)
        assert (await first).kind == "record"
        assert files.running() == [child]

    run(work)


def test_who_waited_too_long_for_their_turn_is_told_so(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pickle")

    async def work(files: MemoryFiles) -> None:
        child, first = await busy(files, path)
        files.settings = MemoryFileSettings(timeout_s=0.2)
        with pytest.raises(TooSlowError, match="was busy with other questions for 0 s"):
            await files.ask(path, OPEN)
        os.kill(child.pid, signal.SIGCONT)
        assert (await first).kind == "record"
        assert files.running() == [child]

    run(work)


def test_who_gives_up_in_the_middle_of_their_answer_ends_the_reader(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pickle")

    async def work(files: MemoryFiles) -> None:
        child, first = await busy(files, path)
        second = asyncio.create_task(files.ask(path, OPEN))
        await until(lambda: child.num_waiting == 2)
        first.cancel()
        assert (await second).kind == "record", "another one is started for who waits"
        assert not child.alive
        assert files.running() != [child]

    run(work)


def test_nothing_begins_once_all_were_stopped(tmp_path: Path) -> None:
    """Neither what is at work, nor who waits a turn or a place, nor who comes later starts one."""
    path, other = written(tmp_path / "a.pickle"), written(tmp_path / "b.pickle")

    async def work(files: MemoryFiles) -> None:
        child, first = await busy(files, path)
        waiting = [asyncio.create_task(files.ask(one, OPEN)) for one in (path, other)]
        await until(lambda: child.num_waiting == 2)
        await files.stop_all()
        late = asyncio.create_task(files.ask(path, OPEN))
        for asked in (first, *waiting, late):
            with pytest.raises(ServerEndsError, match="This server is ending"):
                await asyncio.wait_for(asked, 120)
        assert not files.running()
        assert not readers()

    run(work, limit=1)


def test_a_file_that_grew_is_read_within_bounds_of_its_own(tmp_path: Path) -> None:
    """Those of its reader are by the size that the file had when the reader began."""
    path = written(tmp_path / "a.pickle")

    async def work(files: MemoryFiles) -> None:
        assert (await files.ask(path, OPEN)).kind == "record"
        (before,) = readers()
        written(path, num_events=10)
        await files.ask(path, OPEN)
        assert readers() == [before], "a smaller one fits its bounds"
        written(path, num_events=5_000)
        answer = await files.ask(path, OPEN)
        assert len(MemoryRecord.from_bytes(answer.data).event_kind) == 5_000
        (after,) = readers()
        assert after != before
        if psutil.LINUX:
            bound, _ = after.rlimit(psutil.RLIMIT_AS)
            assert bound == MEMORY_BASE + MEMORY_PER_BYTE * path.stat().st_size

    run(work)


def test_a_file_that_grows_too_large_meanwhile_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pickle")

    async def work(files: MemoryFiles) -> None:
        child, first = await busy(files, path)
        os.truncate(path, LARGEST_BYTES + 1)
        os.kill(child.pid, signal.SIGCONT)
        with pytest.raises(MemoryFileError, match=r"a\.pickle has 4\.0 GiB"):
            await first

    run(work)


def test_a_file_that_vanishes_before_it_is_queried_is_missing(tmp_path: Path) -> None:
    async def work(files: MemoryFiles) -> None:
        with pytest.raises(MissingFileError, match=r"There is no file a\.pickle any more\."):
            await files.ask(tmp_path / "a.pickle", OPEN)
        assert not readers()

    run(work)


def test_ending_a_reader_that_ended_touches_no_other_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may belong to another process by then."""
    path, killed = written(tmp_path / "a.pickle"), list[int]()

    def kill(group: int, _number: int) -> None:
        killed.append(group)

    async def work(files: MemoryFiles) -> None:
        await files.ask(path, OPEN)
        (child,) = files.running()
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: not child.alive)
        monkeypatch.setattr(os, "killpg", kill)
        await files.stop_all()
        assert not killed

    run(work)


def test_what_a_reader_started_ends_with_it(tmp_path: Path) -> None:
    """The process that unpickles for it, when memory ran out and the system ended the reader."""
    path = written(tmp_path / "a.pickle", num_events=300_000)

    async def work(files: MemoryFiles) -> None:
        asked = asyncio.create_task(files.ask(path, OPEN))
        while (found := suspended_unpickler()) is None:
            await asyncio.sleep(0.01)
        reader, unpickler = found
        reader.kill()
        with pytest.raises(MemoryFileError, match="its reader was ended"):
            await asked
        await until(lambda: not is_alive(unpickler))

    run(work)


def test_what_a_reader_started_ends_also_where_nobody_knew_that_it_had_ended(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "a.pickle", num_events=300_000)
    child = Child(path)
    stdin, stdout = child._group.popen.stdin, child._group.popen.stdout
    assert stdin is not None
    assert stdout is not None
    with stdin, stdout:
        stdin.write(json.dumps(OPEN).encode() + b"\n")
        stdin.flush()
        found: list[tuple[psutil.Process, psutil.Process]] = []
        wait_until(
            lambda: found.extend(filter(None, [suspended_unpickler()])) or bool(found),
            "the process that unpickles",
        )
        ((reader, unpickler),) = found
        reader.kill()
        wait_until(lambda: not is_alive(reader), "the end of the reader")
        asyncio.run(child.end())
        wait_until(lambda: not is_alive(unpickler), "the end of what it started")
