from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.capture.record_builder import ELSEWHERE
from workbench.graph.forward.forward_trace import Trace


def hooks_of(model):
    return [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks, *module._forward_pre_hooks)
    ]


def test_hooks_and_mode_are_gone_after_the_block_and_after_an_error(classifier, batch):
    from torch.overrides import _get_current_function_mode_stack as stack

    def fail():
        with wb.graph(classifier):
            assert hooks_of(classifier)
            classifier(torch.ones(2, 7))

    with pytest.raises(RuntimeError, match="mat1"):
        fail()
    assert hooks_of(classifier) == []
    assert stack() == []


def test_an_exception_caught_inside_the_model_leaves_the_right_owner(batch):
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.broken, self.good = nn.Linear(9, 9), nn.Linear(3, 2)

        def forward(self, x):
            try:
                self.broken(x)
            except RuntimeError:
                x = x * 2
            return self.good(x).relu()

    model = Careful()
    with wb.graph(model):
        loss = model(batch[0]).sum()
    owners = {n.op: n.module for n in wb.graph(loss).record.nodes if n.kind == "operation"}
    assert owners == {"linear": "good", "relu": "", "sum": "loss"}


def test_a_module_called_many_times_owns_every_call(batch):
    cell = nn.Linear(3, 3)
    model = nn.ModuleDict({"cell": cell})
    with wb.graph(model):
        loss = cell(cell(cell(batch[0]))).sum()
    record = wb.graph(loss).record
    assert [n.module for n in record.nodes if n.type == "AddmmBackward0"] == ["cell"] * 3


def test_a_forward_on_another_thread_is_inferred_and_said_so(classifier, batch):
    x, y = batch
    losses = []
    with wb.graph(classifier):
        for _ in range(40):
            torch.ones(1, requires_grad=True) * 2
        thread = threading.Thread(target=lambda: losses.append(F.cross_entropy(classifier(x), y)))
        thread.start()
        thread.join()
        trace = wb.graph(losses[0], model=classifier)
    record = trace.record
    assert {n.module for n in record.nodes if n.type == "AddmmBackward0"} <= {"0", "2"}
    assert record.notes
    assert ELSEWHERE


def test_function_transforms_inside_a_block_run_as_without_it(classifier, batch):
    parameters = dict(classifier.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(classifier, parameters, (x,)).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    expected = per_sample(parameters, batch[0])
    with wb.graph(classifier) as view:
        found = per_sample(parameters, batch[0])
        loss(parameters, batch[0]).backward()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {n.module for n in view.record.nodes} == {"0", "1", "2", "loss"}


def test_the_numbers_do_not_change(classifier, batch):
    x, y = batch

    def losses(traced):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        found = []
        for step in range(6):
            optimizer.zero_grad()
            if traced and step % 2:
                with wb.graph(model):
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
            else:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(traced=True) == losses(traced=False)


def test_a_users_own_mode_inside_the_block_keeps_its_place(classifier, batch):
    from torch.overrides import TorchFunctionMode

    calls = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with wb.graph(classifier), Log():
        classifier(batch[0]).sum()
    assert calls.count("linear") == 2


def test_stopping_twice_is_harmless(classifier):
    trace = Trace({"": classifier})
    trace.start()
    assert trace.stop().calls == trace.stop().calls == ()


class Gelu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.inner(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Gelu(4), Gelu(4)])
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def per_block(model):
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model, model


def whole(model):
    model.compile(backend="aot_eager")
    return model, model


def wrapped(model):
    compiled = torch.compile(model, backend="aot_eager")
    return compiled, compiled


def wrapped_but_the_original_is_traced(model):
    return model, torch.compile(model, backend="aot_eager")


def forward_only(model):
    model.forward = torch.compile(model.forward, backend="aot_eager")
    return model, model


