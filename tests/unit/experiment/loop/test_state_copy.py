"""A step that is computed for a capture leaves no trace in an optimizer of any make."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from tests.unit.experiment.plain_loop import (
    BATCH,
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment


class Counts(torch.optim.Optimizer):
    """Its rate falls with a count of its own; it keeps the last gradients and a generator."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.t = 0
        self.norms: deque[torch.Tensor] = deque(maxlen=3)
        self.seen: dict[str, list[int]] = {"steps": []}
        self.noise = torch.Generator().manual_seed(1)
        self.total = torch.zeros(())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.t += 1
        self.seen["steps"].append(self.t)
        for group in self.param_groups:
            for p in group["params"]:
                self.norms.append(p.grad.norm())
                self.total += 0.1 * p.grad.norm()
                noise = torch.randn(p.shape, generator=self.noise)
                scale = group["lr"] / self.t**0.5 / len(self.seen["steps"]) ** 0.1
                scale = scale * (1 + 0.1 * sum(self.norms)) * (1 + 0.1 * self.total)
                p.add_((p.grad + 0.01 * noise) * -scale)


class Wraps(torch.optim.Optimizer):
    """Steps with another, whose groups are its own, and draws towards slow weights (Lookahead)."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.param_groups = inner, inner.param_groups
        self.slow = [[p.detach().clone() for p in g["params"]] for g in self.param_groups]
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.inner.step()
        self.steps += 1
        if self.steps % 3:
            return
        for group, slow in zip(self.param_groups, self.slow, strict=True):
            for p, one in zip(group["params"], slow, strict=True):
                one.lerp_(p, 0.5)
                p.copy_(one)


MAKES: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "attributes": Counts,
    "wrapper": lambda parameters: Wraps(torch.optim.SGD(parameters, 0.1, 0.9)),
    "wrapper of a wrapper": lambda p: Wraps(Wraps(torch.optim.Adam(p, 0.01))),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.01, amsgrad=True),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters, 0.01),
}


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("kind", MAKES)
def test_a_step_for_a_capture_is_undone(tmp_path: Path, kind: str, first: int) -> None:
    """Of a run that has ended, whatever the optimizer keeps and where."""
    expected, model = seeded(linear), seeded(linear)
    right = plain_loop(expected, batches(data()), MAKES[kind](expected.parameters()), epochs=2)
    exp = Experiment(
        model, data(), optimizer=MAKES[kind](model.parameters()), batch_size=BATCH, shuffle=False,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(steps=first, wait=True)
    for _ in range(2):
        wb.graph(exp)
    exp.run(steps=8 - first, wait=True)
    exp.scalars.flush()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)
    assert exp.notes == []
    exp.close()


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    class Counted(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, 0.1)
            self.number = itertools.count()

    model = seeded(linear)
    exp = Experiment(
        model, data(), optimizer=Counted(model.parameters()), batch_size=BATCH, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(steps=1, wait=True)
    wb.graph(exp)
    exp.close()
    assert any("Counted.number of the optimizer" in note for note in exp.notes)
