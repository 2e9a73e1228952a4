"""Steps on a simulated GPU: what it holds, what it refuses, what the record says."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.integration.support import reach
from workbench.allocator.memory_limit import GpuLimit
from workbench.allocator.replay.restored_state import restore
from workbench.allocator.replay.start_state import StartState
from workbench.allocator.simulator.simulator import CachingAllocator
from workbench.experiment import Experiment
from workbench.experiment.failure.out_of_memory import Remedied
from workbench.experiment.loop.probe import StepProbe
from workbench.experiment.services import Services, only
from workbench.graph import GraphProbe
from workbench.memory import MemoryProbe
from workbench.memory.reading.fragmentation import fragmentation
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.memory.reading.text import format_bytes
from workbench.memory.simulated_gpu.gpu_recorder import GpuLedger, GpuRecorder
from workbench.memory.simulated_gpu.held_segments import held_by
from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool
from workbench.memory.simulated_gpu.simulated_gpu import SimulatedGpu
from workbench.records import MemoryRecord

MIB = 2**20


class Net(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(6))
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


def experiment(tmp_path: Path, **options: Any) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(4096, 256), torch.arange(4096) % 3
    chosen = {"batch_size": 1024, "device": "cpu", "runs": tmp_path, **options}
    return Experiment(Net(), data, **chosen)


def player(exp: Experiment) -> SimulatedGpu:
    card = exp._training.gpu
    assert isinstance(card, SimulatedGpu)
    return card


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()


# -- the ledger -------------------------------------------------------------------------------


def test_what_lives_is_on_the_gpu_and_what_died_is_not() -> None:
    ledger = GpuLedger(GpuLimit.parse("600 MiB"), "cpu")
    with GpuRecorder(ledger):
        kept = torch.ones(MIB)
        gone = kept * 2
        view = kept[10:]
        del gone
        view.add_(1)
    ledger.record_frees()
    live = [block for block in ledger.blocks if block.end < 0]
    assert [block.num_bytes for block in live] == [4 * MIB]
    assert ledger.allocated == sum(b.size for b in ledger.allocator.blocks.values()) == 4 * MIB
    assert ledger.peak_reserved == ledger.allocator.reserved == 20 * MIB
    del kept, view
    ledger.next_step()
    assert ledger.allocated == 0
    assert not ledger.allocator.blocks
    assert not ledger.blocks


def test_a_request_that_does_not_fit_raises_where_it_is_made() -> None:
    ledger = GpuLedger(GpuLimit.parse("600 MiB"), "cpu")
    with GpuRecorder(ledger):
        held = torch.ones(15 * MIB)
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.ones(10 * MIB)
        text = str(raised.value)
        assert "Tried to allocate 40.0 MiB" in text
        assert "60.0 MiB are allocated" in text
        assert "exp.card = None" in text
        small = torch.ones(MIB)  # caught: the code goes on
    assert ledger.allocated == held.nbytes + small.nbytes
    assert [refused.block.num_bytes for refused in ledger.refused] == [40 * MIB]


def test_other_devices_are_not_on_it() -> None:
    ledger = GpuLedger(GpuLimit.parse("600 MiB"), "cuda:0")
    with GpuRecorder(ledger):
        _ = torch.ones(200 * MIB)
    assert ledger.allocated == 0


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 12 * MIB), st.integers(0, 30)), max_size=60),
    words=st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:20"]),
)
def test_what_an_allocator_holds_can_be_put_back(sizes: list[tuple[int, int]], words: str) -> None:
    limit = GpuLimit.parse("8 GiB").with_settings(words)
    allocator = limit.allocator()
    live: list[int] = []
    for size, at in sizes:
        live.append(allocator.malloc(size))
        if at < len(live):
            allocator.free(live.pop(at))
    state = held_by(allocator)
    assert sum(segment.size for segment in state) == allocator.reserved
    again = CachingAllocator(limit.settings, limit.allocator().device)
    restore(again, StartState(state))
    assert again.reserved == allocator.reserved
    assert {a: b.size for a, b in again.blocks.items()} == {
        a: b.size for a, b in allocator.blocks.items()
    }
    assert held_by(again) == state


# -- a run ------------------------------------------------------------------------------------


def test_a_run_that_fits_computes_what_it_would_have_computed(tmp_path: Path) -> None:
    plain, played = (experiment(tmp_path, batch_size=256) for _ in range(2))
    played.card = "1 GiB"
    for exp in (plain, played):
        exp.run(steps=6, wait=True)
    assert losses(plain) == losses(played)
    gpu = player(played)
    gpu.ledger.next_step()
    model = sum(p.nbytes for p in played.model.parameters())
    use = played.card_use
    assert use is not None
    assert 4 * model <= use.allocated <= 4 * model + MIB  # weights, gradients, two moments
    assert use.reserved <= use.peak_reserved <= 512 * MIB
    assert "simulated: 1 GiB" in str(played.facts())
    played.card = None
    assert played.card is None
    assert played.card_use is None
    played.run(steps=2, wait=True)
    plain.run(steps=2, wait=True)
    assert losses(plain) == losses(played)
    for exp in (plain, played):
        exp.close()


def test_the_gpu_can_be_set_and_ended_while_it_trains(tmp_path: Path) -> None:
    exp = experiment(tmp_path, batch_size=256)
    exp.run(steps=400)
    reach(exp, 2)
    exp.card = "T4, expandable_segments:True"
    exp.pause()
    exp.wait()
    exp.step(2).wait()
    assert exp.card == "T4, expandable_segments:True"
    assert any("T4" in marker.text for marker in exp.markers)
    exp.model = Net()
    exp.modes = "bf16"
    exp.step(2).wait()
    assert exp.status == "paused"
    gpu = player(exp)
    gpu.ledger.next_step()
    gc.collect()
    model = sum(p.nbytes for p in exp.model.parameters())
    assert gpu.use().allocated < 4 * model + 2 * MIB, "the old model is gone from the GPU"
    exp.close()


def record_of_failure(exp: Experiment) -> MemoryRecord:
    assert exp.failure is not None
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    return record


def assert_is_what_the_gpu_did(exp: Experiment, error: BaseException, usable: int) -> None:
    """The record of a failed step, and what its error says."""
    assert exp.status == "exception"
    record = record_of_failure(exp)
    assert record.is_predicted
    assert record.card_bytes == usable * MIB
    assert len(record.oom_event) == 1
    assert int(record.oom_event[0]) == len(record.event_kind) - 1
    asked = format_bytes(int(record.oom_bytes[0]))
    assert f"{asked} requested" in record.title
    assert f"Tried to allocate {asked}." in str(error)
    reserved, live = record.reserved(), record.series().sum(axis=0)
    allocated = format_bytes(int(live[-1]))
    assert f"{allocated} are allocated" in str(error), "as the GPU said when it refused"
    assert reserved.max() <= usable * MIB
    assert np.array_equal(fragmentation(record, recorded_settings(record)).sum(axis=0), reserved)
    in_the_way = record.obstacle_block
    assert len(in_the_way) == 0 or record.block_end[in_the_way].max() < 0


@pytest.fixture
def _tries_no_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        OutOfMemoryTool, "with_remedies", lambda _tool, _training, record, _: Remedied(record, ())
    )


@pytest.mark.usefixtures("_tries_no_remedies")
@pytest.mark.parametrize("words", ["", ", expandable_segments:True", ", max_split_size_mb:20"])
@pytest.mark.parametrize(("batch", "usable"), [(1024, 4), (1024, 15), (2048, 12)])
def test_the_record_of_a_failed_step_is_what_the_gpu_did(
    tmp_path: Path, batch: int, usable: int, words: str
) -> None:
    exp = experiment(tmp_path, batch_size=batch)
    exp.card = f"{512 + usable} MiB{words}"
    with pytest.raises(torch.OutOfMemoryError) as raised:
        exp.run(steps=4, wait=True)
    assert_is_what_the_gpu_did(exp, raised.value, usable)
    exp.close()


def test_a_capture_on_a_gpu_is_a_record_of_the_gpu(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.card = "600 MiB"
    exp.run(steps=2, wait=True)
    record = exp.capture(MemoryProbe()).wait()
    assert isinstance(record, MemoryRecord)
    assert record.card == "600 MiB"
    assert len(record.oom_event) == 0
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer"]
    assert record.reserved().max() == player(exp).ledger.peak_reserved
    exp.step(1).wait()
    assert exp.status == "paused"
    exp.close()


class AllocatesAtItsEnd(StepProbe):
    """A probe that works on tensors after the step has failed, as one that reads gradients does."""

    kind = "graph"

    def finish(self) -> MemoryRecord:
        torch.ones(1000).sum()
        raise RuntimeError("nothing was captured")


@pytest.mark.parametrize("words", ["", ", expandable_segments:True", ", max_split_size_mb:20"])
def test_what_other_probes_allocate_after_a_refusal_does_not_hide_it(
    tmp_path: Path, words: str
) -> None:
    exp = experiment(tmp_path, batch_size=512)
    exp.card = f"{512 + 9} MiB{words}"
    exp.capture(AllocatesAtItsEnd())
    exp.capture(MemoryProbe())
    with pytest.raises(torch.OutOfMemoryError) as raised:
        exp.run(steps=4, wait=True)
    assert len(record_of_failure(exp).oom_event) == 1
    assert record_of_failure(exp).remedies
    assert_is_what_the_gpu_did(exp, raised.value, 9)
    exp.close()


def test_what_cannot_be_named_does_not_end_a_step_on_a_gpu(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.model.head.unused = nn.LazyLinear(4)
    exp.optimizer.state["k_total"] = 3
    exp.card = "600 MiB"
    exp.run(steps=2, wait=True)

    named = exp.model.named_parameters

    def fault(*_: object, **options: bool) -> Any:
        if "recurse" in options:  # as `parameters` asks, without which nobody can train
            return named(**options)
        raise LookupError("no such parameter")

    exp.model.named_parameters = fault
    exp.card = "620 MiB"
    exp.run(steps=2, wait=True)
    assert exp.failure is None
    assert exp.step_count == 4
    exp.close()


def test_a_failed_step_is_let_go_of_while_its_error_is_held(tmp_path: Path) -> None:
    """Also what a capture of the graph keeps from the traceback, and module calls with hooks."""
    exp = experiment(tmp_path, batch_size=512)
    exp.card = f"{512 + 9} MiB"
    exp.capture(GraphProbe())
    with pytest.raises(torch.OutOfMemoryError) as raised:
        exp.run(steps=4, wait=True)
    gc.collect()
    assert raised.value.__traceback__ is not None
    tensors = [one for one in gc.get_objects() if type(one) is torch.Tensor]
    step = [one for one in tensors if one.grad_fn is not None and one.shape[:1] == (512,)]
    assert step == []
    state = sum(p.nbytes for p in exp.model.parameters())
    assert player(exp).ledger.allocated < 5 * state
    exp.close()


# -- bad input --------------------------------------------------------------------------------


def test_a_gpu_smaller_than_the_model_is_refused(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    with pytest.raises(ValueError, match="parameters and buffers of Net alone are 2 MiB"):
        exp.card = 513 * MIB
    assert exp.card is None
    exp.close()


def test_without_a_tool_no_gpu_is_simulated(tmp_path: Path) -> None:
    with only(Services()):
        exp = experiment(tmp_path)
    with pytest.raises(RuntimeError, match=r"wb\.Experiment"):
        exp.card = "8 GiB"
    exp.close()


@pytest.mark.usefixtures("_tries_no_remedies")
def test_a_gpu_too_small_for_what_a_training_holds_by_now_is_out_of_memory(tmp_path: Path) -> None:
    """Parameters fit, and were checked; gradients and the optimizer's state came since."""
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    exp.card = f"{512 + 6} MiB"
    with pytest.raises(torch.OutOfMemoryError, match="simulated GPU"):
        exp.run(steps=1, wait=True)
    exp.card = "RTX 4090"
    exp.run(steps=1, wait=True)
    assert exp.step_count == 2
