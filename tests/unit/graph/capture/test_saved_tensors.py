from __future__ import annotations

import gc
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench as wb


def test_a_storage_is_counted_once_and_shared_after_that():
    x = torch.randn(8, requires_grad=True)
    y = x.exp()  # saves its own result
    record = wb.graph((y * y.sin()).sum()).record
    by_type = {node.type: node for node in record.nodes}
    assert by_type["ExpBackward0"].saved_bytes == 32
    assert by_type["SinBackward0"].shared_bytes == 32
    assert by_type["SinBackward0"].saved_bytes == 0
    assert by_type["MulBackward0"].saved_bytes == 32  # sin(y)
    assert by_type["MulBackward0"].shared_bytes == 32  # y
    assert record.saved_bytes == 64


def test_parameters_buffers_and_inputs_are_apart(classifier, batch):
    x, y = batch
    model = nn.Sequential(nn.BatchNorm1d(3), classifier)
    record = wb.graph(F.cross_entropy(model(x), y), model=model).record
    assert record.input_bytes == x.nbytes + y.nbytes
    assert record.buffer_bytes == 2 * 3 * 4  # running mean and variance
    weights = (model[0].weight, classifier[0].weight, classifier[2].weight)
    assert record.parameter_bytes == sum(weight.nbytes for weight in weights)


def test_after_backward_the_graph_is_shown_and_the_loss_of_bytes_said(classifier, batch):
    x, y = batch
    loss = F.cross_entropy(classifier(x), y)
    before = wb.graph(loss).record
    loss.backward()
    view = wb.graph(loss)
    assert "No gradients yet" not in str(view)  # there is no second backward to wait for
    after = view.record
    assert after.node_type.tolist() == before.node_type.tolist()
    assert (before.saved_bytes, after.saved_bytes) == (124, 0)
    assert any("Backward has already run" in note for note in after.notes)
    assert not any("Backward has already run" in note for note in before.notes)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.num_forwards = 0

    def forward(self, x):
        self.num_forwards += 1
        return torch.tanh(self.linear(x)).exp()


def test_checkpointed_code_is_not_run_again():
    for reentrant in (False, True):
        block = Counted()
        x = torch.randn(2, 4, requires_grad=True)
        with wb.graph(block):
            loss = checkpoint(block, x, use_reentrant=reentrant).sum()
        record = wb.graph(loss).record
        assert block.num_forwards == 1
        types = {node.type for node in record.nodes}
        if reentrant:
            assert "CheckpointFunctionBackward" in types
            assert record.saved_bytes == torch.get_rng_state().nbytes  # all it keeps
        else:
            assert {n.module for n in record.nodes if n.type == "TanhBackward0"} == {""}
            assert any("checkpointing" in note for note in record.notes)
            assert record.saved_bytes == 0
        loss.backward()
        assert block.num_forwards == 2


def test_tensors_that_a_hook_moved_are_still_counted(classifier, batch):
    x, y = batch
    with torch.autograd.graph.save_on_cpu():
        loss = F.cross_entropy(classifier(x), y)
    assert wb.graph(loss).record.saved_bytes > 0


def test_values_packed_into_something_else_are_said_to_be_missing():
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: "packed", lambda t: x):
        loss = (x**2).sum()
    record = wb.graph(loss).record
    assert record.saved_bytes == 0
    assert any("1 saved values were packed" in note for note in record.notes)


def test_a_custom_function_counts_what_it_saved_and_what_it_stashed():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.exp())
            ctx.stash = {"sine": x.sin(), "scale": 2}
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    record = wb.graph(Odd.apply(torch.randn(8, requires_grad=True)).sum()).record
    (node,) = [n for n in record.nodes if n.type == "OddBackward"]
    assert node.op == "Odd"
    assert node.saved_bytes == 64


def test_nothing_of_the_step_stays_alive(classifier, batch):
    """Without the garbage collector: reference counts alone must release it."""
    x, y = batch

    def step():
        with wb.graph(classifier) as traced:
            hidden = classifier[0](x)
            out = classifier[2](hidden.exp())
            loss = F.cross_entropy(out, y)
        views = [wb.graph(loss), wb.graph(loss, model=classifier), traced]
        return views, weakref.ref(hidden), weakref.ref(loss), weakref.ref(out)

    gc.disable()
    try:
        views, *references = step()
        assert [reference() for reference in references] == [None] * 3
        assert views[0].record.saved_bytes > 0
    finally:
        gc.enable()


def test_a_deleted_variable_is_gone_at_once(classifier, batch):
    """Reading the caller's variables must leave no copy of them on its frame."""
    hidden = classifier[0](batch[0])
    reference = weakref.ref(hidden)
    loss = hidden.sum()
    wb.graph(loss)
    del hidden, loss
    assert reference() is None


def test_a_dictionary_of_the_callers_locals_keeps_what_is_in_it(classifier, batch):
    settings = locals()
    wb.graph(classifier(batch[0]).sum())
    assert settings["batch"] is batch


def test_the_model_is_free_after_a_traced_block(batch):
    model = nn.Linear(3, 2)
    reference = weakref.ref(model)
    with wb.graph(model) as traced:
        model(batch[0]).sum().backward()
    del model
    gc.collect()
    assert reference() is None
    assert traced.record.model == "Linear"
