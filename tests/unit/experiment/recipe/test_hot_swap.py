"""Hot swap: what fits by name and shape carries over, with its optimizer state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.unit.experiment.plain_loop import assert_equal, weights
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, ModelSwapped


class Net(nn.Module):
    def __init__(self, classes: int = 3, extra: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        if extra:
            self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.body(x))
        return self.head(self.middle(h) if hasattr(self, "middle") else h)


def experiment(tmp_path: Path, model: nn.Module, optimizer: object) -> Experiment:
    data = torch.randn(64, 6), torch.arange(64) % 3
    exp = Experiment(model, data, optimizer=optimizer, batch_size=16, runs=tmp_path, device="cpu")
    exp.run(epochs=2, wait=True)
    return exp


def test_an_equal_model_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = torch.randn(64, 6), torch.arange(64) % 3
    losses: list[list[float]] = []
    for swapped in (False, True):
        torch.manual_seed(1)
        exp = Experiment(Net(), data, optimizer="adam", batch_size=16, runs=tmp_path, device="cpu")
        exp.run(steps=5, wait=True)
        if swapped:
            exp.model = Net()
        exp.run(steps=6, wait=True)
        losses.append(exp.scalars.since("train/loss", 0)[1].tolist())
        exp.close()
    assert losses[0] == losses[1]


def test_rows_say_what_became_of_every_parameter(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net(extra=True), None)
    events: list[Event] = []
    exp.subscribe(events.append)
    old = exp.model.state_dict()
    new = Net(classes=5)
    exp.model = new
    outcome = {row.name: (row.outcome, row.old_shape, row.new_shape) for row in exp.carried}
    assert outcome["body.weight"] == ("carried", "8×6", "8×6")
    assert outcome["head.weight"] == ("reshaped", "3×8", "5×8")
    assert outcome["middle.bias"] == ("dropped", "8", "")
    assert torch.equal(new.body.weight, old["body.weight"])
    assert torch.equal(new.norm.running_mean, old["norm.running_mean"])
    assert exp.message == "step 8: new Net: 4 of 6 parameters carried over"
    assert [type(event) for event in events][:1] == [ModelSwapped]
    exp.model = Net(classes=5, extra=True)
    assert {row.name: row.outcome for row in exp.carried}["middle.weight"] == "new"
    exp.run(epochs=1, wait=True)
    exp.close()


def test_groups_settings_and_the_live_rate_carry_over(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(
        [{"params": model.body.parameters(), "lr": 0.1}, {"params": model.head.parameters()}],
        lr=0.2,
        momentum=0.9,
        nesterov=True,
    )
    exp = experiment(tmp_path, model, optimizer)
    exp.learning_rate = 0.05
    moment = optimizer.state[model.body.weight]["momentum_buffer"].clone()
    new = Net()
    exp.model = new
    assert exp.optimizer is optimizer
    groups = exp.optimizer.param_groups
    assert [group["lr"] for group in groups] == [0.05, 0.1]
    assert all(group["nesterov"] for group in groups)
    assert torch.equal(exp.optimizer.state[new.body.weight]["momentum_buffer"], moment)
    names = {id(p): name for name, p in new.named_parameters()}
    held = [[names[id(p)] for p in group["params"]] for group in groups]
    assert held == [["body.weight", "body.bias"], ["head.weight", "head.bias"]], "as before"
    exp.close()


def test_a_swap_while_it_trains(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net(), None)
    run = exp.run(epochs=100_000)
    new = Net(classes=4)
    exp.model = new
    while exp.model is not new:
        pass
    run.stop()
    run.wait(120)
    assert sum(row.kind == "parameter" for row in exp.carried) == 6
    exp.close()


def test_a_scheduler_goes_on_with_the_new_optimizer(tmp_path: Path) -> None:
    model = Net()
    data = torch.randn(64, 6), torch.arange(64) % 3
    exp = Experiment(
        model,
        data,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        runs=tmp_path,
        device="cpu",
    )
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == 0.5
    exp.model = Net()
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == 0.25
    exp.close()


# -- buffers ----------------------------------------------------------------------------------


class Buffers(nn.Module):
    """One buffer of each kind; the table is a new one in every version of the class."""

    def __init__(self, scale: float, length: int = 4, persistent: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("kept", torch.full((2,), scale))
        self.register_buffer("table", torch.full((2,), scale), persistent=False)
        self.register_buffer("either", torch.full((2,), scale), persistent=persistent)
        self.register_buffer("sized", torch.full((length,), scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) * self.table[0] + self.kept[0] + self.sized[0]


def test_buffers_carry_as_a_state_dict_has_them_and_are_listed(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Buffers(1.0), None)
    new = Buffers(2.0, length=5, persistent=True)
    exp.model = new
    assert new.kept.tolist() == [1.0, 1.0]
    assert new.table.tolist() == [2.0, 2.0], "the value of the new class"
    assert new.either.tolist() == [2.0, 2.0], "no state_dict of the old one has it"
    assert new.sized.tolist() == [2.0] * 5
    rows = {row.name: row for row in exp.carried if row.kind == "buffer"}
    assert {name: row.outcome for name, row in rows.items()} == {
        "kept": "carried",
        "table": "new",
        "either": "new",
        "sized": "reshaped",
    }
    said = "not persistent: the new model's value"
    assert (rows["table"].note, rows["either"].note, rows["kept"].note) == (said, said, "")
    assert exp.message == "step 8: new Buffers: 2 of 2 parameters carried over"
    exp.close()


# -- tied weights -----------------------------------------------------------------------------


class Pair(nn.Module):
    """Two layers, of one weight or of two."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        if tied:
            self.two.weight = self.one.weight
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.two(self.one(x).tanh()).tanh())


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True)])
def test_tied_weights_carry_as_load_state_dict_has_them(
    tmp_path: Path, before: bool, after: bool
) -> None:
    exp = experiment(tmp_path, Pair(tied=before), adam)
    old, expected, new = exp.model, Pair(tied=after), Pair(tied=after)
    expected.load_state_dict(old.state_dict())
    exp.model = new
    assert_equal(new, expected)
    assert (new.one.weight is new.two.weight) == after
    held = exp.optimizer.param_groups[0]["params"]
    assert [id(p) for p in held] == [id(p) for p in new.parameters()]
    exp.close()


