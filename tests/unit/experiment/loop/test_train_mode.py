"""Train and eval mode of a model in training, whatever a cell does to it, and when."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.experiments import losses
from workbench.experiment import Experiment
from workbench.experiment.loop.train_mode import TrainMode
from workbench.experiment.report.events import Event, StepDone

STEPS = 12


class Net(nn.Module):
    """Batch norm and dropout, both of which differ in eval mode; a block that may be frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.block(x)))


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(96, 6, generator=generator), torch.arange(96) % 3


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def by_hand(
    model: nn.Module,
    before_step: Callable[[nn.Module, int], object] = lambda model, step: None,
    steps: int = STEPS,
) -> list[float]:
    """The loop a person would write; ``before_step`` is what the person does to the model."""
    x, y = data()
    optimizer, losses = sgd(model), list[float]()
    model.train()
    torch.manual_seed(0)
    for step in range(steps):
        before_step(model, step)
        rows = slice(16 * (step % 6), 16 * (step % 6) + 16)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def made(model: nn.Module, tmp_path: Path) -> Experiment:
    return Experiment(
        model, data(), optimizer=sgd(model), batch_size=16, shuffle=False, runs=tmp_path,
        device="cpu",
    )  # fmt: skip


def whole_eval(model: Net) -> None:
    model.eval()


def block_eval(model: Net) -> None:
    model.block.eval()


def freeze(model: Net) -> None:
    model.block.requires_grad_(False)


# what a cell does, and what a plain loop would do from then on for the same numbers
ACTIONS: dict[str, tuple[Callable[[Net], object], Callable[[Net], object] | None, str]] = {
    "eval": (whole_eval, None, "eval mode"),
    "eval and a look": (lambda model: model.eval()(data()[0]), None, "eval mode"),
    "block.eval": (block_eval, block_eval, "block, block.0, block.1 and block.2 are kept in eval"),
    "requires_grad_": (freeze, freeze, "block.0.weight"),
    "no_grad left on": (lambda model: torch.set_grad_enabled(False), None, "gradients are off"),
}


