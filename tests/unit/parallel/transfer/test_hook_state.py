"""What hooks have kept on a rank is put into the very objects that the user has here."""

from __future__ import annotations

import functools
import logging
import random
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.integration.parallel.support import Meter, Net, made
from workbench.experiment import Experiment
from workbench.experiment.training import Training
from workbench.modes.layout.layout import Layout
from workbench.parallel.transfer.hook_state import notes_on_hooks
from workbench.parallel.transfer.job_pickle import PackingError, from_known, pack, to_known, unpack

HEARD: list[int] = []


def rank_of(experiment: Experiment, tmp_path: Path) -> Training:
    training = experiment._training
    training.detach_modes()
    training.hook_state = pack(training, tmp_path / "payload")
    back = unpack(tmp_path / "payload")
    with torch.no_grad():
        for mine, theirs in zip(back.model.parameters(), training.model.parameters(), strict=True):
            mine.copy_(theirs)
    return back


def step(training: Training) -> None:
    training.optimizer.zero_grad()
    training.model(torch.ones(2, 16)).sum().backward()
    training.optimizer.step()


def bring_back(back: Training, training: Training) -> None:
    sent = to_known(back.hook_state.changes(), back.hook_state.references)
    training.hook_state.take(from_known(sent, training.hook_state.references))


def test_everything_that_a_hook_writes_comes_back(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", functools.partial(Net, 1), optimizer="adamw")
    model, optimizer = experiment.model, experiment.optimizer
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    teacher = nn.Linear(3, 2)
    of_teacher = torch.optim.Adam(teacher.parameters())
    count, kept = 0, {"all": [], "named": OrderedDict(), "last": deque(maxlen=2), "n": Counter()}
    meter, generator, host = Meter(), torch.Generator(), random.Random(1)
    numbers, norm, seen = np.random.default_rng(1), torch.zeros(()), {*()}
    gradients: list[torch.Tensor] = []
    log = logging.getLogger("heard by a hook")
    log.addHandler(logging.StreamHandler())
    alike, untouched = [model.head.weight, model], ["as it was"]

    def after(*_: Any) -> None:
        nonlocal count, norm
        count += 1
        average.update_parameters(model)
        teacher(torch.ones(3)).sum().backward()
        of_teacher.step()
        kept["all"].append(count)
        kept["named"][count] = meter
        kept["last"].append(model.head.weight)
        kept["n"]["steps"] += 1
        seen.add(count)
        norm = model.head.weight.detach().norm()
        torch.rand(2, generator=generator)
        host.random(), numbers.random()
        alike.append(model.head.bias)
        log.info("its handlers have locks")
        len(untouched)

    optimizer.register_step_post_hook(after)
    model.head.register_forward_hook(meter)
    model.stem.bias.register_hook(functools.partial(kept.__setitem__, "gradient"))
    model.blocks[0].up.bias.register_hook(gradients.append)
    model.stem.register_forward_pre_hook(lambda *_: HEARD.append(len(HEARD)))
    HEARD.clear()
    training = experiment._training
    back = rank_of(experiment, tmp_path)
    before = [tensor.clone() for tensor in average.state_dict().values()]
    for _ in range(3):
        step(back)
    HEARD.clear()  # of this very process: a rank has its own
    assert (count, meter.seen, kept["all"]) == (0, 0, []), "what is here was touched"
    assert all(map(torch.equal, before, average.state_dict().values()))
    bring_back(back, training)
    assert count == kept["n"]["steps"] == 3
    assert kept["all"] == [1, 2, 3]
    assert seen == {1, 2, 3}
    assert int(average.n_averaged) == 3
    assert list(kept["named"]) == [1, 2, 3]
    assert kept["named"][3] is meter
    assert list(kept["last"]) == [model.head.weight] * 2
    assert kept["last"][0] is model.head.weight
    assert kept["last"].maxlen == 2
    assert (meter.seen, meter.total, meter.rows.tolist()) == (3, 1.5, [3, 3])
    assert meter.late == "made by a call"
    assert alike[0] is model.head.weight
    assert alike[4] is model.head.bias
    assert torch.equal(norm, back.model.head.weight.norm())
    assert torch.equal(kept["gradient"], back.model.stem.bias.grad)
    assert len(gradients) == 3
    assert set(of_teacher.state) == set(teacher.parameters())
    assert int(of_teacher.state[teacher.weight]["step"]) == 3
    assert torch.equal(generator.get_state(), _drawn(torch.Generator(), 3).get_state())
    drawn = random.Random(1)
    assert [drawn.random() for _ in range(4)][-1] == host.random()
    # an independent account of the average
    plain = made(tmp_path / "plain", functools.partial(Net, 1), optimizer="adamw")
    wanted = torch.optim.swa_utils.AveragedModel(
        plain.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    for _ in range(3):
        step(plain._training)
        wanted.update_parameters(plain.model)
    for mine, theirs in zip(average.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def _drawn(generator: torch.Generator, times: int) -> torch.Generator:
    for _ in range(times):
        torch.rand(2, generator=generator)
    return generator


def test_a_tensor_that_shares_memory_with_a_parameter_is_refused(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net)
    weight = experiment.model.head.weight.data
    experiment.optimizer.register_step_post_hook(lambda *_: weight.sum())
    with pytest.raises(PackingError, match=r"weight of .* shares its memory with head\.weight"):
        rank_of(experiment, tmp_path)


def _counted(*_: Any) -> None:
    HEARD.append(1)


def test_what_is_not_as_in_one_process_is_said(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net)
    layout = Layout.parse("ddp:2")
    assert not list(notes_on_hooks(experiment._training, layout))
    experiment.model.head.register_forward_hook(lambda *_: None)
    experiment.model.stem.register_full_backward_hook(lambda *_: None)
    experiment.optimizer.register_step_post_hook(_counted)
    rows, imported = notes_on_hooks(experiment._training, layout)
    assert "on stem and the hook <lambda> on head see the rows of one rank's part" in rows
    assert f"keeps HEARD in {__name__}, which each rank imports for itself" in imported
