"""Which modules become the rows of a gradient flow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.gradient_flow.module_rows import MAX_ROWS, choose_rows


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)


class Net(nn.Module):
    """A module with the given children, and a parameter of its own."""

    def __init__(self, own: bool = False, **children: nn.Module) -> None:
        super().__init__()
        if own:
            self.token, self.position = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
        for name, child in children.items():
            self.add_module(name, child)


def layers(count: int) -> nn.ModuleList:
    return nn.ModuleList(Block() for _ in range(count))


def labels(model: nn.Module) -> list[str]:
    return [row.label for row in choose_rows(model).rows]


def test_blocks_stay_closed_where_they_are_enough_to_see() -> None:
    net = Net(**{f"block{at}": Block() for at in range(5)})
    assert labels(net) == [f"block{at}" for at in range(5)]


def test_few_blocks_and_mere_lists_are_opened() -> None:
    assert labels(Net(stem=Block(), head=nn.Linear(2, 2))) == ["stem.conv", "stem.norm", "head"]
    net = Net(a=Block(), b=Block(), c=Block(), layer1=nn.Sequential(Block(), Block()), fc=Block())
    assert labels(net) == ["a", "b", "c", "layer1.0", "layer1.1", "fc"]


def test_a_wrapper_of_a_wrapper_is_opened_to_what_it_holds() -> None:
    bert = Net(embed=Block(), encoder=Net(layer=layers(12)), pool=nn.Linear(2, 2))
    found = labels(Net(bert=bert, classifier=nn.Linear(2, 2)))
    assert found[0] == "bert.embed.conv"
    assert "bert.encoder.layer.11" in found
    assert len(found) == 16


@pytest.mark.parametrize("depth", [24, 32, 48, 1000])
def test_a_long_list_is_split_into_equal_groups(depth: int) -> None:
    net = Net(embed=nn.Embedding(2, 2), layers=layers(depth), norm=nn.LayerNorm(2), head=Block())
    chosen = choose_rows(net)
    groups = [row for row in chosen.rows if row.path.startswith("layers")]
    assert 10 <= len(groups) <= len(chosen.rows) <= MAX_ROWS
    assert sum(row.num_modules for row in groups) == depth
    length = groups[0].num_modules
    if length > 1:
        assert groups[0].label == f"layers.0–{length - 1}"
    assert {row.num_parameters for row in groups[:-1]} == {4 * length}


def test_two_long_lists_share_the_room() -> None:
    found = labels(Net(encoder=layers(40), decoder=layers(40), head=nn.Linear(2, 2)))
    assert len(found) <= MAX_ROWS
    counts = [sum(part in label for label in found) for part in ("encoder", "decoder")]
    assert counts[0] == counts[1] == 10


def test_every_trainable_parameter_counts_once_shared_ones_with_their_first_module() -> None:
    net = Net(own=True, embed=nn.Embedding(4, 2), head=nn.Linear(2, 4))
    net.head.weight = net.embed.weight
    net.head.bias.requires_grad_(False)
    chosen = choose_rows(net)
    assert [(row.label, row.num_parameters) for row in chosen.rows] == [
        ("token, position", 2),
        ("embed", 1),
    ]
    assert chosen.parameters == (0, 1, 2)
    assert chosen.row_of.tolist() == [0, 0, 1]


def test_models_of_one_module_of_none_and_of_frozen_ones() -> None:
    assert labels(nn.Linear(2, 2)) == ["Linear"]
    assert labels(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))) == [
        "0 Linear",
        "2 Linear",
    ]
    assert labels(nn.ReLU()) == []
    frozen = Block().requires_grad_(False)
    assert labels(Net(body=frozen, head=nn.Linear(2, 2))) == ["head"]


def test_a_wrapper_does_not_show_in_paths() -> None:
    net = Net(body=Net(_orig_mod=Block()), head=nn.Linear(2, 2))
    assert labels(net) == ["body.conv", "body.norm", "head"]


def test_nor_does_one_for_training_in_parallel() -> None:
    net = nn.DataParallel(Net(body=Block(), module=Block()))
    assert [row.path for row in choose_rows(net).rows] == [
        row.path for row in choose_rows(net.module).rows
    ]
