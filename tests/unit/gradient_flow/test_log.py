"""Gradient flow: what a training records of its gradients, module by module."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment import Experiment, RunError
from workbench.experiment.loop import measures
from workbench.gradient_flow.log import FlowLog, flow_of, gradient_flow, gradient_norms
from workbench.records import NOT_MEASURED, GradientFlow


@pytest.fixture(autouse=True)
def _every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample all steps, however many."""
    monkeypatch.setattr(measures, "EVERY", 1)


class EarlyExit(nn.Module):
    """Leaves before ``late`` where the first feature says so."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.early = nn.Linear(8, 3)
        self.late = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x).relu()
        if x[0, 0] > 0:
            return self.early(h)
        return self.early(h) + self.late(h)


def experiment(tmp_path: Path, model: nn.Module, **options: Any) -> Experiment:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(160, 6, generator=generator)
    options = {"optimizer": "sgd", "batch_size": 16, **options}
    return Experiment(model, (x, torch.arange(160) % 3), runs=tmp_path, device="cpu", **options)


def by_label(flow: GradientFlow) -> dict[str, np.ndarray]:
    return dict(zip([row.label for row in flow.rows], flow.matrix(), strict=True))


def test_every_module_has_its_norm_at_every_step_and_a_gap_where_it_did_not_run(
    tmp_path: Path,
) -> None:
    model = EarlyExit()
    exp = experiment(tmp_path, model)
    wanted: dict[str, list[float]] = {"body": [], "early": [], "late": []}
    ran: list[bool] = []
    step = exp.optimizer.step

    def watched(*args: Any, **kwargs: Any) -> Any:
        for name, norms in wanted.items():
            grads = [p.grad for p in model.get_submodule(name).parameters() if p.grad is not None]
            whole = torch.cat([g.flatten() for g in grads]) if grads else torch.tensor(math.nan)
            norms.append(float(whole.norm()))
        ran.append(model.late.weight.grad is not None)
        return step(*args, **kwargs)

    exp.optimizer.step = watched
    exp.run(steps=10, wait=True)
    flow = gradient_flow(exp)
    assert flow.step.tolist() == list(range(1, 11))
    assert {len(set(ran)), flow.total_sampled} == {2, 10}
    for name, row in by_label(flow).items():
        np.testing.assert_allclose(row, wanted[name], rtol=1e-5)
    assert np.isnan(by_label(flow)["late"]).tolist() == [not yes for yes in ran]
    total = exp.scalars.since("train/gradient_norm", 0)[1]
    np.testing.assert_allclose(np.sqrt(np.nansum(flow.matrix() ** 2, axis=0)), total, rtol=1e-5)
    exp.close()


def test_norms_are_those_before_clipping(tmp_path: Path) -> None:
    found = []
    for limit in (None, 1e-3):
        torch.manual_seed(0)
        exp = experiment(tmp_path, EarlyExit(), clip_grad_norm=limit)
        exp.run(steps=1, wait=True)
        found.append(gradient_flow(exp).matrix())
        exp.close()
    np.testing.assert_array_equal(*found)


def test_losses_do_not_change_with_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    for sampled in (1, 10):
        monkeypatch.setattr(measures, "ALL_UNTIL", sampled)
        monkeypatch.setattr(measures, "EVERY", 1000)
        torch.manual_seed(0)
        exp = experiment(tmp_path, EarlyExit(), clip_grad_norm=0.5)
        exp.run(steps=10, wait=True)
        losses.append(exp.scalars.since("train/loss", 0)[1].tolist())
        exp.close()
    assert losses[0] == losses[1]


def test_a_refused_step_shows_which_gradients_were_not_finite(tmp_path: Path) -> None:
    class SquareRoot(nn.Module):
        """Finite at 0, where its derivative is not."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 3), nn.Linear(3, 3)
            self.at_zero = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            return self.last((h * 0).sqrt() if self.at_zero else h)

    model = SquareRoot()
    exp = experiment(tmp_path, model)
    exp.run(steps=2, wait=True)
    model.at_zero = True
    exp.run(steps=1)
    with pytest.raises(RunError, match="became NaN at step 3"):
        exp.wait()
    assert exp.status == "nan"
    rows = by_label(gradient_flow(exp))
    assert np.isfinite(rows["last"]).all()
    assert np.isfinite(rows["first"]).tolist() == [True, True, False]
    assert rows["first"][2] == np.inf
    model.at_zero = False
    exp.resume_from_failure()
    exp.wait()
    assert gradient_flow(exp).step.tolist()[:4] == [1, 2, 3, 3]
    exp.close()


