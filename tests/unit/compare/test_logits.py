"""Which answers of two variants are the same, whatever the shape of their logits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from workbench.compare import logits as answers
from workbench.compare.logits import Answers, compare_answers


def rows(logits: torch.Tensor, targets: object, folder: Path, samples: int = 100) -> torch.Tensor:
    kept = Answers(samples)
    kept.add(logits, targets)
    kept.save(folder / "logits.pt")
    return torch.load(folder / "logits.pt", weights_only=True)


@pytest.mark.parametrize(
    ("shape", "targets", "expected"),
    [
        ((6, 5), (6,), (6, 5)),
        ((6, 1), (6,), (6, 1)),
        ((6,), (6,), (6, 1)),
        ((6, 5), (6, 5), (30, 1)),
        ((6, 7, 5), (6, 7), (42, 5)),
        ((6, 5, 7), (6, 7), (42, 5)),
        ((6, 5, 4, 3), (6, 4, 3), (72, 5)),
    ],
)
def test_classes_come_last(
    shape: tuple[int, ...], targets: tuple[int, ...], expected: tuple[int, int], tmp_path: Path
) -> None:
    logits = torch.randn(shape)
    found = rows(logits, torch.zeros(targets), tmp_path)
    assert found.shape == expected
    assert sorted(found.flatten().tolist()) == sorted(logits.flatten().tolist())


def test_of_tokens_every_answer_counts(tmp_path: Path) -> None:
    ours, labels = torch.randn(4, 9, 6), torch.zeros(4, 9)
    theirs = ours.roll(1, dims=-1)
    difference, same = compare_answers(rows(ours, labels, tmp_path), rows(theirs, labels, tmp_path))
    assert same == 0
    assert difference == pytest.approx(float((ours - theirs).abs().max()))


def test_batches_of_different_lengths_are_put_together(tmp_path: Path) -> None:
    kept = Answers(8)
    for length in (3, 5):
        kept.add(torch.randn(4, length, 6), torch.zeros(4, length))
    assert kept.is_full
    kept.save(tmp_path / "logits.pt")
    assert torch.load(tmp_path / "logits.pt", weights_only=True).shape == (4 * 3 + 4 * 5, 6)


def test_only_so_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_VALUES", 100)
    assert rows(torch.randn(50, 8), torch.zeros(50), tmp_path).shape == (12, 8)
    kept = Answers(1000)
    kept.add(torch.randn(50, 8), torch.zeros(50))
    assert kept.is_full
    assert rows(torch.randn(50, 8), torch.zeros(50), tmp_path, samples=3).shape == (3, 8)


def test_what_is_not_finite_is_reported() -> None:
    ours = torch.tensor([[1.0, math.nan], [0.0, 1.0]])
    assert math.isnan(compare_answers(ours, torch.ones(2, 2))[0])
    with pytest.raises(ValueError, match=r"\[2, 2\] against \[3, 2\]"):
        compare_answers(ours, torch.ones(3, 2))
