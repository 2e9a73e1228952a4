from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from workbench.modes.precision.scaler import GradientScaler, Overflow, _noted

CPU = torch.device("cpu")


class Late(GradientScaler):
    """Takes every fused optimizer for one that decides on a device."""

    def _decides_on_device(self, optimizer: torch.optim.Optimizer) -> bool:
        return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def gradients(scaler: GradientScaler, model: nn.Module, *, bad: str = "") -> None:
    model.zero_grad()
    scaler.backward(model(torch.ones(4, 8)).square().mean() * 1e-3)
    if bad:
        model.get_parameter(bad).grad[0] = float("inf")


def step(
    scaler: GradientScaler,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    bad: str = "",
    clip: bool = False,
) -> bool:
    gradients(scaler, model, bad=bad)
    scaler.unscale(optimizer)
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return scaler.step(optimizer)


def test_torch_still_keeps_its_notes_of_a_step_where_they_are_read(model: nn.Module) -> None:
    """Private parts of GradScaler: only `workbench.modes.precision.scaler` touches them."""
    scaler, optimizer = torch.amp.GradScaler("cpu"), sgd(model)
    scaler.scale(model(torch.ones(2, 8)).sum()).backward()
    scaler.unscale_(optimizer)
    assert [float(found) for found in _noted(scaler, optimizer)] == [0.0]
    scaler._per_optimizer_states.clear()
    scaler.unscale_(optimizer)  # refused while notes of the step are there


def test_steps_are_those_of_torchs_scaler(model: nn.Module) -> None:
    """The same updates, skips and scales as the loop in torch's documentation, bit for bit."""
    twin = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    twin.load_state_dict(model.state_dict())
    ours, theirs = GradientScaler(CPU), torch.amp.GradScaler("cpu")
    ours._torch.set_growth_interval(3)
    theirs.set_growth_interval(3)
    pair = sgd(model), sgd(twin)
    for number in range(30):
        bad = "0.weight" if number % 7 == 5 else ""
        step(ours, model, pair[0], bad=bad, clip=True)
        twin.zero_grad()
        theirs.scale(twin(torch.ones(4, 8)).square().mean() * 1e-3).backward()
        if bad:
            twin.get_parameter(bad).grad[0] = float("inf")
        theirs.unscale_(pair[1])
        nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        theirs.step(pair[1])
        theirs.update()
        assert ours.scale == ours._torch.get_scale() == theirs.get_scale(), number
    assert ours.num_skipped == 4
    assert ours.scale != 2.0**16
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("clip", [False, True])
def test_the_parameter_that_overflowed_is_named_also_where_clipping_spoils_all_gradients(
    model: nn.Module, clip: bool
) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    scaler.follow(model)
    assert step(scaler, model, optimizer, clip=clip)
    gradients(scaler, model, bad="0.bias")
    model.get_parameter("0.bias").grad[0] = float("nan")
    scaler.unscale(optimizer)
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert model.get_parameter("2.weight").grad.isnan().all(), "nothing can be told any more"
    assert not scaler.step(optimizer)
    assert scaler.first == Overflow(2, "0.bias")


def test_of_several_the_one_nearest_to_the_loss_is_named(model: nn.Module) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    scaler.follow(model)
    gradients(scaler, model)
    for parameter in model.parameters():
        parameter.grad.fill_(float("nan"))
    scaler.unscale(optimizer)
    scaler.step(optimizer)
    assert scaler.first == Overflow(1, "2.weight")