def test_frozen_modules_are_left_out_and_come_in_when_they_are_unfrozen(tmp_path: Path) -> None:
    model = EarlyExit()
    model.body.requires_grad_(False)
    exp = experiment(tmp_path, model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    exp.run(steps=2, wait=True)
    assert list(by_label(gradient_flow(exp))) == ["early", "late"]
    model.body.requires_grad_(True)
    model.early.requires_grad_(False)
    exp.run(steps=1, wait=True)
    rows = by_label(gradient_flow(exp))
    assert rows["body"][:2].tolist() == [NOT_MEASURED] * 2
    assert rows["body"][2] > 0
    assert rows["early"][2] == NOT_MEASURED
    exp.close()


def test_a_module_that_is_exchanged_in_place_has_a_row_of_its_own(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.body, model.head = nn.Linear(6, 6), nn.Linear(6, 3)
    exp = experiment(tmp_path, model)
    exp.run(steps=2, wait=True)
    del model.head
    model.tail = nn.Linear(6, 3)  # with as many parameters
    exp.optimizer.param_groups[0]["params"][:] = model.parameters()
    exp.run(steps=2, wait=True)
    found = by_label(gradient_flow(exp))
    assert (found["head"] > 0).tolist() == [True, True, False, False]
    assert (found["tail"] > 0).tolist() == [False, False, True, True]
    exp.close()


def test_a_hot_swap_goes_on_in_the_rows_that_stay_and_lets_the_old_model_go(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, EarlyExit())
    exp.run(steps=3, wait=True)
    gone = weakref.ref(exp.model.late.weight)
    new = EarlyExit()
    new.extra, new.late = nn.Linear(8, 3), nn.ReLU()
    new.late.register_forward_hook(lambda module, inputs, output: new.extra(*inputs))
    exp.model = new
    gc.collect()
    assert gone() is None
    exp.run(steps=2, wait=True)
    rows = by_label(gradient_flow(exp))
    assert (rows["body"] > 0).all()
    assert rows["late"][3:].tolist() == [NOT_MEASURED] * 2
    assert rows["extra"][:3].tolist() == [NOT_MEASURED] * 3
    assert len(gradient_flow(exp).step) == 5
    exp.close()


def test_modes_switch_and_two_experiments_keep_apart(tmp_path: Path) -> None:
    first, second = experiment(tmp_path, EarlyExit()), experiment(tmp_path, nn.Linear(6, 3))
    first.run(steps=2)
    second.run(steps=4, wait=True)
    first.wait()
    first.modes = "bf16"
    first.run(steps=2, wait=True)
    assert gradient_flow(first).step.tolist() == gradient_flow(second).step.tolist()
    assert [row.label for row in gradient_flow(second).rows] == ["Linear"]
    assert np.nanmin(gradient_flow(first).matrix()) > 0
    for exp in (first, second):
        exp.close()


def test_nothing_is_kept_alive_and_an_experiment_that_has_not_run_has_no_columns(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, EarlyExit())
    empty = gradient_flow(exp)
    assert (len(empty.step), empty.rows, empty.norm.size) == (0, (), 0)
    exp.run(steps=3, wait=True)
    log, gone = flow_of(exp), weakref.ref(exp.model.body.weight)
    exp.close()
    del exp
    gc.collect()
    assert gone() is None
    assert log.flush() == 0
    kept = [o for o in gc.get_referents(*vars(log).values()) if isinstance(o, torch.Tensor)]
    assert kept == []


def parameters_with(*gradients: torch.Tensor | None) -> nn.ParameterList:
    held = nn.ParameterList()
    for gradient in gradients:
        like = torch.zeros(2) if gradient is None else gradient
        held.append(nn.Parameter(torch.zeros(like.shape, dtype=like.dtype)))
        held[-1].grad = gradient
    return held


def taken(*gradients: torch.Tensor | None) -> tuple[float | None, GradientFlow]:
    log, model = FlowLog(), parameters_with(*gradients)
    total = log.take(model, list(model.parameters()), 1)
    flow = log.record(title="", model="", device="cpu", experiment=None)
    return None if total is None else float(total), flow


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_gradients_of_any_type_are_measured_with_full_precision(dtype: torch.dtype) -> None:
    gradient = torch.full((300,), 1.001, dtype=dtype)
    total, flow = taken(gradient)
    exact = float(gradient.abs().double().norm())
    assert total == pytest.approx(exact, rel=1e-6)
    assert flow.norm.tolist() == pytest.approx([exact], rel=1e-6)


def test_gradients_that_differ_in_kind_are_measured_together() -> None:
    sparse = torch.sparse_coo_tensor([[0, 0]], [3.0, 4.0], (5,))  # the same place twice: 7
    total, _ = taken(sparse, torch.tensor([24.0], dtype=torch.float64), torch.zeros(0))
    assert total == 25


def test_no_gradient_at_all_is_a_column_of_gaps_and_no_norm() -> None:
    total, flow = taken(None, None)
    assert total is None
    assert np.isnan(flow.norm).all()


def test_norms_beyond_the_square_root_of_float32_are_exact() -> None:
    assert taken(torch.tensor([3e30]), torch.tensor([4e30]))[1].norm.tolist() == [
        pytest.approx(5e30)
    ]
    assert taken(torch.tensor([3e-30]), torch.tensor([4e-30]))[1].norm.tolist() == [
        pytest.approx(5e-30)
    ]
    assert taken(torch.tensor([math.nan]), torch.tensor([1.0]))[1].norm.tolist() == [math.inf]


def test_what_has_no_norm_becomes_a_note_and_never_an_error(tmp_path: Path) -> None:
    class Odd:
        requires_grad, grad = True, "no tensor"

    log, model = FlowLog(), nn.Linear(1, 1)
    assert log.take(model, [Odd(), Odd()], 7) is None
    notes = log.record(title="", model="", device="cpu", experiment=None).notes
    assert len(notes) == 1
    assert notes[0].startswith("step 7 could not be measured: AttributeError")


def test_one_kernel_gives_what_one_call_per_gradient_gives() -> None:
    gradients = [torch.randn(7, 5), torch.randn(3)]
    assert gradient_norms(gradients).tolist() == [float(g.norm()) for g in gradients]


def test_an_overflow_in_fp16_shows_where_it_happened_also_when_clipped(tmp_path: Path) -> None:
    found = []
    for limit in (None, 1.0):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        exp = experiment(tmp_path, model, modes="fp16", clip_grad_norm=limit)
        with torch.no_grad():
            model[0].weight *= 3e4
        exp.run(steps=1, wait=True)
        found.append(gradient_flow(exp).matrix()[:, 0].tolist())
        assert exp.status == "finished"
        exp.close()
    assert found[0] == found[1]
    assert math.inf in found[0]
    assert not any(map(math.isnan, found[0]))
