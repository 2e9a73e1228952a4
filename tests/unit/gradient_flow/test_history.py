"""The bounded history of a gradient flow."""

from __future__ import annotations

import numpy as np
from torch import nn

from workbench.gradient_flow.history import CAPACITY, FlowHistory
from workbench.gradient_flow.module_rows import Rows, choose_rows


def rows_of(*names: str) -> Rows:
    net = nn.Module()
    for name in names:
        net.add_module(name, nn.Linear(1, 1))
    return choose_rows(net)


def test_days_of_samples_fit_and_the_newest_are_all_there() -> None:
    history, rows = FlowHistory(), rows_of("a", "b")
    count, bad = 50_000, {17, 1234, 40_001}
    for step in range(1, count + 1):
        value = np.inf if step in bad else float(step)
        history.append(step, rows, np.array([value, np.nan], np.float32))
    found, steps, norms = history.columns()
    assert [row.label for row in found] == ["a", "b"]
    assert len(steps) <= CAPACITY
    assert history.total == count
    assert steps[-1024:].tolist() == list(range(count - 1023, count + 1))
    assert steps[0] == 1
    assert (np.diff(steps) > 0).all()
    assert bad <= set(steps.tolist())
    assert np.isposinf(norms[0]).sum() == len(bad)
    good = np.isfinite(norms[0])
    assert (norms[0][good] == steps[good]).all()
    gaps = np.diff(steps)
    assert gaps[:500].mean() > 2 * gaps[-1500:].mean()


def test_a_run_in_which_everything_is_not_finite_is_bounded_too() -> None:
    history, rows = FlowHistory(), rows_of("a")
    for step in range(20_000):
        history.append(step, rows, np.array([np.inf], np.float32))
    steps = history.columns()[1]
    assert len(steps) <= CAPACITY
    assert steps[-1] == 19_999


def test_endless_swaps_of_models_do_not_grow_it() -> None:
    history = FlowHistory()
    for model in range(60):
        names = [f"m{model}_{layer}" for layer in range(5)]
        history.append(model, rows_of("body", *names), np.ones(6, np.float32))
    found, steps, norms = history.columns()
    assert len(found) <= 96
    assert len(steps) == 60
    assert norms.shape == (len(found), 60)
    assert (norms[[row.label for row in found].index("body")] == 1).all()
    assert history.notes == ["the rows of earlier models were forgotten to make room"]
