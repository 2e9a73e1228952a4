"""Sites are read from the stack and from autograd's numbers; nothing is hooked, nothing guessed."""

from __future__ import annotations

import torch
from torch import nn

from workbench.memory import memory
from workbench.memory.recording.attribution import LOSS, Attribution


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).relu()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Inner(), Inner()])
        self.shared = self.parts[0].fc

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x * 2


def modules_of(record, op: str) -> list[str]:
    rows = (record.block_op == record.strings.index(op)).nonzero()[0]
    return [record.strings[record.block_module[row]] for row in rows]


def test_an_operation_belongs_to_the_innermost_module():
    model = Outer()
    with memory() as mem:
        model(torch.ones(2, 8))
    assert modules_of(mem.record, "aten.relu") == ["parts.0", "parts.1"]
    assert modules_of(mem.record, "aten.addmm") == ["parts.0.fc", "parts.1.fc"]
    assert modules_of(mem.record, "aten.mul") == ["Outer"], "the root's own, under its class"


def test_what_the_root_holds_itself_is_of_its_class():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, foreach=False)
    with memory() as mem:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    record = mem.record
    named = {
        record.strings[name]: record.strings[module]
        for name, module in zip(record.block_name, record.block_module, strict=True)
        if record.strings[name] != "input"
    }
    for name in ("weight", "bias", "weight.grad", "bias.momentum_buffer"):
        assert named[name] == "Linear"
    assert modules_of(record, "aten.addmm") == ["Linear"]


def test_backward_belongs_to_the_module_whose_forward_made_the_node():
    model = Outer()
    with memory() as mem:
        model(torch.ones(2, 8)).sum().backward()
    assert modules_of(mem.record, "aten.threshold_backward") == ["parts.1", "parts.0"]


def test_a_graph_made_before_the_recording_has_no_module_and_no_guess():
    loss = Outer()(torch.ones(2, 8)).sum()
    with memory() as mem:
        loss.backward()
    assert set(modules_of(mem.record, "aten.threshold_backward")) == {""}


def test_forward_code_outside_modules_is_the_loss():
    model = Outer()
    with memory() as mem:
        nn.functional.mse_loss(model(torch.ones(2, 8)), torch.ones(2, 8)).backward()
    assert modules_of(mem.record, "aten.mse_loss") == [LOSS]
    assert modules_of(mem.record, "aten.mse_loss_backward") == [LOSS]


def test_a_custom_functions_backward_belongs_to_its_module():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + x

        @staticmethod
        def backward(ctx, grad):
            return grad.mul(2)

    class Doubling(nn.Module):
        def forward(self, x):
            return Double.apply(x)

    model = nn.Sequential(nn.Linear(8, 8), Doubling())
    with memory() as mem:
        model(torch.ones(2, 8)).sum().backward()
    assert modules_of(mem.record, "aten.mul") == ["1"]
    row = int((mem.record.block_op == mem.record.strings.index("aten.mul")).nonzero()[0][0])
    assert mem.record.sources[mem.record.block_source[row]].text == "return grad.mul(2)"


def test_a_step_with_a_closure_has_its_forward_and_backward_told_apart():
    model = Outer()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).pow(2).mean()
        loss.backward()
        return loss

    with memory() as mem:
        optimizer.step(closure)
    names = [phase.name for phase in mem.record.phases]
    first = names.index("forward")
    assert names[first : first + 3] == ["forward", "backward", "optimizer"]


def test_no_hook_and_no_attribute_is_left_on_any_module():
    model = Outer()
    before = [dict(vars(module)) for module in model.modules()]
    with memory():
        model(torch.ones(2, 8)).sum().backward()
        during = [len(module._forward_hooks) for module in model.modules()]
    assert set(during) == {0}
    assert [set(vars(module)) for module in model.modules()] == [set(names) for names in before]


def test_paths_of_later_roots_start_with_their_class():
    attribution = Attribution()
    assert attribution.add_root(Outer()) == ""
    assert attribution.add_root(Inner()) == "Inner"
    assert attribution.add_root(nn.CrossEntropyLoss()) == LOSS
