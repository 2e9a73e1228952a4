from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workbench as wb
from tests.unit.modes.own_loop.support import X, Y, net, overflow, scale, sgd, step

Make = Callable[..., nn.Module]


# -- the five lines -------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "bf16", "fp16"])
def test_gradients_inside_an_update_are_true_and_it_is_applied_on_leaving(text: str) -> None:
    plain = net()
    F.cross_entropy(plain(X), Y).backward()
    modes, model = wb.Modes(text), net()
    optimizer = sgd(model)
    assert modes.prepare(model) is model
    before = model[0].weight.detach().clone()
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    with modes.update(loss, optimizer):
        torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad, rtol=0.05, atol=0.02)
        assert torch.equal(model[0].weight, before)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.0)
        model[2].bias.grad.fill_(1.0)
    assert torch.equal(model[0].weight, before), "clipped to nothing, so nothing moved"
    assert not torch.equal(model[2].bias, plain[2].bias)
    assert not modes.skipped


def test_forward_is_entered_in_the_chosen_type_also_without_gradients() -> None:
    modes, model = wb.Modes("bf16"), net()
    modes.prepare(model)
    with modes.forward(), torch.no_grad():
        assert model(X).dtype == torch.bfloat16
    with torch.no_grad(), modes.forward(), modes.forward():
        assert model(X).dtype == torch.bfloat16
    assert model(X).dtype == torch.float32


def test_a_text_is_shown_and_kept_in_one_form() -> None:
    modes = wb.Modes("bf16 + attention:math")
    assert modes.text == str(modes) == "attention:math+bf16"
    assert repr(modes) == "<wb.Modes 'attention:math+bf16': no model prepared>"
    model = modes.prepare(net())
    assert repr(modes) == "<wb.Modes 'attention:math+bf16': Sequential>"
    del model
    gc.collect()
    assert repr(modes) == "<wb.Modes 'attention:math+bf16': no model prepared>"


# -- several optimizers, several models, accumulation ------------------------------------------


@pytest.mark.parametrize("text", ["", "fp16"])
def test_gathered_gradients_are_those_of_one_large_batch(text: str) -> None:
    whole, model, modes = net(), net(), wb.Modes(text)
    F.cross_entropy(whole(X), Y).backward()
    modes.prepare(model)
    optimizer = sgd(model)
    for rows in torch.arange(16).split(4):
        with modes.forward():
            loss = F.cross_entropy(model(X[rows]), Y[rows]) / 4
        modes.backward(loss)
    with modes.step(optimizer):
        torch.testing.assert_close(model[0].weight.grad, whole[0].weight.grad, rtol=0.05, atol=1e-3)
    with pytest.raises(RuntimeError, match=r"no gradients to apply: modes.backward\(loss\) runs"):
        modes.step(optimizer)


@pytest.mark.parametrize("text", ["", "bf16", "fp16"])
def test_one_backward_serves_two_optimizers(text: str) -> None:
    reference, modes = net(), wb.Modes(text)
    other = modes.prepare(copy.deepcopy(reference))
    pair = wb.Modes(text)
    pair.prepare(reference)
    one, two = (torch.optim.SGD(reference[i].parameters(), lr=0.1) for i in (0, 2))
    both = sgd(other)
    for _ in range(3):
        for optimizer in (one, two, both):
            optimizer.zero_grad()
        with pair.forward():
            loss = F.cross_entropy(reference(X), Y)
        with pair.update(loss, one, two):
            pass
        with modes.forward():
            loss = F.cross_entropy(other(X), Y)
        with modes.update(loss, both):
            pass
    assert torch.equal(reference[0].weight, other[0].weight)
    assert torch.equal(reference[2].weight, other[2].weight)


def test_an_overflow_under_one_of_two_optimizers_skips_both_and_lowers_the_scale_once() -> None:
    modes, model = wb.Modes("fp16"), net()
    modes.prepare(model)
    one, two = (torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 2))
    step(modes, model, sgd(model))
    started = scale(modes)
    before = [p.detach().clone() for p in model.parameters()]
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    modes.backward(loss)
    overflow(model)
    with modes.step(one, two):
        pass
    assert modes.skipped
    assert scale(modes) == started / 2
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(modes, model, sgd(model))
    assert not modes.skipped


