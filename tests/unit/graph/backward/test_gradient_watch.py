"""What backward handed to every node, against gradients taken another way."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench as wb
from workbench.graph.core import walk as capture


def column(record, name):
    return {
        node.name or node.type: float(getattr(record, f"node_gradient_{name}")[node.index])
        for node in record.nodes
    }


def test_leaves_get_what_backward_gave_them(early_exit):
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    late, early = early_exit(x)
    loss = F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)
    view = wb.graph(loss)
    loss.backward()
    norm, largest = column(view.record, "norm"), column(view.record, "max")
    zeros, bad = column(view.record, "zeros"), column(view.record, "non_finite")
    for name, parameter in early_exit.named_parameters():
        gradient = parameter.grad
        assert norm[name] == pytest.approx(gradient.norm().item(), rel=1e-5)
        assert largest[name] == pytest.approx(gradient.abs().max().item(), rel=1e-6)
        assert zeros[name] == pytest.approx((gradient == 0).float().mean().item())
        assert bad[name] == 0
    assert view.record.gradients
    assert view.record.non_finite is None


def test_nodes_get_the_gradient_of_their_output(classifier, batch):
    x, y = batch
    hidden = classifier[1](classifier[0](x))
    hidden.retain_grad()
    loss = F.cross_entropy(classifier[2](hidden), y)
    view = wb.graph(loss)
    loss.backward()
    relu = next(node for node in view.record.nodes if node.type == "ReluBackward0")
    assert relu.gradient_norm == pytest.approx(hidden.grad.norm().item())


def test_several_outputs_count_together():
    w = torch.randn(6, requires_grad=True)
    small, large = w.split([2, 4])
    loss = (small * 2).sum() + (large * 3).sum()
    view = wb.graph(loss)
    loss.backward()
    assert column(view.record, "norm")["SplitWithSizesBackward0"] == pytest.approx((8 + 36) ** 0.5)


def test_a_view_says_what_it_lacks_until_backward_has_run(classifier, batch):
    loss = F.cross_entropy(classifier(batch[0]), batch[1])
    view = wb.graph(loss)
    assert not view.record.gradients
    assert view.record is view.record  # nothing is copied while there is nothing new
    assert repr(view).endswith("no gradients yet")
    assert "No gradients yet" in str(view)
    loss.backward()
    assert "no gradients" not in repr(view).lower()
    assert "Gradient norm" in str(view)


def test_a_backward_inside_the_watched_one_is_not_measured(classifier, batch):
    x, y = batch
    inner = F.cross_entropy(classifier(x), y) * 100
    logits = classifier(x)
    logits.register_hook(lambda _: inner.backward())  # as a reentrant checkpoint does
    loss = F.cross_entropy(logits, y)
    view = wb.graph(loss, model=classifier)
    expected = torch.autograd.grad(F.cross_entropy(classifier(x), y), classifier[2].weight)[0]
    loss.backward()
    weight = next(node for node in view.record.nodes if node.name == "2.weight")
    assert weight.gradient_norm == pytest.approx(expected.norm().item())


def test_backwards_on_other_threads_that_share_the_leaves_are_not_measured(classifier, batch):
    expected = (
        torch.autograd.grad(F.cross_entropy(classifier(batch[0]), batch[1]), classifier[2].weight)[
            0
        ]
        .norm()
        .item()
    )
    found = []

    def train():
        for _ in range(20):
            loss = F.cross_entropy(classifier(batch[0]), batch[1])
            view = wb.graph(loss, model=classifier)
            loss.backward()
            found.append(column(view.record, "norm")["2.weight"])

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [pytest.approx(expected)] * 80


def test_gradients_false_leaves_the_graph_alone(classifier, batch):
    loss = F.cross_entropy(classifier(batch[0]), batch[1])
    view = wb.graph(loss, gradients=False)
    loss.backward()
    assert not view.record.gradients
    assert "yet" not in repr(view)


def test_a_block_watches_the_backward_it_captures(classifier, batch):
    with wb.graph(classifier) as view:
        F.cross_entropy(classifier(batch[0]), batch[1]).backward()
    assert view.record.gradients
    weight = classifier[0].weight
    assert column(view.record, "norm")["0.weight"] == pytest.approx(weight.grad.norm().item())


def test_the_first_of_two_backwards_is_measured():
    w = torch.ones(2, requires_grad=True)
    loss = (w * 3).sum()
    view = wb.graph(loss)
    loss.backward(retain_graph=True)
    loss.backward()
    assert column(view.record, "norm")["w"] == pytest.approx(18**0.5)
    assert w.grad.tolist() == [6, 6]


def test_another_loss_with_the_same_parameters_is_not_ours():
    w = torch.ones(2, requires_grad=True)
    ours, other = (w * 3).sum(), (w * 5).sum()
    view = wb.graph(ours)
    other.backward()
    assert not view.record.gradients
    ours.backward()
    assert column(view.record, "norm")["w"] == pytest.approx(18**0.5)


def test_a_part_of_the_graph_leaves_the_rest_unknown():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    loss = (a.exp() + b.sin()).sum()
    view = wb.graph(loss)
    torch.autograd.grad(loss, [a])
    norms = {node.type: node.gradient_norm for node in view.record.nodes}
    assert norms["ExpBackward0"] == pytest.approx(2**0.5)
    assert norms["SinBackward0"] is None
    assert any("did not run in backward" in note for note in view.record.notes)


def test_a_backward_that_raises_is_reported_and_can_be_repeated():
    class Fails(torch.autograd.Function):
        broken = True

        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if Fails.broken:
                raise ValueError("no gradient today")
            return grad

    w = torch.ones(2, requires_grad=True)
    loss = Fails.apply(w * 2).sum()
    view = wb.graph(loss)
    with pytest.raises(ValueError, match="today"):
        loss.backward(retain_graph=True)
    assert any("did not run to its end" in note for note in view.record.notes)
    Fails.broken = False
    loss.backward()
    assert column(view.record, "norm")["w"] == pytest.approx(8**0.5)
    assert not any("to its end" in note for note in view.record.notes)


def test_a_fault_of_ours_is_a_note_and_no_error(monkeypatch):
    from workbench.graph.backward import gradient_watch as gradients

    def broken(*_):
        raise RuntimeError("measured wrongly")

    monkeypatch.setattr(gradients, "measure", broken)
    w = torch.ones(3000, requires_grad=True)
    loss = (w * 2).sum()
    view = wb.graph(loss)
    loss.backward()
    assert w.grad.unique().tolist() == [2]
    assert any("measured wrongly" in note for note in view.record.notes)


def test_backward_on_another_thread(classifier, batch):
    loss = F.cross_entropy(classifier(batch[0]), batch[1])
    view = wb.graph(loss)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert view.record.gradients
    assert min(view.record.node_gradient_non_finite) == 0


def test_double_backward_is_not_part_of_ours():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (w**3).sum()
    view = wb.graph(loss)
    (gradient,) = torch.autograd.grad(loss, [w], create_graph=True)
    assert column(view.record, "norm")["PowBackward0"] == pytest.approx(2**0.5)
    gradient.sum().backward()
    assert w.grad.tolist() == [6, 12]
    again = wb.graph(gradient.sum())
    assert {node.kind for node in again.record.nodes} >= {"operation"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_runs_its_forward_once_more_only(reentrant):
    layer, calls = nn.Linear(3, 3), []
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    x = torch.randn(2, 3, requires_grad=True)
    loss = checkpoint(layer, x, use_reentrant=reentrant).sum()
    view = wb.graph(loss)
    loss.backward()
    assert len(calls) == 2
    assert view.record.gradients
    assert column(view.record, "norm")["x"] == pytest.approx(x.grad.norm().item())


def test_a_scaler_is_said_and_not_divided_out_of_a_plain_loss():
    w = torch.ones(2, requires_grad=True)
    loss = (w * 2).sum()
    view = wb.graph(loss)
    (loss * 1024).backward()
    assert column(view.record, "norm")["w"] == pytest.approx(2048 * 2**0.5)
    assert any("a gradient of 1,024" in note for note in view.record.notes)


def test_a_compiled_model():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="aot_eager")
    loss = compiled(torch.randn(5, 3)).sum()
    view = wb.graph(loss, model=model)
    loss.backward()
    (node,) = [node for node in view.record.nodes if node.kind == "compiled"]
    assert node.gradient_norm == pytest.approx(10**0.5)
    norms = column(view.record, "norm")
    assert norms["0.weight"] == pytest.approx(model[0].weight.grad.norm().item())


def test_a_hook_of_the_user_that_changes_a_gradient_in_place():
    w = torch.ones(4, requires_grad=True)
    middle = w.exp()
    middle.register_hook(lambda gradient: gradient.mul_(3))
    loss = (middle.view(2, 2) * 5).sum()
    view = wb.graph(loss)
    loss.backward()
    norms = column(view.record, "norm")
    assert norms["ViewBackward0"] == pytest.approx(10)
    assert norms["w"] == pytest.approx(w.grad.norm().item())
    assert norms["ExpBackward0"] == pytest.approx(30)


class View(torch.autograd.Function):
    """Named as an operation that hands on what it got; hands on the first value, broadcast."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient[:1].expand(gradient.shape)


