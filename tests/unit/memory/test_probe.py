"""The probe rides along with a step: same losses, right phases, nothing kept."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment.loop.probe import StepContext
from workbench.memory import MemoryProbe, memory, to_chart
from workbench.memory.reading.text import format_bytes
from workbench.records import CATEGORIES, MemoryRecord


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3),
        nn.Flatten(), nn.Linear(8 * 64, 10),
    )  # fmt: skip


def step(
    model, optimizer, number: int, probe: MemoryProbe | None
) -> tuple[float, MemoryRecord | None]:
    """One training step with the probe's hooks called where the experiment calls them."""
    generator = torch.Generator().manual_seed(number)
    batch = (torch.randn(16, 1, 8, 8, generator=generator), torch.arange(16) % 10)
    record = None
    if probe is not None:
        probe.before_step(
            StepContext(
                name="digits", step=number, model=model, optimizer=optimizer,
                device=torch.device("cpu"), batch=batch, compiled=False,
            )
        )  # fmt: skip
    try:
        optimizer.zero_grad()
        if probe is not None:
            probe.before_forward()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        if probe is not None:
            probe.after_forward(loss)
        loss.backward()
        if probe is not None:
            probe.after_backward()
        optimizer.step()
    finally:
        if probe is not None:
            record = probe.finish()
    return loss.item(), record


def losses(captured: set[int]) -> list[float]:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1)
    return [
        step(model, optimizer, number, MemoryProbe() if number in captured else None)[0]
        for number in range(1, 9)
    ]


def test_losses_are_bit_equal_with_and_without_captures():
    assert losses(captured=set()) == losses(captured={1, 2, 5, 8})


def captured_step(number: int = 2) -> MemoryRecord:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    for warm in range(1, number):
        step(model, optimizer, warm, None)
    return step(model, optimizer, number, MemoryProbe())[1]


def test_phases_and_title():
    record = captured_step()
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer"]
    assert (record.title, record.experiment, record.step) == ("digits, step 2", "digits", 2)
    assert record.phases[0].end == record.phases[1].start


def test_what_lived_before_the_step_is_the_baseline():
    record = captured_step()
    model = net()
    parameters = sum(p.numel() * 4 for p in model.parameters())
    before = dict(zip(CATEGORIES, record.series()[:, 0].tolist(), strict=True))
    assert before["parameters"] == parameters
    assert before["gradients"] == parameters  # of the step before: zero_grad is inside the step
    assert before["optimizer"] == 2 * parameters + 6 * 4
    assert before["buffers"] == 2 * 8 * 4 + 8 + 16 * 64 * 4 + 16 * 8
    assert before["activations"] == before["temporaries"] == before["unknown"] == 0


def test_inputs_and_buffers_have_names():
    record = captured_step()
    buffers = record.block_category == CATEGORIES.index("buffers")
    names = {record.strings[i] for i in record.block_name[buffers]}
    assert names == {
        "batch.inputs", "batch.targets", "1.running_mean", "1.running_var", "1.num_batches_tracked",
    }  # fmt: skip


def test_activations_are_gone_after_backward():
    record = captured_step()
    activations = record.series()[CATEGORIES.index("activations")]
    end_of_backward = record.phases[1].end
    assert activations[record.phases[0].end] > 0
    assert activations[end_of_backward] <= 8  # the loss itself, which Python still holds


def test_every_block_is_accounted_for():
    record = captured_step()
    unknown = record.block_category == CATEGORIES.index("unknown")
    assert int(record.block_bytes[unknown].sum()) == 0
    assert int(record.series().min()) >= 0


def test_an_exception_in_the_step_still_gives_a_record_and_frees_the_thread():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[2].forward = lambda x: 1 / 0
    probe = MemoryProbe()
    with pytest.raises(ZeroDivisionError):
        step(model, optimizer, 1, probe)
    with memory() as mem:
        torch.ones(4)
    assert len(mem.record.block_bytes) == 1


def test_what_cannot_be_named_is_a_note_and_the_step_is_recorded():
    model = net()
    model.add_module("later", nn.Identity())
    model.later.unused = nn.LazyLinear(4)
    optimizer = torch.optim.AdamW(list(model.parameters())[:-2])
    optimizer.state["k_total"] = 3
    step(model, optimizer, 1, None)
    _, record = step(model, optimizer, 2, MemoryProbe())
    assert record.notes == ()

    def fault(**_: object) -> None:
        raise LookupError("no such parameter")

    model.named_parameters = fault
    _, record = step(model, optimizer, 3, MemoryProbe())
    assert record.notes == (
        "Not everything that Sequential holds could be named: LookupError: no such parameter",
    )
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer"]


def test_a_first_step_says_that_the_optimizer_made_its_state_in_it():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    records = [step(model, optimizer, number, MemoryProbe())[1] for number in (1, 2)]
    state = records[1].series()[CATEGORIES.index("optimizer"), 0]
    moments = sum(t.nbytes for held in optimizer.state.values() for t in held.values())
    assert state == moments
    assert records[0].notes == (
        f"The optimizer made its state in this step, {format_bytes(moments)}: it appears at the "
        "update, and every later step has it from its beginning.",
    )
    assert records[0].series()[CATEGORIES.index("optimizer"), 0] == 0
    assert records[1].notes == ()


def test_an_optimizer_without_state_is_not_mentioned():
    model = net()
    assert captured_step().notes == ()
    _, record = step(model, torch.optim.SGD(model.parameters(), lr=0.1), 1, MemoryProbe())
    assert record.notes == ()


def test_a_probe_serves_one_step():
    with pytest.raises(RuntimeError, match="one step"):
        MemoryProbe().finish()


def test_the_experiment_can_go_after_a_capture():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    probe = MemoryProbe()
    step(model, optimizer, 1, probe)
    gone = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_the_chart_of_a_step_keeps_peak_and_phases():
    record = captured_step()
    chart = to_chart(record)
    points = chart.bytes.reshape(len(CATEGORIES), chart.num_points)
    assert chart.num_points <= 400
    assert float(points.sum(axis=0).max()) == record.peak_bytes == chart.peak_bytes
    assert int(np.argmax(points.sum(axis=0))) == chart.peak_point
    assert [phase.name for phase in chart.phases] == ["forward", "backward", "optimizer"]
    assert sum(chart.at_peak) == chart.peak_bytes
