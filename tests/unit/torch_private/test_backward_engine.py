"""Backward by the engine alone: what `torch.Tensor.backward` gives, raises and lets others see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from workbench.torch_private import backward_engine as backward

Loss = Callable[[torch.Tensor], torch.Tensor]

LOSSES: dict[str, Loss] = {
    "scalar": lambda y: y.square().mean(),
    "one number in a list": lambda y: y.square().mean().reshape(1),
    "float64": lambda y: y.double().square().mean(),
    "bfloat16": lambda y: y.bfloat16().square().mean(),
    "a leaf among its inputs": lambda y: y.sum() * 1.0,
}
REFUSED: dict[str, Loss] = {
    "no graph": lambda y: y.detach().sum(),
    "several numbers": lambda y: y.sum(0),
    "complex": lambda y: (y * 1j).sum(),
}


def model_and_data() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(5, 4)


def gradients(loss_of: Loss, run: Callable[[torch.Tensor], object]) -> list[torch.Tensor]:
    model, x = model_and_data()
    for _ in range(2):  # the second time they are added up
        run(loss_of(model(x)))
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The losses that went to the engine by `torch.Tensor.backward`."""
    found: list[torch.Tensor] = []
    real = torch.Tensor.backward

    def through(self: torch.Tensor, *given: Any, **named: Any) -> None:
        found.append(self)
        real(self, *given, **named)

    monkeypatch.setattr(torch.Tensor, "backward", through)
    monkeypatch.setattr(backward, "_OF_TENSOR", through)
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_backward(name: str, long_ways: list[torch.Tensor]) -> None:
    expected = gradients(LOSSES[name], lambda loss: loss.backward())
    assert len(long_ways) == 2
    found = gradients(LOSSES[name], backward.run)
    assert len(found) == len(expected) == 4
    assert all(map(torch.equal, found, expected))
    assert len(long_ways) == 2  # none was added


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_backward_is_refused_in_torchs_words(name: str) -> None:
    with pytest.raises(RuntimeError) as by_torch:
        gradients(REFUSED[name], lambda loss: loss.backward())
    with pytest.raises(RuntimeError) as ours:
        gradients(REFUSED[name], backward.run)
    assert str(ours.value) == str(by_torch.value)


def test_a_second_backward_is_refused_as_ever() -> None:
    model, x = model_and_data()
    loss = model(x).square().mean()
    backward.run(loss)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        backward.run(loss)


def test_a_hook_on_the_loss_changes_its_gradient() -> None:
    def hooked(loss: torch.Tensor) -> None:
        loss.register_hook(lambda one: one.mul_(3))
        backward.run(loss)

    by_three = gradients(lambda y: 3 * y.square().mean(), backward.run)
    found = gradients(LOSSES["scalar"], hooked)
    assert all(torch.allclose(a, b) for a, b in zip(found, by_three, strict=True))


def test_modes_see_it_as_ever() -> None:
    seen: list[Any] = []

    class Sees(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    model, x = model_and_data()
    with Sees():
        backward.run(model(x).square().mean())
    assert torch.Tensor.backward in seen
    flops: list[int] = []
    for run in (backward.run, torch.Tensor.backward):
        with FlopCounterMode(display=False) as counter:
            run(model(x).square().mean())
        flops.append(counter.get_total_flops())
    assert flops[0] == flops[1] > 0


@pytest.mark.parametrize("run", [backward.run, torch.Tensor.backward])
def test_a_transform_of_functions_refuses_it_as_ever(run: Callable[[torch.Tensor], object]) -> None:
    model, x = model_and_data()

    def inside(value: torch.Tensor) -> torch.Tensor:
        run(model(value).sum())
        return value.sum()

    with pytest.raises(RuntimeError, match=r"backward\(\) called inside a functorch transform"):
        torch.func.grad(inside)(x)


def test_a_subclass_and_a_replacement_have_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(torch.Tensor):
        calls = 0

        def backward(self, *given: Any, **named: Any) -> None:  # type: ignore[override]
            Counted.calls += 1
            super().backward(*given, **named)

    model, x = model_and_data()
    backward.run(model(x.as_subclass(Counted)).square().mean())
    assert Counted.calls == 1

    replaced: list[torch.Tensor] = []

    def note(self: torch.Tensor) -> None:
        replaced.append(self)

    monkeypatch.setattr(torch.Tensor, "backward", note)
    backward.run(model(x).square().mean())
    assert len(replaced) == 1
