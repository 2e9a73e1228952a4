"""Optimizers and schedulers as given, as callables and by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from workbench.experiment.optimizers import (
    Schedule,
    describe_optimizer,
    make_optimizer,
    scale_learning_rate,
)


def test_names_callables_and_instances() -> None:
    model = nn.Linear(2, 2)
    assert type(make_optimizer(None, model)) is torch.optim.AdamW
    assert type(make_optimizer("SGD", model)) is torch.optim.SGD
    made = make_optimizer(lambda p: torch.optim.Adam(p, lr=0.5, foreach=False), model)
    assert made.defaults["foreach"] is False
    assert make_optimizer(made, model) is made
    assert describe_optimizer(made) == "Adam, learning rate 5.0e-1"


def test_a_learning_rate_goes_with_a_name_only() -> None:
    model = nn.Linear(2, 2)
    assert make_optimizer(None, model, lr=3e-3).param_groups[0]["lr"] == 3e-3
    sgd = make_optimizer("sgd", model, lr=1).param_groups[0]
    assert (sgd["lr"], sgd["momentum"]) == (1.0, 0.9)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in (own, lambda p: torch.optim.SGD(p, lr=0.1)):
        with pytest.raises(ValueError, match=r"lr=0.5 is for an optimizer given by name"):
            make_optimizer(given, model, lr=0.5)
    with pytest.raises(ValueError, match="lr is -1; it must be a positive finite number"):
        make_optimizer("adam", model, lr=-1)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    made = make_optimizer("adam", model)
    assert len(made.param_groups[0]["params"]) == 2


def test_what_is_no_optimizer_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="optimizer is a int; valid: adamw"):
        make_optimizer(3, model)
    with pytest.raises(TypeError, match="callable returned a NoneType"):
        make_optimizer(lambda p: None, model)
    with pytest.raises(ValueError, match="holds none of the model's parameters"):
        make_optimizer(torch.optim.SGD(nn.Linear(2, 2).parameters()), model)


def test_the_rate_is_set_live_and_ratios_and_schedules_follow() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters()}], lr=0.01
    )
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    scale_learning_rate(optimizer, scheduler, 0.2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.02]
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]


def test_when_a_scheduler_steps() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    one_cycle = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    assert Schedule(one_cycle, optimizer).per_step
    assert Schedule(lambda o: lr_scheduler.StepLR(o, 1), optimizer).per_epoch
    assert Schedule(("step", lambda o: lr_scheduler.StepLR(o, 1)), optimizer).per_step
    assert not Schedule(None, optimizer).per_epoch
    with pytest.raises(ValueError, match="steps per 'batch'; valid: 'step', 'epoch'"):
        Schedule(("batch", one_cycle), optimizer)
    with pytest.raises(ValueError, match="scheduler is a int"):
        Schedule(3, optimizer)


def test_plateau_takes_the_epochs_loss() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule = Schedule(lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0), optimizer)
    for loss in (1.0, 2.0, 3.0):
        schedule.after_epoch(lambda loss=loss: loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
