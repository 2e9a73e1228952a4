"""What the recorder keeps: bounded, on any thread, and never at the cost of the user's code."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.dynamo import compile_report
from workbench.dynamo.listen import recorder as recording
from workbench.dynamo.listen.recorder import Recorder, listen, recorder, unlisten
from workbench.torch_private.dynamo import TRACE_LOGGER

X = torch.ones(4, 8)


def event(kind: str, compile_id: tuple[int, int], payload: str = "", **details: object) -> object:
    record = logging.LogRecord(TRACE_LOGGER, logging.DEBUG, "", 0, "", (), None)
    metadata = {kind: details, "frame_id": compile_id[0], "frame_compile_id": compile_id[1]}
    record.__dict__.update(metadata=metadata, payload=payload)
    return record


def test_an_endless_recompile_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_COMPILATIONS", 10)
    monkeypatch.setattr(recording, "MOST_CODE", 5_000)
    kept = Recorder()
    for number in range(1_000):
        kept.emit(event("dynamo_start", (0, number)))
        kept.emit(event("inductor_output_code", (0, number), "x" * 1_000))
    found = kept.compilations(0)
    assert [one.compile_id for one in found] == [f"0/{n}" for n in range(990, 1_000)]
    assert kept.dropped == 990
    assert sum(len(made.text) for one in found for made in one.generated) == 5_000
    assert len(kept._newest) == 10
    assert not kept.faults


def test_a_real_storm_of_recompiles_ends_in_dynamo_s_limit_and_says_so(reported: Callable) -> None:
    class Numbered(nn.Module):
        number = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.number

    model = Numbered()
    compiled = torch.compile(model, backend="eager")

    def at(number: int) -> None:
        model.number = number
        compiled(X)

    record = reported(at, *((n,) for n in range(12))).record
    assert record.regions[0].num_recompiles >= 7
    assert "recompile limit" in " ".join(one.reason for one in record.breaks)


def test_an_id_that_comes_again_is_another_compilation(reported: Callable) -> None:
    compiled = torch.compile(lambda x: x + 1)

    def again() -> None:
        torch.compiler.reset()
        compiled(X)

    record = reported(again, (), ()).record
    assert record.compilation_operations.tolist() == [1, 1]
    assert record.recompiles == ()
    assert record.regions[0].num_graphs == 1


def test_two_threads_compile_at_once_and_are_kept_apart() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    def two(x: torch.Tensor) -> torch.Tensor:
        return x.cos() * 2 - 1

    with compile_report() as report:
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(torch.compile(f), X))
            for f in (one, two)  # settings of Inductor's are a context's
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    record = report.record
    operations = {
        record.regions[region].label: operations
        for region, operations in zip(
            record.compilation_region, record.compilation_operations, strict=True
        )
    }
    assert operations == {"one": 2, "two": 3}


def test_a_fault_of_ours_is_a_note_and_not_the_user_s_error(
    reported: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_text: str) -> None:
        raise LookupError("torch writes this otherwise now")

    monkeypatch.setattr(recording, "read_break", broken)
    monkeypatch.setattr(recording, "_recorder", None)

    def breaks(x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return x + 1

    report = reported(torch.compile(breaks), (X,))
    assert "LookupError: torch writes this otherwise now" in " ".join(report.record.notes)


def test_the_recorder_listens_only_while_it_is_held() -> None:
    logger = logging.getLogger(TRACE_LOGGER)
    before = recorder() in logger.handlers
    listen()
    listen()
    unlisten()
    assert recorder() in logger.handlers
    unlisten()
    assert (recorder() in logger.handlers) == before


def test_recording_changes_no_number_and_recompiles_nothing(clean: nn.Module) -> None:
    compiled = torch.compile(clean)

    def step() -> torch.Tensor:
        clean.zero_grad()
        loss = compiled(X).square().sum()
        loss.backward()
        return torch.stack([loss.detach(), *(p.grad.norm() for p in clean.parameters())])

    plain = step()
    with compile_report() as report:
        assert torch.equal(step(), plain)
    assert len(report.record.compilation_region) == 0, "the region from before was used"
    torch.compiler.reset()
    with compile_report() as report:
        assert torch.equal(step(), plain)
    assert report.record.num_graphs == 1
    assert torch.equal(step(), plain)


def test_what_is_kept_of_a_model_does_not_keep_it_alive(reported: Callable) -> None:
    import gc
    import weakref

    model = nn.Linear(8, 8)
    gone = weakref.ref(model)
    report = reported(torch.compile(model), (X,))
    torch.compiler.reset()
    del model
    gc.collect()
    assert gone() is None
    assert report.record.regions[0].cls == "Linear"
