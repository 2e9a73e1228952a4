"""fp16's gradient scaler in an experiment: what it did is said, logged and never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.integration.support import net, weights
from workbench.experiment import Experiment
from workbench.experiment.loop import measures
from workbench.modes import mode_states

LABEL = "Gradient scale"


def steep(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Its gradients, times the first scale of 65,536, are past fp16's 65,504 until it is halved."""
    return cross_entropy(logits, targets) * 64


def experiment(folder: Path, **options: Any) -> Experiment:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(160, 6, generator=generator), torch.arange(160) % 3
    settings: dict[str, Any] = {"modes": "fp16", "loss": steep, "batch_size": 8, "seed": 1}
    return Experiment(net(), data, runs=folder, device="cpu", **{**settings, **options})


def said(exp: Experiment) -> str:
    return {fact.label: fact.value for fact in exp.facts()}.get(LABEL, "")


def logged(exp: Experiment, name: str) -> dict[int, float]:
    exp.scalars.flush()
    steps, values = exp.scalars.since(name, 0)
    return dict(zip(steps.tolist(), values.tolist(), strict=True))


def test_facts_say_what_was_skipped_and_where(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    assert said(exp) == "65,536; no step yet"
    exp.run(steps=20, wait=True)
    scaler = exp.modeset["precision"].scaler
    assert scaler.num_skipped > 0, "the loss was made for it"
    assert said(exp).startswith(f"{65_536 / 2**scaler.num_skipped:,.6g}; ")
    assert f"{scaler.num_skipped} of 20 steps skipped, first at step 1 (2.weight)" in said(exp)


def test_the_badge_says_so_while_it_trains(tmp_path: Path) -> None:
    """The panel shows facts before a run only."""
    exp = experiment(tmp_path)
    exp.run(steps=20, wait=True)
    states = {state.name: state for state in mode_states(exp.modeset, exp.model, exp.timings)}
    assert states["precision"].badge.tooltip.endswith(f"gradient scale {said(exp)}")
    assert "gradient scale" not in states["attention"].badge.tooltip


def test_there_is_no_such_fact_without_a_scaler(tmp_path: Path) -> None:
    exp = experiment(tmp_path, modes="bf16")
    exp.run(steps=2, wait=True)
    assert said(exp) == ""
    assert logged(exp, "precision/scale") == {}


def test_every_skip_is_logged_however_few_steps_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "ALL_UNTIL", 1)
    monkeypatch.setattr(measures, "EVERY", 1000)
    exp = experiment(tmp_path)
    exp.run(steps=20, wait=True)
    skipped = exp.modeset["precision"].scaler.num_skipped
    counts, scales = logged(exp, "precision/skipped"), logged(exp, "precision/scale")
    assert list(counts.values()) == [float(n) for n in range(1, skipped + 1)]
    assert scales == {step: 2.0 ** (16 - count) for step, count in counts.items()}


def test_what_is_known_survives_a_detour_and_counts_go_on(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=12, wait=True)
    before = said(exp)
    exp.modes = "bf16"
    exp.run(steps=3, wait=True)
    assert said(exp) == ""
    exp.modes = "fp16"
    exp.run(steps=1, wait=True)
    assert said(exp) == before.replace(" of 12 steps", " of 13 steps")


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_step_that_raised_in_its_update_leaves_the_scaler_as_it_was(
    tmp_path: Path, clip: float | None
) -> None:
    exp = experiment(tmp_path, clip_grad_norm=clip)
    exp.run(steps=12, wait=True)
    before, kept = said(exp), weights(exp)
    state = exp.modeset.state_dict()

    def fail(*_: object) -> None:
        raise RuntimeError("the update broke")

    hook = exp.optimizer.register_step_pre_hook(fail)
    with pytest.raises(RuntimeError, match="the update broke"):
        exp.run(steps=1, wait=True)
    hook.remove()
    assert said(exp) == before
    assert all(torch.equal(a, b) for a, b in zip(weights(exp), kept, strict=True))
    exp.run(steps=1, wait=True)
    after = exp.modeset.state_dict()["precision"]
    assert after["skips"]["steps"] == 13
    assert after["scaler"]["_growth_tracker"] == state["precision"]["scaler"]["_growth_tracker"] + 1


def test_a_captured_step_that_is_undone_counts_nothing(tmp_path: Path) -> None:
    import workbench as wb

    exp = experiment(tmp_path)
    exp.run(epochs=1, wait=True)
    before = said(exp)
    wb.memory(exp)
    assert said(exp) == before


def test_named_as_the_model_names_it_after_a_swap(tmp_path: Path) -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    exp = experiment(tmp_path, loss=lambda logits, y: cross_entropy(logits, y) * 1e9)
    exp.model = Other()
    exp.run(steps=2, wait=True)
    assert "first at step 1 (head.weight), last at step 2 (head.weight)" in said(exp)
