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
from workbench.parallel.checks.batch_sums import by_samples


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


def by_chance(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0) if torch.rand(()) < 0.3 else x


def by_a_number_of_chance(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0) if torch.rand(1).item() > 0.9 else x


def left_out_by_chance(self: Any, x: torch.Tensor) -> torch.Tensor:
    for block in self.blocks:
        x = block(x) if torch.rand(()) < 0.8 else x
    return x


def mixed(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x + 0.5 * x[torch.randperm(len(x))]


def mixed_by_noise(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x + 0.5 * x[torch.rand(len(x)).argsort()]


def beyond(read: Callable[[torch.Tensor], Any]) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    return lambda _, x: x * 0.1 if read(x) else x


def detached(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x.detach() if x.mean() > 1e3 else x


def levels(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.detach().mean() > 1e3:
        self.level += 1
    return x


def levels_by_a_number(self: Any, x: torch.Tensor) -> torch.Tensor:
    mean = x.detach().mean().item()
    self.log.append(mean)
    if mean > 1e3:
        self.level += 1.0
    return x


def refuses(_: Any, x: torch.Tensor) -> torch.Tensor:
    assert bool((x < 1e6).all()), "too large"
    if x.max() > 1e6:
        raise ValueError("too large")
    return x


def numpy_average(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = x - float(self.average)
    self.average = 0.9 * self.average + 0.1 * x.detach().mean().numpy()
    return x


def average_in_a_dict(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = x - self.table[0]
    self.table[0] = 0.9 * self.table[0] + 0.1 * float(x.detach().mean())
    return x


def classes_counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.counts[0] += len(x)
    return x


def grows(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.bank = torch.cat([self.bank, x.detach()])
    return x


def begins_from_zero(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x - self.share * x.mean(0)


def scaled_by_the_last(self: Any, x: torch.Tensor) -> torch.Tensor:
    out = x / (1 + self.average)

    def follow(gradient: torch.Tensor) -> None:
        self.average = 0.9 * self.average + 0.1 * float(gradient.norm())

    out.register_hook(follow)
    return out


def eighths(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.mean = x.detach().mean(0).to(torch.float8_e4m3fn)
    return x


def with_a_closure() -> nn.Module:
    net, kept = Net(), {"mean": 0.0}

    def hook(_: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        centred = output - kept["mean"]
        kept["mean"] = 0.9 * kept["mean"] + 0.1 * float(output.detach().mean())
        return centred

    net.stem.register_forward_hook(hook)
    return net


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
    "blocks that are left out": lambda: Changed(left_out_by_chance),
    "a batch that is refused": lambda: Changed(refuses),
    "eight bits": lambda: Changed(eighths, mean=torch.zeros(32).to(torch.float8_e4m3fn)),
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
    "a mean, by chance": (lambda: Changed(by_chance), "depends on the samples beside it"),
    "a mean, by a drawn number": (
        lambda: Changed(by_a_number_of_chance),
        "depends on the samples beside it",
    ),
    "samples mixed": (lambda: Changed(mixed), "depends on the samples beside it"),
    "samples mixed by noise": (lambda: Changed(mixed_by_noise), "depends on the samples beside"),
    "a norm that is far away": (
        lambda: Changed(beyond(lambda x: x.norm().item() > 1e3)),
        "reads a value of its data",
    ),
    "any that is far away": (
        lambda: Changed(beyond(lambda x: (x > 1e3).any())),
        "reads a value of its data",
    ),
    "a list of one": (
        lambda: Changed(beyond(lambda x: x.detach().mean().tolist() > 1e3)),
        "reads a value of its data",
    ),
    "equal": (
        lambda: Changed(beyond(lambda x: torch.equal(x, x.round()))),
        "reads a value of its data",
    ),
    "a gradient that is left out": (lambda: Changed(detached), "reads a value of its data"),
    "a level": (lambda: Changed(levels, level=0), "reads a value of its data"),
    "a level by a number": (
        lambda: Changed(levels_by_a_number, level=0.0, log=[]),
        "reads a value of its data",
    ),
    "an average of NumPy": (
        lambda: Changed(numpy_average, average=np.float32(0)),
        "a forward reads model.average",
    ),
    "an average in a large dict": (
        lambda: Changed(average_in_a_dict, table=dict.fromkeys(range(100), 0.0)),
        "a forward reads model.table[0]",
    ),
    "a long list of counts": (
        lambda: Changed(classes_counted, counts=[0] * 1000),
        "model.counts[-1000] goes by all samples",
    ),
    "a bank that grows": (
        lambda: Changed(grows, bank=torch.zeros(0, 32)),
        "model.bank goes by all samples",
    ),
    "a share of 0 as yet": (
        lambda: Changed(begins_from_zero, share=0.0),
        "depends on the samples beside it",
    ),
    "an average of gradients": (
        lambda: Changed(scaled_by_the_last, average=0.0),
        "a forward reads model.average",
    ),
    "a closure of a hook": (with_a_closure, "a forward reads what the forward before it has kept"),
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
    assert by_samples(exp._training, exp._training.cursor.peek(), 16) == ("", "")
    exp.close()


@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_a_step_is_not(name: str, tmp_path: Path) -> None:
    model, words = AS_A_WHOLE[name]
    exp = experiment(tmp_path, model)
    assert words in by_samples(exp._training, exp._training.cursor.peek(), 16).why
    exp.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda x: int((x > 2).sum()) > 1000,
        lambda x: x.detach().numpy().mean() > 1e3,
        lambda x: sum(x.detach().mean(1).tolist()) > 1e3,
    ],
)
def test_what_is_read_and_cannot_be_answered_otherwise_is_reported(
    read: Callable[[torch.Tensor], Any], tmp_path: Path
) -> None:
    exp = experiment(tmp_path, lambda: Changed(beyond(read)))
    found = by_samples(exp._training, exp._training.cursor.peek(), 16)
    assert not found.why
    assert "and may decide by it" in found.unknown
    exp.close()


class Annealed:
    """A term of the loss whose weight is 0 as yet."""

    def __init__(self, model: Any) -> None:
        self.model, self.weight = model, 0.0

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels) + self.weight * self.model.kl


class Decayed(Annealed):
    """Takes the weights, which are the same on all ranks."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        decay = sum(one.square().sum() for one in self.model.parameters())
        return F.cross_entropy(logits, labels) + 1e-4 * decay


def keeps(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.kl = x.pow(2).sum()
    return x


@pytest.mark.parametrize(("loss", "reads"), [(Annealed, True), (Decayed, False)])
def test_a_loss_that_goes_on_from_the_forward(loss: Any, reads: bool, tmp_path: Path) -> None:
    model = Changed(keeps, kl=None)
    exp = experiment(tmp_path, lambda: model, loss=loss(model))
    found = by_samples(exp._training, exp._training.cursor.peek(), 16)
    assert ("reads what the model has kept" in found.why) == reads
    exp.close()


def test_what_cannot_be_compared_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise NotImplementedError("add_stub")

    monkeypatch.setattr("workbench.parallel.checks.batch_sums.is_same", refuse)
    exp = experiment(tmp_path, Net)
    found = by_samples(exp._training, exp._training.cursor.peek(), 16)
    assert found == ("", "comparing raises NotImplementedError: add_stub")
    exp.close()


def test_tokens_and_sentences(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Tokens, data=sentences())
    assert by_samples(exp._training, exp._training.cursor.peek(), 16) == ("", "")
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
            by_samples(exp._training, exp._training.cursor.peek(), 16)
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
    batch = exp._training.cursor.peek()
    torch.set_default_device("meta")
    try:
        assert by_samples(exp._training, batch, 16) == ("", "")
    finally:
        torch.set_default_device(None)
    exp.close()