def test_moments_of_an_untied_weight_start_from_the_shared_ones_each_for_itself(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, Pair(tied=True), adam)
    shared = copy.deepcopy(exp.optimizer.state[exp.model.one.weight])  # type: ignore[union-attr]
    new = Pair(tied=False)
    exp.model = new
    one, two = (exp.optimizer.state[layer.weight] for layer in (new.one, new.two))
    for name, value in shared.items():
        assert torch.equal(one[name], value)
        assert torch.equal(two[name], value)
        assert one[name].data_ptr() != two[name].data_ptr()
    rows = {row.name: row for row in exp.carried}
    assert rows["one.weight"].outcome == rows["two.weight"].outcome == "carried"
    assert rows["one.weight"].note == (
        "no longer tied to two.weight: each starts from the shared optimizer state"
    )
    exp.run(epochs=1, wait=True)
    assert int(one["step"]) == int(two["step"]) == 12
    assert not torch.equal(one["exp_avg"], two["exp_avg"])
    exp.close()


def test_of_weights_that_become_tied_the_last_stands_with_its_moments(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Pair(tied=False), adam)
    state = exp.optimizer.state[exp.model.two.weight]  # type: ignore[union-attr]
    moment = state["exp_avg"].clone()
    new = Pair(tied=True)
    exp.model = new
    assert torch.equal(exp.optimizer.state[new.one.weight]["exp_avg"], moment)
    rows = {row.name: (row.outcome, row.note) for row in exp.carried}
    assert rows["two.weight"] == ("carried", "")
    assert rows["one.weight"] == (
        "dropped",
        "tied to two.weight, whose value and optimizer state it has",
    )
    exp.run(epochs=1, wait=True)
    exp.close()


