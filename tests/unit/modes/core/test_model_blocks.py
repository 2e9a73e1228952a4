from __future__ import annotations

from collections.abc import Callable

from torch import nn

from workbench.modes.core.model_blocks import find_blocks

Make = Callable[..., nn.Module]


def names(model: nn.Module) -> list[str]:
    path = {id(module): name for name, module in model.named_modules()}
    return [path[id(block)] for block in find_blocks(model)]


def test_repeated_blocks_in_a_sequential_are_found(make_early_exit: Make) -> None:
    assert names(make_early_exit()) == ["body.0", "body.1", "body.2"]


def test_encoder_layers_are_blocks_and_their_linears_are_not() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 3), nn.Linear(16, 4))
    assert names(model) == ["1.layers.0", "1.layers.1", "1.layers.2"]


def test_only_the_outermost_of_nested_repeats_is_a_block(make_residual: Make) -> None:
    def stage() -> nn.Module:
        return nn.Sequential(make_residual(8), make_residual(8))

    assert names(nn.Sequential(stage(), stage())) == ["0", "1"]


def test_blocks_spread_over_several_stages_are_all_found(make_residual: Make) -> None:
    model = nn.Module()
    model.layer1 = nn.Sequential(make_residual(8), make_residual(8))
    model.layer2 = nn.Sequential(make_residual(16))
    assert names(model) == ["layer1.0", "layer1.1", "layer2.0"]


def test_a_model_without_repeats_falls_back_to_children_that_are_more_than_a_layer(
    make_residual: Make,
) -> None:
    model = nn.Module()
    model.stem = nn.Linear(8, 8)
    model.body = make_residual(8)
    model.act = nn.ReLU()
    assert names(model) == ["body"]


def test_a_plain_mlp_has_no_blocks() -> None:
    assert names(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))) == []


def test_a_module_used_twice_is_one_block(make_residual: Make) -> None:
    shared = make_residual(8)
    model = nn.Module()
    model.first = nn.ModuleList([shared, make_residual(8)])
    model.second = nn.ModuleList([shared])
    assert names(model) == ["first.0", "first.1"]
