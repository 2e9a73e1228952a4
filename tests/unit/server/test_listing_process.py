"""The process that lists runs: queried again, given up, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from workbench.server import listing_process
from workbench.server.errors import ServerEndsError, TooSlowError
from workbench.server.listing_process import RunLists

RUN = {"name": "digits", "status": "finished", "step": 3, "updated_at": 1e9}


def with_lists(
    root: Path, do: Callable[[RunLists], Awaitable[None]], timeout_s: float = 300.0
) -> None:
    """Do something with the lists of a server, and see that nothing of them is left."""

    async def main() -> None:
        lists, children = RunLists(root, timeout_s), list[psutil.Process]()
        try:
            await do(lists)
        finally:
            if lists.child is not None:
                children.append(psutil.Process(lists.child.pid))
            await lists.stop()
        assert not any(child.is_running() for child in children)
        with pytest.raises(ServerEndsError):
            await lists.list(root)

    asyncio.run(main())


def test_runs_are_listed_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    (tmp_path / "runs" / "digits" / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "runs" / ".workbench-deleted").mkdir()

    async def do(lists: RunLists) -> None:
        first = await lists.list(tmp_path / "runs")
        assert lists.child is not None
        pid = lists.child.pid
        several = await asyncio.gather(*(lists.list(tmp_path) for _ in range(5)))
        assert all(one == first for one in several)
        assert lists.child.pid == pid
        assert [run["path"] for run in first["runs"]] == ["runs/digits"]
        assert first["deleted"] == [str(tmp_path / "runs" / ".workbench-deleted")]
        assert not first["truncated"]

    with_lists(tmp_path, do)


def test_one_that_died_is_begun_again(tmp_path: Path) -> None:
    async def do(lists: RunLists) -> None:
        await lists.list(tmp_path)
        assert lists.child is not None
        os.kill(lists.child.pid, signal.SIGKILL)
        assert (await lists.list(tmp_path))["runs"] == []

    with_lists(tmp_path, do)


def test_one_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a mount does not answer."""

    async def do(lists: RunLists) -> None:
        await lists.list(tmp_path)
        assert lists.child is not None
        held = lists.child
        os.kill(held.pid, signal.SIGSTOP)
        lists._timeout_s = 0.2
        with pytest.raises(TooSlowError, match="were not listed within"):
            await lists.list(tmp_path)
        assert not held.alive
        lists._timeout_s = 300.0
        assert (await lists.list(tmp_path))["runs"] == []

    with_lists(tmp_path, do)


def test_one_that_nobody_asks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def do(lists: RunLists) -> None:
        await lists.list(tmp_path)
        await lists.stop_idle()
        assert lists.child is not None
        assert lists.child.last_request <= time.monotonic()
        monkeypatch.setattr(listing_process, "_IDLE_STOP_S", 0.0)
        await lists.stop_idle()
        assert lists.child is None

    with_lists(tmp_path, do)