# -- the optimizer ----------------------------------------------------------------------------


def test_hooks_of_the_optimizer_go_on_and_who_holds_it_still_does(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    handle = optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "mine": 1})
    exp = experiment(tmp_path, model, optimizer)
    exp.model = Net()
    calls.clear()
    exp.run(steps=1, wait=True)
    assert calls == ["before", "after"]
    assert exp.optimizer.state_dict()["mine"] == 1
    handle.remove()
    exp.run(steps=1, wait=True)
    assert calls == ["before", "after", "before"]
    optimizer.param_groups[0]["lr"] = 0.01
    assert exp.learning_rate == 0.01
    exp.close()


def test_what_the_optimizer_did_not_hold_is_not_held_afterwards(tmp_path: Path) -> None:
    """A head that is trained alone stays alone."""
    model = Net()
    exp = experiment(tmp_path, model, torch.optim.SGD(model.head.parameters(), lr=0.1))
    new = Net(extra=True)
    exp.model = new
    body = new.body.weight.detach().clone()
    exp.run(epochs=1, wait=True)
    assert torch.equal(new.body.weight, body)
    held = {id(p) for group in exp.optimizer.param_groups for p in group["params"]}
    names = {name for name, p in new.named_parameters() if id(p) in held}
    assert names == {"head.weight", "head.bias", "middle.weight", "middle.bias"}
    exp.close()


def test_state_that_is_no_parameters_and_names_of_parameters_stay(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.named_parameters(), lr=0.01)
    exp = experiment(tmp_path, model, optimizer)
    optimizer.state["k_total"] = 3  # type: ignore[index]
    exp.model = Net(extra=True)
    assert optimizer.state["k_total"] == 3  # type: ignore[index]
    (group,) = optimizer.param_groups
    names = {id(p): name for name, p in exp.model.named_parameters()}
    assert group["param_names"] == [names[id(p)] for p in group["params"]]
    assert len(group["params"]) == 8
    exp.run(epochs=1, wait=True)
    exp.close()


def test_moments_take_the_type_of_the_new_model(tmp_path: Path) -> None:
    model = Pair(tied=False)
    exp = experiment(tmp_path, model, adam)
    new = Pair(tied=False).bfloat16()
    exp.model = new
    state = exp.optimizer.state[new.head.weight]
    assert (state["exp_avg"].dtype, state["step"].dtype) == (torch.bfloat16, torch.float32)
    exp.close()


