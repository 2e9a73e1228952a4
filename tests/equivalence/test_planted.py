"""Faults that trainers are known to have, planted one by one: the differential test finds each.

Each is the fault as it was reported somewhere, put into the place where the loop guards against it,
and a recipe of the kind that `recipes` draws. Without the fault that recipe has a plain loop's
numbers; with it, it has not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
import torch

from tests.equivalence.check import check
from tests.equivalence.recipes import Recipe, is_possible
from workbench.experiment.data import data, sources
from workbench.experiment.data.cursor import Cursor
from workbench.experiment.loop import step, validation
from workbench.experiment.loop.step_guard import Guard
from workbench.experiment.loop.train_mode import TrainMode
from workbench.experiment.recipe.schedules import Schedule
from workbench.experiment.recipe.targets import AnswerReader, Answers
from workbench.experiment.state.module_state import ModuleState
from workbench.experiment.state.rng import RandomState
from workbench.experiment.training import Training
from workbench.modes.precision.scaler import GradientScaler

Plant = Callable[[pytest.MonkeyPatch], None]
PLAIN = Recipe(model="dropout", validates=True, epochs=3, samples=22, optimizer="adamw")


@dataclass(frozen=True)
class Fault:
    """What is planted, and the recipe in which it shows."""

    plant: Plant
    recipe: Recipe


def _nothing(*_arguments: Any, **_options: Any) -> None:
    pass


def _in(**changes: Any) -> Recipe:
    return dataclasses.replace(PLAIN, **changes)


def put(owner: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, value)


def all_of(*plants: Plant) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


# -- the faults -----------------------------------------------------------------------------


def _flags_are_written(self: TrainMode, _optimizer: torch.optim.Optimizer) -> None:
    for module, flag in zip(self._modules, self._flags, strict=True):
        module.training = flag


def _whole_train(self: TrainMode, _optimizer: torch.optim.Optimizer) -> None:
    self._model.train()
    self._flags = [module.training for module in self._modules]


def _lost_nothing(_self: ModuleState) -> tuple[str, ...]:
    return ()


def _modules_alone(self: Guard) -> tuple[str, ...]:
    return self._modules.restore()


def _value(_self: Guard, loss: torch.Tensor) -> float:
    return loss.item()


def _model_alone(self: Training) -> None:
    """Clip, check and measure what the model has, and clear what the optimizer holds."""
    self.parameters[:] = list(self.model.parameters())
    self.extra_parameters = []
    self._group_sizes = [len(group["params"]) for group in self.optimizer.param_groups]


def _clear_what_the_optimizer_holds(optimizer: torch.optim.Optimizer, _parameters: Any) -> None:
    optimizer.zero_grad()


def _held_alone(self: Training) -> None:
    self.parameters[:] = list(
        chain.from_iterable(group["params"] for group in self.optimizer.param_groups)
    )
    self.extra_parameters = []
    self._group_sizes = [len(group["params"]) for group in self.optimizer.param_groups]


def _as_one_kernel(self: Guard) -> None:
    gradients = [p.grad for p in self._parameters if p.grad is not None]
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._flag, self._one)


def _weighed_by_rows(
    self: validation.Tally, loss: torch.Tensor, _logits: Any, _targets: Any, count: int
) -> None:
    self._loss += loss.double() * count
    self._divisor += count


def _last_batch_alone(self: validation.Tally, *arguments: Any) -> None:
    self._loss.zero_()
    self._divisor.zero_()
    _weighed_by_rows(self, *arguments)


def _labels_as_logits(
    self: AnswerReader, logits: torch.Tensor, targets: torch.Tensor
) -> Answers | None:
    if targets.is_floating_point():
        return Answers(logits > 0, targets > 0.5, None)
    return Answers(logits.argmax(1), targets, None)


_source_of = data._of_loader


def _order_is_ours(loader: Any, seed: int, what: str, _order: Any) -> Any:
    return _source_of(loader, seed, what, "workbench")


def _ends_by_its_length(self: Cursor) -> bool:
    return self.source.steps_per_epoch > 0 and self.index >= self._declared


def _begins_each_epoch_alike(self: Cursor) -> Any:
    return self.source.batches(0, self.index - self._resized_at, skip=self._skip)


def _drops_the_last(self: Cursor) -> bool:
    return self.index >= self._declared - 1


def _peeks_as_it_reads(self: sources.ForeignSource, epoch: int, default: Any) -> Any:
    return next(self.batches(epoch), default)


_step_of_scaler = GradientScaler.step


def _says_it_applied(self: GradientScaler, optimizer: torch.optim.Optimizer) -> bool:
    _step_of_scaler(self, optimizer)
    return True


_OWN = {"model": "state of its own"}
_HEAD = {"over": "head", "clip": 0.1}

FAULTS: dict[str, Fault] = {
    "eval mode of a cell stays": Fault(
        all_of(put(TrainMode, "set", _nothing), put(TrainMode, "restore", _nothing)),
        _in(model="batch norm", actions=((2, "eval and a look"),)),
    ),
    "validation leaves eval mode by flags": Fault(
        put(TrainMode, "set", _flags_are_written), _in(model="low rank")
    ),
    "a part that its author froze in eval mode goes to train mode": Fault(
        put(TrainMode, "set", _whole_train), _in(model="half frozen")
    ),
    "gradients of a cell are added to": Fault(
        put(step, "clear_gradients", _nothing), _in(actions=((2, "own backward"),))
    ),
    "what the optimizer does not hold is never cleared": Fault(
        put(step, "clear_gradients", _clear_what_the_optimizer_holds), _in(**_HEAD)
    ),
    "the norm is that of the optimizer's parameters": Fault(
        put(Training, "find_parameters", _held_alone), _in(**_HEAD)
    ),
    "the norm leaves out the loss's parameters": Fault(
        put(Training, "find_parameters", _model_alone), _in(loss="with parameters", clip=0.1)
    ),
    "clipped before unscaled": Fault(
        put(GradientScaler, "unscale_more", _nothing), _in(precision="fp16", **_HEAD)
    ),
    "complex gradients are looked at as real ones": Fault(
        put(Guard, "_flag_gradients", _as_one_kernel), _in(model="complex")
    ),
    "sparse gradients are looked at as dense ones": Fault(
        put(Guard, "_flag_gradients", _as_one_kernel),
        _in(model="sparse embedding", optimizer="sgd"),
    ),
    "a step that is not finite is applied": Fault(
        all_of(
            put(Guard, "check_gradients", _nothing),
            put(Guard, "check_loss", _value),
        ),
        _in(poisoned=True, model="perceptron"),
    ),
    "a refused step counts in batch norm": Fault(
        put(ModuleState, "restore", _lost_nothing),
        _in(poisoned=True, model="batch norm", samples=24),
    ),
    "a refused step leaves buffers that were replaced": Fault(
        put(ModuleState, "restore", _lost_nothing), _in(poisoned=True, **_OWN)
    ),
    "a refused step moves the random state": Fault(
        put(Guard, "restore", _modules_alone), _in(poisoned=True)
    ),
    "the forward that measures a switch counts": Fault(
        put(ModuleState, "restore", _lost_nothing), _in(actions=((2, "attention"),), **_OWN)
    ),
    "random numbers of a cell move the run's": Fault(
        put(RandomState, "restore", _nothing), _in(actions=((2, "random numbers"),))
    ),
    "a seed set in a cell is the run's": Fault(
        put(RandomState, "restore", _nothing), _in(actions=((2, "seed"),))
    ),
    "a look at the next batch draws": Fault(
        put(sources.ForeignSource, "peek", _peeks_as_it_reads),
        _in(source="loader's own generator", actions=((3, "graph"),)),
    ),
    "every epoch has the same order": Fault(
        put(Cursor, "_rest", _begins_each_epoch_alike), _in(source="distributed sampler")
    ),
    "a batch sampler is not told the epoch": Fault(
        put(sources, "_set_epoch", _nothing), _in(source="batch sampler")
    ),
    "a loader's order and generator are dropped": Fault(
        put(data, "_of_loader", _order_is_ours), _in(source="loader's own generator")
    ),
    "a stream ends by the length that it declares": Fault(
        put(Cursor, "at_end", property(_ends_by_its_length)),
        _in(source="stream with a wrong length"),
    ),
    "the last batch is left out": Fault(put(Cursor, "at_end", property(_drops_the_last)), _in()),
    "validation weighs batches by rows, of class weights": Fault(
        put(validation.Tally, "_add_loss", _weighed_by_rows), _in(loss="class weights")
    ),
    "validation weighs batches by rows, of ignored labels": Fault(
        put(validation.Tally, "_add_loss", _weighed_by_rows), _in(loss="ignored labels")
    ),
    "validation averages a sum": Fault(
        put(validation.Tally, "_add_loss", _weighed_by_rows), _in(loss="summed")
    ),
    "validation is of the last batch": Fault(
        put(validation.Tally, "_add_loss", _last_batch_alone), _in()
    ),
    "soft labels are read as many labels": Fault(
        put(AnswerReader, "_classes", _labels_as_logits), _in(loss="soft labels")
    ),
    "ignored labels count in the accuracy": Fault(
        put(AnswerReader, "_classes", _labels_as_logits), _in(loss="ignored labels")
    ),
    "a plateau of accuracy is fed the loss": Fault(
        put(Schedule, "wants_accuracy", False), _in(schedule="plateau, accuracy")
    ),
    "a schedule of steps is stepped once an epoch": Fault(
        all_of(put(Schedule, "per_step", False), put(Schedule, "per_epoch", True)),
        _in(schedule="one cycle"),
    ),
    "a schedule is stepped where the scaler skipped": Fault(
        put(GradientScaler, "step", _says_it_applied),
        _in(schedule="exponential", precision="fp16", loss="summed"),
    ),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    assert is_possible(fault.recipe)
    check(fault.recipe)
    fault.plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(fault.recipe)