@pytest.mark.parametrize(
    ("compiled", "owners"),
    [
        (per_block, ["blocks.0", "blocks.1"]),
        (whole, [""]),
        (wrapped, [""]),
        (wrapped_but_the_original_is_traced, [""]),
        (forward_only, [""]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_compiled_model_is_not_compiled_again(compiled, owners):
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    traced, model = compiled(Net())
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 0])
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
    before = {name: dict(counts) for name, counts in counters.items()}
    with torch._dynamo.config.patch(error_on_recompile=True):
        with wb.graph(traced) as view:
            F.cross_entropy(model(x), y).backward()
        F.cross_entropy(model(x), y).backward()
    assert {name: dict(counts) for name, counts in counters.items()} == before

    nodes = [n for n in view.record.nodes if n.kind == "compiled"]
    assert [n.module for n in nodes] == owners
    assert all(n.op == "compiled" and n.source is not None for n in nodes)
    assert sum(n.saved_bytes for n in nodes) > 0
    names = {n.name for n in view.record.nodes if n.kind == "parameter"}
    modules = ("blocks.0.inner", "blocks.1.inner", "head")
    assert names == {f"{m}.{p}" for m in modules for p in ("weight", "bias")}


def test_forward_seconds_are_those_of_the_module_with_all_it_contains():
    import time

    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            time.sleep(0.02)
            return self.linear(x)

    model = nn.ModuleDict({"slow": nn.Sequential(Slow(), Slow()), "fast": nn.Linear(3, 2)})
    with wb.graph(model):
        slow = model["slow"](torch.ones(2, 3))
        begun = time.perf_counter()
        fast = model["fast"](slow), model["fast"](torch.ones(2, 3))
        fast_s = time.perf_counter() - begun
        loss = fast[0].sum() + fast[1].sum()
    seconds = {m.path: m.forward_s for m in wb.graph(loss).record.modules}
    assert seconds["slow"] >= seconds["slow.0"] + seconds["slow.1"] >= 0.04
    assert 0 < seconds["slow.0.linear"] < seconds["slow.0"] - 0.015
    assert 0 < seconds["fast"] <= fast_s
    assert seconds[""] is None  # a ModuleDict is not called
    assert seconds["loss"] is None


def graph_and_gradients(record, model):
    norms = {n.name: n.gradient_norm for n in record.nodes if n.kind == "parameter"}
    for name, parameter in model.named_parameters():
        assert norms[name] == pytest.approx(parameter.grad.norm().item(), rel=1e-5)
    return {n.op for n in record.nodes if n.kind == "operation"}


def test_a_backward_called_as_a_function_is_captured(classifier, batch):
    with wb.graph(classifier) as view:
        torch.autograd.backward(F.cross_entropy(classifier(batch[0]), batch[1]))
    assert "cross_entropy" in graph_and_gradients(view.record, classifier)
    assert view.record.saved_bytes > 0
    assert view.record.notes == ()


def test_a_backward_of_several_tensors_shows_the_first_and_says_so(classifier, batch):
    with wb.graph(classifier) as view:
        out = classifier(batch[0])
        torch.autograd.backward([out.exp().sum(), out.sin().sum()])
    ops = graph_and_gradients(view.record, classifier)
    assert "exp" in ops
    assert "sin" not in ops
    assert any("began at 2 tensors" in note for note in view.record.notes)


def test_gradients_taken_by_torch_autograd_grad_are_captured(classifier, batch):
    parameters = list(classifier.parameters())
    with wb.graph(classifier) as view:
        loss = F.cross_entropy(classifier(batch[0]), batch[1])
        found = torch.autograd.grad(loss, parameters)
    assert loss.grad_fn is not None
    assert view.record.saved_bytes > 0
    norms = {n.type: n.gradient_norm for n in view.record.nodes}
    assert norms["NllLossBackward0"] == pytest.approx(1)
    assert len(found) == 4


def test_a_gradient_penalty_gives_way_to_the_loss(classifier, batch):
    x = batch[0].requires_grad_()
    with wb.graph(classifier) as view:
        score = classifier(x).tanh().sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        (score + slope.square().sum()).backward()
    record = view.record
    assert "square" in graph_and_gradients(record, classifier)
    assert record.nodes[record.root].op == "add"
