"""Checkpointing computes the same to the last bit, holds less, and is undone without a trace."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import io
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import workbench
from workbench.experiment import Experiment, RunError
from workbench.modes import ModeSet, StepTimings, mode_states
from workbench.modes.activation_checkpointing import Checkpoint, _contexts
from workbench.modes.compile.toolchain import missing_for_compile

Make = Callable[[], nn.Module]


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.norm(self.conv(x)).relu())


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = parametrizations.spectral_norm(nn.Linear(8, 8))
        self.after = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.inner(x).tanh())


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.dropout = 0.0

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        parts = [part(x)[:, None] for part in (self.q, self.k, self.v)]
        return x + scale * nn.functional.scaled_dot_product_attention(*parts)[:, 0]


class Named(nn.Module):
    """Calls its blocks by keyword, and has a container with an upper-case name."""

    def __init__(self) -> None:
        super().__init__()
        self.Blocks = nn.ModuleList(Attending() for _ in range(3))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.Blocks:
            x = block(x, scale=0.5)
        return self.head(x.mean(1))


class Wide(nn.Module):
    """Running statistics of more than 64 KiB, and a table of that size."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scale = nn.BatchNorm1d(17_000), nn.Linear(1, 1)
        self.register_buffer("table", torch.ones(17_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self.norm(x * self.table)[..., None])[..., 0].relu()


def cnn() -> nn.Module:
    blocks = nn.Sequential(*(Convolved() for _ in range(4)))
    return nn.Sequential(blocks, nn.Flatten(), nn.Linear(4 * 8 * 8, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Sequential(Wide(), Wide()), nn.Linear(17_000, 3))


def spectral() -> nn.Module:
    return nn.Sequential(nn.Sequential(Spectral(), Spectral()), nn.Linear(8, 3))


CASES: dict[str, tuple[Make, tuple[int, ...], str]] = {
    "cnn": (cnn, (6, 4, 8, 8), "0"),
    "spectral norm": (spectral, (6, 8), "0"),
    "large statistics": (wide, (4, 17_000), "0"),
    "attention": (Named, (6, 5, 16), "Blocks"),
}


def trained(case: str, modes: str, steps: int = 3) -> tuple[list[Any], int]:
    """Losses, gradients and buffers of a few steps, and the most activations held at once."""
    make, shape, _ = CASES[case]
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    modeset = ModeSet.parse(modes, "cpu")
    modeset.attach(model)
    seen: list[Any] = []
    held = 0
    for _ in range(steps):
        x, labels = torch.randn(shape), torch.arange(shape[0]) % 3
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
        with hooks, modeset.forward_context():
            loss = nn.functional.cross_entropy(model(x).float(), labels)
        held = max(held, sum(sizes))
        optimizer.zero_grad()
        loss.backward()
        seen += [loss.item(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        seen += [buffer.clone() for buffer in model.buffers()]
        optimizer.step()
    modeset.detach(model)
    assert not any("forward" in module.__dict__ for module in model.modules())
    return seen, held


def same(a: list[Any], b: list[Any]) -> bool:
    pairs = zip(a, b, strict=True)
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)


@pytest.mark.parametrize("rest", ["", "+bf16", "+attention:math"])
@pytest.mark.parametrize("where", ["auto", "path"])
@pytest.mark.parametrize("case", CASES)
def test_losses_gradients_and_buffers_are_bit_equal(case: str, where: str, rest: str) -> None:
    path = CASES[case][2] if where == "path" else "auto"
    plain, held = trained(case, rest.removeprefix("+"))
    checkpointed, outside = trained(case, f"checkpoint:{path}{rest}")
    assert same(plain, checkpointed)
    assert outside < 0.6 * held, "what is inside the blocks is not held"


@pytest.mark.skipif(missing_for_compile(torch.device("cpu")) is not None, reason="no C++ compiler")
@pytest.mark.parametrize("how", ["compile:blocks", "compile:whole"])
def test_a_compiled_model_is_checkpointed_inside(how: str) -> None:
    plain, _ = trained("attention", "")
    config = importlib.import_module("torch._inductor.config")
    with config.patch(compile_threads=1):  # a pool of them would outlive the test
        both, _ = trained("attention", f"checkpoint+{how}")
    for a, b in zip(plain, both, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4, atol=1e-5)


def test_it_is_undone_without_a_trace_and_leaves_copies_alone() -> None:
    model = cnn()
    names, flags = list(model.state_dict()), [dict(vars(m)) for m in model.modules()]
    mode = ModeSet.parse("checkpoint", "cpu")
    mode.attach(model)
    assert list(model.state_dict()) == names
    block = model[0][0]
    assert block.forward.__self__ is block
    twin = copy.deepcopy(model)
    assert twin[0][0].forward.__self__ is twin[0][0], "a copy calls itself, not the original"
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    x = torch.randn(2, 4, 8, 8)
    model.eval(), loaded.eval(), twin.eval()
    assert torch.equal(loaded(x), model(x))
    assert torch.equal(twin(x), model(x))
    model.train()
    mode.detach(model)
    assert [dict(vars(m)) for m in model.modules()] == flags


def test_a_forward_that_was_replaced_is_left_alone() -> None:
    model = cnn()
    own = model[0][1].forward
    model[0][1].forward = own
    mode = ModeSet.parse("checkpoint", "cpu")
    mode.attach(model)
    assert model[0][1].forward == own
    mode.detach(model)
    assert model[0][1].__dict__["forward"] == own
    assert "forward" not in model[0][0].__dict__


class Smooth(nn.Module):
    """May be differentiated twice; has statistics, dropout and products for autocast to cast."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.b(torch.tanh(self.norm(self.a(x)))))


def penalty(loss: torch.Tensor, x: torch.Tensor) -> None:
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + slope.square().sum()).backward()


def twice(loss: torch.Tensor, x: torch.Tensor) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


def two_losses(loss: torch.Tensor, x: torch.Tensor) -> None:
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss.square(), x)


@pytest.mark.parametrize("backward", [penalty, twice, two_losses])
@pytest.mark.parametrize("rest", ["", "bf16", "attention:math"])
def test_several_backwards_through_a_block_are_those_of_a_plain_run(
    backward: Callable[[torch.Tensor, torch.Tensor], None], rest: str
) -> None:
    def seen(how: str) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(Smooth(), Smooth(), Smooth(), nn.Linear(6, 1))
        modes = ModeSet.parse("+".join(filter(None, ["checkpoint" * (how == "mode"), rest])), "cpu")
        modes.attach(model)
        if how == "torch alone":
            for block in model[:3]:
                own = types.MethodType(type(block).forward, block)
                block.forward = functools.partial(checkpoint, own, use_reentrant=False)
        found: list[torch.Tensor] = []
        for _ in range(2):
            x = torch.randn(5, 6, requires_grad=True)
            with modes.forward_context():
                loss = model(x).float().sum()
            backward(loss, x)
            found += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
            found += [torch.rand(1)] if x.grad is None else [x.grad, torch.rand(1)]
            found += [buffer.clone() for buffer in model.buffers() if how != "torch alone"]
        return found

    assert same(seen("mode"), seen("plain"))
    if not rest:  # and where statistics are not looked at, those of torch without us
        alone = seen("torch alone")
        plain = seen("mode")
        assert len(alone) < len(plain)
        torch.testing.assert_close(alone[:5], plain[:5], rtol=0, atol=0)


class Counting(nn.Module):
    """Writes a buffer that another of its modules reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.reader = nn.Linear(4, 4), nn.Module()
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("again", self.count)
        self.reader.register_buffer("seen", self.count)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return (self.layer(x) * self.reader.seen * self.again.clone()).tanh()


def test_a_buffer_under_several_names_is_computed_with_as_one() -> None:
    def gradients(modes: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(Counting(), Counting(), nn.Linear(4, 1))
        ModeSet.parse(modes, "cpu").attach(model)
        for _ in range(2):
            model(torch.randn(3, 4)).sum().backward()
        assert model[0].reader.seen is model[0].count is model[0].again
        return [*(p.grad for p in model.parameters()), *model.buffers()]

    assert same(gradients("checkpoint"), gradients(""))


class Unseen(nn.Module):
    """Writes a large buffer in a way that it counts, or in one that it does not."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(1, 1), how
        with torch.inference_mode(mode=how == "inference"):
            self.register_buffer("scale", torch.ones(17_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x[..., None])[..., 0] * self.scale.clone()
        if self.how == "counted":
            self.scale.mul_(2)
        elif self.how == "data":
            self.scale.data.mul_(2)
        elif self.how == "replaced":
            self.scale = self.scale * 2
        elif self.how == "other data":
            self.scale.data = self.scale.data * 2
        return y.tanh()


@pytest.mark.parametrize("how", ["counted", "data", "replaced", "other data", "inference"])
def test_a_large_buffer_is_as_it_was_however_it_was_changed(how: str) -> None:
    def gradients(modes: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Sequential(Unseen(how), Unseen(how)), nn.Linear(17_000, 1))
        ModeSet.parse(modes, "cpu").attach(model)
        model(torch.randn(2, 17_000)).sum().backward()
        return [*(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]

    assert same(gradients("checkpoint"), gradients(""))


def test_parameters_are_copied_before_the_first_forward_alone() -> None:
    block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    first, _ = _contexts(block, ())
    assert len(first._parameters.copies) == 2
    with first:
        block(torch.ones(1, 2))
    assert not first._parameters.copies
    first, _ = _contexts(block, ())
    assert not first._parameters.copies


class Follows(nn.Module):
    """A teacher that follows its student in the forward, from a step on."""

    def __init__(self, how: str, begins: int) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)
        self.teacher.requires_grad_(False)
        self.how, self.begins = how, begins
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls >= self.begins:
            with torch.no_grad():
                for old, new in zip(
                    self.teacher.parameters(), self.student.parameters(), strict=True
                ):
                    if self.how == "in place":
                        old.mul_(0.9).add_(new, alpha=0.1)
                    else:
                        old.data = old.data * 0.9 + new.data * 0.1
        return self.student(x) * self.teacher(x).tanh()


@pytest.mark.parametrize("how", ["in place", "by .data"])
def test_parameters_that_a_forward_writes_are_written_once(how: str) -> None:
    def trained(modes: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(Follows(how, 1), Follows(how, 1), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ModeSet.parse(modes, "cpu").attach(model)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        return model.state_dict()

    plain, found = trained(""), trained("checkpoint")
    assert all(torch.equal(found[name], value) for name, value in plain.items())


def test_a_forward_that_begins_to_write_later_is_told_and_writes_once() -> None:
    torch.manual_seed(0)
    block = Follows("in place", 3)
    model = nn.Sequential(block, Follows("in place", 99), nn.Linear(4, 2))
    ModeSet.parse("checkpoint", "cpu").attach(model)
    x = torch.randn(8, 4)
    for _ in range(2):
        model(x).sum().backward()
    expected = block.teacher.weight * 0.9 + block.student.weight * 0.1
    with pytest.warns(RuntimeWarning, match="writes weight of its parameters"):
        model(x).sum().backward()
    torch.testing.assert_close(block.teacher.weight, expected)
    expected = block.teacher.weight * 0.9 + block.student.weight * 0.1
    model(x).sum().backward()
    torch.testing.assert_close(block.teacher.weight, expected)


def test_copies_of_large_buffers_are_held_only_of_those_that_changed() -> None:
    torch.manual_seed(0)  # weights under which no mean stays what it was
    model = wide()
    ModeSet.parse("checkpoint", "cpu").attach(model)

    def wide_ones() -> list[torch.Tensor]:
        found = (thing for thing in gc.get_objects() if type(thing) is torch.Tensor)
        return [tensor for tensor in found if tensor.shape == (17_000,)]

    before = wide_ones()  # held, so that none of other tests' goes meanwhile
    loss = model(torch.randn(4, 17_000)).sum()
    known = {id(tensor) for tensor in before}
    made = [tensor for tensor in wide_ones() if id(tensor) not in known]
    assert len(made) == 2 * 2, "a mean and a variance of each block, not the tables"
    loss.backward()


def test_without_gradients_nothing_is_computed_twice() -> None:
    model = cnn()
    calls: list[nn.Module] = []
    model[0][0].conv.register_forward_hook(lambda module, *_: calls.append(module))
    ModeSet.parse("checkpoint", "cpu").attach(model)
    with torch.no_grad():
        model(torch.randn(2, 4, 8, 8))
    assert len(calls) == 1
    model(torch.randn(2, 4, 8, 8)).sum().backward()
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("checkpoint:layers", "has no module 'layers'.*containers of blocks in it are: 0"),
        ("checkpoint:2", "'2', a Linear, cannot be checkpointed"),
    ],
)
def test_a_module_that_is_not_there_is_refused_with_those_that_are(
    text: str, sentence: str
) -> None:
    refusal = ModeSet.parse(text, "cpu").refusal(cnn())
    assert re.search(sentence, refusal)


def test_it_stands_among_the_modes_with_the_containers_of_the_model() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleList(Attending() for _ in range(2))
            self.decoder = nn.ModuleList(Attending() for _ in range(4))

    def state(model: nn.Module, modes: str) -> Any:
        states = mode_states(ModeSet.parse(modes, "cpu"), model, StepTimings())
        return next(state for state in states if state.name == "checkpoint")

    found = state(Two(), "")
    assert [choice.value for choice in found.choices] == ["off", "auto", "decoder", "encoder"]
    assert [c.value for c in state(cnn(), "checkpoint:0").choices] == ["off", "auto", "0"]
    assert state(nn.Linear(3, 3), "").badge.detail == "model has no blocks"


def test_a_path_keeps_its_case_and_prints_as_it_is_read() -> None:
    modeset = ModeSet.parse("BF16 + Checkpoint:Blocks", "cpu")
    assert str(modeset) == "checkpoint:Blocks+bf16"
    assert str(ModeSet.parse("checkpoint", "cpu")) == "checkpoint"
    assert modeset.refusal(Named()) == ""
    with pytest.raises(ValueError, match="the path of a module"):
        ModeSet.parse("checkpoint:", "cpu")
    assert isinstance(modeset["checkpoint"], Checkpoint)


def test_a_block_with_function_transforms_is_answered_with_the_name_of_the_mode(
    tmp_path: Path,
) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steep = torch.func.grad(lambda w: (w**2).sum())(self.weight)
            return x + steep

    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Inner(), Inner()), nn.Linear(8, 3))
    data = torch.randn(32, 8), torch.arange(32) % 3
    exp = Experiment(model, data, batch_size=16, runs=tmp_path, device="cpu")
    exp.step(1).wait(120)
    exp.modes = "checkpoint"
    with pytest.raises(RunError, match=r"mode checkpoint .* a block here uses torch\.func"):
        exp.step(1).wait(120)
    exp.modes = ""
    exp.resume_from_failure().wait(120)
    assert exp.step_count == 2
    exp.close()


class LeNet(nn.Module):
    """Layers straight in the model: nothing in it is a block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x[:, None]).relu().amax((2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, num_layers=2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def in_experiment(model: nn.Module, runs: Path, modes: str) -> Experiment:
    data = torch.randn(16, 6, 6), torch.arange(16) % 3
    return Experiment(model, data, batch_size=8, runs=runs, device="cpu", modes=modes)


@pytest.mark.parametrize("make", [LeNet, Recurrent])
def test_on_a_model_without_blocks_it_says_that_it_does_nothing(make: Make, tmp_path: Path) -> None:
    sentence = f"mode checkpoint has no effect on {make.__name__}: model has no blocks"
    exp = in_experiment(make(), tmp_path, "checkpoint")
    assert [note for note in exp.notes if note.startswith(sentence)]
    assert sentence in exp.message
    assert sentence in exp.summary()
    states = mode_states(exp.modeset, exp.model, exp.timings)
    state = next(state for state in states if state.name == "checkpoint")
    assert (state.badge.text, state.badge.detail) == ("no effect", "model has no blocks")
    (choice,) = [choice for choice in state.choices if choice.value == "auto"]
    assert "no blocks" in choice.why
    assert choice.remedy
    exp.modes = ""
    assert not [note for note in exp.notes if "no effect" in note]
    exp.modes = "checkpoint+bf16"
    assert [note for note in exp.notes if note.startswith(sentence)]
    assert "no effect" in exp.message
    assert exp.modes == "checkpoint+bf16", "what is printed can be read again"
    exp.model = cnn()
    assert not [note for note in exp.notes if "no effect" in note]
    exp.model = make()
    assert [note for note in exp.notes if note.startswith(sentence)]
    exp.close()


def test_a_loop_of_ones_own_is_warned() -> None:
    modes = workbench.Modes("checkpoint")
    sentence = "mode checkpoint has no effect on LeNet: model has no blocks"
    with pytest.warns(RuntimeWarning, match=sentence) as seen:
        modes.prepare(LeNet())
    assert seen[0].filename == __file__
    modes = workbench.Modes("")
    model = modes.prepare(LeNet())
    with pytest.warns(RuntimeWarning, match=sentence):
        modes.set("checkpoint")
    modes.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modes.prepare(cnn())
    assert model is not None


def test_where_every_block_has_a_forward_of_its_own_it_says_so(tmp_path: Path) -> None:
    model = cnn()
    for block in model[0]:
        block.forward = types.MethodType(type(block).forward, block)
    exp = in_experiment(model, tmp_path, "checkpoint")
    assert any("its blocks have a forward that is not their class's" in one for one in exp.notes)
    exp.close()


def test_a_path_stays_valid_while_the_model_runs_under_it(tmp_path: Path) -> None:
    model = cnn()
    ModeSet.parse("checkpoint:0", "cpu").attach(model)
    for text in ("checkpoint:0+bf16", "checkpoint", "checkpoint:0"):
        modeset = ModeSet.parse(text, "cpu")
        assert modeset.refusal(model) == ""
        assert modeset.without_effect(model) == {}
