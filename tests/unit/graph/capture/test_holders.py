"""What nodes hold, held against torch's own saved-tensor hooks."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.capture.saved_tensors import holders


def by_type(record, name):
    return next(node for node in record.nodes if node.type == name)


def shared_record():
    x = torch.randn(8, requires_grad=True)
    y = x.exp()  # saves its own result
    return wb.graph((y * y.sin()).sum()).record


def test_every_other_holder_is_named():
    record = shared_record()
    (result,) = holders(record, by_type(record, "ExpBackward0"))
    assert (result.names, result.num_bytes, result.kind) == (("result",), 32, "activation")
    assert [node.op for node in result.others] == ["Sin", "Mul"]
    assert result.freed_bytes == 0
    mul = holders(record, by_type(record, "MulBackward0").index)
    assert {(s.names, s.freed_bytes) for s in mul} == {(("self",), 0), (("other",), 32)}


def test_parameters_and_inputs_would_not_be_freed(classifier, batch):
    record = wb.graph(F.cross_entropy(classifier(batch[0]), batch[1]), model=classifier).record
    first, second = (n for n in record.nodes if n.type == "AddmmBackward0")
    (of_first,), of_second = holders(record, first), holders(record, second)
    assert (of_first.kind, of_first.freed_bytes) == ("input", 0)
    assert sorted(s.kind for s in of_second) == ["activation", "parameter"]
    assert [s.freed_bytes for s in of_second if s.kind == "parameter"] == [0]


def test_an_unknown_row_is_an_error():
    with pytest.raises(IndexError, match="nodes 0 to"):
        holders(shared_record(), 99)


def test_a_module_is_given_by_its_path(classifier, batch):
    view = wb.graph(F.cross_entropy(classifier(batch[0]), batch[1]), model=classifier)
    path = next(node.module for node in view.record.nodes if node.type == "AddmmBackward0")
    inside = [node for node in view.record.nodes if node.module == path]
    of_nodes = {storage.storage for node in inside for storage in view.holders(node)}
    assert {storage.storage for storage in view.holders(path)} == of_nodes != set()
    everything = view.holders("")
    assert sum(storage.freed_bytes for storage in everything) <= view.record.saved_bytes
    assert all(one.module == "" for storage in everything for one in storage.others)


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x).exp()
        return y * y.sin()


def test_within_a_module_the_others_are_outside():
    model = nn.Sequential(Product(), nn.Linear(4, 1))
    with wb.graph(model):
        loss = model(torch.randn(4, 4)).sum()
    view = wb.graph(loss)
    (of_node,) = view.holders(by_type(view.record, "ExpBackward0"))
    (of_module,) = (one for one in view.holders("0") if one.storage == of_node.storage)
    assert [node.op for node in of_node.others] == ["sin", "mul"]
    assert of_module.others == ()
    assert (of_node.freed_bytes, of_module.freed_bytes) == (0, 64)
    assert "held by this module alone" in str(of_module)


@pytest.mark.parametrize("given", [None, 1.5, len, ["0"]])
def test_what_is_no_node_says_what_is(given):
    with pytest.raises(TypeError, match=r"record.nodes.*qualified name of a module.*got"):
        holders(shared_record(), given)
    with pytest.raises(ValueError, match=r"no module 'block2\.nrom'"):
        holders(shared_record(), "block2.nrom")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layer(x)[:, 0].sigmoid())


def conv():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(1)), (
        torch.randn(4, 3, 8, 8)
    )


def encoder():
    return Layer(), torch.randn(4, 5, 16)


def recurrent():
    cell = nn.LSTM(4, 8, batch_first=True)
    return cell, torch.randn(2, 6, 4)


@pytest.mark.parametrize("build", [conv, encoder, recurrent], ids=lambda build: build.__name__)
def test_the_table_of_holds_is_what_torch_packs(build):
    """Each packed tensor is one row: same bytes of storage, same shape, same sharing."""
    model, x = build()
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(x)
        loss = (out[0] if isinstance(out, tuple) else out).square().mean()
        record = wb.graph(loss, model=model).record

    expected = sorted(("×".join(map(str, t.shape)) or "scalar", storage_of(t)) for t in packed)
    found = sorted(
        (record.strings[shape], int(record.storage_bytes[storage]))
        for shape, storage in zip(record.hold_shape, record.hold_storage, strict=True)
    )
    assert found == expected
    times_held = Counter(record.hold_storage.tolist())
    times_packed = Counter(t.untyped_storage()._cdata for t in packed)
    assert sorted(times_held.values()) == sorted(times_packed.values())


def storage_of(tensor):
    return tensor.untyped_storage().nbytes()
