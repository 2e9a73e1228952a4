"""Gradients and the loss of a graph as they are, whatever a gradient scaler multiplied with."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 3
DIVIDED = "Gradients are divided by the gradient scaler's 65,536."
SCALE = 65_536


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture
def modes(model: nn.Module) -> wb.Modes:
    found = wb.Modes("fp16")
    found.prepare(model)
    return found


class Trainer:
    """Holds a gradient scaler where no variable of a loop does."""

    def __init__(self) -> None:
        self.inner = {"scaler": torch.amp.GradScaler("cpu")}

    def backward(self, loss: torch.Tensor) -> None:
        self.inner["scaler"].scale(loss).backward()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-6)


def norms(record) -> dict[str, float]:
    return {
        node.name: float(record.node_gradient_norm[node.index])
        for node in record.nodes
        if node.kind == "parameter"
    }


def true_norms(model: nn.Module, scale: float = 1.0) -> dict[str, float]:
    return {name: p.grad.norm().item() / scale for name, p in model.named_parameters()}


def powers(record, name: str) -> set[int]:
    row = next(node.index for node in record.nodes if node.name == name)
    return set(record.bin_power[record.bin_node == row].tolist())


def check(record, model: nn.Module, loss: torch.Tensor, *, scale: float = 1.0) -> None:
    """``scale`` is what is still on the gradients of ``model``."""
    assert norms(record) == pytest.approx(true_norms(model, scale), rel=1e-4)
    assert record.loss == pytest.approx(loss.item())
    assert record.notes.count(DIVIDED) == 1
    largest = model[2].weight.grad.abs().max().item() / scale
    assert max(powers(record, "2.weight")) == int(torch.tensor(largest).log10().floor())


def test_a_block_around_a_loop_under_fp16(model: nn.Module, modes: wb.Modes) -> None:
    with wb.graph(model) as view:
        with modes.forward():
            loss = F.cross_entropy(model(X), Y)
        with modes.update(loss, sgd(model)):
            check(view.record, model, loss)
    check(view.record, model, loss)
    assert view.record.nodes[view.record.root].type == "NllLossBackward0"


def test_a_loss_that_is_shown_before_its_backward(model: nn.Module, modes: wb.Modes) -> None:
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    view = wb.graph(loss, model=model)
    with modes.update(loss, sgd(model)):
        check(view.record, model, loss)


def test_what_is_left_of_a_weighted_loss_is_its_weight(model: nn.Module, modes: wb.Modes) -> None:
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    view = wb.graph(loss, model=model)
    modes.backward(loss / 4)
    with modes.step(sgd(model)):
        check(view.record, model, loss)
    assert (
        "Gradients are as backward computed them: it gave this loss a gradient of 0.25 (the weight "
        "of the loss)." in view.record.notes
    )


def test_the_scale_is_that_of_the_backward_that_was_watched(
    model: nn.Module, modes: wb.Modes
) -> None:
    """Another scale, and another loss of the same model that runs backward before."""
    optimizer = sgd(model)
    for number in range(2):
        optimizer.zero_grad()
        with modes.forward():
            first = F.cross_entropy(model(X), Y)
            second = model(X).square().mean()
        view = wb.graph(second, model=model)
        modes.backward(first)
        optimizer.zero_grad()
        if number == 0:
            modes.backward(second)
            model[0].weight.grad.fill_(float("inf"))
            with modes.step(optimizer):
                pass
            assert modes.skipped
            continue
        second.backward()  # plain, while a scaled one is to be applied
        assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
        assert not any("scale" in note for note in view.record.notes)
    optimizer.zero_grad()
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    view = wb.graph(loss, model=model)
    with modes.update(loss, optimizer):
        assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
    assert "Gradients are divided by the gradient scaler's 32,768." in view.record.notes


def test_a_scaler_of_ones_own_in_a_block(model: nn.Module) -> None:
    trainer, optimizer = Trainer(), sgd(model)
    with wb.graph(model) as view:
        loss = F.cross_entropy(model(X), Y)
        trainer.backward(loss)
    check(view.record, model, loss, scale=SCALE)
    trainer.inner["scaler"].unscale_(optimizer)
    check(view.record, model, loss)


def test_a_scaler_of_ones_own_and_a_loss_shown_before(model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu")
    loss = F.cross_entropy(model(X), Y)
    view = wb.graph(loss, model=model)
    scaler.scale(loss).backward()
    check(view.record, model, loss, scale=SCALE)


def test_a_scaled_loss_that_is_shown_is_shown_without_its_scale(model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu")
    loss = F.cross_entropy(model(X), Y)
    scaled = scaler.scale(loss)
    view = wb.graph(scaled, model=model)
    scaled.backward()
    check(view.record, model, loss, scale=SCALE)


@pytest.mark.parametrize("weight", [4.0, torch.tensor(4.0)])
def test_a_weight_that_equals_the_scale_of_a_scaler_is_none(
    model: nn.Module, weight: float | torch.Tensor
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    assert scaler.scale(torch.ones(())) == 4, "its scale has a tensor now"
    loss = F.cross_entropy(model(X), Y) * weight
    view = wb.graph(loss, model=model)
    loss.backward()
    assert view.record.loss == pytest.approx(loss.item())
    assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
    assert "divided by" not in str(view.record.notes)


def test_gradients_of_a_scaled_loss_by_grad(model: nn.Module) -> None:
    trainer = Trainer()
    with wb.graph(model) as view:
        logits = model(X)
        scaled = trainer.inner["scaler"].scale(F.cross_entropy(logits, Y))
        torch.autograd.grad(scaled, [model[0].weight, logits], retain_graph=True)
    (gradient,) = torch.autograd.grad(scaled, [logits])
    row = next(n.index for n in view.record.nodes if n.type == "LogSoftmaxBackward0")
    products = [n.index for n in view.record.nodes if n.type == "AddmmBackward0"]
    assert view.record.root > row > max(products)
    norm = float(view.record.node_gradient_norm[max(products)])
    assert norm == pytest.approx(gradient.norm().item() / SCALE, rel=1e-4)


def test_a_scaler_that_is_switched_off_says_nothing(model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with wb.graph(model) as view:
        scaler.scale(F.cross_entropy(model(X), Y)).backward()
    assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
    assert view.record.notes == ()


@pytest.mark.parametrize("shown", ["block", "loss"])
def test_what_looks_scaled_and_cannot_be_known_is_said(model: nn.Module, shown: str) -> None:
    with wb.graph(model) as block:
        loss = F.cross_entropy(model(X), Y) * torch.tensor(1024.0)
        view = block if shown == "block" else wb.graph(loss, model=model)
        loss.backward()
    assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
    (note,) = (note for note in view.record.notes if "product" in note)
    assert note == (
        "This loss is a product with 1,024. If that is a gradient scaler's scale, the loss and "
        "all gradients here are that many times too large: give wb.graph(loss) the loss before it."
    )


def test_scaled_losses_that_are_added_are_said(model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu")
    with wb.graph(model) as view:
        first, second = F.cross_entropy(model(X), Y), model(X).square().mean()
        (scaler.scale(first) + scaler.scale(second)).backward()
    assert norms(view.record) == pytest.approx(true_norms(model), rel=1e-4)
    (note,) = view.record.notes
    assert note == (
        "A gradient scaler multiplied a part of this loss by 65,536: the loss and the gradients "
        "below that product carry the factor. Scale the whole loss: scaler.scale(loss).backward()."
    )


def test_a_plain_weight_of_a_loss_is_no_scale(model: nn.Module) -> None:
    with wb.graph(model) as view:
        (F.cross_entropy(model(X), Y) * 0.5).backward()
    assert view.record.notes == ()