@pytest.mark.parametrize("text", ["bf16", "fp16"])
def test_a_gan_trains_with_one_update_each(text: str) -> None:
    torch.manual_seed(0)
    modes = wb.Modes(text)
    generator = modes.prepare(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)))
    critic = modes.prepare(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    make, judge = sgd(generator), sgd(critic)
    real, zeros, ones = X, torch.zeros(16, 1), torch.ones(16, 1)
    logits_loss = F.binary_cross_entropy_with_logits
    for _ in range(5):
        before = [p.detach().clone() for p in generator.parameters()]
        judge.zero_grad()
        with modes.forward():
            fake = generator(torch.randn(16, 4))
            loss = logits_loss(critic(real), ones) + logits_loss(critic(fake.detach()), zeros)
        with modes.update(loss, judge):
            grown = max(p.grad.abs().max().item() for p in critic.parameters())
            assert 0 < grown < 10, "gradients are not scaled"
        assert all(torch.equal(a, b) for a, b in zip(before, generator.parameters(), strict=True))
        make.zero_grad()
        with modes.forward():
            loss = logits_loss(critic(fake), ones)
        with modes.update(loss, make):
            grown = max(p.grad.abs().max().item() for p in generator.parameters())
            assert 0 < grown < 10, "gradients are not scaled"
        assert not torch.equal(before[0], generator[0].weight)
    modes.remove()
    assert generator(torch.randn(2, 4)).dtype == torch.float32


def test_an_optimizer_that_got_no_gradient_does_nothing_as_in_torch() -> None:
    modes, model, idle = wb.Modes("fp16"), net(), nn.Linear(2, 2)
    modes.prepare(model)
    kept, own = sgd(idle), sgd(model)
    before = idle.weight.detach().clone()
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    with modes.update(loss, kept):
        pass
    assert torch.equal(idle.weight, before)
    step(modes, model, own)
    assert not modes.skipped


# -- switching, removing, checkpoints ------------------------------------------------------------


def test_a_switch_carries_the_scale_and_a_checkpoint_too() -> None:
    modes, model = wb.Modes("fp16"), net()
    modes.prepare(model)
    optimizer = sgd(model)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    modes.backward(loss)
    overflow(model)
    with modes.step(optimizer):
        pass
    lowered = scale(modes)
    assert modes.skipped
    for text in ("bf16", "", "fp16"):
        modes.set(text)
        assert step(modes, model, optimizer) > 0
    assert scale(modes) == lowered
    later = wb.Modes("fp16")
    later.load_state_dict(modes.state_dict())
    modes.remove()
    later.prepare(model)
    assert scale(later) == lowered
    with pytest.raises(TypeError, match=r"state is a str; give what state_dict\(\) returned"):
        later.load_state_dict("fp16")


@pytest.mark.parametrize("text", ["compile", "compile:whole", "checkpoint", "compile+checkpoint"])
def test_removing_leaves_the_model_as_it_was_given(make_early_exit: Make, text: str) -> None:
    model = make_early_exit()
    given = [dict(module.__dict__) for module in model.modules()]
    modes = wb.Modes(text)
    modes.prepare(model)
    assert [dict(module.__dict__) for module in model.modules()] != given
    modes.set("fp32")
    assert [dict(module.__dict__) for module in model.modules()] == given
    modes.set(text)
    modes.remove()
    assert [dict(module.__dict__) for module in model.modules()] == given
    modes.prepare(model)
    del modes
    gc.collect()
    assert [dict(module.__dict__) for module in model.modules()] == given, "gone with its modes"


def test_nothing_keeps_model_optimizer_or_loss_alive() -> None:
    modes, model = wb.Modes("fp16+checkpoint"), net()
    modes.prepare(model)
    optimizer = sgd(model)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    with modes.update(loss, optimizer):
        pass
    modes.update(F.cross_entropy(model(X), Y), optimizer)  # never entered
    seen = [weakref.ref(model), weakref.ref(optimizer), weakref.ref(loss)]
    del model, optimizer, loss
    gc.collect()
    assert [reference() for reference in seen] == [None, None, None]
    assert modes.prepare(net()) is not None


# -- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "bf16", "fp16"])
def test_an_exception_in_either_block_leaves_a_loop_that_goes_on(text: str) -> None:
    modes, model = wb.Modes(text), net()
    modes.prepare(model)
    optimizer = sgd(model)
    expected = net()
    reference = wb.Modes(text)
    reference.prepare(expected)
    own = sgd(expected)
    step(reference, expected, own)
    with pytest.raises(ZeroDivisionError), modes.forward():
        _ = model(X) / (1 / 0)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    before = model[0].weight.detach().clone()
    with pytest.raises(ZeroDivisionError), modes.update(loss, optimizer):
        1 / 0  # noqa: B018
    assert torch.equal(model[0].weight, before), "the update was not applied"
    assert not torch.is_autocast_enabled("cpu")
    step(modes, model, optimizer)
    assert torch.equal(model[0].weight, expected[0].weight), "as if nothing had been raised"
    assert modes.state_dict() == reference.state_dict()


def test_a_backward_that_fails_leaves_a_loop_that_goes_on() -> None:
    modes, model = wb.Modes("fp16"), net()
    modes.prepare(model)
    optimizer = sgd(model)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"), modes.update(loss, optimizer):
        pass
    assert step(modes, model, optimizer) > 0


def test_calls_out_of_their_place_say_where_they_belong() -> None:
    modes, model = wb.Modes("bf16"), net()
    optimizer = sgd(model)
    free = F.cross_entropy(model(X), Y)
    with pytest.raises(RuntimeError, match=r"modes\.forward\(\.\.\.\) needs a model; before the"):
        modes.forward()
    with pytest.raises(RuntimeError, match=r"modes\.update\(\.\.\.\) needs a model"):
        modes.update(free, optimizer)
    modes.prepare(model)
    inside = r"comes after the block of modes\.forward\(\), not inside it"
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
        for call in (
            lambda: modes.update(loss, optimizer),
            lambda: modes.backward(loss),
            lambda: modes.set("fp32"),
            modes.remove,
        ):
            with pytest.raises(RuntimeError, match=inside):
                call()
    with modes.update(loss, optimizer):
        for call in (
            lambda: modes.backward(free),
            lambda: modes.update(free, optimizer),
            lambda: modes.set("fp32"),
        ):
            with pytest.raises(RuntimeError, match="not inside it"):
                call()
    assert modes.text == "bf16"


def test_an_update_that_was_never_entered_is_said_once() -> None:
    modes, model = wb.Modes(), net()
    modes.prepare(model)
    optimizer = sgd(model)
    block = modes.update(F.cross_entropy(model(X), Y), optimizer)
    with pytest.raises(RuntimeError, match=r"was called and not entered, so nothing was updated"):
        modes.forward()
    assert step(modes, model, optimizer) > 0
    with pytest.raises(RuntimeError, match=r"is entered once; make a new one"), block:
        pass


def test_what_is_no_loss_and_no_optimizer_is_distinguished() -> None:
    modes, model = wb.Modes(), net()
    modes.prepare(model)
    optimizer = sgd(model)
    loss = F.cross_entropy(model(X), Y)
    with pytest.raises(TypeError, match=r"given a Tensor as an optimizer; valid: loss, optimizer"):
        modes.update(optimizer, loss)
    with pytest.raises(TypeError, match=r"needs the optimizer that applies the gradients"):
        modes.update(loss)
    with pytest.raises(ValueError, match=r"given an optimizer twice"):
        modes.update(loss, optimizer, optimizer)
    with pytest.raises(RuntimeError, match=r"no graph to go backward through: it was computed"):
        modes.backward(loss.detach())
    with pytest.raises(TypeError, match=r"a loss is a tensor, got float; it comes first"):
        modes.backward(0.5)
    assert step(modes, model, optimizer) > 0


def test_a_switch_waits_for_gradients_that_are_gathered() -> None:
    modes, model = wb.Modes("fp16"), net()
    modes.prepare(model)
    optimizer = sgd(model)
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    modes.backward(loss)
    with pytest.raises(RuntimeError, match=r"gradients of 1 backward passes wait to be applied"):
        modes.set("fp32")
    optimizer.zero_grad()
    modes.set("fp32")
    with pytest.raises(RuntimeError, match="no gradients to apply"):
        modes.step(optimizer)
