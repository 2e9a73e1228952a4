"""What a diff says, and that it says no more than the two captures show."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.graph.diff_models import (
    EarlyExit,
    Stack,
    capture,
    names,
)
from workbench.graph.capture.branch_columns import condition_of
from workbench.graph.diff.diff import ADDED, REMOVED, diff_records
from workbench.records import SourceLine


def test_back_again_the_other_exit_is_reported(both_exits):
    late, early = both_exits
    found = diff_records(early, late)
    assert names(found, REMOVED) == [("", "div")]
    assert "A ran `return [first / self.temperature]`" in found.sentence
    assert "B's graph has nothing of that line" in found.sentence


def test_another_batch_size_is_named(images):
    model = EarlyExit()
    found = diff_records(capture(model, images), capture(model, images[:2]))
    assert "The first dimension went from 4 to 2 in all" in found.sentence
    assert not np.isin(found.node_state, (REMOVED, ADDED)).any()


def test_two_different_models_are_called_that(images):
    other = nn.Sequential(nn.Flatten(), nn.Linear(768, 5), nn.ReLU(), nn.Linear(5, 10))
    with wb.graph(other):
        loss = other(images).square().mean()
    found = diff_records(capture(EarlyExit(), images), wb.graph(loss).record)
    assert found.sentence.startswith("A and B are different models (EarlyExit and Sequential)")
    assert "0 correspond" in found.sentence


def test_frozen_parameters_are_the_cause(images):
    model = EarlyExit()
    records = []
    for trains in (True, False):
        for parameter in model.block1.parameters():
            parameter.requires_grad_(trains)
        with wb.graph(model):
            loss = model(images)[-1].sum()
        records.append(wb.graph(loss).record)
    found = diff_records(*records)
    assert "4 parameters (block1.conv.weight and others) are frozen in B only." in found.sentence
    back = diff_records(*records[::-1])
    assert "are frozen in A only." in back.sentence


def test_dropped_layers_are_named_and_the_line_that_ran_less_often():
    model, x = Stack(), torch.randn(2, 4)
    full = capture(model, x)
    model.dropped = {3, 7}
    found = diff_records(full, capture(model, x))
    assert "`x = torch.tanh(layer(x))`" in found.sentence
    assert "12 calls of linear in A and 10 in B" in found.sentence or (
        "12 calls of tanh in A and 10 in B" in found.sentence
    )
    assert "among them all of layers.3 and layers.7, left the graph" in found.sentence
    removed = {module for module, _ in names(found, REMOVED)}
    assert {"layers.3", "layers.7"} <= removed
    assert not removed & {"layers.2", "layers.4", "layers.11"}


def test_one_operation_for_another_is_named():
    records = []
    for activation in (nn.ReLU(), nn.GELU()):
        model, x = nn.Sequential(nn.Linear(4, 4), activation), torch.ones(2, 4)
        with wb.graph(model):
            loss = model(x).sum()
        records.append(wb.graph(loss).record)
    found = diff_records(*records)
    assert "1 backward node (relu) left the graph; 1 backward node (gelu) joined" in found.sentence
    module = next(module for module in found.modules if module.path == "1")
    assert module.cls == "ReLU → GELU"


CODE = """\
def forward(x, deep):
    if x.sum() > 0:
        if deep:
            return x * 2
        x = x + 1
    else:
        x = x - 1
    return x
"""


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        (4, "`if deep:`"),
        (5, "`if x.sum() > 0:`"),
        (7, "the else of `if x.sum() > 0:`"),
        (8, ""),
        (2, ""),
        (99, ""),
    ],
)
def test_the_condition_over_a_line_is_read_from_its_source(tmp_path, line, condition):
    file = tmp_path / "model.py"
    file.write_text(CODE)
    text = CODE.splitlines()[line - 1].strip() if line < 9 else "x = 1"
    assert condition_of(SourceLine(filename=str(file), line=line, text=text)) == condition


def test_no_condition_is_reported_of_code_that_has_changed(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(CODE.replace("x * 2", "x * 3"))
    assert not condition_of(SourceLine(filename=str(file), line=4, text="return x * 2"))
    file.write_text("%magic\n" + CODE)
    linecache.checkcache()
    assert not condition_of(SourceLine(filename=str(file), line=5, text="return x * 2"))
    assert not condition_of(SourceLine(filename=str(tmp_path / "gone.py"), line=1, text="x"))


class Sure(nn.Module):
    """Leaves early where a value of its own exceeds its threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 2)
        self.late = nn.Linear(2, 2)
        nn.init.ones_(self.stem.weight)
        nn.init.zeros_(self.stem.bias)

    def forward(self, x, threshold, rounds=1):
        h = self.stem(x)
        for _ in range(rounds):
            if h.amax() > threshold:
                return h * 2
            h = h * 1.5
        return self.late(h)