class Ahead(torch.optim.Optimizer):
    """Steps with another optimizer that it keeps, as SAM and Lookahead do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base.param_groups

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        return self.base.step(closure)


def test_an_optimizer_that_keeps_another_goes_on_with_both(tmp_path: Path) -> None:
    model = Net()
    optimizer = Ahead(model.parameters())
    exp = experiment(tmp_path, model, optimizer)
    moment = optimizer.base.state[model.head.weight]["momentum_buffer"].clone()
    new = Net(extra=True)
    exp.model = new
    assert torch.equal(optimizer.base.state[new.head.weight]["momentum_buffer"], moment)
    before = weights(new)
    exp.run(steps=1, wait=True)
    for name in ("middle.weight", "head.weight"):
        assert not torch.equal(new.get_parameter(name), before[name])
    exp.close()


def test_an_optimizer_that_keeps_parameters_in_an_attribute_is_refused(tmp_path: Path) -> None:
    class Listed(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            parameters = list(parameters)
            super().__init__(parameters, lr=0.1)
            self.mine = {"all": parameters}

    model = Net()
    exp = experiment(tmp_path, model, Listed(model.parameters()))
    with pytest.raises(ValueError, match="Listed keeps parameters of the model in its attribute"):
        exp.model = Net()
    assert exp.model is model
    exp.run(steps=1, wait=True)
    exp.close()


def test_a_part_of_the_old_model_in_the_new_one_goes_on(tmp_path: Path) -> None:
    class Around(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.norm, self.head = inner, nn.BatchNorm1d(8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.inner(x)))

    model = Net()
    exp = experiment(tmp_path, model, adam)
    moment = exp.optimizer.state[model.body.weight]["exp_avg"]
    exp.model = Around(model.body)
    row = next(row for row in exp.carried if row.name == "inner.weight")
    assert (row.outcome, row.note) == ("carried", "the same parameter that was body.weight")
    assert exp.optimizer.state[model.body.weight]["exp_avg"] is moment
    exp.run(steps=1, wait=True)
    exp.close()


# -- what stays with the previous model ---------------------------------------------------------


def said(exp: Experiment, words: str) -> list[str]:
    return [note for note in exp.notes if words in note]


def test_the_model_before_is_said_to_train_no_more(tmp_path: Path) -> None:
    net = Net()
    exp = experiment(tmp_path, net, None)
    kept = weights(net)
    exp.model = Net()
    exp.run(epochs=1, wait=True)
    torch.testing.assert_close(weights(net), kept, rtol=0, atol=0)
    (note,) = said(exp, "the Net before the swap keeps the state of its last step")
    assert "exp.model is the one that trains" in note
    exp.close()


def test_an_equal_model_leaves_nothing_else_behind(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net(), None)
    before = len(exp.notes)
    exp.model = Net()
    assert len(exp.notes) == before + 1, exp.notes
    exp.close()


def test_hooks_flags_and_modes_that_stay_behind_are_reported(tmp_path: Path) -> None:
    net = Net()
    net.body.register_forward_hook(lambda *_: None)
    net.head.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    exp = experiment(tmp_path, net, None)
    net.norm.eval()
    net.body.requires_grad_(False)
    exp.run(steps=1, wait=True)
    exp.model = Net()
    (hooks,) = said(exp, "hooks that were registered on the previous model")
    assert "(body, head.weight)" in hooks
    (flags,) = said(exp, "frozen in the previous model and trained in the new one")
    assert flags.startswith("body.weight, body.bias: ")
    (modes,) = said(exp, "kept in eval mode in the previous model")
    assert modes.startswith("norm: ")
    exp.run(steps=1, wait=True)
    exp.close()


def test_a_parametrization_that_stays_behind_is_reported(tmp_path: Path) -> None:
    net = Net()
    parametrizations.weight_norm(net.body)
    exp = experiment(tmp_path, net, None)
    exp.model = Net()
    (note,) = said(exp, "parametrized in the previous model and not in the new one")
    assert note.startswith("body.weight: ")
    new = Net()
    parametrizations.weight_norm(new.head)
    exp.model = new
    exp.close()


def test_a_parametrized_model_carries_over_to_another(tmp_path: Path) -> None:
    def made() -> Net:
        net = Net()
        parametrizations.spectral_norm(net.body)
        return net

    net = made()
    exp = experiment(tmp_path, net, None)
    new = made()
    exp.model = new
    assert_equal(new, net)
    assert not said(exp, "parametrized")
    exp.close()


def averaged(net: nn.Module) -> AveragedModel:
    return AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.5))


def test_an_average_in_a_hook_that_reads_the_experiment_goes_on(tmp_path: Path) -> None:
    net, loop_of = Net(), list[Experiment]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    ema = averaged(net)
    optimizer.register_step_post_hook(lambda *_: ema.update_parameters(loop_of[0].model))
    data = torch.randn(64, 6), torch.arange(64) % 3
    loop_of.append(
        Experiment(net, data, optimizer=optimizer, batch_size=16, runs=tmp_path, device="cpu")
    )
    (exp,) = loop_of
    exp.run(epochs=1, wait=True)
    exp.model = Net()
    before = ema.module.body.weight.detach().clone()
    exp.run(steps=1, wait=True)
    torch.testing.assert_close(ema.module.body.weight, (before + exp.model.body.weight) / 2)
    assert not said(exp, "the optimizer's hook")
    exp.model = Net(classes=5)
    (note,) = said(exp, "the optimizer's hook <lambda> averages into ema")
    assert "AveragedModel(exp.model)" in note
    exp.close()


def test_a_hook_that_reads_the_model_before_is_reported(tmp_path: Path) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    ema = averaged(net)

    def update(*_: Any) -> None:
        ema.update_parameters(net)

    optimizer.register_step_post_hook(update)
    exp = experiment(tmp_path, net, optimizer)
    exp.model = Net()
    (note,) = said(exp, "the optimizer's hook update still reads net")
    assert "let it read exp.model" in note
    exp.close()


class Scaled(nn.Module):
    def __init__(self, *, is_buffer: bool, size: int = 3) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        if is_buffer:
            self.register_buffer("scale", torch.ones(size))
        else:
            self.scale = nn.Parameter(torch.full((size,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) * self.scale


@pytest.mark.parametrize("is_buffer", [False, True])
def test_a_parameter_that_becomes_a_buffer_carries_as_a_state_dict_has_it(
    tmp_path: Path, is_buffer: bool
) -> None:
    exp = experiment(tmp_path, Scaled(is_buffer=is_buffer), None)
    before, new, judge = exp.model, *(Scaled(is_buffer=not is_buffer) for _ in range(2))
    judge.load_state_dict(before.state_dict())
    exp.model = new
    assert_equal(new, judge)
    (row,) = (row for row in exp.carried if row.name == "scale")
    assert (row.outcome, row.kind) == ("carried", "parameter" if is_buffer else "buffer")
    exp.run(epochs=1, wait=True)
    held = {id(p) for group in exp.optimizer.param_groups for p in group["params"]}
    assert (id(new.scale) in held) is is_buffer
    exp.model = Scaled(is_buffer=is_buffer, size=1)
    (row,) = (row for row in exp.carried if row.name == "scale")
    assert row.outcome == "reshaped"
    exp.close()


def test_the_loss_that_was_not_given_is_chosen_for_the_new_model(tmp_path: Path) -> None:
    """One logit stands for binary cross entropy, and two for cross entropy."""
    data = torch.randn(64, 6), torch.arange(64) % 2
    exp = Experiment(nn.Linear(6, 1), data, data, batch_size=16, runs=tmp_path, device="cpu")
    exp.run(epochs=1, wait=True)
    exp.model = nn.Linear(6, 2)
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(exp.model(data[0]), data[1]))
    assert exp.evaluate(data).loss == pytest.approx(expected, rel=1e-5)
    exp.run(epochs=1, wait=True)
    assert exp.loss_name == "cross entropy"
    assert said(exp, "no loss was given: it is cross entropy from here on")
    exp.close()


@pytest.mark.parametrize("what", ["model", "parameters"])
def test_a_loss_that_reads_the_model_before_is_reported(tmp_path: Path, what: str) -> None:
    net = Net()
    held: Any = net if what == "model" else list(net.parameters())

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        of = held.parameters() if what == "model" else held
        decay = sum(parameter.square().sum() for parameter in of)
        return nn.functional.cross_entropy(logits, labels) + 0.1 * decay

    data = torch.randn(64, 6), torch.arange(64) % 3
    exp = Experiment(net, data, loss=loss, batch_size=16, runs=tmp_path, device="cpu")
    exp.run(epochs=1, wait=True)
    assert not said(exp, "the loss loss still reads")
    exp.model = Net()
    (note,) = said(exp, "the loss loss still reads held")
    assert "let it read exp.model" in note
    exp.close()
