from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.experiment.loop.probe import StepContext
from workbench.graph import GraphProbe


def data(size=96):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


@pytest.fixture
def experiment(tmp_path):
    made = []

    def make(**options):
        loader = torch.utils.data.DataLoader(data(), batch_size=16, shuffle=True)
        exp = wb.Experiment(network(), loader, runs=tmp_path, seed=3, device="cpu", **options)
        made.append(exp)
        return exp

    yield make
    for exp in made:
        exp.stop()


def test_an_idle_experiment_runs_one_step_for_its_graph(experiment):
    exp = experiment()
    view = wb.graph(exp)
    record = view.record
    assert record.step == 1
    assert record.experiment == exp.name
    assert record.loss == pytest.approx(0.7, abs=0.5)
    assert {n.module for n in record.nodes if n.kind == "operation"} == {"0", "1", "2", "3", "loss"}
    assert record.notes == ()
    assert record.input_bytes > 0


def test_captures_do_not_change_the_losses(experiment):
    def losses(captures):
        exp = experiment(name=f"run-{captures}")
        for _ in range(4):
            if captures:
                wb.graph(exp)
            else:
                exp.step(1).wait()
        run = exp.run(steps=4, wait=True)
        return run.metrics["train/loss"]["value"].tolist()

    assert losses(captures=True) == losses(captures=False)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x):
        return self.layers(x)


def test_a_compiled_model_is_captured_without_recompiling():
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    model, (x, y) = Net(), data()[:16]
    model.compile(backend="aot_eager")
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
    before = dict(counters["stats"])
    record = captured(model, (x, y), compiled=True)
    assert dict(counters["stats"]) == before
    assert [n.op for n in record.nodes if n.kind == "compiled"] == ["compiled"]


def captured(model, batch, compiled=False):
    probe = GraphProbe()
    context = StepContext(
        name="exp",
        step=7,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        device=torch.device("cpu"),
        batch=batch,
        compiled=compiled,
    )
    probe.before_step(context)
    probe.before_forward()
    loss = F.cross_entropy(model(batch[0]), batch[1])
    probe.after_forward(loss)
    loss.backward()
    probe.after_backward()
    return probe.finish()


def test_the_batch_is_not_counted_as_saved():
    model, batch = network(), data()[:16]
    record = captured(model, batch)
    assert record.input_bytes == sum(part.untyped_storage().nbytes() for part in batch)
    assert record.title == "Sequential, step 7"


def test_a_first_step_that_warms_up_gives_no_module_times(experiment):
    exp = experiment()
    first, second = wb.graph(exp).record, wb.graph(exp).record
    assert (first.step, second.step) == (1, 2)
    assert {module.forward_s for module in first.modules} == {None}
    assert all(m.forward_s > 0 for m in second.modules if m.path.isdigit())


def test_the_backward_of_the_captured_step_is_watched(experiment):
    record = wb.graph(experiment()).record
    assert record.gradients
    assert record.notes == ()
    norms = {n.name: n.gradient_norm for n in record.nodes if n.kind == "parameter"}
    assert len(norms) == 6
    assert all(norm > 0 for norm in norms.values())


def test_a_gradient_scalers_scale_is_divided_out(experiment):
    plain, scaled = (
        wb.graph(experiment(name=f"run-{modes}", modes=modes)).record for modes in ("fp32", "fp16")
    )
    assert scaled.notes == ("Gradients are divided by the gradient scaler's 65,536.",)
    for a, b in zip(parameters(plain), parameters(scaled), strict=True):
        assert b.gradient_norm == pytest.approx(a.gradient_norm, rel=0.1, abs=1e-3)


def parameters(record):
    return sorted((n for n in record.nodes if n.kind == "parameter"), key=lambda n: n.name)


def test_a_loss_that_is_not_finite_is_traced_though_its_step_was_refused(tmp_path):
    inputs, labels = data(16).tensors
    inputs[3, 2] = float("nan")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))  # samples stay apart
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels), batch_size=16
    )
    exp = wb.Experiment(model, loader, runs=tmp_path, seed=3, device="cpu")
    handle = exp.capture(GraphProbe())
    with pytest.raises(ArithmeticError, match="loss is NaN"):
        exp.run(steps=1, wait=True)
    record = handle.wait(timeout=120)
    exp.stop()
    assert record.non_finite.in_forward
    assert len(record.non_finite.samples) == 1
    assert record.non_finite.text.startswith("An input of linear in 0")


def test_without_gradients_the_graph_alone_is_captured(experiment):
    exp = experiment()
    record = exp.capture(GraphProbe(gradients=False)).wait()
    assert not record.gradients


def test_a_step_that_failed_before_its_loss_says_so():
    model, batch = network(), data()[:16]
    probe = GraphProbe()
    probe.before_step(
        StepContext(
            name="exp",
            step=1,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            device=torch.device("cpu"),
            batch=batch,
            compiled=False,
        )
    )
    probe.before_forward()
    with pytest.raises(RuntimeError, match="before its loss"):
        probe.finish()
    assert not any(module._forward_hooks for module in model.modules())
