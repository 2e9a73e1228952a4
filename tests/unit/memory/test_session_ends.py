"""However a recorded block ends: what it raised comes out, and nothing is left behind."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from tests.unit.memory.test_session import Two, by_category, train_once
from workbench.memory import MemoryRecording, memory


def test_an_exception_inside_keeps_the_record_and_propagates():
    def fails() -> None:
        with mem:
            kept = torch.ones(256)
            raise ZeroDivisionError(f"after {kept.numel()}")

    mem = memory()
    with pytest.raises(ZeroDivisionError):
        fails()
    assert mem.record.peak_bytes == 1024
    assert mem.record.notes == ("The block ended with ZeroDivisionError: after 256",)


class Faulty(nn.Linear):
    """A module whose own code faults where its parameters are listed."""

    def named_parameters(self, *args, **kwargs):
        raise LookupError("no such parameter")


class MuteError(Exception):
    """An exception that cannot say what it is about."""

    def __str__(self) -> str:
        raise AttributeError("message")


def test_a_model_that_cannot_be_read_is_a_note_and_the_rest_is_recorded():
    faulty, model = Faulty(4, 4), Two()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    with memory() as mem:
        faulty(torch.ones(2, 4)).sum().backward()
        train_once(model, optimizer)
    assert mem.record.notes == (
        "Not everything that Faulty holds could be named: LookupError: no such parameter",
    )
    assert by_category(mem.record)["optimizer"] == 4 * (32 + 8 + 16 + 2)


@pytest.mark.parametrize("raised", [ZeroDivisionError("mine"), MuteError()])
def test_the_persons_own_exception_comes_out_whatever_the_model_does(raised: Exception):
    model = Faulty(4, 4)

    def fails() -> None:
        with mem:
            model(torch.ones(2, 4))
            raise raised

    mem = memory()
    with pytest.raises(type(raised)) as found:
        fails()
    assert found.value is raised
    assert mem.record.notes[0].startswith(f"The block ended with {type(raised).__name__}")


def test_a_recording_that_could_not_be_made_keeps_nothing(monkeypatch: pytest.MonkeyPatch):
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("our own fault")

    monkeypatch.setattr(MemoryRecording, "_finished", fault)
    model = Two()
    mem = memory()
    with pytest.raises(RuntimeError, match="our own fault"), mem:
        model(torch.ones(2, 4))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert not mem.has_record
    monkeypatch.undo()
    with memory() as after:
        torch.ones(4)
    assert len(after.record.block_bytes) == 1


def test_recordings_do_not_nest():
    with memory() as outer:
        torch.ones(4)
        with pytest.raises(RuntimeError, match="already runs on this thread"), memory():
            pass
        torch.ones(4)
    assert len(outer.record.block_bytes) == 2
    with memory() as after:
        torch.ones(4)
    assert len(after.record.block_bytes) == 1


def test_a_used_recording_says_so():
    recording = memory()
    with recording:
        torch.ones(1)
    with pytest.raises(RuntimeError, match="used already"), recording:
        pass


def test_reading_too_early_says_when():
    with memory() as mem, pytest.raises(RuntimeError, match="after the `with"):
        _ = mem.record


def test_recording_on_another_thread_names_it():
    def work() -> None:
        with memory() as mem:
            torch.ones(1)
        found.append(mem.record.notes)

    found: list[tuple[str, ...]] = []
    thread = threading.Thread(target=work, name="trainer")
    thread.start()
    thread.join()
    assert found == [("Recorded on the thread 'trainer' only.",)]


def test_the_model_is_free_to_go_afterwards():
    model = Two()
    optimizer = torch.optim.Adam(model.parameters())
    with memory() as mem:
        train_once(model, optimizer)
    gone = weakref.ref(model), weakref.ref(optimizer), weakref.ref(model.first.weight)
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    assert mem.record.peak_bytes > 0


def test_two_hundred_captures_leave_nothing_behind():
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def capture() -> None:
        optimizer.zero_grad()
        with memory():
            train_once(model, optimizer)

    for _ in range(5):
        capture()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        capture()
    gc.collect()
    assert len(gc.get_objects()) - before < 200