def _sure(model, threshold, rounds=1):
    with wb.graph(model) as view:
        model(torch.ones(1, 2), threshold, rounds).sum().backward()
    return view.record


def test_the_numbers_of_a_test_that_came_out_differently_are_reported():
    model = Sure()
    found = diff_records(_sure(model, 2.25), _sure(model, 1.5))
    assert "`h.amax() > threshold` (test_causes.py:" in found.sentence
    assert "was False (2.00 > 2.25) in A and True (2.00 > 1.50) in B." in found.sentence


def test_of_a_test_in_a_loop_the_first_time_that_differs_is_reported():
    model = Sure()
    found = diff_records(_sure(model, 9.0, rounds=3), _sure(model, 2.5, rounds=3))
    expected = "was False (3.00 > 9.00) in A and True (3.00 > 2.50) in B the 2nd time."
    assert expected in found.sentence


def test_tests_that_came_out_the_same_are_not_reported():
    model = Sure()
    found = diff_records(_sure(model, 1.5), _sure(model, 1.25))
    assert "amax" not in found.sentence


STEP = """\
with wb.graph(model) as view:
    {name} = sum({loss} for out in model(*inputs))
    {name}.backward()
"""


def _cell(tmp_path, number, model, inputs, loss="F.cross_entropy(out, y)"):
    """A step of a notebook: each cell computes the loss on a line of its own."""
    file = tmp_path / f"cell_{number}.py"
    file.write_text(STEP.format(name=f"loss_{number}", loss=loss))
    y = torch.zeros(len(inputs[0]), dtype=torch.long)
    cell = {"wb": wb, "F": F, "model": model, "inputs": inputs, "y": y}
    exec(compile(file.read_text(), str(file), "exec"), cell)
    return cell["view"].record


def test_the_branch_is_the_cause_not_the_line_of_the_loss_in_another_cell(tmp_path, images):
    model = EarlyExit()
    late = _cell(tmp_path, 1, model, (images,))
    model.early = True
    found = diff_records(late, _cell(tmp_path, 2, model, (images,)))
    assert found.sentence.startswith("In forward of EarlyExit, B ran `return [first / self.temp")
    assert "loss_" not in found.sentence


def test_a_test_that_came_out_differently_leads(tmp_path):
    model, x = Sure(), torch.ones(1, 2)
    late = _cell(tmp_path, 1, model, (x, 2.25), "out.square().sum()")
    early = _cell(tmp_path, 2, model, (x, 1.5), "out.square().sum()")
    found = diff_records(late, early)
    assert found.sentence.startswith("`h.amax() > threshold` (test_causes.py:")
    assert found.sources[found.cause_source].text == "if h.amax() > threshold:"
    assert "In forward of Sure, " in found.sentence
    assert "loss_" not in found.sentence


def test_the_line_of_the_loss_is_named_where_only_it_has_changed(tmp_path, images):
    model = EarlyExit()
    plain = _cell(tmp_path, 1, model, (images,))
    weighed = _cell(tmp_path, 2, model, (images,), "0.5 * F.cross_entropy(out, y)")
    found = diff_records(plain, weighed)
    assert "of loss, B ran `loss_2 = sum(0.5 * F.cross_entropy(out, y)" in found.sentence
    assert "where A ran `loss_1 = sum(F.cross_entropy(out, y)" in found.sentence


def test_the_same_loss_on_another_line_explains_nothing(tmp_path):
    x = torch.ones(2, 4)
    with_relu, with_gelu = (nn.Sequential(nn.Linear(4, 4), act) for act in (nn.ReLU(), nn.GELU()))
    found = diff_records(
        _cell(tmp_path, 1, with_relu, (x,), "out.sum()"),
        _cell(tmp_path, 2, with_gelu, (x,), "out.sum()"),
    )
    assert found.sentence.startswith("1 backward node (relu) left the graph;")


def test_a_loop_of_the_script_over_a_layer_of_torchs_is_reported():
    cell, x = nn.GRUCell(4, 8), torch.randn(2, 4)

    def run(rounds):
        with wb.graph(cell) as view:
            h = torch.zeros(2, 8)
            for _ in range(rounds):
                h = cell(x, h)
            h.sum().backward()
        return view.record

    said = diff_records(run(3), run(5)).sentence
    assert said.startswith("`h = cell(x, h)` (test_causes.py:")
    assert "made 3 calls of gru_cell in A and 5 in B." in said
