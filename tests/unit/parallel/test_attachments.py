"""What hangs on parameters, optimizers and torch itself is packed with a training."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.flop_counter import FlopCounterMode

from tests.integration.parallel.support import Net, made
from workbench.experiment import Experiment
from workbench.experiment.state.attachments import TENSOR_HOOKS
from workbench.experiment.training import Training
from workbench.parallel.transfer.job_pickle import PackingError, Settings, pack, unpack


@pytest.fixture
def _clean() -> Iterator[None]:
    yield
    _forget_hooks_of_all()


def _forget_hooks_of_all() -> None:
    optimizers._global_optimizer_post_hooks.clear()
    torch.nn.modules.module._global_forward_hooks.clear()


def there_and_back(experiment: Experiment, tmp_path: Path, **how: Any) -> Training:
    training = experiment._training
    training.detach_modes()
    pack(training, tmp_path / "payload")
    return unpack(tmp_path / "payload", **how)


def test_hooks_and_attributes_of_parameters_arrive(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    model, heard = experiment.model, []
    model.head.bias.decay = False
    model.head.weight.mask = torch.arange(3.0)
    model.handle = model.head.weight.register_hook(lambda gradient: gradient * 2)
    model.head.weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.clone()))
    model.stem.bias.twin = model.head.bias
    back = there_and_back(experiment, tmp_path).model
    assert back.head.bias.decay is False
    assert back.head.weight.mask.tolist() == [0, 1, 2]
    assert back.stem.bias.twin is back.head.bias
    assert not hasattr(back.stem.weight, "decay")
    for name in TENSOR_HOOKS:
        assert len(getattr(back.head.weight, name)) == 1
        assert len(getattr(model.head.weight, name)) == 1, "what is here was touched"
    back.head.weight.detach().zero_()
    back.head.weight.sum().backward()
    assert back.head.weight.grad is not None
    assert back.head.weight.grad.unique().tolist() == [2]
    back.handle.remove()
    assert not back.head.weight._backward_hooks
    assert len(model.head.weight._backward_hooks) == 1
    later = back.head.weight.register_hook(lambda gradient: gradient)
    assert later.id not in (back.handle.id, *model.head.weight._post_accumulate_grad_hooks)


def test_an_average_kept_by_a_hook_of_the_optimizer_arrives(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    model = experiment.model
    average = torch.optim.swa_utils.AveragedModel(model)
    experiment.optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
    experiment.optimizer.register_state_dict_post_hook(lambda _, state: state | {"mine": 1})
    back = there_and_back(experiment, tmp_path)
    hooks = back.optimizer._optimizer_step_post_hooks.values()
    (hook,) = [one for one in hooks if one.__module__ == __name__]
    assert len(hooks) == 2, "the other is its own count of foreign steps"
    inside = dict(zip(hook.__code__.co_freevars, hook.__closure__, strict=True))
    assert inside["model"].cell_contents is back.model
    assert inside["average"].cell_contents is not average
    assert back.optimizer.state_dict()["mine"] == 1


@pytest.mark.usefixtures("_clean")
def test_hooks_of_all_arrive_where_they_are_asked_for(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    heard: list[str] = []
    optimizers.register_optimizer_step_post_hook(lambda *_: heard.append("step"))
    nn.modules.module.register_module_forward_hook(lambda *_: heard.append("forward"))
    pack(experiment._training, tmp_path / "payload")
    _forget_hooks_of_all()
    unpack(tmp_path / "payload")
    assert not optimizers._global_optimizer_post_hooks, "a kernel that attaches has its own"
    with warnings.catch_warnings():
        unpack(tmp_path / "payload", as_there=True)
    assert len(optimizers._global_optimizer_post_hooks) == 1
    assert len(torch.nn.modules.module._global_forward_hooks) == 1


def test_a_hook_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net)
    lock = threading.Lock()

    def masked(gradient: torch.Tensor) -> torch.Tensor:
        with lock:
            return gradient

    experiment.model.head.weight.register_hook(masked)
    with pytest.raises(PackingError, match=r"lock of the hook masked on model\.head\.weight is a"):
        there_and_back(experiment, tmp_path)


def test_what_is_set_for_the_thread_arrives(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net)
    training, cpu = experiment._training, torch.device("cpu")
    kept = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with (
        torch.device("cpu"),
        torch.autocast("cpu", torch.bfloat16),
        kept,
        FlopCounterMode(display=False) as mode,
    ):
        caller_settings = Settings.current(cpu)
    pack(training, tmp_path / "payload", caller_settings)
    with warnings.catch_warnings():
        thread = unpack(tmp_path / "payload", as_there=True).caller_settings
    assert [one.dtype for one in thread.autocasts] == [torch.bfloat16]
    assert [one.device for one in thread.function_modes if hasattr(one, "device")] == [cpu]
    assert thread.saved_tensors_hooks is not None
    said = [note for note in training.board.notes if type(mode).__name__ in note]
    assert said or thread.dispatch_modes, "it is lost without a word"
