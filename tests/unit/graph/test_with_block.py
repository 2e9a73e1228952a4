"""What a ``with wb.graph(model):`` block may do to the code around it: nothing."""

from __future__ import annotations

import copy
import copyreg
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import workbench as wb
from workbench.graph import with_block
from workbench.graph.capture.record_builder import ELSEWHERE


def num_hooks(model):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


class Unhookable(nn.Linear):
    def register_forward_hook(self, *args, **kwargs):
        raise TypeError("no hooks here")


def test_a_block_that_cannot_begin_leaves_nothing_behind(classifier, batch):
    model = nn.Sequential(nn.Linear(3, 3), Unhookable(3, 3))
    with pytest.raises(TypeError, match="no hooks here"), wb.graph(model):
        pass
    assert num_hooks(model) == 0
    assert _get_current_function_mode_stack() == []
    with wb.graph(classifier) as view:  # the thread is free for the next block
        classifier(batch[0]).sum().backward()
    assert view.has_record


def test_an_interrupt_in_a_block_leaves_nothing_behind(classifier, batch):
    def interrupted():
        with wb.graph(classifier):
            classifier(batch[0]).sum().item()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert num_hooks(classifier) == 0
    assert _get_current_function_mode_stack() == []


def test_a_copy_made_in_a_block_is_not_watched_after_it(classifier, batch):
    with wb.graph(classifier) as view:
        average = copy.deepcopy(classifier)
        trace = view._trace
        classifier(batch[0]).sum().backward()
    seen = len(trace.result().owner_at)
    average(batch[0])
    assert len(trace.result().owner_at) == seen


class SavesItself(nn.Linear):
    """Pickled by a route of its own, like `torch.fx.GraphModule`."""

    def __reduce__(self):
        return _rebuilt, (self.__dict__.copy(),)


def _rebuilt(variables):
    found = SavesItself.__new__(SavesItself)
    nn.Module.__init__(found)
    found.__dict__.update(variables)
    return found


def said(*_):
    """A hook of the user's own."""


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def test_a_model_is_saved_and_copied_in_a_block_as_outside_of_it(batch):
    model = nn.Sequential(nn.Linear(3, 4), torch.compile(nn.ReLU()), SavesItself(4, 2))
    model[0].register_forward_hook(said)
    outside = saved(model), pickle.dumps(model)
    table = dict(copyreg.dispatch_table)
    with wb.graph(model) as view:
        model[0](batch[0])
        inside = saved(model), pickle.dumps(model)
        copies = copy.deepcopy(model), copy.copy(model), pickle.loads(inside[1])
        model[2](model[0](batch[0])).sum().backward()
    assert inside == outside
    assert view.has_record
    assert copyreg.dispatch_table == table
    assert [num_hooks(one) for one in copies] == [1, 1, 1]
    assert list(copies[0][0]._forward_hooks.values()) == [said]
    assert all(set(vars(one)) == set(vars(model)) for one in copies)
    assert num_hooks(model) == 1


def test_a_reducer_of_the_users_own_stays(monkeypatch, batch):
    class Counted(nn.Linear):
        pass

    def reduced(module):
        return nn.Linear, (module.in_features, module.out_features)

    monkeypatch.setitem(copyreg.dispatch_table, Counted, reduced)
    model = Counted(3, 2)
    with wb.graph(model):
        assert type(copy.deepcopy(model)) is nn.Linear
        model(batch[0]).sum().backward()
    assert copyreg.dispatch_table[Counted] is reduced


def test_later_backwards_in_a_block_hold_no_nodes(classifier, batch):
    """A cut (``item``) holds the node that made its value until somebody has looked at it."""
    with wb.graph(classifier):
        for _ in range(3):
            logits = classifier(batch[0])
            loss = logits.sum()
            loss.item()
            loss.backward()
        alive = weakref.ref(logits)
        del logits, loss
        gc.collect()
        assert alive() is None
        assert with_block._running[threading.get_ident()]._trace._cuts._pending == []