def test_no_gradient_is_looked_at_in_a_step_that_is_applied(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    scaler.follow(model)
    looked: list[int] = []
    plain = GradientScaler._first_non_finite

    def look(self: GradientScaler) -> str:
        looked.append(self.num_steps)
        return plain(self)

    monkeypatch.setattr(GradientScaler, "_first_non_finite", look)
    for number in range(5):
        step(scaler, model, optimizer, bad="0.bias" if number == 3 else "")
    assert looked == [3]


def test_it_says_in_one_line_what_happened(model: nn.Module) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    scaler.follow(model)
    assert str(scaler) == "65,536; no step yet"
    step(scaler, model, optimizer)
    assert str(scaler) == "65,536; 0 of 1 steps skipped"
    step(scaler, model, optimizer, bad="2.weight")
    scaler.happened_at(1_203)
    assert str(scaler) == "32,768; 1 of 2 steps skipped, first at step 1,203 (2.weight)"
    step(scaler, model, optimizer, bad="0.bias")
    scaler.happened_at(1_204)
    assert str(scaler) == (
        "16,384; 2 of 3 steps skipped, first at step 1,203 (2.weight), last at step 1,204 (0.bias)"
    )


def test_a_step_that_is_given_up_changes_neither_scale_nor_counts(model: nn.Module) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    step(scaler, model, optimizer)
    before = scaler.state_dict()
    gradients(scaler, model, bad="0.bias")
    scaler.unscale(optimizer)  # and the error comes now
    assert scaler.state_dict() == before
    gradients(scaler, model)  # the next step begins
    assert scaler.state_dict() == before
    scaler.unscale(optimizer)
    assert scaler.step(optimizer)
    assert scaler.state_dict()["scaler"]["_growth_tracker"] == 2
    assert scaler.num_skipped == 0


def test_its_state_is_plain_and_goes_on_where_it_was(model: nn.Module) -> None:
    scaler, optimizer = GradientScaler(CPU), sgd(model)
    scaler.follow(model)
    step(scaler, model, optimizer, bad="0.bias")
    step(scaler, model, optimizer)
    following = GradientScaler(CPU)
    following.load_state_dict(scaler.state_dict())
    assert str(following) == str(scaler)
    assert following.first == Overflow(1, "0.bias")
    step(following, model, optimizer)
    assert (following.num_steps, following.num_skipped) == (3, 1)


def test_state_of_an_older_checkpoint_has_no_counts(model: nn.Module) -> None:
    scaler = GradientScaler(CPU)
    scaler.load_state_dict({"scaler": {**torch.amp.GradScaler("cpu").state_dict(), "scale": 8.0}})
    assert str(scaler) == "8; no step yet"


@pytest.mark.parametrize("kind", [GradientScaler, Late])
def test_a_fused_optimizer_skips_too(model: nn.Module, kind: type[GradientScaler]) -> None:
    """On an accelerator it decides there: the skip is counted, and reported as applied."""
    scaler = kind(CPU)
    scaler.follow(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    assert step(scaler, model, optimizer)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert step(scaler, model, optimizer, bad="0.bias") is (kind is Late)
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    assert (scaler.num_steps, scaler.num_skipped, scaler.scale) == (2, 1, 2.0**15)
    assert (scaler.first is None) is (kind is Late)
    assert float(scaler.scalars()["precision/skipped"]) == 1.0


def test_sparse_gradients_are_looked_into() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(4, 3, sparse=True), "head": nn.Linear(3, 4)})
    scaler = GradientScaler(CPU)
    scaler.follow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.backward(model["head"](model["table"](torch.tensor([1, 1]))).sum())
    table = model["table"].weight
    table.grad = table.grad * float("inf")
    assert table.grad.is_sparse
    scaler.unscale(optimizer)
    assert not scaler.step(optimizer)
    assert scaler.first == Overflow(1, "table.weight")


def test_an_optimizer_that_died_before_its_step_leaves_nothing() -> None:
    """Torch's scaler knows an optimizer by its address, which another may have then."""
    model = nn.Linear(2, 1)
    scaler = GradientScaler(torch.device("cpu"))
    scaler.keeps_unscaled = True
    addresses: set[int] = set()
    for number in range(50):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        is_known = id(optimizer) in addresses
        addresses.add(id(optimizer))
        model.zero_grad()
        scaler.backward(model(torch.ones(1, 2)).sum())
        if number % 2 == 0:
            model.weight.grad.fill_(float("inf"))
        scaler.unscale(optimizer)
        assert len(scaler._torch._per_optimizer_states) == 1
        if number % 2:
            assert scaler.step(optimizer)
        del optimizer
        gc.collect()
        if is_known and number > 4:
            break
    else:
        pytest.skip("no address was used twice")
    assert scaler.scale == 2.0**16, "what overflowed is nobody's any more"
