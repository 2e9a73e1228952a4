"""Fails when a private name of torch that recordings stand on moves or changes its meaning."""

from __future__ import annotations

import torch
from torch import nn

from workbench.memory.recording.recorder import Recorder
from workbench.torch_private import autograd, contexts, memory, modules, tensors


def frames_during(run) -> list:
    found = []
    frame = memory.caller(0)
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def test_a_modules_call_runs_under_the_known_code_with_the_module_as_self():
    class Probe(nn.Module):
        def forward(self):
            return [f for f in frames_during(self) if f.f_code is modules.MODULE_CALL]

    module = Probe()
    (frame,) = module()
    assert frame.f_locals["self"] is module


def test_an_optimizers_step_runs_under_the_known_wrapper():
    class Probe(torch.optim.SGD):
        def step(self, closure=None):
            self.frames = [
                frame.f_locals["args"][0]
                for frame in frames_during(self)
                if (frame.f_code.co_filename, frame.f_code.co_name) == memory.OPTIMIZER_STEP
            ]

    optimizer = Probe([torch.zeros(1, requires_grad=True)], lr=0.1)
    optimizer.step()
    assert optimizer.frames[0] is optimizer


def test_backward_runs_under_the_known_codes_and_names_its_node():
    seen = {}

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen["node"] = autograd.running_node()
            seen["number"] = autograd.node_number(seen["node"])
            seen["codes"] = {frame.f_code for frame in frames_during(ctx)}
            return grad

    assert autograd.running_node() is None
    x = torch.ones(1, requires_grad=True)
    before = autograd.current_sequence()
    out = Probe.apply(x)
    out.sum().backward()
    assert seen["number"] == before
    assert seen["node"].name() == "ProbeBackward"
    assert seen["codes"] & memory.BACKWARD_CALLS


def test_the_engine_says_whether_it_is_at_work():
    seen = []

    def hook(grad: torch.Tensor) -> None:
        seen.append(autograd.in_backward())

    x = torch.ones(1, requires_grad=True)
    x.register_hook(hook)
    (x * 2).backward()
    assert seen == [True]
    assert not autograd.in_backward()


def test_the_wrappers_of_a_transform_are_seen_through():
    seen = []

    def square(x: torch.Tensor) -> torch.Tensor:
        seen.append(memory.without_transforms(x))
        return (x * x).sum()

    data = torch.ones(3, 2)
    torch.func.vmap(torch.func.grad(square))(data)
    assert seen[0].untyped_storage().data_ptr() == data.untyped_storage().data_ptr()
    assert memory.without_transforms(data) is data


def test_the_code_of_grad_stands_below_the_engine():
    codes = []

    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            frame = memory.caller(0)
            while frame is not None:
                codes.append(frame.f_code)
                frame = frame.f_back
            return grad * 2

    x = torch.ones(1, requires_grad=True)
    torch.autograd.grad(Spy.apply(x), x)
    assert memory.GRAD_CALL in codes


def test_a_storage_key_is_one_per_storage():
    base = torch.ones(4)
    assert tensors.storage_identity(base.untyped_storage()) == tensors.storage_identity(
        base[1:].untyped_storage()
    )
    assert tensors.storage_identity(base.untyped_storage()) != tensors.storage_identity(
        torch.ones(4).untyped_storage()
    )


def test_plain_and_wrapper_tensors_are_told_apart():
    from torch.testing._internal.two_tensor import TwoTensor

    assert not memory.dispatches_itself(torch.Tensor)
    assert not memory.dispatches_itself(nn.Parameter)
    assert memory.dispatches_itself(TwoTensor)


def test_running_modes_are_visible():
    recorder = Recorder()
    with recorder:
        assert contexts.dispatch_modes()[-1] is recorder
    assert recorder not in contexts.dispatch_modes()


def test_a_compiled_wrapper_gives_back_its_module():
    module = nn.Linear(2, 2)
    assert memory.original_module(torch.compile(module)) is module
    assert memory.original_module(module) is module


def test_a_fake_tensor_has_shape_and_storage_and_is_told_from_a_real_one():
    with memory.fake_mode():
        fake = torch.zeros(4, 8) + 1
    assert memory.is_fake(type(fake))
    assert fake.untyped_storage().nbytes() == 4 * 8 * 4
    assert not memory.is_fake(torch.Tensor)
