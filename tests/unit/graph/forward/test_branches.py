"""Tests of tensor values in Python: the line, the numbers, the outcome, and what followed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.forward.branches import MOST, MOST_EACH


class EarlyExit(nn.Module):
    """Leaves after the first exit when it is sure."""

    def __init__(self, sure: float) -> None:
        super().__init__()
        self.sure = sure
        self.stem = nn.Linear(4, 8)
        self.exit = nn.Linear(8, 3)
        self.body = nn.Linear(8, 3)

    def forward(self, x):
        h = self.stem(x).relu()
        early = self.exit(h)
        if early.softmax(1).amax(1).min() > self.sure:
            return early
        return early + self.body(h)


class Branching(nn.Module):
    """Runs a function of its hidden value and of a number."""

    limit = 0.5

    def __init__(self, branch) -> None:
        super().__init__()
        self.branch = branch
        self.stem = nn.Linear(4, 4)
        self.body = nn.Linear(4, 4)
        nn.init.ones_(self.stem.weight)
        nn.init.zeros_(self.stem.bias)

    def forward(self, x):
        h = self.stem(x)
        self.branch(self, h)
        return self.body(h)


def captured(model, x=None):
    """A record of one step of ``model``; of `Branching`, each hidden value is 4."""
    x = torch.ones(2, 4) if x is None else x
    with wb.graph(model) as view:
        model(x).sum().backward()
    return view.record


def reported(branch):
    """(condition, values, taken) of the test in ``branch``."""
    record = captured(Branching(branch))
    return [(one.condition, one.values, one.taken) for one in record.branches]


@pytest.mark.parametrize(("sure", "taken"), [(1.0, False), (0.0, True)])
def test_both_outcomes_of_an_early_exit(sure, taken):
    torch.manual_seed(0)
    record = captured(EarlyExit(sure))
    (branch,) = record.branches
    assert branch.condition == "early.softmax(1).amax(1).min() > self.sure"
    left, symbol, right = branch.values.split()
    assert 0 < float(left) < 1
    assert (symbol, right) == (">", "1.00" if sure else "0.00")
    assert branch.taken is taken
    assert record.modules[branch.module].path == ""
    source = record.sources[branch.source]
    assert source.text == "if early.softmax(1).amax(1).min() > self.sure:"
    assert source.filename == __file__
    before, after = record.nodes[branch.before], record.nodes[branch.after]
    assert (before.module, before.op) == ("exit", "linear")
    assert after.module == ("loss" if taken else "body")
    assert f"({branch.values}) is {taken}, test_branches.py:{source.line}" in str(wb.graph(record))


def test_every_kind_of_branch():
    limit = 3.0

    def branch(model, h):
        if h.sum() > limit and not h.mean() > 9:
            pass
        _ = 1 if h.amin() else 2
        if 0 < h.sum() < 100:
            pass
        while (h > 3).any():
            break
        if torch.allclose(h, h):
            pass
        if not bool(h.sum() == 31):
            pass

    assert reported(branch) == [
        ("h.sum() > limit", "32.0 > 3.00", True),
        ("h.mean() > 9", "4.00 > 9", False),
        ("h.amin()", "4.00", True),
        ("0 < h.sum() < 100", "32.0 > 0", True),
        ("0 < h.sum() < 100", "32.0 < 100", True),
        ("(h > 3).any()", "", True),
        ("torch.allclose(h, h)", "", True),
        ("h.sum() == 31", "32.0 == 31", False),
    ]


def test_numbers_that_a_line_compares():
    def branch(model, h):
        local = -1
        if h.sum().item() > 3:
            pass
        if model.limit < h.mean().item():
            pass
        if float(h.mean()) <= local:
            pass
        if int(h.amax()) == -4:
            pass
        if h.amax().item():
            pass
        number = h.sum().item()  # read, not tested on this line
        if number > 3:
            pass

    assert reported(branch) == [
        ("h.sum().item() > 3", "32.0 > 3", True),
        ("model.limit < h.mean().item()", "0.500 < 4.00", True),
        ("float(h.mean()) <= local", "4.00 <= −1", False),
        ("int(h.amax()) == -4", "4 == −4", False),
        ("h.amax().item()", "4.00", True),
    ]


def test_sides_are_distinguished_as_they_are_written():
    def branch(model, h):
        if h.sum() > 32.000004:
            pass
        if 1e-7 < h.mean():  # noqa: SIM300 - sides as they are written
            pass

    assert reported(branch) == [
        ("h.sum() > 32.000004", "32.000000 > 32.000004", False),
        ("1e-7 < h.mean()", "1.00e−7 < 4.00", True),
    ]


def test_a_value_that_left_the_graph_is_traced_to_the_node_that_made_it():
    def branch(model, h):
        with torch.no_grad():
            mean = h.relu().mean()
        if mean > 3:
            pass
        if h.detach().numpy().max() > 3:  # NumPy's, no tensor's
            pass
        if h.isfinite().all():  # which computes with values inside
            pass

    record = captured(Branching(branch))
    assert len(record.branches) == 2
    for branch in record.branches:
        assert record.nodes[branch.before].module == "stem"
        assert record.nodes[branch.after].module == "body"


def test_a_loop_is_listed_in_part_and_counted():
    def branch(model, h):
        i = 0
        while h.sum() > i:
            i += 1

    record = captured(Branching(branch))
    assert [one.values for one in record.branches] == [
        *(f"32.0 > {i}" for i in range(MOST_EACH)),
        "32.0 > 32",
    ]
    (note,) = [note for note in record.notes if "one forward" in note]
    assert note.startswith("`h.sum() > i` (test_branches.py:")
    assert note.endswith(f"was True 32 times in one forward; {MOST_EACH} of these are shown.")
    assert f"is True × {MOST_EACH}" in str(wb.graph(record))


def test_no_more_than_fit_are_kept():
    lines = "\n".join(f"    if h.sum() > {i}: pass" for i in range(MOST + 20))
    names: dict = {}
    exec(compile(f"def branch(model, h):\n{lines}", "<ipython-input-1>", "exec"), names)
    record = captured(Branching(names["branch"]))
    assert len(record.branches) == MOST
    assert {one.condition for one in record.branches} == {""}  # there is no source to read


def test_only_the_forward_of_this_loss_counts():
    model = EarlyExit(1.0)
    with wb.graph(model):
        other = model(torch.ones(2, 4)).sum()
        loss = model(torch.zeros(2, 4)).sum()
        if loss > 1e9:
            pass
    for one in (other, loss):
        assert len(wb.graph(one).record.branches) == 1
    assert wb.graph(other).record.branches != wb.graph(loss).record.branches


def test_what_torch_asks_for_itself_is_no_branch():
    def branch(model, h):
        torch.distributions.Normal(h, torch.ones_like(h), validate_args=True)
        F.dropout(h)

    assert reported(branch) == []
