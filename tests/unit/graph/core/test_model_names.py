from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DataParallel

import workbench as wb
from workbench.graph.core.model_names import ModelNames


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


def test_several_models_are_distinguished_by_their_variable(batch):
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    record = wb.graph(critic(generator(batch[0])).mean()).record
    assert {n.name for n in record.nodes if n.name} == {
        "generator.weight",
        "generator.bias",
        "critic.weight",
        "critic.bias",
    }


def test_a_lazy_model_has_names_before_it_has_shapes():
    assert len(ModelNames.of({"": nn.LazyLinear(3)}).parameters) == 2


def test_a_module_under_two_paths_names_both(batch):
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["c"] = nn.ModuleDict({"inner": model["a"], "empty": nn.Sequential()})
    with wb.graph(model) as view:
        model["c"]["inner"](model["a"](batch[0])).sum().backward()
    note = "Module a is also at c.inner: all its calls are listed under a."
    assert [one for one in view.record.notes if "also at" in one] == [note]
    assert note in str(view)
    with wb.graph(model) as view:
        model["b"](batch[0]).sum().backward()
    assert not any("also at" in one for one in view.record.notes)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_module_has_the_name_of_its_class(batch):
    model = nn.Sequential(torch.jit.script(nn.Linear(3, 4)), nn.Tanh())
    with wb.graph(model) as view:
        model(batch[0]).sum().backward()
    assert {module.path: module.cls for module in view.record.modules}["0"] == "Linear"


class Generator(nn.Linear):
    pass


class Discriminator(nn.Sequential):
    pass


def test_the_heading_names_the_model_that_the_graph_is_of(batch):
    generator, discriminator = Generator(3, 3), Discriminator(nn.Linear(3, 3), nn.Tanh())
    with wb.graph(generator) as view:
        fake = generator(batch[0]).detach()
        discriminator(fake).sum().backward()
    record = view.record
    assert (record.model, record.title) == ("Discriminator", "Discriminator")
    assert {node.module for node in record.nodes if node.kind == "operation"} <= {"0", "", "loss"}
    assert all(node.source is not None for node in record.nodes if node.kind == "operation")
    with wb.graph(generator) as view:
        discriminator(generator(batch[0])).sum().backward()
    assert view.record.model == "Generator"
    with wb.graph(generator) as view:
        (torch.ones(3, requires_grad=True) * 2).sum().backward()
    assert (view.record.model, view.record.title) == ("", "loss")
