"""Gradients under fp16 in a loop of one's own: who may apply them, and when."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as torch_optimizer

import workbench as wb
from tests.unit.modes.own_loop.support import X, Y, net, overflow, scale, sgd, step
from workbench.modes.precision import scaled_gradients
from workbench.modes.precision.scaler import GradientScaler

SCALED = r"SGD\.step\(\) was given gradients that are multiplied by 65,536, the scale of fp16"


@pytest.fixture
def model() -> nn.Module:
    return net()


@pytest.fixture
def modes(model: nn.Module) -> Iterator[wb.Modes]:
    found = wb.Modes("fp16")
    found.prepare(model)
    yield found
    model.zero_grad()
    found.remove()
    assert not torch_optimizer._global_optimizer_pre_hooks, "steps are looked at no more"


def loss_of(modes: wb.Modes, model: nn.Module) -> torch.Tensor:
    with modes.forward():
        return F.cross_entropy(model(X), Y)


def weights(*models: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for model in models for p in model.parameters()]


def equal(before: list[torch.Tensor], *models: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, weights(*models), strict=True))


def enter(block: AbstractContextManager[None]) -> None:
    with block:
        pass


# -- a step on scaled gradients ------------------------------------------------------------------


def test_a_step_on_scaled_gradients_is_refused_and_the_loop_goes_on(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer, before = sgd(model), weights(model)
    modes.backward(loss_of(modes, model))
    with pytest.raises(RuntimeError, match=SCALED + r" \(0\.weight and 3 more\); nothing was"):
        optimizer.step()
    assert equal(before, model)
    with modes.step(optimizer):
        pass
    other = net()
    reference = wb.Modes("fp16")
    reference.prepare(other)
    step(reference, other, sgd(other))
    assert equal(weights(other), model), "as if it had not been tried"
    reference.remove()


def test_clipping_first_does_not_make_them_true(modes: wb.Modes, model: nn.Module) -> None:
    optimizer = sgd(model)
    modes.backward(loss_of(modes, model))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with pytest.raises(RuntimeError, match=SCALED):
        optimizer.step()


def test_after_unscale_a_step_of_ones_own_applies_true_gradients(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer, plain = sgd(model), net()
    modes.backward(loss_of(modes, model))
    modes.unscale(optimizer)
    optimizer.step()
    with torch.autocast("cpu", torch.float16):
        F.cross_entropy(plain(X), Y).backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad, rtol=1e-3, atol=1e-4)


def test_an_overflow_is_not_applied_by_a_step_of_ones_own(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer, before, started = sgd(model), weights(model), 2.0**16
    modes.backward(loss_of(modes, model))
    overflow(model)
    assert not modes.overflowed
    modes.unscale(optimizer)
    assert modes.overflowed
    with pytest.raises(RuntimeError, match=r"gradients that overflowed in fp16 .* lowers the"):
        optimizer.step()
    with modes.step(optimizer):
        pass
    assert modes.skipped
    assert equal(before, model)
    assert scale(modes) == started / 2
    assert not modes.overflowed


def test_a_backward_in_a_closure_is_refused(modes: wb.Modes, model: nn.Module) -> None:
    optimizer, before = torch.optim.LBFGS(model.parameters()), weights(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(modes, model)
        modes.backward(loss)
        return loss

    with pytest.raises(RuntimeError, match=r"inside optimizer\.step\(closure\).*use bf16"):
        optimizer.step(closure)
    assert equal(before, model)


# -- whose gradients they are --------------------------------------------------------------------


def test_another_optimizer_steps_while_scaled_gradients_wait(
    modes: wb.Modes, model: nn.Module
) -> None:
    """A model of its own, trained plainly in between."""
    plain = net()
    optimizer, other, before = sgd(model), sgd(plain), weights(plain)
    for _ in range(2):
        loss = loss_of(modes, model)
        modes.backward(loss)
        other.zero_grad()
        F.cross_entropy(plain(X), Y).backward()
        other.step()
        with pytest.raises(RuntimeError, match=SCALED):
            optimizer.step()
    assert not equal(before, plain)
    with modes.step(optimizer):
        pass


def test_of_a_loss_that_is_gone_it_is_known_too_what_it_has_reached(
    modes: wb.Modes, model: nn.Module
) -> None:
    plain, idle = net(), modes.prepare(net())
    modes.backward(loss_of(modes, model) / 2)
    for one in (plain, idle):
        F.cross_entropy(one(X), Y).backward()
    before = weights(plain, idle, model)
    with pytest.raises(RuntimeError, match=SCALED + r" \(0\.weight and 3 more\)"):
        sgd(model).step()
    for one in (plain, idle):
        sgd(one).step()
    assert equal(before[8:], model)
    assert all(not torch.equal(a, b) for a, b in zip(before, weights(plain, idle), strict=False))
    idle.zero_grad()


def test_new_leaves_outside_of_the_model_are_looked_after(
    modes: wb.Modes, model: nn.Module
) -> None:
    """As an attack on a model has them: another for every batch, and no loss that is kept."""
    for _ in range(4):
        shift = torch.zeros(8, requires_grad=True)
        with modes.forward():
            loss = F.cross_entropy(model(X + shift), Y)
        modes.backward(loss / 1)
        del loss
        outer = torch.optim.SGD([shift], lr=0.1)
        with pytest.raises(RuntimeError, match=SCALED):
            outer.step()
        with modes.step(outer):
            assert 0 < shift.grad.abs().max() < 10
        assert shift.any()
        model.zero_grad()


def test_a_leaf_outside_of_the_model_is_looked_after_too(modes: wb.Modes, model: nn.Module) -> None:
    shift = torch.zeros(8, requires_grad=True)
    outer = torch.optim.SGD([shift], lr=0.1)
    with modes.forward():
        loss = F.cross_entropy(model(X + shift), Y)
    modes.backward(loss)
    with pytest.raises(RuntimeError, match=SCALED + r" \(a \[8\] tensor\)"):
        outer.step()
    with modes.step(sgd(model)):
        pass
    with pytest.raises(RuntimeError, match=r"multiplied by"):
        outer.step()
    assert not shift.any()
    outer.zero_grad()
    shift.square().sum().backward()
    outer.step()


def test_gradients_that_no_optimizer_of_the_update_held_stay_scaled(
    modes: wb.Modes, model: nn.Module
) -> None:
    first, second = (torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 2))
    before = weights(model[2])
    with modes.update(loss_of(modes, model), first):
        pass
    with pytest.raises(RuntimeError, match=SCALED + r" \(2\.weight and 1 more\)"):
        second.step()
    assert equal(before, model[2])
    modes.set("bf16")
    with pytest.raises(RuntimeError, match=SCALED + r".* modes\.update\(loss, first, second\)"):
        second.step()
    modes.remove()
    with pytest.raises(RuntimeError, match=SCALED):
        second.step()
    second.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    second.step()
    assert not torch_optimizer._global_optimizer_pre_hooks


def test_modes_that_are_gone_leave_no_scaled_gradients_to_a_step() -> None:
    modes, model = wb.Modes("fp16"), net()
    modes.prepare(model)
    optimizer, before = sgd(model), weights(model)
    modes.backward(loss_of(modes, model))
    del modes
    gc.collect()
    with pytest.raises(RuntimeError, match=SCALED):
        optimizer.step()
    assert equal(before, model)
    optimizer.zero_grad()
    optimizer.step()
    assert not torch_optimizer._global_optimizer_pre_hooks


def test_a_step_in_the_block_of_another_is_refused(modes: wb.Modes, model: nn.Module) -> None:
    first, second = (torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 2))
    before = weights(model)
    with pytest.raises(RuntimeError, match=SCALED), modes.update(loss_of(modes, model), first):
        second.step()
    assert equal(before, model)


def test_a_state_is_not_loaded_over_gradients_that_wait(modes: wb.Modes, model: nn.Module) -> None:
    state = modes.state_dict()
    modes.backward(loss_of(modes, model))
    with pytest.raises(RuntimeError, match=r"gradients of 1 backward passes wait to be appl"):
        modes.load_state_dict(state)
    model.zero_grad()
    modes.load_state_dict(state)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("start", [2, 3, 5, 6])
def test_a_leaf_that_losses_reach_only_later_is_looked_after(
    modes: wb.Modes, model: nn.Module, start: int, is_kept: bool
) -> None:
    """A temperature that is learned from a step on."""
    temperature = nn.Parameter(torch.ones(()))
    optimizer, outer = sgd(model), torch.optim.SGD([temperature], lr=0.1)
    for number in range(1, 8):
        loss = loss_of(modes, model)
        loss = loss * temperature if number >= start else loss
        with modes.update(loss if is_kept else loss * 1.0, optimizer):
            pass
        if not is_kept:
            del loss
        if number < start:
            outer.step()
            continue
        with pytest.raises(RuntimeError, match=SCALED + r" \(a \[\] tensor\)"):
            outer.step()
        break
    assert temperature.item() == 1
    outer.zero_grad()


def test_a_leaf_that_is_unfrozen_is_watched(modes: wb.Modes, model: nn.Module) -> None:
    """The graph has as many nodes as before."""
    temperature = nn.Parameter(torch.ones(()), requires_grad=False)
    optimizer, outer = sgd(model), torch.optim.SGD([temperature], lr=0.1)
    for number in range(4):
        temperature.requires_grad_(number == 2)
        loss = loss_of(modes, model) * temperature
        with modes.update(loss, optimizer):
            pass
        if number == 2:
            with pytest.raises(RuntimeError, match=SCALED + r" \(a \[\] tensor\)"):
                outer.step()
        outer.zero_grad()
    assert temperature.item() == 1


def test_a_leaf_of_a_loss_that_is_gone_is_doubted_before_the_update(
    modes: wb.Modes, model: nn.Module
) -> None:
    temperature = nn.Parameter(torch.ones(()), requires_grad=False)
    optimizer, outer = sgd(model), torch.optim.SGD([temperature], lr=0.1)
    for number in range(3):
        temperature.requires_grad_(number == 2)
        modes.backward(loss_of(modes, model) * temperature)
        if number == 2:
            for _ in range(2):
                with pytest.raises(
                    RuntimeError, match=SCALED + r".* step before modes\.backward\(loss"
                ):
                    outer.step()
        with modes.step(optimizer):
            pass
        outer.zero_grad()
    assert temperature.item() == 1


def test_gradients_of_ones_own_are_applied_alongside_an_update(modes: wb.Modes) -> None:
    """Of a model that is prepared too, and that the loss does not reach."""
    first, second = modes.prepare(net()), modes.prepare(net())
    one, two, plain = sgd(first), sgd(second), net()
    before = weights(second)
    F.cross_entropy(second(X), Y).backward()
    F.cross_entropy(plain(X), Y).backward()
    with modes.update(loss_of(modes, first), one):
        pass
    two.step()
    sgd(plain).step()
    assert not equal(before, second)
    assert equal(weights(plain), second)


def test_an_optimizer_that_steps_inside_a_backward_is_refused(
    modes: wb.Modes, model: nn.Module
) -> None:
    """In a hook of each parameter, where its gradient is complete and scaled."""
    before = weights(model)
    for _ in range(2):  # a pass whose graph is walked, and one whose is not
        for parameter in model.parameters():
            own = torch.optim.SGD([parameter], lr=0.1)
            hook = parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
            with pytest.raises(RuntimeError, match=SCALED):
                modes.backward(loss_of(modes, model))
            hook.remove()
            model.zero_grad()
    assert equal(before, model)


def test_graphs_are_walked_where_that_may_find_something_new(
    modes: wb.Modes, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    real = scaled_gradients.leaves_of

    def counted(loss: torch.Tensor) -> list[torch.Tensor]:
        walks[-1] += 1
        return real(loss)

    monkeypatch.setattr(scaled_gradients, "leaves_of", counted)
    optimizer = sgd(model)

    def passes(number: int, *, is_leaf: bool = False) -> int:
        walks.append(0)
        for _ in range(number):
            with modes.forward():
                loss = F.cross_entropy(model(X.clone().requires_grad_(is_leaf)), Y)
            with modes.update(loss, optimizer):
                pass
            model.zero_grad()
        return walks[-1]

    assert passes(20) <= 6  # 1, 2, 4, 8, 16
    assert passes(20, is_leaf=True) >= 10, "another leaf each time: it may be anybody's"
    passes(10)
    assert passes(20) <= 2, "and after these as before"


# -- gradients other than those of the update --------------------------------------------------


@pytest.mark.parametrize("way", ["block", "unscale"])
@pytest.mark.parametrize("has_other", [True, False])
@pytest.mark.parametrize(("to_none", "on_device"), [(True, False), (False, False), (True, True)])
def test_a_norm_over_the_model_is_true_where_the_optimizer_holds_a_part_of_it(
    to_none: bool, has_other: bool, way: str, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that is tuned; what is below it gathers its gradients, step for step."""
    monkeypatch.setattr(GradientScaler, "_decides_on_device", lambda *_: on_device)  # as on a GPU
    norms: dict[str, list[float]] = {}
    trained: dict[str, list[torch.Tensor]] = {}
    for text in ("fp16", "bf16"):
        modes, model = wb.Modes(text), net().to(torch.float64)  # no product is rounded in autocast
        modes.prepare(model)
        head = torch.optim.SGD(model[2].parameters(), lr=0.1, fused=on_device)
        other = torch.optim.SGD(model[0].parameters(), lr=0.1) if has_other else None
        norms[text] = []
        for number in range(5):
            loss = F.cross_entropy(model(X.double()), Y)
            if way == "unscale":
                modes.backward(loss)
                modes.unscale(head)
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                with modes.step(head):
                    pass
            else:
                with modes.update(loss, head):
                    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            norms[text].append(norm.item())
            head.zero_grad(set_to_none=to_none)
            if number % 2:
                model.zero_grad(set_to_none=to_none)
            elif text == "fp16" and other is not None:
                with pytest.raises(RuntimeError, match=r"given gradients that are multiplied"):
                    other.step()
        trained[text] = weights(model)
        model.zero_grad()
        modes.remove()
    assert norms["fp16"] == pytest.approx(norms["bf16"], rel=1e-12)
    for a, b in zip(trained["fp16"], trained["bf16"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_a_norm_is_true_where_gradients_were_replaced_before(
    modes: wb.Modes, model: nn.Module
) -> None:
    """By masked ones, of all parameters."""
    head, plain = torch.optim.SGD(model[2].parameters(), lr=0.1), net()
    modes.backward(F.cross_entropy(model(X), Y))
    F.cross_entropy(plain(X), Y).backward()
    for parameter in (*model.parameters(), *plain.parameters()):
        parameter.grad = parameter.grad * (torch.arange(len(parameter.grad)) % 2).view(
            -1, *[1] * (parameter.dim() - 1)
        )
    with modes.step(head):
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert norm == nn.utils.clip_grad_norm_(plain.parameters(), 0.1)


@pytest.mark.parametrize("on_device", [True, False])
def test_an_update_whose_norm_another_overflow_has_invalidated_is_skipped(
    modes: wb.Modes, model: nn.Module, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GradientScaler, "_decides_on_device", lambda *_: on_device)  # as on a GPU
    head = torch.optim.SGD(model[2].parameters(), lr=0.1, fused=on_device)
    started = scale(modes)
    before = weights(model)
    for is_clipped in (False, True):
        modes.backward(loss_of(modes, model))
        overflow(model)
        with modes.step(head):
            if is_clipped:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert modes.skipped == is_clipped, "torch's scaler looks at the optimizer's alone"
        assert scale(modes) == started / (1 + is_clipped)
        assert equal(before, model) == is_clipped
        before = weights(model)
        model.zero_grad()
    modes.backward(loss_of(modes, model))
    overflow(model)
    modes.unscale(head)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with pytest.raises(RuntimeError, match="overflowed"):
        head.step()
    with modes.step(head):
        pass
    assert modes.skipped
    assert equal(before, model)


@pytest.mark.parametrize("on_device", [True, False])
def test_gradients_that_wait_follow_the_scale(
    modes: wb.Modes, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another optimizer's update is skipped meanwhile, which lowers it."""
    monkeypatch.setattr(GradientScaler, "_decides_on_device", lambda *_: on_device)  # as on a GPU
    first, second = modes.prepare(net()), modes.prepare(net())
    plain, two = net(), sgd(second)
    one = torch.optim.SGD(first.parameters(), lr=0.1, fused=on_device)
    modes.backward(loss_of(modes, second) / 4)
    modes.backward(loss_of(modes, first))
    overflow(first)
    with modes.step(one):
        pass
    assert modes.skipped != on_device, "it reports what it decides as applied"
    assert scale(modes) == 2.0**15
    with modes.update(loss_of(modes, second) / 4, two):
        pass
    scaler = torch.amp.GradScaler("cpu")
    other = sgd(plain)
    for _ in range(2):
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(plain(X), Y)
        scaler.scale(loss / 4).backward()
    scaler.step(other)
    for a, b in zip(weights(plain), weights(second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_of_several_modes_are_not_added_up_under_different_scales(
    modes: wb.Modes, model: nn.Module
) -> None:
    other, critic = wb.Modes("fp16"), nn.Linear(4, 1)
    other.prepare(critic)
    optimizer, before = sgd(critic), weights(critic)

    def loss() -> torch.Tensor:
        return critic(torch.ones(2, 4)).mean()

    other.backward(loss())
    overflow(critic)
    with other.step(optimizer):  # lowers the scale
        pass
    optimizer.zero_grad()
    modes.backward(loss_of(modes, model) + loss())  # under 65,536
    for is_added in (True, False):
        with pytest.raises(
            RuntimeError, match=r"gradients that \w+ got under another scale, or under several"
        ):
            enter(other.update(loss() if is_added else loss_of(other, model), optimizer))
        model.zero_grad()
        critic.zero_grad()
        modes.backward(loss())
    with pytest.raises(RuntimeError, match=r"SGD\.step\(\) was given gradients that are multi"):
        optimizer.step()
    assert equal(before, critic)
    optimizer.zero_grad()
    with other.update(loss(), optimizer):
        torch.testing.assert_close(critic.bias.grad, torch.ones(1))
    other.remove()


@pytest.mark.parametrize("to_none", [True, False])
def test_two_modes_train_two_models_against_each_other(to_none: bool) -> None:
    """Losses of the one reach the other, whose gradients are cleared before its own."""
    ours = [net(), nn.Linear(4, 1)]
    theirs = copy.deepcopy(ours)
    modes = [wb.Modes("fp16") for _ in ours]
    for one, model in zip(modes, ours, strict=True):
        one.prepare(model)
    our, their = ([sgd(model) for model in models] for models in (ours, theirs))
    scalers = [torch.amp.GradScaler("cpu") for _ in ours]

    def loss_to(models: list[nn.Module], which: int) -> torch.Tensor:
        maker, critic = models
        made = maker(X)
        return critic(made).mean() / 8 if which == 0 else -critic(made.detach()).mean() / 8

    for number in range(12):
        which = number % 2
        our[which].zero_grad(set_to_none=to_none)
        with modes[which].forward():
            loss = loss_to(ours, which)
        with modes[which].update(loss, our[which]):
            pass
        their[which].zero_grad(set_to_none=to_none)
        with torch.autocast("cpu", torch.float16):
            loss = loss_to(theirs, which)
        scalers[which].scale(loss).backward()
        scalers[which].step(their[which])
        scalers[which].update()
        assert equal(weights(*theirs), *ours)
    for one in (*ours, *modes):
        one.zero_grad() if isinstance(one, nn.Module) else one.remove()


def test_leaves_that_are_not_applied_gather_gradients_under_any_scale(
    modes: wb.Modes, model: nn.Module
) -> None:
    """As of an encoder that is neither prepared nor trained, and not frozen."""
    encoder, optimizer = nn.Linear(8, 8), sgd(model)
    modes._loop.scaled.scaler._torch.set_growth_interval(2)
    for _ in range(6):
        with modes.forward():
            loss = F.cross_entropy(model(encoder(X)), Y)
        with modes.update(loss, optimizer):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert not modes.skipped
        optimizer.zero_grad()
    assert scale(modes) == 2.0**19
    outer = sgd(encoder)
    with pytest.raises(RuntimeError, match=r"gradients that are multiplied by"):
        outer.step()
    modes.backward(loss_of(modes, model))
    with pytest.raises(RuntimeError, match=r"gradients that a \[.*\] tensor got under another"):
        enter(modes.step(optimizer, outer))
    encoder.zero_grad()


# -- unscale ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "bf16", "fp16"])
def test_unscale_in_its_place_and_out_of_it(text: str) -> None:
    modes, model = wb.Modes(text), net()
    optimizer = sgd(model)
    with pytest.raises(RuntimeError, match=r"modes\.unscale\(\.\.\.\) needs a model"):
        modes.unscale(optimizer)
    modes.prepare(model)
    with pytest.raises(RuntimeError, match=r"no gradients to divide: modes\.backward\(loss\)"):
        modes.unscale(optimizer)
    with pytest.raises(TypeError, match=r"needs the optimizer that applies the gradients"):
        modes.unscale()
    modes.backward(loss_of(modes, model))
    modes.unscale(optimizer)
    true = [p.grad.clone() for p in model.parameters()]
    assert all(g.abs().max() < 10 for g in true)
    with pytest.raises(RuntimeError, match=r"given a SGD whose gradients it has divided already"):
        modes.unscale(optimizer)
    with modes.step(optimizer):
        assert all(torch.equal(a, p.grad) for a, p in zip(true, model.parameters(), strict=True))
        with pytest.raises(RuntimeError, match=r"divided already inside modes\.update"):
            modes.unscale(optimizer)
    with modes.forward(), pytest.raises(RuntimeError, match=r"after the block of modes\.forward"):
        modes.unscale(optimizer)
    assert not modes.skipped
    assert not modes.overflowed


def test_scaled_gradients_are_not_added_to_divided_ones(modes: wb.Modes, model: nn.Module) -> None:
    optimizer = sgd(model)
    modes.backward(loss_of(modes, model))
    modes.unscale(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.raises(RuntimeError, match=r"to ones that were divided already \(0\.weight and 3"):
        modes.backward(loss_of(modes, model))
    optimizer.zero_grad()
    assert step(modes, model, optimizer) > 0


def test_scaled_gradients_are_not_added_to_what_stands_in_for_divided_ones(
    modes: wb.Modes, model: nn.Module
) -> None:
    """Clipping by hand puts other tensors in their place."""
    optimizer, before = sgd(model), weights(model)
    modes.backward(loss_of(modes, model))
    modes.unscale(optimizer)
    for parameter in model.parameters():
        parameter.grad = parameter.grad.clamp(-1, 1)
    with pytest.raises(RuntimeError, match=r"that were divided already \(0\.weight and 3"):
        modes.backward(loss_of(modes, model))
    with pytest.raises(RuntimeError, match=r"the optimizer has gradients that 0\.weight got under"):
        enter(modes.step(optimizer))
    with pytest.raises(RuntimeError, match=SCALED):
        optimizer.step()
    assert equal(before, model)
    optimizer.zero_grad()
    assert step(modes, model, optimizer) > 0


def test_a_gradient_that_backward_itself_replaces_was_divided() -> None:
    """A sparse one of an embedding, and a dense one of the same weight."""
    modes, model = wb.Modes("fp16"), nn.Embedding(5, 4, sparse=True)
    modes.prepare(model)
    optimizer = sgd(model)
    for is_cleared in (True, False):
        modes.backward(model(torch.tensor([1, 2])).mean())
        modes.unscale(optimizer)
        if is_cleared:
            optimizer.zero_grad(set_to_none=False)
            modes.backward(model(torch.tensor([1, 2])).mean())
            with modes.step(optimizer):
                assert model.weight.grad.to_dense()[1].sum() == 0.5
            optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"that were divided already \(weight\)"):
        modes.backward(model.weight.mean())
    model.zero_grad()
    modes.remove()


def test_what_was_divided_stays_so_where_another_part_is_gathered_again(
    modes: wb.Modes, model: nn.Module
) -> None:
    """The gradients of one layer are replaced, those of the other cleared and computed again."""
    optimizer, plain = sgd(model), net()
    hidden = model[0](X).detach()
    modes.backward(F.cross_entropy(model(X), Y))
    modes.unscale(optimizer)
    for parameter in model[0].parameters():
        parameter.grad = parameter.grad * 0.5
    model[2].zero_grad()
    modes.backward(F.cross_entropy(model[2](hidden.relu()), Y))
    for parameter in model[0].parameters():
        parameter.grad = parameter.grad * 2
    with modes.step(optimizer):
        pass
    F.cross_entropy(plain(X), Y).backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad)


def test_an_overflow_in_what_stays_divided_is_not_applied(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer, before = sgd(model), weights(model)
    hidden = model[0](X).detach()
    modes.backward(loss_of(modes, model))
    overflow(model)
    modes.unscale(optimizer)
    model[2].zero_grad()
    modes.backward(F.cross_entropy(model[2](hidden.relu()), Y))
    with modes.step(optimizer):
        pass
    assert modes.skipped
    assert equal(before, model)


def test_gradients_of_an_update_that_was_given_up_are_not_added_to(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer = sgd(model)
    with pytest.raises(ZeroDivisionError), modes.update(loss_of(modes, model), optimizer):
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError, match=r"to ones that were divided already"):
        modes.backward(loss_of(modes, model))
    optimizer.zero_grad()
    assert step(modes, model, optimizer) > 0


def test_what_is_divided_waits_while_another_loss_runs_backward(modes: wb.Modes) -> None:
    first, second = modes.prepare(net()), modes.prepare(nn.Linear(8, 4))
    one, two = sgd(first), sgd(second)
    modes.backward(loss_of(modes, first))
    modes.unscale(one)
    true = first[0].weight.grad.clone()
    modes.backward(loss_of(modes, second))
    assert torch.equal(first[0].weight.grad, true)
    with modes.step(one, two):
        assert torch.equal(first[0].weight.grad, true), "not divided again"
        assert 0 < second.weight.grad.abs().max() < 10
    modes.remove()


# -- against a plain loop with torch's scaler ------------------------------------------------------


class Plain:
    """The loop that PyTorch's documentation has, and ours, on equal models."""

    def __init__(self, *, optimizers: int = 1, growth: int = 2_000, fused: bool = False) -> None:
        self.ours, self.theirs = net(), net()
        self.modes = wb.Modes("fp16")
        self.modes.prepare(self.ours)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=growth)
        precision = self.modes._loop.modeset["precision"]
        precision.scaler._torch.set_growth_interval(growth)
        self.our, self.their = (
            [torch.optim.AdamW(part.parameters(), lr=0.01, fused=fused) for part in parts]
            for parts in (
                ([self.ours], [self.theirs])
                if optimizers == 1
                else ([self.ours[0], self.ours[2]], [self.theirs[0], self.theirs[2]])
            )
        )

    def our_loss(self, rows: torch.Tensor) -> torch.Tensor:
        with self.modes.forward():
            return F.cross_entropy(self.ours(X[rows]), Y[rows])

    def their_loss(self, rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.float16):
            return F.cross_entropy(self.theirs(X[rows]), Y[rows])

    def clear(self) -> None:
        self.ours.zero_grad()
        self.theirs.zero_grad()

    def check(self) -> None:
        assert equal(weights(self.theirs), self.ours)
        assert scale(self.modes) == self.scaler.get_scale()


ALL = torch.arange(16)


@pytest.mark.parametrize("way", ["block", "unscale"])
@pytest.mark.parametrize("optimizers", [1, 2])
def test_clipping_accumulation_and_overflow_are_those_of_a_plain_loop(
    optimizers: int, way: str
) -> None:
    both = Plain(optimizers=optimizers, growth=3)
    for number in range(12):
        both.clear()
        for rows in ALL.split(8):
            both.modes.backward(both.our_loss(rows) / 2)
            both.scaler.scale(both.their_loss(rows) / 2).backward()
        if number in (2, 3, 8):  # in the first layer; of two optimizers in both
            for model in (both.ours, both.theirs):
                model[0].weight.grad[0] = float("inf")
                model[2].weight.grad[0] = float("nan")
        for optimizer in both.their:
            both.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(both.theirs.parameters(), 0.5)
        for optimizer in both.their:
            both.scaler.step(optimizer)
        both.scaler.update()
        if way == "unscale":
            for optimizer in both.our:
                both.modes.unscale(optimizer)
            nn.utils.clip_grad_norm_(both.ours.parameters(), 0.5)
        with both.modes.step(*both.our):
            if way == "block":
                nn.utils.clip_grad_norm_(both.ours.parameters(), 0.5)
        assert both.modes.skipped == (number in (2, 3, 8))
        both.check()
    both.modes.remove()


def test_a_fused_optimizer_that_decides_on_its_device_does_so_after_unscale_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GradientScaler, "_decides_on_device", lambda *_: True)  # as on a GPU
    both = Plain(growth=3, fused=True)
    (our,), (their,) = both.our, both.their
    for number in range(8):
        both.clear()
        both.modes.backward(both.our_loss(ALL))
        both.scaler.scale(both.their_loss(ALL)).backward()
        if number in (2, 5):
            overflow(both.ours)
            overflow(both.theirs)
        both.scaler.unscale_(their)
        both.scaler.step(their)
        both.scaler.update()
        both.modes.unscale(our)
        assert both.modes.overflowed == (number in (2, 5))
        with both.modes.step(our):
            pass
        both.check()
    both.modes.remove()


def perturb(model: nn.Module) -> list[torch.Tensor]:
    """To the worst point nearby, as sharpness-aware minimisation does; gives the weights before."""
    kept = [p.detach().clone() for p in model.parameters()]
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(parameter.grad, alpha=0.05 / (norm.item() + 1e-12))
    return kept


def restore(model: nn.Module, kept: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for parameter, before in zip(model.parameters(), kept, strict=True):
            parameter.copy_(before)


@pytest.mark.parametrize("to_none", [True, False])
def test_two_half_steps_are_those_of_a_plain_loop(to_none: bool) -> None:
    both = Plain()
    (our,), (their,) = both.our, both.their
    for _ in range(8):
        both.clear()
        both.modes.backward(both.our_loss(ALL))
        both.modes.unscale(our)
        kept = perturb(both.ours)
        our.zero_grad(set_to_none=to_none)
        both.modes.backward(both.our_loss(ALL))
        with both.modes.step(our):
            restore(both.ours, kept)

        both.scaler.scale(both.their_loss(ALL)).backward()
        both.scaler.unscale_(their)
        kept = perturb(both.theirs)
        their.zero_grad()
        both.scaler.update()  # else torch's scaler applies the second half without dividing it
        both.scaler.scale(both.their_loss(ALL)).backward()
        both.scaler.unscale_(their)
        restore(both.theirs, kept)
        both.scaler.step(their)
        both.scaler.update()
        both.check()
        assert both.ours[0].weight.abs().max() < 10
    both.modes.remove()


@pytest.mark.parametrize("fused", [True, False])
def test_an_overflow_lowers_the_scale_where_gradients_are_cleared_before_the_step(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GradientScaler, "_decides_on_device", lambda *_: fused)  # as on a GPU
    both = Plain(fused=True)
    (our,), (their,) = both.our, both.their
    for number in range(6):
        both.clear()
        both.modes.backward(both.our_loss(ALL))
        both.scaler.scale(both.their_loss(ALL)).backward()
        if number != 2:
            overflow(both.ours)
            overflow(both.theirs)
        both.modes.unscale(our)
        both.scaler.unscale_(their)
        assert both.modes.overflowed == (number != 2)
        if both.modes.overflowed:
            our.zero_grad()
            their.zero_grad()
        assert both.modes.overflowed == (number != 2)
        with both.modes.step(our):
            pass
        both.scaler.step(their)
        both.scaler.update()
        if not fused:  # which reports what it decides on the device as applied
            assert both.modes.skipped == (number != 2)
        both.check()
    assert scale(both.modes) == 2.0**11
    both.modes.remove()


def test_an_overflow_is_forgotten_with_the_gradients_it_was_in(modes: wb.Modes) -> None:
    first, second = modes.prepare(net()), modes.prepare(net())
    one, two = sgd(first), sgd(second)
    modes.backward(loss_of(modes, first) + loss_of(modes, second))
    overflow(second)
    modes.unscale(one)
    modes.unscale(two)
    assert modes.overflowed
    with modes.step(one):
        pass
    assert not modes.skipped
    assert modes.overflowed, "it waits"
    with pytest.raises(RuntimeError, match="overflowed"):
        two.step()
    one.zero_grad()
    two.zero_grad()
    assert not modes.overflowed
    modes.backward(loss_of(modes, first))
    modes.unscale(one)
    assert not modes.overflowed
    one.step()
    with modes.step(one):
        pass


def test_an_overflow_of_another_optimizer_is_no_reason_to_refuse(modes: wb.Modes) -> None:
    first, second = modes.prepare(net()), modes.prepare(net())
    one, two, before = sgd(first), sgd(second), weights(first)
    modes.backward(loss_of(modes, first) + loss_of(modes, second))
    overflow(second)
    modes.unscale(one)
    modes.unscale(two)
    one.step()
    assert not equal(before, first)
    with pytest.raises(RuntimeError, match="overflowed"):
        two.step()


def test_a_half_step_that_overflowed_is_known_before_it_is_taken(
    modes: wb.Modes, model: nn.Module
) -> None:
    optimizer = sgd(model)
    modes.backward(loss_of(modes, model))
    overflow(model)
    modes.unscale(optimizer)
    assert modes.overflowed
    optimizer.zero_grad()
    modes.backward(loss_of(modes, model))
    assert not modes.overflowed
    with modes.step(optimizer):
        assert 0 < model[0].weight.grad.abs().max() < 10
    assert not modes.skipped


def test_an_optimizer_around_another_is_one_with_it(modes: wb.Modes, model: nn.Module) -> None:
    """As classes of sharpness-aware minimisation hold their base optimizer."""
    base, outer = sgd(model), sgd(model)
    modes.backward(loss_of(modes, model))
    overflow(model)
    modes.unscale(outer)
    with pytest.raises(RuntimeError, match="overflowed"):
        base.step()
    before = weights(model)
    with modes.step(base):
        pass
    assert modes.skipped
    assert equal(before, model)