def test_later_backwards_in_a_block_cost_no_look_at_what_came_before(
    classifier, batch, monkeypatch
):
    with wb.graph(classifier):
        classifier(batch[0]).sum().backward()
        with monkeypatch.context() as patch:
            patch.delattr(with_block.Trace, "result")
            for _ in range(3):
                classifier(batch[0]).sum().backward()


def test_a_capture_that_fails_does_not_stop_the_backward(classifier, batch, monkeypatch):
    def fail(*_args, **_kwargs):
        raise ZeroDivisionError("by chance")

    monkeypatch.setattr(with_block, "capture_graph", fail)
    with wb.graph(classifier) as view:
        classifier(batch[0]).sum().backward()
    assert classifier[0].weight.grad is not None
    assert "could not be captured (ZeroDivisionError: by chance)" in str(view)
    with pytest.raises(RuntimeError, match="by chance"):
        _ = view.record


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_modules_are_owners_though_they_take_no_hooks(batch):
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.scripted(x))

    model = Mixed()
    for watched, paths in ((model, {"scripted", "head"}), (model.scripted, {""})):
        with wb.graph(watched) as view:
            watched(batch[0]).sum().backward()
        operations = [node for node in view.record.nodes if node.kind == "operation"]
        assert {node.module for node in operations} == paths | {"loss"}
        assert all(node.source is not None for node in operations)
        assert "_compiled_call_impl" not in vars(model.scripted)


def test_numbers_that_another_thread_took_as_well_tell_no_module_and_no_line(batch):
    """Each thread counts its nodes from 0: a number may stand for two nodes of one graph."""

    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            found = []
            thread = threading.Thread(target=lambda: found.append(self.net(x)))
            thread.start()
            thread.join()
            return self.head(found[0])

    model, views = Parallel(), []

    def step():
        with wb.graph(model) as view:
            model(batch[0]).sum().backward()
        views.append(view)

    fresh = threading.Thread(target=step)  # whose numbers start where the other thread's do
    fresh.start()
    fresh.join()
    record = views[0].record
    owners = {(node.type, node.module) for node in record.nodes if node.kind == "operation"}
    assert ("TanhBackward0", "net") in owners
    assert {module for kind, module in owners if kind == "AddmmBackward0"} == {
        "net.0",
        "net.2",
        "head",
    }
    assert ELSEWHERE in record.notes
    assert not any("Tanh" in n.type and n.source is not None for n in record.nodes)


def test_a_backward_from_a_gradient_edge_is_not_said_to_be_none(classifier, batch):
    edge, weight = torch.autograd.graph.get_gradient_edge, classifier[0].weight
    with wb.graph(classifier) as view:  # torch shows it to no mode
        torch.autograd.backward(edge(classifier(batch[0]).sum()))
    assert weight.grad is not None
    assert "no loss was seen" in str(view)
    assert "GradientEdge" in str(view)
    with wb.graph(classifier) as view:  # this it shows, for the sake of the inputs
        torch.autograd.backward(edge(classifier(batch[0]).sum()), inputs=[weight])
    assert "this backward ran" in str(view)
    assert "began at a GradientEdge" in str(view)
    with pytest.raises(RuntimeError, match="give backward the tensor"):
        _ = view.record
    with wb.graph(classifier) as view:  # one that has a tensor is shown all the same
        torch.autograd.backward([edge(classifier(batch[0]).sum())], inputs=[weight])
        classifier(batch[0]).sum().backward()
    assert view.record.gradients


def test_a_gradient_edge_beside_a_loss_is_told(classifier, batch):
    with wb.graph(classifier) as view:
        loss, other = (classifier(batch[0]).sum() for _ in range(2))
        torch.autograd.backward([torch.autograd.graph.get_gradient_edge(other), loss])
    (note,) = [note for note in view.record.notes if "began at" in note]
    assert "1 tensor and 1 GradientEdge together" in note
    weight = next(node for node in view.record.nodes if node.name == "0.weight")
    assert weight.gradient_norm == pytest.approx(classifier[0].weight.grad.norm().item())
