"""Recordings of whole models against three independent accounts of the same memory.

The first is torch's profiler with ``profile_memory=True``: the CPU allocator's own events, scratch
memory inside kernels included and told apart here. The second is torch's `MemTracker`, with
categories of its own. The third walks every tensor Python can reach and every tensor the autograd
graph saves, and adds up the distinct storages.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.models.accounts import profiled, tracked
from tests.models.resnet import ResNet
from workbench.experiment import Experiment
from workbench.memory import memory
from workbench.memory.reading.text import live_rows
from workbench.records import CATEGORIES, MemoryRecord


def convnet() -> tuple[nn.Module, torch.Tensor]:
    def block(channels_in: int, channels_out: int) -> nn.Sequential:
        conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())

    model = nn.Sequential(
        block(3, 16), block(16, 32), nn.MaxPool2d(2), block(32, 64), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * 16, 10),
    )  # fmt: skip
    return model, torch.randn(16, 3, 32, 32)


def resnet() -> tuple[nn.Module, torch.Tensor]:
    return ResNet((1, 1, 1, 1), 16, 10), torch.randn(4, 3, 64, 64)


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


class Sequence(nn.Module):
    """Two layers of an LSTM whose kernel unrolls them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 64, 2, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm() -> tuple[nn.Module, torch.Tensor]:
    return Sequence(), torch.randn(16, 40, 16)


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


MODELS = [convnet, resnet, transformer, lstm, recurrent, bert]


class Loop:
    """A training loop of a person's own; ``step`` is one step of it, its gradients gone."""

    def __init__(self, make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
        torch.manual_seed(0)
        self.model, self.x = make()
        self.y = torch.arange(len(self.x)) % 10
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step()
        self.clear()

    def step(self, between: Callable[[Any], None] = lambda _: None) -> float:
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        between(loss)
        loss.backward()
        between(None)
        self.optimizer.step()
        return loss.item()

    def clear(self) -> None:
        self.optimizer.zero_grad()
        gc.collect()

    @property
    def parts(self) -> tuple[object, ...]:
        """What exists before a step."""
        return self.model, self.optimizer, self.x, self.y


def recorded(step: Callable[[], object]) -> MemoryRecord:
    with memory() as mem:
        step()
    return mem.record


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_peak_agrees_with_the_profiler_to_the_byte(make):
    """But for scratch memory inside kernels, which a recording leaves out and the profiler has.

    ``loss.item()`` copies a scalar that the CPU allocator never hands out twice: its 4 bytes are
    the only difference there may be.
    """
    expected = profiled(lambda: Loop(make).step)
    record = recorded(Loop(make).step)
    above = record.peak_bytes - int(record.series()[:, 0].sum())
    assert abs(above - expected.without_scratch) <= 4
    assert above <= expected.peak


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_peak_and_categories_agree_with_memtracker(make):
    loop = Loop(make)
    theirs = tracked(loop.step, *loop.parts)
    loop.clear()
    record = recorded(loop.step)
    ours = record.at_peak()
    assert record.peak_bytes == theirs["Total"]
    assert ours["parameters"] == theirs["Parameter"]
    assert ours["optimizer"] == theirs["Optstate"]
    assert ours["buffers"] == theirs["Buffer"] + theirs["Other"]
    # to it the gradient of the loss itself, one float, is of forward
    assert ours["activations"] in (theirs["Activation"], theirs["Activation"] - 4)
    # and the gradient of a parameter is a temporary until its hook has run
    assert abs(ours["gradients"] + ours["temporaries"] - theirs["Gradient"] - theirs["Temp"]) <= 4


def storages_of(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def reachable_from(loss: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Tensors Python can reach, and tensors saved by the graph of ``loss``."""
    for item in gc.get_objects():
        # fake tensors have no memory, sparse ones no storage of their own
        if type(item) in (torch.Tensor, nn.Parameter) and item.layout == torch.strided:
            yield item
            grad = item.grad if item.grad_fn is None else None
            if grad is not None and grad.layout == torch.strided:
                yield grad
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
    loop = Loop(make)

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

    record = recorded(lambda: loop.step(look))
    total = record.series().sum(axis=0)
    phases = {phase.name: phase for phase in record.phases}
    told = [int(total[phases[name].end] - total[0]) for name in ("forward", "backward")]
    assert told == walked


def of_unknown(record: MemoryRecord) -> list[tuple[str, int]]:
    rows = (record.block_category == CATEGORIES.index("unknown")).nonzero()[0]
    return [
        (record.strings[record.block_op[row]], int(record.block_bytes[row]))
        for row in rows.tolist()
    ]


def unplaced(record: MemoryRecord) -> list[tuple[str, str]]:
    """Blocks of the peak that were made in the recording and name neither module nor line."""
    rows = live_rows(record, record.peak_event)
    return [
        (CATEGORIES[record.block_category[row]], record.strings[record.block_op[row]])
        for row in rows.tolist()
        if record.block_start[row] >= 0
        and record.block_module[row] == 0
        and record.block_source[row] < 0
    ]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_byte_of_a_step_has_a_category_and_a_place(make):
    loop = Loop(make)

    def step() -> None:
        loop.step()
        loop.optimizer.zero_grad()

    record = recorded(step)
    assert of_unknown(record) == []
    assert unplaced(record) == []
    assert int(record.series()[CATEGORIES.index("gradients"), -1]) == 0


@pytest.mark.parametrize("make", [resnet, transformer, lstm, bert], ids=lambda make: make.__name__)
def test_every_byte_of_an_experiments_step_has_a_category_and_a_place(make, tmp_path):
    """And its peak is that of the same step in a loop, but for the batch that is on its way."""
    loop = Loop(make)
    data = loop.x.repeat(3, *[1] * (loop.x.dim() - 1)), loop.y.repeat(3)
    torch.manual_seed(0)
    model, _ = make()
    experiment = Experiment(
        model,
        DataLoader(TensorDataset(*data), batch_size=len(loop.x)),
        optimizer=torch.optim.AdamW(model.parameters()),
        runs=tmp_path,
        name=make.__name__,
    )
    experiment.run(steps=2, wait=True)
    record = memory(experiment).record
    assert of_unknown(record) == []
    assert unplaced(record) == []
    loop_peak = recorded(loop.step).peak_bytes
    assert record.peak_bytes == pytest.approx(loop_peak, rel=0.01)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_activation_names_a_module_and_a_line(make):
    record = recorded(Loop(make).step)
    rows = (record.block_category == CATEGORIES.index("activations")).nonzero()[0]
    assert len(rows) > 5
    for row in rows:
        source = record.sources[record.block_source[row]]
        # the model itself has the empty path: what its own forward computes is on a line of it
        assert record.strings[record.block_module[row]] or source.function == "forward"


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_losses_do_not_change_when_steps_are_recorded(make):
    def losses(watched: set[int]) -> list[float]:
        loop = Loop(make)
        torch.manual_seed(5)
        found = []
        for number in range(6):
            loop.optimizer.zero_grad()
            if number in watched:
                with memory():
                    found.append(loop.step())
            else:
                found.append(loop.step())
        return found

    assert losses({1, 3, 4}) == losses(set())
