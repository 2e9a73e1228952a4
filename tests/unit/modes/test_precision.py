from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.modes import ModeSet, refresh
from workbench.modes.precision import Precision


def overflow(model: nn.Module) -> None:
    next(model.parameters()).grad.fill_(float("inf"))


def small_loss(model: nn.Module) -> torch.Tensor:
    """Small enough that the scaler's first scale, 65,536, does not overflow fp16."""
    return model(torch.ones(4, 8)).float().square().mean() * 1e-3


def train_step(ms: ModeSet, model: nn.Module, opt: torch.optim.Optimizer, *, bad: bool) -> bool:
    opt.zero_grad()
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    if bad:
        overflow(model)
    ms.before_clip(opt)
    return ms.optimizer_step(opt)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 4)


@pytest.mark.parametrize(("value", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_forward_computes_in_the_chosen_type_and_weights_stay_float32(
    model: nn.Module, cpu: torch.device, value: str, dtype: torch.dtype
) -> None:
    mode = Precision(value, cpu)
    with mode.forward_context():
        out = model(torch.ones(4, 8))
    assert out.dtype == dtype
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model(torch.ones(4, 8)).dtype == torch.float32


def test_sixteen_bit_training_follows_updated_weights(model: nn.Module, cpu: torch.device) -> None:
    """A context that outlived the update would freeze the loss on stale cast weights."""
    ms = ModeSet.parse("bf16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        with ms.forward_context():
            loss = model(torch.ones(4, 8)).float().square().mean()
        ms.backward(loss)
        ms.optimizer_step(opt)
        opt.zero_grad()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4


def test_clipping_sees_unscaled_gradients(model: nn.Module, cpu: torch.device) -> None:
    plain = nn.Linear(8, 4)
    plain.load_state_dict(model.state_dict())
    small_loss(plain).backward()
    ms = ModeSet.parse("fp16", cpu)
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    scaled = model.weight.grad.norm().item()
    ms.before_clip(torch.optim.SGD(model.parameters()))
    assert scaled > 1000 * plain.weight.grad.norm().item()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad, rtol=2e-2, atol=1e-6)


def test_overflowing_gradients_skip_the_update_and_lower_the_scale(
    model: nn.Module, cpu: torch.device
) -> None:
    ms = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    assert train_step(ms, model, opt, bad=False) is True
    scale = ms.state_dict()["precision"]["scaler"]["scale"]
    before = model.weight.detach().clone()
    assert train_step(ms, model, opt, bad=True) is False
    assert torch.equal(model.weight, before)
    assert ms.state_dict()["precision"]["scaler"]["scale"] == scale / 2


def test_a_step_given_up_after_unscaling_does_not_block_the_next(
    model: nn.Module, cpu: torch.device
) -> None:
    ms = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    ms.before_clip(opt)
    assert train_step(ms, model, opt, bad=False) is True


def test_the_scale_survives_a_detour_over_other_precisions(
    model: nn.Module, cpu: torch.device
) -> None:
    fp16 = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(fp16, model, opt, bad=True)
    train_step(fp16, model, opt, bad=False)
    state = fp16.state_dict()
    for text in ("bf16", "fp32", "fp16"):
        following = ModeSet.parse(text, cpu)
        following.load_state_dict(state)
        state = following.state_dict()
    assert state["precision"]["scaler"] == fp16.state_dict()["precision"]["scaler"]
    assert state["precision"]["scaler"]["scale"] == 2.0**15
    assert train_step(following, model, opt, bad=False) is True


def test_half_precision_is_timed_only_after_a_check_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, cpu: torch.device
) -> None:
    monkeypatch.setattr("workbench.modes.precision._asked", False)
    from workbench.modes.precision import _choices

    _choices.cache_clear()
    assert all(c.available and not c.why for c in Precision.choices(cpu))
    refresh()
    fp16 = Precision.choices(cpu)[-1]
    assert fp16.available
    assert not fp16.why or "× slower than fp32 on this CPU" in fp16.why
