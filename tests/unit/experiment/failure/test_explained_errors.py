"""Failures that people meet with data of their own: what came in, and what is valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment, RunError


class Tagger(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(rows, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.last(self.words(x).sum(1) / lengths[:, None])


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Tagger(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


X = torch.arange(50).reshape(10, 5) % 25
LENGTHS, LABELS = torch.full((10,), 5), torch.arange(10) % 2


def failed(model: nn.Module, batches: object, runs: Path) -> str:
    exp = Experiment(model, batches, runs=runs, device="cpu")
    with pytest.raises(RunError):
        exp.run().wait()
    assert exp.failure is not None
    return exp.failure.message


def test_an_index_beyond_an_embedding_is_named(tmp_path: Path) -> None:
    said = failed(Tagger(24), [((X, LENGTHS), LABELS)], tmp_path)
    assert said == (
        "index out of range in self. The indices go from 0 to 24; the table has 24 rows, so 0 to "
        "23 are valid."
    )


def test_a_forward_of_two_inputs_says_how_batches_give_them(tmp_path: Path) -> None:
    said = failed(Tagger(25), [(X, LABELS)], tmp_path)
    assert said == (
        "Tagger.forward() missing 1 required positional argument: 'lengths'. It was called with "
        "one input, [10, 5] int64. For more give batches as ((x, lengths), labels), by position, "
        "or as a mapping {'x': ..., 'lengths': ..., 'labels': ...}, by name."
    )


@pytest.mark.parametrize(
    "batch", [((X, LENGTHS), LABELS), {"x": X, "lengths": LENGTHS, "labels": LABELS}]
)
def test_both_ways_do(tmp_path: Path, batch: object) -> None:
    exp = Experiment(Tagger(25), [batch], runs=tmp_path, device="cpu")
    exp.run(wait=True)
    assert exp.step_count == 1


def test_a_call_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    said = failed(Around(), [(X, LABELS)], tmp_path)
    assert said == "Tagger.forward() missing 1 required positional argument: 'lengths'"
