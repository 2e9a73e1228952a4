"""What cannot be trained is refused in one clear sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.support import batchless, net
from workbench.experiment import (
    DataError,
    Experiment,
)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: ("not a model", batchless()),
            TypeError,
            "model must be a torch.nn.Module, got str",
        ),
        (lambda: (nn.Linear, batchless()), TypeError, r"class Linear; give an instance"),
        (lambda: (nn.ReLU(), batchless()), ValueError, "ReLU has no parameters"),
        (lambda: (net().requires_grad_(False), batchless()), ValueError, "no trainable parameters"),
        (lambda: (nn.LazyLinear(3), batchless()), ValueError, "lazy parameters"),
        (lambda: (net(), None), ValueError, "train is None"),
        (lambda: (net(), 5), DataError, "train is a int; valid:"),
        (lambda: (net(), []), DataError, "train is an empty list"),
        (lambda: (net(), torch.ones(4, 6)), DataError, "train is a Tensor; valid:"),
        (lambda: (net(), (torch.zeros(0, 6), torch.zeros(0))), DataError, "no samples"),
        (lambda: (net(), (torch.zeros(4, 6), torch.zeros(3))), DataError, "4 inputs and 3 labels"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(
    make: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    model, train = make()
    with pytest.raises(error, match=words):
        Experiment(model, train, runs=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adamm"}, r"unknown optimizer 'adamm'; valid: adamw, adam, sgd"),
        ({"device": "cuda:77"}, r"unknown device 'cuda:77'; this machine has: cpu"),
        ({"device": "warp"}, r"unknown device 'warp'"),
        ({"modes": "turbo"}, r"unknown mode 'turbo'; valid modes are: "),
        ({"loss": "hinge"}, r"unknown loss 'hinge'; valid: cross_entropy, bce"),
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number from 1"),
        ({"epochs": -1}, "epochs is -1"),
        ({"clip_grad_norm": float("nan")}, "clip_grad_norm is nan"),
    ],
)
def test_bad_options_list_what_is_valid(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    settings = {"device": "cpu", **options}
    with pytest.raises(ValueError, match=words):
        Experiment(net(), batchless(), runs=tmp_path, **settings)
    assert list(tmp_path.iterdir()) == [], "a refused experiment left a folder"


@pytest.mark.parametrize(
    ("model", "targets", "words"),
    [
        (lambda: net(2), lambda: torch.arange(160) % 3, "labels run from 0 to 2; the model has 2"),
        (net, lambda: torch.rand(160), r"cross entropy needs integer classes \[batch\]: use"),
        (net, lambda: torch.zeros(160, 2, dtype=torch.long), r"must be \[64\] for these logits"),
        (
            lambda: nn.Sequential(net(), nn.Flatten(0), nn.Unflatten(0, (-1, 2))),
            lambda: torch.arange(160) % 2,
            r"returned \[96, 2\] float32 for labels \[64\] int64",
        ),
    ],
)
def test_bad_labels_and_logits_are_said_in_one_sentence(
    model: Any, targets: Any, words: str, tmp_path: Path
) -> None:
    exp = Experiment(model(), (batchless()[0], targets()), runs=tmp_path, device="cpu")
    with pytest.raises(DataError, match=words):
        exp.run(wait=True)
    exp.close()


def test_a_bad_label_in_a_later_batch_is_explained_too(tmp_path: Path) -> None:
    inputs, targets = batchless()
    targets[-1] = 99
    exp = Experiment(net(), (inputs, targets), batch_size=16, shuffle=False, runs=tmp_path)
    with pytest.raises(DataError, match=r"labels run from 0 to 99; the model has 3 classes"):
        exp.run(wait=True)
    assert exp.step_count == 9
    exp.close()
