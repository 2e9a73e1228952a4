"""Models that change while they are validated: on ranks they are those of one process afterwards.

The judge is a plain loop that validates where an epoch ends. All train in one start of two ranks,
for an epoch and a step: its loss shows what the validation has left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.integration.parallel.one_start import BATCH, Case, Trained, plain_loop, trained
from tests.integration.parallel.support import Net, made, rows
from tests.integration.parallel.test_by_samples import (
    by_the_last,
    centred,
    counting,
    decays,
    plainly,
    with_stem,
    without_mean,
)
from workbench.experiment import RunError


def three() -> tuple[torch.Tensor, torch.Tensor]:
    """Batches, of which two ranks have one each, and one has the last."""
    inputs, targets = rows()
    return inputs[: 3 * BATCH - 4], targets[: 3 * BATCH - 4]


def four() -> tuple[torch.Tensor, torch.Tensor]:
    """Batches: ranks that have two each agree on a count of two."""
    inputs, targets = rows()
    return inputs[: 4 * BATCH], targets[: 4 * BATCH]


def called(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Warms up by calls, in eval mode too."""
    self.calls += 1
    return x * min(1.0, self.calls / 40)


def centred_in_eval(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A buffer that is put in the place of another."""
    found = x - self.centre
    if not self.training:
        self.centre = 0.9 * self.centre + 0.1 * x.mean(0)
    return found


def counted_in_eval(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A buffer that is written in place."""
    if not self.training:
        self.seen += len(x)
    return x * (1 + self.seen / 1000)


def listed_in_eval(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not self.training:
        self.means.append(float(x.mean()))
    return x * (1 + len(self.means) / 100)


def decays_in_eval(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A weight that nothing but a validation writes."""
    if not self.training:
        with torch.no_grad():
            self.weight.mul_(0.9)
    return x


def drawing_in_eval(self: Any, x: torch.Tensor) -> torch.Tensor:
    """As Monte Carlo dropout does."""
    return x if self.training else x + torch.randn_like(x)


def late(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Counts no first batch."""
    if not self.training:
        self.seen += (x.shape[0] < BATCH) * 1.0
    return x


class Counted:
    """A loss that goes by how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return F.cross_entropy(logits, labels) * (1 + self.calls / 100)


CHANGING: dict[str, Case] = {
    "calls": Case(model=with_stem(called, calls=0), val=four),
    "calls, sharded": Case("fsdp:2", with_stem(called, calls=0), val=three),
    "a centre in eval mode": Case(
        model=with_stem(centred_in_eval, centre=torch.zeros(32)), val=four
    ),
    "a centre in eval mode, sharded": Case(
        "fsdp:2", with_stem(centred_in_eval, centre=torch.zeros(32)), val=three
    ),
    "a count in eval mode": Case(model=with_stem(counted_in_eval, seen=torch.zeros(())), val=four),
    "a list": Case(model=with_stem(listed_in_eval, means=[]), val=three),
    "a weight that decays": Case(model=with_stem(decays), val=four),
    "a weight that decays, sharded": Case("fsdp:2", with_stem(decays), val=three),
    "a weight that eval mode writes": Case(model=with_stem(decays_in_eval), val=four),
    "a weight that eval mode writes, sharded": Case("fsdp:2", with_stem(decays_in_eval), val=four),
    "noise": Case(model=with_stem(drawing_in_eval), val=four),
    "noise, sharded": Case("fsdp:2", with_stem(drawing_in_eval), val=three),
    "a loss that counts": Case(loss=Counted(), val=four),
}
"""Steps are divided, validations are not."""
UNDIVIDED: dict[str, Case] = {
    "a centre": Case(model=with_stem(centred, centre=torch.zeros(32)), val=four),
    "a centre, sharded": Case("fsdp:2", with_stem(centred, centre=torch.zeros(32)), val=three),
    "samples that are counted": Case(model=with_stem(counting, seen=0), val=four),
    "the last mean": Case(model=with_stem(by_the_last, last=0.0), val=three),
    "a mean that is taken off": Case("fsdp:2", with_stem(without_mean), val=three),
}
"""Neither are."""
DIVIDED: dict[str, Case] = {
    "nothing": Case(val=three),
    "nothing, sharded": Case("fsdp:2", with_stem(plainly), val=four),
}
LATE: dict[str, Case] = {
    "a short batch": Case(model=with_stem(late, seen=0.0), val=three),
}
"""Divided, and from the second validation on not."""
EVERY = {**CHANGING, **UNDIVIDED, **DIVIDED, **LATE}
KEPT = {
    "calls": "calls",
    "calls, sharded": "calls",
    "a list": "means",
    "samples that are counted": "seen",
    "the last mean": "last",
}
ALL = "every rank validates on all batches"


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    return trained(EVERY, tmp_path_factory.mktemp("by_ranks"))


@pytest.mark.parametrize("name", EVERY)
def test_ranks_validate_as_a_plain_loop(name: str, by_ranks: dict[str, Trained]) -> None:
    alone, ranks = plain_loop(EVERY[name]), by_ranks[name]
    assert len(alone.validations) == 1
    assert ranks.validations == pytest.approx(alone.validations, rel=1e-5)
    assert ranks.losses == pytest.approx(alone.losses, rel=1e-5, abs=1e-7)
    ours = ranks.experiment.model.state_dict()
    for path, plain in alone.model.state_dict().items():
        torch.testing.assert_close(ours[path], plain, rtol=1e-5, atol=1e-6, msg=path)
    if name in KEPT:
        kept, plain = (
            getattr(one.stem, KEPT[name]) for one in (ranks.experiment.model, alone.model)
        )
        assert kept == pytest.approx(plain, rel=1e-5)
    if isinstance(alone.loss, Counted):
        assert ranks.experiment._training.loss.function.calls == alone.loss.calls


@pytest.mark.parametrize("name", EVERY)
def test_what_validating_changes_is_said(name: str, by_ranks: dict[str, Trained]) -> None:
    found = [note for note in by_ranks[name].notes if ALL in note]
    assert len(found) == (name in {**CHANGING, **LATE})
    if name in KEPT and found:
        assert found[0].startswith(f"model.stem.{KEPT[name]} changes while batches are validated")
    assert any("From the next validation on" in note for note in found) == (name in LATE)


class Refuses(Net):
    """In eval mode, a batch that the second rank alone is given first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training and x[0, 0] > 100:
            raise ValueError("this batch is too large")
        return super().forward(x)


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_what_one_rank_raises_ends_all(layout: str, tmp_path: Path) -> None:
    inputs, targets = four()
    inputs[BATCH] = 200.0
    exp = made(tmp_path, Refuses, val=(inputs, targets), batch_size=BATCH, modes=layout)
    with pytest.raises(RunError, match="this batch is too large"):
        exp.run(epochs=1).wait(120)
    assert exp.failure is not None
    assert "rank 1" in exp.failure.subtitle
    exp.close()
