from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DataParallel

import workbench as wb
from workbench.graph.names import ModelNames, plain_tensors


def test_wrappers_are_seen_through(classifier):
    expected = [(m.path, m.cls) for m in ModelNames.of({"": classifier}).modules]
    for wrapper in (torch.compile(classifier, backend="eager"), DataParallel(classifier)):
        found = ModelNames.of({"": wrapper})
        assert [(m.path, m.cls) for m in found.modules] == expected
        assert {name for name, _ in found.parameters.values()} == {
            "0.weight",
            "0.bias",
            "2.weight",
            "2.bias",
        }


def test_a_shared_parameter_is_one_leaf_under_its_first_name(batch):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    model = Tied()
    record = wb.graph(model(batch[0]).sum(), model=model).record
    leaves = [node.name for node in record.nodes if node.kind == "parameter"]
    assert sorted(leaves) == ["first.bias", "first.weight", "second.bias"]


def test_frozen_parameters_have_no_leaf(classifier, batch):
    classifier[0].requires_grad_(False)
    x, y = batch
    record = wb.graph(F.cross_entropy(classifier(x), y), model=classifier).record
    assert {n.name for n in record.nodes if n.kind == "parameter"} == {"2.weight", "2.bias"}


def test_several_models_are_told_apart_by_their_variable(batch):
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    record = wb.graph(critic(generator(batch[0])).mean()).record
    assert {n.name for n in record.nodes if n.name} == {
        "generator.weight",
        "generator.bias",
        "critic.weight",
        "critic.bias",
    }


def test_sparse_tensors_are_their_parts():
    sparse = torch.eye(3).to_sparse()
    assert len(plain_tensors(sparse)) == 2
    assert plain_tensors(torch.eye(3).to_sparse_csr()) == []


def test_a_lazy_model_has_names_before_it_has_shapes():
    assert len(ModelNames.of({"": nn.LazyLinear(3)}).parameters) == 2
