"""Recordings of whole models against two independent accounts of the same memory.

The first is torch's profiler with ``profile_memory=True``: the CPU allocator's own events, scratch
memory inside kernels included. The second walks every tensor Python can reach and every tensor the
autograd graph saves, and adds up the distinct storages.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from workbench.memory import memory
from workbench.records import CATEGORIES


def convnet() -> tuple[nn.Module, torch.Tensor]:
    def block(channels_in: int, channels_out: int) -> nn.Sequential:
        conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())

    model = nn.Sequential(
        block(3, 16), block(16, 32), nn.MaxPool2d(2), block(32, 64), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * 16, 10),
    )  # fmt: skip
    return model, torch.randn(16, 3, 32, 32)


class Transformer(nn.Module):
    """Two encoder layers over vectors, mean-pooled."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.embed = nn.Linear(16, 64)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


def transformer() -> tuple[nn.Module, torch.Tensor]:
    return Transformer(), torch.randn(16, 32, 16)


class Recurrent(nn.Module):
    """An LSTM cell unrolled by a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state[0])


def recurrent() -> tuple[nn.Module, torch.Tensor]:
    return Recurrent(), torch.randn(16, 50, 8)


def bert() -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, num_labels=10,
    )  # fmt: skip

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertForSequenceClassification(config)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=ids).logits

    return Logits(), torch.randint(0, 100, (16, 24))


MODELS = [convnet, transformer, recurrent, bert]


def training(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> tuple[Any, Callable[[], Any]]:
    torch.manual_seed(0)
    model, x = make()
    y = torch.arange(len(x)) % 10
    optimizer = torch.optim.AdamW(model.parameters())

    def step(between: Callable[[Any], None] = lambda _: None) -> float:
        loss = nn.functional.cross_entropy(model(x), y)
        between(loss)
        loss.backward()
        between(None)
        optimizer.step()
        return loss.item()

    step()
    optimizer.zero_grad()
    gc.collect()
    return optimizer, step


def profiler_peak(step: Callable[[], Any]) -> int:
    """Most bytes the CPU allocator held above what it held at the start."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_peak_agrees_with_the_allocators_own(make):
    """Within 1 %: what differs is scratch memory inside kernels, which a recording leaves out."""
    optimizer, step = training(make)
    expected = profiler_peak(step)
    optimizer.zero_grad()
    gc.collect()
    with memory() as mem:
        step()
    record = mem.record
    before = int(record.series()[:, 0].sum())
    assert record.peak_bytes - before == pytest.approx(expected, rel=0.01)


def storages_of(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def reachable_from(loss: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Tensors Python can reach, and tensors saved by the graph of ``loss``."""
    for item in gc.get_objects():
        # fake tensors have no memory, sparse ones no storage of their own
        if type(item) in (torch.Tensor, nn.Parameter) and item.layout == torch.strided:
            yield item
            if item.grad_fn is None and item.grad is not None:
                yield item.grad
    nodes = [] if loss is None else [loss.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        for name in dir(node):
            if name.startswith("_saved_"):
                saved = getattr(node, name)
                values = saved if isinstance(saved, (tuple, list)) else (saved,)
                yield from (value for value in values if isinstance(value, torch.Tensor))
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                nodes.append(parent)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_live_bytes_agree_with_a_walk_over_every_reachable_tensor(make):
    """At the end of forward and after backward, against what was there before the step."""
    _, step = training(make)

    def live(loss: torch.Tensor | None) -> dict[int, int]:
        return dict(storages_of(tensor) for tensor in reachable_from(loss))

    before = live(None)
    walked: list[int] = []

    def look(loss: torch.Tensor | None) -> None:
        with torch.no_grad():
            now = live(loss)
        new = sum(size for pointer, size in now.items() if pointer not in before)
        gone = sum(size for pointer, size in before.items() if pointer not in now)
        walked.append(new - gone)

    with memory() as mem:
        step(look)
    record = mem.record
    total = record.series().sum(axis=0)
    phases = {phase.name: phase for phase in record.phases}
    recorded = [int(total[phases[name].end] - total[0]) for name in ("forward", "backward")]
    assert recorded == walked


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_byte_of_a_step_has_a_category(make):
    optimizer, step = training(make)
    with memory() as mem:
        step()
        optimizer.zero_grad()
    record = mem.record
    unknown = record.block_category == CATEGORIES.index("unknown")
    named = [
        (record.strings[record.block_op[row]], int(record.block_bytes[row]))
        for row in unknown.nonzero()[0]
    ]
    assert named == []
    assert int(record.series()[CATEGORIES.index("gradients"), -1]) == 0


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_activation_names_a_module_and_a_line(make):
    _, step = training(make)
    with memory() as mem:
        step()
    record = mem.record
    rows = (record.block_category == CATEGORIES.index("activations")).nonzero()[0]
    assert len(rows) > 5
    for row in rows:
        source = record.sources[record.block_source[row]]
        # the model itself has the empty path: what its own forward computes is on a line of it
        assert record.strings[record.block_module[row]] or source.function == "forward"


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_losses_do_not_change_when_steps_are_recorded(make):
    def losses(recorded: set[int]) -> list[float]:
        optimizer, step = training(make)
        torch.manual_seed(5)
        found = []
        for number in range(6):
            optimizer.zero_grad()
            if number in recorded:
                with memory():
                    found.append(step())
            else:
                found.append(step())
        return found

    assert losses({1, 3, 4}) == losses(set())
