"""Which module Dynamo's paths name: `self` may be any module of the model."""

from __future__ import annotations

import pytest

from workbench.graph.capture.compiled_backward import BackwardGraph, BackwardOperation
from workbench.graph.capture.compiled_modules import owners_inside, split_path
from workbench.graph.core.module_owners import OUTSIDE
from workbench.records import GraphModule


def table(*rows: tuple[str, str]) -> list[GraphModule]:
    paths = [path for path, _ in rows]
    return [
        GraphModule(
            path=path,
            cls=cls,
            parent=-1 if path == "" else paths.index(path.rpartition(".")[0]),
            forward_s=None,
        )
        for path, cls in rows
    ]


MODEL = table(
    ("", "Model"),
    ("blocks", "ModuleList"),
    ("blocks.0", "Block"),
    ("blocks.0.conv", "Conv2d"),
    ("blocks.1", "Block"),
    ("blocks.1.conv", "Conv2d"),
    ("conv", "Linear"),
)
ROW = {module.path: row for row, module in enumerate(MODEL)}


def graph(*stacks: tuple[tuple[str, str], ...], links=(), sums=()) -> BackwardGraph:
    operations = tuple(
        BackwardOperation("mm", modules=stack, accumulates=row in sums)
        for row, stack in enumerate(stacks)
    )
    return BackwardGraph(operations, (0,) * len(stacks), tuple(links), is_described=True)


def paths(found: list[int]) -> list[str]:
    return [MODEL[row].path for row in found]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("L['self'].blocks.0.conv", ("L['self']", "blocks.0.conv")),
        ("L['self'].blocks[0]._modules['conv']", ("L['self']", "blocks.0.conv")),
        ("G['model']._orig_mod.head", ("G['model']", "head")),
        ("L['module']", ("L['module']", "")),
        ("", ("", "")),
    ],
)
def test_a_path_has_a_root_and_what_is_below_it(path, parts):
    assert split_path(path) == parts


def test_self_is_the_model_where_all_paths_fit_below_it():
    inside = graph(
        (("L['self'].blocks.1", "Block"), ("L['self'].blocks.1.conv", "Conv2d")),
        (("L['self'].blocks.0", "Block"),),
        (),
    )
    assert paths(owners_inside(inside, MODEL, ROW["blocks"], [])) == [
        "blocks.1.conv", "blocks.0", ""
    ]  # fmt: skip


@pytest.mark.parametrize("block", ["blocks.0", "blocks.1"])
def test_of_equal_blocks_it_is_the_one_whose_parameters_lead_in(block):
    inside = graph((("L['self'].conv", "Conv2d"),), ())
    found = owners_inside(inside, MODEL, ROW[""], [ROW[f"{block}.conv"]])
    assert paths(found) == [f"{block}.conv", block]


def test_without_parameters_it_is_the_node_s_own_module():
    inside = graph((("L['module']", "Block"), ("L['module'].conv", "Conv2d")), ())
    found = owners_inside(inside, MODEL, ROW["blocks.1"], [])
    assert paths(found) == ["blocks.1.conv", "blocks.1"]


def test_what_is_nowhere_in_the_model_belongs_to_the_node_s_own_module():
    inside = graph((("L['self'].stem", "Stem"),), (("L['self'].conv", "Conv1d"),), ())
    assert owners_inside(inside, MODEL, OUTSIDE, []) == [OUTSIDE] * 3
    assert owners_inside(inside, [], OUTSIDE, []) == [OUTSIDE] * 3


def test_code_around_the_model_is_not_the_model_s():
    inside = graph((("G['model'].conv", "Linear"),), ())
    assert owners_inside(inside, MODEL, OUTSIDE, []) == [ROW["conv"], OUTSIDE]


def test_a_sum_stands_around_the_call_that_used_the_value_first():
    stacks = (
        (("L['self'].blocks.1", "Block"), ("L['self'].blocks.1.conv", "Conv2d")),
        (("L['self'].blocks.0", "Block"), ("L['self'].blocks.0.conv", "Conv2d")),
        (),
        (("L['self'].blocks.0", "Block"),),
        (),
    )
    links = ((0, 2), (1, 2), (2, 4), (3, 4))
    found = owners_inside(graph(*stacks, links=links, sums=(2, 4)), MODEL, ROW[""], [])
    assert paths(found)[2] == "blocks.0"
    assert paths(found)[4] == "blocks.0"
