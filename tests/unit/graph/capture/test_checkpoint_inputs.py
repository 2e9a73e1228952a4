"""What the regions of non-reentrant checkpointing keep is counted, once."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import workbench as wb
from tests.unit.graph.measured_saved import saved_in_forward
from workbench.graph.capture.saved_tensors import KEPT_FOR_CHECKPOINT as KEPT
from workbench.graph.capture.saved_tensors import CheckpointInputs
from workbench.graph.core import walk
from workbench.graph.questions.checkpoint_savings import checkpoint_saving
from workbench.torch_private.autograd import raw_slots, raw_values
from workbench.torch_private.checkpoint import Regions


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.narrow(F.gelu(self.wide(x)))


class Net(nn.Module):
    def __init__(self, reentrant=None):
        super().__init__()
        self.stem, self.head = nn.Linear(16, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x).sum()


def captured(model, *inputs):
    with wb.graph(model):
        loss = model(*(inputs or (torch.randn(32, 16),)))
    return wb.graph(loss).record


def test_the_sum_is_what_the_saving_of_each_block_says():
    plain, checkpointed = captured(Net()), captured(Net(reentrant=False))
    freed = [checkpoint_saving(plain, f"blocks.{row}").freed_bytes for row in range(4)]
    assert checkpointed.saved_bytes == plain.saved_bytes - sum(freed)
    assert checkpointed.saved_bytes == 5 * 32 * 16 * 4  # what stem and the blocks give
    assert any("and is counted" in note for note in checkpointed.notes)


def test_the_sum_is_what_torch_packs():
    model, x = Net(reentrant=False), torch.randn(32, 16)
    assert captured(model, x).saved_bytes == saved_in_forward(model, lambda: model(x))


def test_all_nodes_of_a_region_hold_its_input():
    view = wb.graph(captured(Net(reentrant=False)))
    rows = [node.index for node in view.record.nodes if node.module.startswith("blocks.1")]
    held = [storage for row in rows for storage in view.holders(row) if KEPT in storage.names]
    assert len(held) == 3
    assert len({storage.storage for storage in held}) == 1
    assert all(len(storage.others) == 2 for storage in held)


def test_regions_in_regions_and_keyword_arguments():
    mask = torch.ones(64)

    def inner(x, mask=None):
        return x.sin().exp() * mask

    def outer(x):
        return checkpoint(inner, x.cos(), mask=mask, use_reentrant=False).exp()

    x = torch.randn(64, requires_grad=True)
    hidden = x + 2
    loss = checkpoint(outer, hidden, use_reentrant=False).sum()
    record = wb.graph(loss).record
    assert record.saved_bytes == hidden.nbytes  # for the outer region
    assert record.input_bytes == mask.nbytes  # for the inner one; it lives anyway


def test_a_region_of_long_ago_is_found():
    x = torch.randn(8, requires_grad=True)
    loss = checkpoint(lambda x: x.sin().exp(), x + 1, use_reentrant=False).sum()
    gc.collect()  # what is left is old
    assert wb.graph(loss).record.saved_bytes == x.nbytes


def test_one_region_over_several_modules():
    model = nn.Sequential(*(Block() for _ in range(4)))
    hidden = torch.randn(32, 16, requires_grad=True).exp()
    loss = checkpoint_sequential(model, 2, hidden, use_reentrant=False).sum()
    view = wb.graph(loss, model=model)
    rows = [node.index for node in view.record.nodes if node.module.startswith(("0.", "1."))]
    held = [storage for row in rows for storage in view.holders(row) if KEPT in storage.names]
    assert len({storage.storage for storage in held}) == 1
    assert held[0].num_bytes == hidden.nbytes


def test_nothing_of_a_region_outlives_the_capture():
    hidden = torch.randn(8, requires_grad=True).exp()
    gone = weakref.ref(hidden)
    loss = checkpoint(lambda x: x.sin().exp(), hidden, use_reentrant=False).sum()
    record = wb.graph(loss).record
    del hidden, loss
    gc.collect()
    assert record.saved_bytes > 0
    assert gone() is None


def test_letting_go_does_not_change_what_is_looked_for():
    class Holder:
        def __init__(self):
            self.table = torch.ones(64)

        def run(self, x):
            return x.sin().exp()

    loss = checkpoint(Holder().run, torch.randn(8, requires_grad=True), use_reentrant=False).sum()
    nodes = walk.walk(loss.grad_fn).nodes
    values = [
        value
        for node in nodes
        for slot in raw_slots(type(node))
        for value in raw_values(node, slot)
    ]
    inputs = CheckpointInputs()
    sizes = []
    for _ in range(2):
        sizes.append([tensor.numel() for _, tensor in inputs.kept_by(values)])
        inputs.release()
    assert sizes == [[8], [8]], "the object whose method it is lives on its own"


def test_a_torch_that_keeps_them_elsewhere_is_said(monkeypatch):
    monkeypatch.setattr(Regions, "kept_by", lambda self, holder: None)
    record = captured(Net(reentrant=False))
    assert any("is not in the sum" in note for note in record.notes)


@pytest.mark.parametrize("path", ["blocks.1", "blocks.2.wide"])
def test_a_module_that_is_checkpointed_says_so(path):
    said = str(checkpoint_saving(captured(Net(reentrant=False)), path))
    assert f"`{path}` is checkpointed already" in said
    assert "would" not in said
    assert "would free" in str(checkpoint_saving(captured(Net()), "blocks.1"))


def test_inside_a_reentrant_checkpoint_there_is_nothing_to_ask_for():
    with pytest.raises(ValueError, match=r"'' \(the whole model\).*use_reentrant=True") as info:
        checkpoint_saving(captured(Net(reentrant=True)), "blocks.1")
    assert "'blocks.1'" in str(info.value)
