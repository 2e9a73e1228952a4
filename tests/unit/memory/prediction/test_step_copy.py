"""A copy of a whole step: nothing shared with it, everything shared within it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.unit.memory.step_copies import mlp, next_step, trained
from workbench.experiment.data.data import batch_size_of
from workbench.experiment.runtime.step_boundary import NextStep
from workbench.memory.prediction.step_copy import StepCopyError, copy_of_step
from workbench.torch_private.memory import is_fake


def state(step: NextStep) -> list[torch.Tensor]:
    """Every tensor of a step, copied."""
    parameters = list(step.model.parameters())
    kept = [tensor for values in step.optimizer.state.values() for tensor in values.values()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    found = [*step.model.state_dict().values(), *kept, *gradients]
    return [tensor.detach().clone() for tensor in found]


@pytest.mark.parametrize("fake", [True, False])
def test_a_twin_has_the_shapes_and_nothing_else_of_the_step(fake):
    step = trained(mlp())
    before = state(step)
    copied = copy_of_step(step, fake=fake)
    assert [p.shape for p in copied.model.parameters()] == [
        p.shape for p in step.model.parameters()
    ]
    assert all(isinstance(p, nn.Parameter) for p in copied.model.parameters())
    assert all(p.grad is None for p in copied.model.parameters())
    assert is_fake(type(copied.inputs)) == fake
    theirs = {t.untyped_storage()._cdata for t in step.model.parameters()}
    assert theirs.isdisjoint(t.untyped_storage()._cdata for t in copied.model.parameters())
    with copied.context:
        copied.model(copied.inputs).sum().backward()
        copied.optimizer.step()
    assert all(map(torch.equal, state(step), before))


def test_the_optimizer_of_a_twin_works_on_the_twins_own_parameters_and_state():
    step = trained(mlp())
    copied = copy_of_step(step, fake=False)
    held = [p for group in copied.optimizer.param_groups for p in group["params"]]
    assert all(map(lambda a, b: a is b, held, copied.model.parameters()))
    for mine, theirs in zip(copied.model.parameters(), step.model.parameters(), strict=True):
        own = copied.optimizer.state[mine]
        assert torch.equal(own["exp_avg"], step.optimizer.state[theirs]["exp_avg"])
        assert own["exp_avg"] is not step.optimizer.state[theirs]["exp_avg"]


def test_step_counts_keep_their_values_on_a_fake_twin():
    """Optimizers read them; a fake tensor has none to read."""
    copied = copy_of_step(trained(mlp(), 2), fake=True)
    counts = {state["step"].item() for state in copied.optimizer.state.values()}
    assert counts == {2.0}


@pytest.mark.parametrize("fake", [True, False])
def test_tied_weights_stay_tied(fake):
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    model[1].weight = model[0].weight
    copied = copy_of_step(next_step(model, (torch.randn(4, 16), torch.arange(4))), fake=fake)
    assert copied.model[0].weight is copied.model[1].weight
    assert len(copied.optimizer.param_groups[0]["params"]) == 3


@pytest.mark.parametrize("fake", [True, False])
def test_a_batch_of_another_size(fake):
    step = mlp()
    copied = copy_of_step(step, fake=fake, batch=20)
    assert (copied.inputs.shape, copied.targets.shape, copied.batch_size) == ((20, 16), (20,), 20)
    if not fake:
        assert torch.equal(copied.inputs[8:16], step.batch[0])
    smaller = copy_of_step(step, fake=fake, batch=3)
    assert smaller.inputs.shape == (3, 16)


def test_a_mapping_is_resized_where_it_holds_samples():
    table = torch.randn(5, 16)
    batch = {"input_ids": torch.zeros(4, 16), "table": table, "labels": torch.arange(4)}
    copied = copy_of_step(next_step(nn.Linear(16, 5), batch), fake=False, batch=8)
    assert copied.inputs["input_ids"].shape == (8, 16)
    assert copied.inputs["table"].shape == (5, 16)
    assert copied.targets.shape == (8,)


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_without_samples_is_refused(batch):
    with pytest.raises(ValueError, match=r"batch of .* samples was requested.*at least 1"):
        copy_of_step(mlp(), fake=True, batch=batch)


def test_the_size_of_a_batch():
    x, y = torch.zeros(6, 3), torch.arange(6)
    assert batch_size_of(x, y) == 6
    assert batch_size_of({"ids": x}, None) == 6
    assert batch_size_of([], "labels") == -1
    assert batch_size_of(torch.tensor(1.0), None) == -1


def test_what_cannot_be_copied_is_said():
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise TypeError("one of a kind")

    step = next_step(Stubborn(16, 10), (torch.randn(4, 16), torch.arange(4)))
    with pytest.raises(TypeError):
        copy.deepcopy(step.model)
    with pytest.raises(StepCopyError, match=r"cannot be copied .*TypeError: one of a kind"):
        copy_of_step(step, fake=True)


def test_values_that_are_no_leaves_are_copied_without_their_history():
    model = nn.Linear(16, 10)
    model.last = (model.weight * 2).sum(0)  # deepcopy itself refuses such a tensor
    copied = copy_of_step(next_step(model, (torch.randn(4, 16), torch.arange(4))), fake=False)
    assert copied.model.last.grad_fn is None
    assert torch.equal(copied.model.last, model.last)


def test_modes_are_those_of_the_step():
    step = mlp()
    step = next_step(step.model, step.batch, modes="bf16")
    copied = copy_of_step(step, fake=True)
    with copied.context, copied.modes.forward_context():
        assert copied.model(copied.inputs).dtype is torch.bfloat16
