"""Where an operation runs, and what torch counts of it."""

import torch
from torch import nn

from workbench.torch_private import autograd, dispatch, modules


def test_the_code_of_a_modules_call_is_on_the_stack() -> None:
    seen = []

    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frame = dispatch.caller()
            while frame is not None:
                seen.append(frame.f_code)
                frame = frame.f_back
            return x

    Looks()(torch.ones(1))
    assert modules.MODULE_CALL in seen


def test_a_backward_knows_the_node_that_runs() -> None:
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = (x * 2).sum()
    node = y.grad_fn
    assert node is not None
    assert not autograd.in_backward()
    node.next_functions[0][0].register_prehook(
        lambda _gradients: seen.append((autograd.in_backward(), autograd.running_node()))
    )
    y.backward()
    ((inside, running),) = seen
    assert inside
    assert autograd.node_number(running) < autograd.node_number(node) < autograd.current_sequence()


def test_the_work_of_a_product() -> None:
    product = torch.ops.aten.mm.default
    assert dispatch.has_formula(product)
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    assert dispatch.flops_of(product, (a, b), {}, a @ b) == 2 * 2 * 3 * 4
    assert not dispatch.has_formula(torch.ops.aten.relu.default)


def test_a_module_that_compiles_itself() -> None:
    module = nn.Linear(1, 1)
    assert not dispatch.is_compiled(module)
    module.compile(backend="eager")
    assert dispatch.is_compiled(module)