def complex_sum(a, b, weight):
    return ((a + torch.complex(b, b)) * weight).abs().sum()


def real_times_complex(a, b, weight):
    return ((a - weight) * (weight + b)).abs().sum()


def conjugated(a, b, weight):
    z = (a + weight).conj()
    return (z * weight + b).imag.square().sum() + (z.conj().imag.unsqueeze(0) * b).sum()


def broadcast(a, b, weight):
    return (View.apply(a) * weight.real).sum() + View.apply(b + 1).square().sum()


def strided(a, b, weight):
    z = torch.view_as_real(torch.complex(a, b) * weight)
    return (z[:, 0].view(-1, 2).t() + a.view(-1, 2).t()).square().sum() + z.flip(0).exp().sum()


@pytest.mark.parametrize("size", [4, 6_000])
@pytest.mark.parametrize("make", [complex_sum, real_times_complex, conjugated, broadcast, strided])
def test_a_gradient_over_the_same_memory_need_not_be_the_same(make, size):
    """Every node against a plain hook of torch; large gradients go another way than small ones."""
    a, b = (torch.randn(size, requires_grad=True) for _ in range(2))
    loss = make(a, b, torch.randn(size, dtype=torch.complex64))
    true: dict[object, tuple[float, float]] = {}
    nodes = capture.walk(loss.grad_fn).nodes

    def note(node):
        def hook(gradients):
            values = torch.cat([g.abs().reshape(-1).double() for g in gradients if g is not None])
            true[node] = values.norm().item(), values.max().item()

        return hook

    for node in nodes:
        node.register_prehook(note(node))
    view = wb.graph(loss)
    loss.backward()
    record = view.record
    assert len(true) == len(record.node_type)
    for row, node in enumerate(nodes):
        found = record.node_gradient_norm[row], record.node_gradient_max[row]
        assert found == pytest.approx(true[node], rel=1e-5), node


