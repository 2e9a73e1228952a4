"""Fails loudly when a private torch API that captures stand on has moved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from workbench.torch_private import autograd as private
from workbench.torch_private import contexts


def test_sequence_numbers_count_nodes():
    x = torch.ones(2, requires_grad=True)
    before = private.current_sequence()
    y = x * 2 + 1
    assert private.current_sequence() == before + 2
    assert private.node_sequence(y.grad_fn) == before + 1
    leaf = y.grad_fn.next_functions[0][0].next_functions[0][0]
    assert private.node_sequence(leaf) == -1
    assert private.node_type(leaf) == "AccumulateGrad"


def test_metadata_describes_every_output():
    parts = torch.ones(4, 2, requires_grad=True).unbind(0)
    metadata = private.output_metadata(parts[0].grad_fn)
    assert [tuple(m.shape) for m in metadata] == [(2,)] * 4
    assert metadata[0].dtype is torch.float32


def test_raw_values_look_without_unpacking():
    unpacked = []
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        node = (x**2).grad_fn
    (value,) = private.raw_values(node, "_raw_saved_self")
    assert value is x
    assert unpacked == []


def test_freed_and_empty_slots_are_told_apart():
    x = torch.ones(3, requires_grad=True)
    y = x * torch.ones(3)  # saves `other`, needs no `self`
    node = y.grad_fn
    assert private.raw_values(node, "_raw_saved_self") == [None]
    assert not private.is_freed(node, "_raw_saved_self")
    y.sum().backward()
    assert private.raw_values(node, "_raw_saved_other") == [None]
    assert private.is_freed(node, "_raw_saved_other")


def test_values_are_given_as_they_were_saved_or_not_at_all():
    x = torch.ones(3, requires_grad=True)
    hidden = x * 1
    y = hidden.log()
    (value,) = private.values_as_saved(y.grad_fn, "_raw_saved_self")
    assert value.grad_fn is hidden.grad_fn
    hidden.zero_()
    assert private.values_as_saved(y.grad_fn, "_raw_saved_self") == []
    result = x.exp()
    (value,) = private.values_as_saved(result.grad_fn, "_raw_saved_result")
    assert value.grad_fn is result.grad_fn
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        node = x.sin().grad_fn
    assert private.values_as_saved(node, "_raw_saved_self") == []
    assert unpacked == []
    parts = torch.cat([x, x]).split(3)
    (value,) = private.values_as_saved((parts[0] * parts[1]).grad_fn, "_raw_saved_other")
    assert (value.grad_fn, value.output_nr) == (parts[1].grad_fn, 1)
    result.sum().backward()
    assert private.values_as_saved(result.grad_fn, "_raw_saved_result") == []


def test_stand_ins_of_function_transforms_are_known():
    seen = []

    def look(x):
        seen.append(private.has_functorch_wrapper(x))
        return x.sum()

    x = torch.ones(2, 3)
    torch.func.grad(look)(x)
    torch.func.vmap(look)(x)
    assert seen == [True, True]
    assert not private.has_functorch_wrapper(x)


def test_a_backward_keeps_its_number_and_one_inside_it_has_its_own():
    x = torch.ones(2, requires_grad=True)
    loss, other, seen = (x * 2).sum(), (x * 3).sum(), []

    def look(_):
        seen.append(private.current_backward())
        if len(seen) == 1:
            other.backward()

    loss.grad_fn.register_prehook(look)
    loss.grad_fn.next_functions[0][0].register_prehook(look)
    other.grad_fn.register_prehook(look)
    loss.backward()
    assert seen[0] == seen[2] != seen[1]
    assert private.current_backward() == -1


def test_a_mode_leaves_the_middle_of_the_stack_and_returns():
    class Named(TorchFunctionMode):
        pass

    from torch.overrides import _get_current_function_mode_stack as stack

    outer, ours, inner = Named(), Named(), Named()
    with outer, ours, inner:
        saved = contexts.without_mode(ours)
        assert stack() == [outer, inner]
        contexts.restore_modes(saved)
        assert stack() == [outer, ours, inner]
    assert stack() == []


def test_compiled_products_are_recognised():
    plain = torch.nn.Linear(2, 2)
    assert private.compiled_call(plain) is None
    private.set_compiled_call(plain, lambda x: "instead")
    assert plain(torch.ones(1, 2)) == "instead"
    private.set_compiled_call(plain, None)
    assert isinstance(plain(torch.ones(1, 2)), torch.Tensor)
    assert not private.has_compiled_forward(plain)
    in_place = torch.nn.Linear(2, 2)
    in_place.compile(backend="eager")
    assert private.compiled_call(in_place) is not None
    assert private.has_compiled_forward(torch.compile(plain, backend="eager"))
    disabled = torch.nn.Linear(2, 2)
    disabled.forward = torch.compiler.disable(disabled.forward)
    assert not private.has_compiled_forward(disabled)


def test_a_hidden_hook_knows_whether_dynamo_watches():
    seen = []
    linear = torch.nn.Linear(2, 2)
    hook = private.unseen_by_dynamo(lambda *_, under_dynamo: seen.append(under_dynamo))
    linear.register_forward_pre_hook(hook)
    linear(torch.ones(1, 2))
    torch.compile(linear, backend="eager")(torch.ones(1, 2))
    assert seen == [False, True]


def test_custom_functions_name_their_class():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    node = Double.apply(torch.ones(2, requires_grad=True)).grad_fn
    assert private.forward_class(node) is Double
    assert private.forward_class(F.relu(torch.ones(2, requires_grad=True)).grad_fn) is None


def test_a_mode_sees_gradients_turned_off():
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is private.set_grad_enabled:
                seen.append(args[0])
            return func(*args, **(kwargs or {}))

    with Watch(), torch.no_grad():
        pass
    assert seen == [False, True]


def test_the_base_of_a_view_is_known_also_without_gradients():
    buffer = torch.zeros(4, 2)
    assert private.base_of(buffer) is None
    assert private.base_of(buffer[0]) is buffer


def test_a_callback_runs_at_the_end_of_backward_on_the_whole_graph():
    order = []
    w = torch.ones(2, requires_grad=True)
    loss = (w * 2).sum()
    leaf = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    leaf.register_prehook(lambda _: order.append("leaf"))
    loss.grad_fn.register_prehook(lambda _: private.at_end_of_backward(lambda: order.append("end")))
    loss.backward()
    assert order == ["leaf", "end"]


def test_modes_can_be_kept_from_seeing_what_we_compute():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Functions(), Operations():
        with private.without_functions(), private.without_dispatch():
            x.sum()
        assert seen == []
        x.sum()
    assert len(seen) == 2


def gathered() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        assert private.gathered_parameters(model) == []
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        loss = model(torch.ones(1, 2)).sum()
        found = private.gathered_parameters(model)
        assert [(owner is model[0], name) for owner, name, _ in found] == [
            (True, "weight"),
            (True, "bias"),
        ]
        relu = loss.grad_fn.next_functions[0][0]
        bias = relu.next_functions[0][0].next_functions[0][0].variable
        assert any(tensor is bias for *_, tensor in found)
    finally:
        dist.destroy_process_group()


def test_the_parameters_that_fsdp_gathers_are_found():
    # DTensor's cache of its thread keeps the process group; a process that is forked later from
    # another thread would end the group, and hang or crash in that
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gathered).result()


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_a_hook_can_detect_that_compiled_autograd_runs_it():
    from torch._dynamo import compiled_autograd

    torch._dynamo.reset()
    said = []
    for is_compiled in (False, True):
        w = torch.ones(2, requires_grad=True)
        loss = (w * 2).sum()
        loss.grad_fn.register_prehook(lambda _: said.append(private.in_compiled_autograd()))
        if is_compiled:
            with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
                loss.backward()
        else:
            loss.backward()
    assert said == [False, True]
    assert not private.in_compiled_autograd()


def test_the_id_of_a_forward_hook_stands_in_the_hook_tables_and_nowhere_else():
    module = torch.nn.ReLU()
    before = module.register_forward_pre_hook(lambda *_: None, with_kwargs=True)
    after = module.register_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
    holding = {
        name
        for name, value in vars(module).items()
        if isinstance(value, dict) and {before.id, after.id} & set(value)
    }
    assert holding == set(private.HOOK_TABLES)


def test_a_hook_of_a_node_stands_in_a_table_under_its_id():
    node = torch.ones(2, requires_grad=True).exp().grad_fn
    for register in (node.register_prehook, node.register_hook):
        handle = register(print)
        assert private.hook_table(handle) == {handle.id: print}
