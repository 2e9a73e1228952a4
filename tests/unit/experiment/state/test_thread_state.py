"""What a cell sets for its own thread holds in the steps that it requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, overrides
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import workbench as wb
from tests.unit.experiment.experiments import losses
from tests.unit.experiment.test_control import Turnstile
from workbench.experiment import Experiment


class Net(nn.Module):
    """Creates a tensor in its forward, wherever the default device is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.seen: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(torch.zeros(1).device.type)
        return self.head(self.inner(x).relu())


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(64, 6, generator=generator), torch.arange(64) % 3


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def made(tmp_path: Path, model: nn.Module) -> Experiment:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Experiment(
        model, data(), optimizer=optimizer, batch_size=16, shuffle=False, runs=tmp_path,
        device="cpu",
    )  # fmt: skip


def by_hand(around_forward: Callable[[], AbstractContextManager[Any]]) -> list[float]:
    x, y = data()
    model = net()
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), list[float]()
    for rows in torch.arange(64).split(16):
        optimizer.zero_grad()
        with around_forward():
            loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_autocast_around_a_run_is_that_of_its_forwards(tmp_path: Path) -> None:
    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16)

    exp = made(tmp_path, net())
    with autocast():
        exp.run(epochs=1, wait=True)
    assert losses(exp) == by_hand(autocast) != by_hand(nullcontext)
    assert any("autocast to bfloat16" in note for note in exp.notes)
    exp.run(epochs=1, wait=True)  # and not of the next run
    exp.close()


def test_a_default_device_is_that_of_the_step_and_leaves_the_order_alone(tmp_path: Path) -> None:
    model = net()
    exp = made(tmp_path, model)
    with torch.device("meta"):
        exp.run(epochs=1, wait=True)
    assert set(model.seen) == {"meta"}
    torch.set_default_device("meta")
    try:
        exp.run(epochs=1, wait=True)
    finally:
        torch.set_default_device(None)
    assert set(model.seen) == {"meta"}
    exp.run(epochs=1, wait=True)
    assert model.seen[-4:] == ["cpu"] * 4
    assert losses(exp)[:4] == by_hand(nullcontext)
    exp.close()


def test_hooks_and_modes_of_the_cell_see_the_step(tmp_path: Path) -> None:
    packed: list[int] = []
    called: list[Any] = []

    class Watches(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append(func)
            return func(*args, **(kwargs or {}))

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.numel())
        return tensor

    exp = made(tmp_path, net())
    counter = FlopCounterMode(display=False)
    with saved_tensors_hooks(pack, lambda tensor: tensor), Watches(), counter:
        exp.step(1).wait(120)
    assert packed
    assert F.linear in called
    # forward, and backward for both weights and one input
    assert counter.get_total_flops() == 2 * 16 * (6 * 8 + 8 * 3) * 2 + 2 * 16 * 8 * 3
    before = len(packed), len(called)
    exp.step(1).wait(120)
    assert (len(packed), len(called)) == before
    exp.close()


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_though_the_cell_has_them_off(
    tmp_path: Path, off: Callable[[], AbstractContextManager[Any]]
) -> None:
    exp = made(tmp_path, net())
    with off():
        exp.run(epochs=1, wait=True)
    assert losses(exp) == by_hand(nullcontext)
    assert any("gradients are off where the run was started" in note for note in exp.notes)
    exp.close()


def test_an_autocast_of_the_cell_that_trained_is_over_with_it(tmp_path: Path) -> None:
    model = net()
    exp = made(tmp_path, model)
    with torch.autocast("cpu"):
        exp.run(steps=1, wait=True)
        assert exp.predict(data()[0]).dtype is torch.bfloat16
    assert exp.predict(data()[0]).dtype is torch.float32
    with torch.no_grad():
        expected = float(F.cross_entropy(model(data()[0]), data()[1]))
    assert exp.evaluate(data()).loss == pytest.approx(expected, rel=1e-6)


def test_a_caller_while_it_trains_has_an_autocast_of_its_own(tmp_path: Path) -> None:
    turnstile = Turnstile()
    exp = made(tmp_path, turnstile)
    with torch.autocast("cpu"):
        exp.run(steps=2)
    turnstile.inside.acquire()
    turnstile.open()
    assert exp.predict(data()[0]).dtype is torch.float32
    exp.wait()


def test_nothing_of_the_cell_is_kept_after_the_run(tmp_path: Path) -> None:
    hooks = (lambda tensor: tensor, lambda tensor: tensor)
    exp = made(tmp_path, net())
    with saved_tensors_hooks(*hooks):
        exp.run(steps=1, wait=True)
    assert exp._training.caller_settings.saved_tensors_hooks is None


def test_a_capture_of_a_run_that_is_over_has_what_the_cell_has_set(tmp_path: Path) -> None:
    """A step that is undone is computed as one that is not."""
    model = net()
    exp = made(tmp_path, model)
    seen = SimpleQueue[bool]()  # what a hook puts into a list is undone with its step

    class Watches(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def see(*_: object) -> None:
        modes = overrides._get_current_function_mode_stack()
        seen.put(any(isinstance(mode, Watches) for mode in modes))

    model.register_forward_hook(see)
    with Watches():
        exp.run(epochs=1, wait=True)
        wb.graph(exp)
    assert [seen.get() for _ in range(seen.qsize())] == [True] * 5
    exp.close()