@pytest.mark.parametrize("size", [4, 6_000])
def test_a_parameter_may_be_a_gradient(size):
    w = torch.randn(size, requires_grad=True)
    out = w.view(2, -1).t()
    view = wb.graph(out)
    given = nn.Parameter(torch.randn(size // 2, 2))
    out.backward(given)
    norm = given.detach().norm().item()
    assert list(column(view.record, "norm").values()) == [pytest.approx(norm, rel=1e-5)] * 3


def test_hooks_are_gone_after_backward_and_with_their_view():
    w = torch.ones(2, requires_grad=True)
    for has_backward in (True, False):
        loss = (w * 2).sum()
        view = wb.graph(loss)
        leaf = weakref.ref(view._watch._hooks._tables[0])
        assert len(leaf()) == 1
        if has_backward:
            loss.backward()
            assert not leaf()
            assert view.record.gradients
        del view
        assert not leaf()


def test_nothing_of_a_watched_graph_is_kept(classifier, batch):
    x, y = batch
    hidden = classifier[0](x)
    loss = F.cross_entropy(classifier[2](classifier[1](hidden)), y)
    view = wb.graph(loss)
    refs = [weakref.ref(hidden), weakref.ref(loss)]
    del hidden
    loss.backward()
    del loss
    assert [ref() for ref in refs] == [None, None]
    assert view.record.gradients


def test_captures_do_not_pile_up(classifier, batch):
    x, y = batch

    def capture():
        loss = F.cross_entropy(classifier(x), y)
        view = wb.graph(loss)
        loss.backward()
        return view.record.loss

    for _ in range(20):
        capture()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        capture()
    gc.collect()
    assert len(gc.get_objects()) - before < 200


def test_a_loop_of_200_steps():
    cell = nn.LSTMCell(4, 8)
    x = torch.randn(200, 3, 4)
    state = None
    for step in x:
        state = cell(step, state)
    loss = state[0].pow(2).mean()
    view = wb.graph(loss)
    loss.backward()
    assert len(view.record.node_type) > 2_000
    norms = column(view.record, "norm")
    for name, parameter in cell.named_parameters():
        assert norms[name] == pytest.approx(parameter.grad.norm().item(), rel=1e-4)


def test_losses_are_the_same_to_the_bit():
    def losses(captures):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2))
        head = nn.Linear(8, 10)
        optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 0.01)
        found = []
        for step in range(50):
            x, y = torch.randn(8, 3, 10, 10), torch.randint(0, 10, (8,))
            loss = F.cross_entropy(head(model(x).mean((2, 3))), y)
            view = wb.graph(loss) if captures and step % 10 == 0 else None
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            assert view is None or view.record.gradients
        return found

    assert losses(captures=True) == losses(captures=False)


def test_a_gradient_that_counts_no_writes_is_measured_where_it_arrives():
    """Its version says nothing: what a hook wrote into it would be measured as it was before."""
    x = torch.ones(700, 700, requires_grad=True)
    a = x * 2
    b = a + torch.ones(700, 700)
    b.register_hook(torch.inference_mode()(lambda gradient: gradient * 2))
    a.register_hook(torch.inference_mode()(lambda gradient: gradient.mul_(1000)))
    loss = (b * 1).sum()
    view = wb.graph(loss)
    loss.backward()
    made_a = next(node for node in view.record.nodes if node.type == "MulBackward0")
    assert made_a.gradient_norm == pytest.approx(x.grad.norm().item() / 2, rel=1e-3)