LOOKS: dict[str, Callable[[Experiment], object]] = {
    "nothing": lambda exp: None,
    "predict": lambda exp: exp.predict(data()[0]),
    "evaluate": lambda exp: exp.evaluate(data()),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("when", ["before", "between"])
def test_what_a_cell_does_before_and_between_runs(
    tmp_path: Path, action: str, when: str, look: str
) -> None:
    """Numbers are a plain loop's, in which the author's word is kept and a look leaves no trace."""
    act, by_author, note = ACTIONS[action]
    at = 0 if when == "before" else STEPS // 2

    def word(model: nn.Module, step: int) -> None:
        if by_author is not None and step >= at:
            assert isinstance(model, Net)
            by_author(model)

    expected = by_hand(net(), word)
    model = net()
    exp = made(model, tmp_path)
    try:
        if when == "between":
            exp.run(steps=at, wait=True)
        act(model)
        modes = [module.training for module in model.modules()]
        LOOKS[look](exp)
        assert [module.training for module in model.modules()] == modes
        exp.run(steps=STEPS - at, wait=True)
    finally:
        torch.set_grad_enabled(True)
    assert losses(exp) == expected
    assert any(note in one for one in exp.notes), exp.notes
    exp.close()


@pytest.mark.parametrize("look", LOOKS)
def test_a_model_given_in_eval_mode_is_said_to_be_switched(tmp_path: Path, look: str) -> None:
    model = net().eval()
    exp = made(model, tmp_path)
    LOOKS[look](exp)
    exp.run(steps=1, wait=True)
    note = "the model was in eval mode and was switched to train mode"
    assert [one for one in exp.notes if one.startswith(note)] == [note]
    assert all(module.training for module in model.modules())
    exp.close()


def test_eval_mode_in_the_course_of_a_run_costs_no_step_and_is_reported(tmp_path: Path) -> None:
    """Wherever it lands: between two steps, or in the middle of one, which is computed again."""
    expected = by_hand(net())
    for inside in (False, True):
        model = net()
        exp = made(model, tmp_path)

        def between(event: Event, model: Net = model) -> None:
            if isinstance(event, StepDone) and event.step == 4:
                model.eval()  # as a cell does at that moment

        def middle(module: nn.Module, _inputs: object, model: Net = model) -> None:
            if exp.step_count == 4 and not fired:  # noqa: B023
                fired.append(1)  # noqa: B023
                cell = Thread(target=model.eval)
                cell.start()
                cell.join()

        fired: list[int] = []
        if inside:
            model.drop.register_forward_pre_hook(middle)
        else:
            exp.subscribe(between, every_step=True)
        exp.run(steps=STEPS, wait=True)
        assert losses(exp) == expected
        assert any("put into eval mode while it trained" in note for note in exp.notes)
        assert model.training
        assert model.drop.training
        exp.close()


def test_what_the_models_own_forward_sets_is_the_models_business(tmp_path: Path) -> None:
    class Freezes(Net):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.calls >= 3:
                self.block.eval()
            self.calls += 1
            return super().forward(x)

    def frozen() -> Freezes:
        torch.manual_seed(3)
        return Freezes()

    expected = by_hand(frozen())
    exp = made(frozen(), tmp_path)
    exp.run(steps=STEPS, wait=True)
    assert losses(exp) == expected
    assert exp.notes == []
    exp.close()


class Teaches(Net):
    """Averages a teacher in its forward, and sets modes there, as MoCo and BYOL do."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.teacher.requires_grad_(False)
        self.calls: list[int] = []
        self.through_data = False
        self.sets_modes = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(1)
        with torch.no_grad():
            for mine, other in zip(self.teacher.parameters(), self.block.parameters(), strict=True):
                if self.through_data:
                    mine.data.mul_(0.9).add_(other.data, alpha=0.1)
                else:
                    mine.mul_(0.9).add_(other, alpha=0.1)
            taught = self.teacher(x)
        if self.sets_modes:
            self.teacher.eval()  # after its use: the first forward of an epoch is in train mode
        return super().forward(x) + 0.1 * taught[:, :3] * random.random()


def teaches(**settings: bool) -> Teaches:
    torch.manual_seed(3)
    random.seed(7)
    model = Teaches()
    for name, value in settings.items():
        setattr(model, name, value)
    return model


def epochs_by_hand(model: nn.Module, epochs: int = 2) -> list[float]:
    """The same loop, which calls ``model.train()`` before each epoch."""
    x, y = data()
    optimizer, losses = sgd(model), list[float]()
    torch.manual_seed(0)
    for _ in range(epochs):
        model.train()
        for rows in range(0, 96, 16):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows : rows + 16]), y[rows : rows + 16])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("through_data", [False, True])
def test_no_step_is_computed_twice_because_a_forward_sets_modes(
    tmp_path: Path, through_data: bool
) -> None:
    expected = epochs_by_hand(teaches(through_data=through_data))
    model = teaches(through_data=through_data)
    exp = made(model, tmp_path)
    exp.run(epochs=2, wait=True)
    assert losses(exp) == expected
    assert len(model.calls) == STEPS
    assert exp.notes == []
    exp.close()


@pytest.mark.parametrize("when", ["between", "in the middle"])
@pytest.mark.parametrize("through_data", [False, True])
def test_a_cell_that_sets_modes_costs_nothing_of_what_a_forward_writes_itself(
    tmp_path: Path, when: str, through_data: bool
) -> None:
    """The step that is computed again begins with the weights and the random numbers it had."""
    expected = epochs_by_hand(teaches(through_data=through_data))
    model = teaches(through_data=through_data)
    exp = made(model, tmp_path)

    def cell(module: nn.Module, _inputs: object) -> None:
        computed.append(exp.step_count)
        if exp.step_count == 4 and computed.count(4) == 1:
            other = Thread(target=model.eval)
            other.start()
            other.join()

    computed: list[int] = []
    place = model if when == "between" else model.drop
    place.register_forward_pre_hook(cell)
    exp.run(epochs=2, wait=True)
    assert losses(exp) == expected
    assert computed.count(4) == 2
    assert len(model.calls) == STEPS, "its own list is put back with the step"
    assert any("put into eval mode while it trained" in note for note in exp.notes)
    exp.close()


@pytest.mark.parametrize("through_data", [False, True])
@pytest.mark.parametrize("sets_modes", [False, True])
def test_a_step_that_fails_gives_back_what_its_forward_wrote_itself(
    tmp_path: Path, through_data: bool, sets_modes: bool
) -> None:
    """Its random numbers, parameters and modes; no cell is said to have set them."""
    settings = {"through_data": through_data, "sets_modes": sets_modes}
    expected = epochs_by_hand(teaches(**settings))
    model = teaches(**settings)
    exp = made(model, tmp_path)

    def fails(module: nn.Module, _inputs: object, _output: object) -> None:
        if exp.step_count in (3, 6) and exp.step_count not in failed:
            failed.append(exp.step_count)
            raise ValueError("once")

    failed: list[int] = []
    model.register_forward_hook(fails)
    for _ in range(2):
        with pytest.raises(ValueError, match="once"):
            exp.run(epochs=2, wait=True)
    exp.run(steps=STEPS - 6, wait=True)
    assert losses(exp) == expected
    assert exp.notes == []
    exp.close()


def test_a_step_that_fails_once_says_what_it_could_not_give_back(tmp_path: Path) -> None:
    """A teacher written for the first time by the very step that fails."""
    model = teaches(sets_modes=False)
    exp = made(model, tmp_path)
    plain = super(Teaches, model).forward
    own = model.forward
    model.forward = plain  # type: ignore[method-assign]
    exp.run(steps=3, wait=True)

    def raising(x: torch.Tensor) -> torch.Tensor:
        own(x)
        raise ValueError("once")

    model.forward = raising  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="once"):
        exp.run(steps=1, wait=True)
    assert any("teacher.0.weight" in note and "not kept" in note for note in exp.notes)
    exp.close()


def test_a_forward_that_puts_the_whole_model_into_eval_mode_is_no_cell(tmp_path: Path) -> None:
    """Also where a run goes on in the middle of an epoch, where a plain loop calls no train()."""

    class Evaluates(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            self.eval()
            return out

    def evaluates() -> Evaluates:
        torch.manual_seed(3)
        return Evaluates()

    expected = epochs_by_hand(evaluates())
    exp = made(evaluates(), tmp_path)
    for steps in (4, 2, 6):
        exp.run(steps=steps, wait=True)
    assert losses(exp) == expected
    assert exp.notes == []
    exp.close()


def test_modules_that_were_frozen_when_the_model_was_given_stay_frozen(tmp_path: Path) -> None:
    model = net()
    model.block.eval()
    model.block[2].train()
    exp = made(model, tmp_path)
    given = [True, False, False, False, True, True, True]
    for look in (lambda: None, model.eval, lambda: model.eval().train()):
        look()
        exp.run(epochs=1, wait=True)
        assert [module.training for module in model.modules()] == given
    assert "block.1: kept in eval mode" in exp.notes[-1].replace("block, block.0 and ", "")
    model.train()
    exp.model = model  # as its note says
    exp.run(epochs=1, wait=True)
    assert all(module.training for module in model.modules())
    exp.close()


def test_train_of_a_module_is_called_and_not_its_flag_written() -> None:
    class Keeps(nn.BatchNorm1d):
        """Stays in eval mode whatever is set, as people freeze batch norm."""

        def train(self, mode: bool = True) -> Keeps:
            super().train(False)
            return self

    model = nn.Sequential(nn.Linear(2, 2), Keeps(2))
    mode = TrainMode(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert mode.begin(optimizer) == ""
    assert (model.training, model[1].training) == (True, False)
    with mode.evaluating(optimizer):
        assert not model[0].training
    assert (model[0].training, model[1].training) == (True, False)
    assert not mode.is_changed()


def test_an_optimizer_with_modes_of_its_own_goes_along() -> None:
    class Averages(torch.optim.SGD):
        def __init__(self, parameters: object) -> None:
            super().__init__(parameters, lr=0.1)  # type: ignore[arg-type]
            self.said: list[str] = []

        def train(self) -> None:
            self.said.append("train")

        def eval(self) -> None:
            self.said.append("eval")

    model = net()
    optimizer = Averages(model.parameters())
    mode = TrainMode(model)
    mode.begin(optimizer)
    with mode.evaluating(optimizer):
        pass
    assert optimizer.said == ["train", "eval", "train"]


def test_an_exchanged_module_comes_with_the_mode_it_has() -> None:
    model = net()
    optimizer = sgd(model)
    mode = TrainMode(model)
    mode.begin(optimizer)
    model.block = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8).eval())
    assert mode.begin(optimizer) == ""
    assert [module.training for module in model.block.modules()] == [True, True, False]


def test_a_model_is_gone_when_its_last_name_is() -> None:
    """Not some time later, when garbage is collected: it may be half of a GPU's memory."""
    model = net()
    model.block.eval()
    gone, optimizer = weakref.ref(model), sgd(model)
    gc.collect()
    gc.disable()
    try:
        mode = TrainMode(model)
        mode.begin(optimizer)
        del mode, model
        assert gone() is None
    finally:
        gc.enable()
