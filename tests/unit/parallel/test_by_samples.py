"""Whether a step is the sum over its samples; torch's own computation of parts is the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.integration.parallel.support import CLASSES, Net, Tokens, made, rows, sentences
from workbench.experiment import Experiment
from workbench.parallel.by_samples import by_samples


class Changed(Net):
    def __init__(self, change: Callable[[Any, torch.Tensor], torch.Tensor], **kept: Any) -> None:
        super().__init__()
        self.change = change
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.change(self, torch.relu(self.stem(x))))


def counts_calls(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return x + 0.1 * self.calls


def looked_at(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.features, self.mean = x.detach(), float(x.detach().mean())
    return x


def logs(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.log.append(float(x.detach().mean()))
    return x


def skips_where_nothing_is(_: Any, x: torch.Tensor) -> torch.Tensor:
    large = x > 0.5
    return torch.where(large, 2 * x, x) if bool(large.any()) else x


def by_sample(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Of each its own mean, norm and order."""
    x = (x - x.mean(1, keepdim=True)) / x.norm(dim=1, keepdim=True)
    return x.sort(1).values.softmax(1)


def teacher(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        self.head.weight.mul_(0.99)
    return x


def drops(_: Any, x: torch.Tensor) -> torch.Tensor:
    kept = torch.rand(len(x), 1) < 0.5
    return F.dropout(x, 0.5) * kept + torch.randn_like(x)


def recomputed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(self.blocks[0], x, use_reentrant=True)


def counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += len(x)
    return x


def of_the_batch(_: Any, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5) - x.mean(0)


def by_size(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x / len(x)


def of_one_size(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x.view(16, 32)


def branches(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 2 * x if x.mean() > -1 else x


def branches_by_a_number(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 2 * x if float(x.mean()) > -1 else x


def in_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.log.extend(x.detach().mean(1).tolist())
    return x


def averages_in_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.log[0] = 0.9 * self.log[0] + 0.1 * float(x.detach().mean())
    return x


def in_an_array(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.table[: len(x)] += 1
    return x


def scaled(_: Any, x: torch.Tensor) -> torch.Tensor:
    x.register_hook(lambda gradient: gradient / gradient.abs().max())
    return x


BY_SAMPLES: dict[str, Callable[[], nn.Module]] = {
    "a net": Net,
    "calls": lambda: Changed(counts_calls, calls=0),
    "what is looked at": lambda: Changed(looked_at, features=None, mean=0.0),
    "a log of each batch": lambda: Changed(logs, log=[]),
    "a shortcut": lambda: Changed(skips_where_nothing_is),
    "each by itself": lambda: Changed(by_sample),
    "a parameter that is written": lambda: Changed(teacher),
    "chance": lambda: Changed(drops),
    "a reentrant checkpoint": lambda: Changed(recomputed),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(16), Net()),
    "layers of all kinds": lambda: nn.Sequential(
        nn.Unflatten(1, (4, 4)), nn.Conv1d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.GELU(),
        nn.MaxPool1d(2), nn.Flatten(), nn.LayerNorm(16), nn.Dropout(0.5), Net(),
    ),
}  # fmt: skip
AS_A_WHOLE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "samples counted": (lambda: Changed(counted, calls=0), "model.calls goes by all samples"),
    "a mean, with chance": (lambda: Changed(of_the_batch), "depends on the samples beside it"),
    "its size": (lambda: Changed(by_size), "depends on the samples beside it"),
    "one size": (lambda: Changed(of_one_size), "a part of a batch raises RuntimeError"),
    "a branch": (lambda: Changed(branches), "reads a value of its data"),
    "a branch by a number": (lambda: Changed(branches_by_a_number), "reads a value of its data"),
    "a list": (lambda: Changed(in_a_list, log=[]), "the length of model.log goes by all samples"),
    "an average in a list": (
        lambda: Changed(averages_in_a_list, log=[0.0]),
        "model.log[-1] goes by all samples",
    ),
    "an array": (lambda: Changed(in_an_array, table=np.zeros(16)), "model.table goes by all"),
    "a gradient": (lambda: Changed(scaled), "the gradient of stem.weight"),
    "batch norm of its own": (
        lambda: nn.Sequential(nn.BatchNorm1d(16, track_running_stats=False), Net()),
        "depends on the samples beside it",
    ),
    "statistics of instances": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (4, 4)), nn.InstanceNorm1d(4, track_running_stats=True),
            nn.Flatten(), Net(),
        ),
        "go by all samples",
    ),
}  # fmt: skip


def experiment(folder: Path, model: Callable[[], nn.Module], **settings: Any) -> Experiment:
    exp = made(folder, model, **settings)
    exp._training.begin()
    return exp


@pytest.mark.parametrize("name", BY_SAMPLES)
def test_a_step_is_the_sum_over_samples(name: str, tmp_path: Path) -> None:
    exp = experiment(tmp_path, BY_SAMPLES[name])
    assert by_samples(exp._training, exp._training.cursor.look(), 16) == ("", "")
    exp.close()


@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_a_step_is_not(name: str, tmp_path: Path) -> None:
    model, words = AS_A_WHOLE[name]
    exp = experiment(tmp_path, model)
    assert words in by_samples(exp._training, exp._training.cursor.look(), 16).why
    exp.close()


def test_tokens_and_sentences(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Tokens, data=sentences())
    assert by_samples(exp._training, exp._training.cursor.look(), 16) == ("", "")
    exp.close()


@pytest.mark.parametrize("name", [*BY_SAMPLES, *AS_A_WHOLE])
def test_nothing_is_changed_by_it(name: str, tmp_path: Path) -> None:
    """A training that was looked at goes on as one that was not, to the last bit."""
    make = BY_SAMPLES[name] if name in BY_SAMPLES else AS_A_WHOLE[name][0]
    calls: list[int] = []
    done: list[Experiment] = []
    for side in ("looked at", "plain"):
        exp = experiment(tmp_path / side, make, data=rows16())
        exp.model.register_forward_hook(lambda *_: calls.append(1))
        if side == "looked at":
            by_samples(exp._training, exp._training.cursor.look(), 16)
        assert not calls
        exp._training.end()
        exp.step(3).wait()
        calls.clear()
        done.append(exp)
    one, other = done
    for (path, ours), plain in zip(
        one.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, plain), path
    kept = [
        {k: v for k, v in vars(exp.model).items() if isinstance(v, (int, float, list))}
        for exp in (one, other)
    ]
    assert kept[0] == kept[1]
    one.close()
    other.close()


def rows16() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = rows()
    return inputs[:64], targets[:64] % CLASSES


def test_the_default_device_does_not_matter(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net)
    batch = exp._training.cursor.look()
    torch.set_default_device("meta")
    try:
        assert by_samples(exp._training, batch, 16) == ("", "")
    finally:
        torch.set_default_device(None)
    exp.close()
