"""What can be tested of CUDA recording without a GPU; the rest is in ``tests/gpu``."""

from __future__ import annotations

import time

import pytest
import torch

from workbench.memory.recording import cuda_history
from workbench.memory.recording.attribution import Line
from workbench.memory.recording.cuda_history import OVERFLOWED, AllocatorHistory, describe_blocks
from workbench.memory.recording.record_builder import build_record
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block


def block(address: int, start: int, time_us: int, **said: str) -> Block:
    made = Block(512, "cuda:0", address)
    made.start, made.started_ns = start, time_us * 1000
    for name, value in said.items():
        setattr(made, name, value)
    return made


def test_a_storage_describes_the_block_allocated_last_before_it_was_seen():
    allocator = [block(0, 0, 1_000), block(0, 4, 5_000), block(512, 5, 6_000)]
    storage = block(0, 2, 5_010, op="aten.mm", module="head", category="gradients")
    storage.line = Line("train.py", 3, "step")
    describe_blocks(allocator, [storage])
    assert [b.op for b in allocator] == ["", "aten.mm", ""]
    assert (allocator[1].module, allocator[1].category) == ("head", "gradients")
    assert allocator[1].line == ("train.py", 3, "step")


def test_what_was_there_before_describes_the_first_block_at_its_address():
    before = block(0, -1, 0)
    later = block(0, 3, 4_000)
    parameter = block(0, -1, 0, name="weight", category="parameters")
    describe_blocks([later, before], [parameter])
    assert (before.name, later.name) == ("weight", "")


def test_without_cuda_there_is_no_history():
    if torch.cuda.is_available():
        return
    history = AllocatorHistory()
    history.start()
    assert not history.started
    assert history.stop("cpu") is None


def notes_of(
    monkeypatch: pytest.MonkeyPatch, *, was_on: bool, num_lost: int, num_before: int = 0
) -> tuple[str, ...]:
    """The notes of a recording of eight allocations whose history keeps four events or more.

    The allocator's part is played: torch hands over the ring that the allocator would have kept.
    """
    switched: list[object] = []
    monkeypatch.setattr(cuda_history, "_MOST_EVENTS", 8 - num_lost)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", switched.append)
    now_us = time.time_ns() // 1000
    history, recorder = AllocatorHistory(), Recorder()
    history._was_on, history._started_us = was_on, now_us
    history._offset_ns = time.time_ns() - time.perf_counter_ns()
    times_us = [now_us + 1000 * row for row in range(-num_before, 8)]
    ring = [
        {"action": "alloc", "addr": 512 * row, "size": 512, "stream": 0, "time_us": at_us}
        for row, at_us in enumerate(times_us)
    ][num_lost:]
    monkeypatch.setattr(
        torch.cuda.memory, "_snapshot", lambda: {"segments": [], "device_traces": [ring]}
    )
    for row in range(8):
        at_us = now_us + 1000 * row - history._offset_ns // 1000
        recorder.blocks.append(block(512 * (num_before + row), row, at_us, op="aten.mm"))
    record = build_record(recorder, history, title="ring", device="cuda:0")
    assert switched == ([] if was_on else [None]), "left as it was found"
    return record.notes


@pytest.mark.parametrize("was_on", [False, True])
def test_a_history_that_overflowed_is_said(monkeypatch: pytest.MonkeyPatch, was_on: bool):
    assert OVERFLOWED in notes_of(monkeypatch, was_on=was_on, num_lost=4)


@pytest.mark.parametrize(
    ("was_on", "num_before", "num_lost"), [(False, 0, 0), (True, 0, 0), (True, 4, 2)]
)
def test_a_history_that_has_everything_says_nothing(
    monkeypatch: pytest.MonkeyPatch, was_on: bool, num_before: int, num_lost: int
):
    notes = notes_of(monkeypatch, was_on=was_on, num_before=num_before, num_lost=num_lost)
    assert OVERFLOWED not in notes


def test_a_history_that_cannot_be_read_is_still_switched_off(monkeypatch: pytest.MonkeyPatch):
    def fault() -> None:
        raise RuntimeError("no snapshot")

    switched: list[object] = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", switched.append)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fault)
    history = AllocatorHistory()
    history._started_us = 1
    with pytest.raises(RuntimeError, match="no snapshot"):
        history.stop("cuda:0")
    history.close()
    assert switched == [None]
