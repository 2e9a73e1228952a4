"""Captures of code that does something unusual, held against the same oracles as the models."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.models.oracles import OwnerOracle, saved_by_hooks
from tests.models.traced import assert_owned_as, operations, owners, traced


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.mix = nn.Linear(8, 8)
        self.decode = nn.Linear(8, 12, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, ids):
        return self.decode(self.mix(self.embed(ids)))


def test_a_shared_parameter_is_one_leaf_with_two_users():
    model, ids = Tied(), torch.arange(6)
    record, oracle, _ = traced(model, lambda: F.cross_entropy(model(ids), ids))
    (leaf,) = [n for n in record.nodes if n.name == "embed.weight"]
    users = record.edge_to[record.edge_from == leaf.index].tolist()
    assert {record.nodes[row].module for row in users} == {"embed", "decode"}
    assert_owned_as(record, oracle)
    saved = saved_by_hooks(lambda: F.cross_entropy(model(ids), ids), model, [ids])
    assert record.parameter_bytes == saved.parameter


def test_a_frozen_part_has_no_nodes_and_its_weights_do_not_count_as_saved():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    model[:3].requires_grad_(False)
    x = torch.randn(5, 4)
    record, oracle, _ = traced(model, lambda: model(x).sum())
    assert {n.module for n in operations(record)} == {"4", "loss"}
    assert_owned_as(record, oracle)

    model[:3].requires_grad_(True)
    model[2:].requires_grad_(False)
    record, oracle, _ = traced(model, lambda: model(x).sum())
    assert_owned_as(record, oracle)
    saved = saved_by_hooks(lambda: model(x).sum(), model, [x])
    assert (record.saved_bytes, record.parameter_bytes) == (saved.activation, saved.parameter)
    assert record.parameter_bytes == model[2].weight.nbytes + model[4].weight.nbytes


class Exits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.early, self.late = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.early(x), self.late(x.tanh())


def test_of_several_losses_each_shows_what_made_it():
    model, x, y = Exits(), torch.randn(5, 4), torch.zeros(5).long()
    oracle = OwnerOracle(model)
    with wb.graph(model):
        early, late = (F.cross_entropy(out, y) for out in model(x))
        both = early + 0.3 * late
    records = [wb.graph(loss).record for loss in (early, late, both)]
    modules = [{n.module for n in operations(record)} for record in records]
    assert modules[0] == {"stem", "", "early", "loss"}
    assert modules[1] == {"stem", "", "late", "loss"}
    assert modules[2] == modules[0] | modules[1]
    for record in records:
        assert_owned_as(record, oracle.owner)
        assert all(node.source is not None for node in operations(record))


def test_autocast_shows_every_cast_with_its_module_and_bytes():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2))
    x, y = torch.randn(5, 8), torch.zeros(5).long()

    def forward():
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y)

    saved = saved_by_hooks(forward, model, [x, y])
    record, oracle, _ = traced(model, forward)
    casts = [node for node in operations(record) if node.type == "ToCopyBackward0"]
    into = Counter((node.module, node.dtype) for node in casts)
    assert into[("0", "bfloat16")] == 2  # weight and bias
    assert into[("3", "bfloat16")] >= 2
    assert_owned_as(record, oracle)
    assert all(node.source is not None for node in casts)
    # the labels reach no module and no variable beside the call, so they are not known as an input
    assert record.saved_bytes + record.input_bytes == saved.activation + saved.input


def test_a_graph_made_and_traced_on_another_thread():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(5, 3)
    losses = []

    def work():
        with wb.graph(model):
            losses.append(model(x).sum())

    for _ in range(30):  # this thread's numbers are ahead of the other's
        torch.ones(1, requires_grad=True) * 2
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    record = wb.graph(losses[0], model=model).record
    assert Counter(n.module for n in operations(record)) == {"0": 2, "1": 1, "2": 2, "loss": 1}
    assert all(node.source is not None for node in operations(record))
    assert record.notes == ()


def test_a_language_model_of_hugging_face_that_computes_its_own_loss():
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    config = transformers.GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.randint(0, 64, (2, 9))
    record, oracle, _ = traced(model, lambda: model(input_ids=ids, labels=ids).loss)
    assert_owned_as(record, oracle)
    assert all(node.source is not None for node in operations(record))
    assert record.nodes[record.root].module == ""  # the model itself made the loss
    assert {"transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_proj", "lm_head"} <= set(
        owners(record).values()
    )
    (tied,) = [node for node in record.nodes if node.name == "transformer.wte.weight"]
    assert Counter(record.edge_from.tolist())[tied.index] >= 2  # lm_head's transpose and embedding


def test_the_smallest_graph_is_shown_by_every_view():
    weight = torch.randn(3, requires_grad=True)
    view = wb.graph(weight.exp())
    assert [node.type for node in view.record.nodes] == ["AccumulateGrad", "ExpBackward0"]
    assert "exp" in str(view).lower()
    assert "data:image/svg+xml;base64," in view._repr_mimebundle_()[0]["text/html"]
    assert view.figure().axes
