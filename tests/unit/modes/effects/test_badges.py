from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from workbench.modes import ModeSet, StepTimings, refresh
from workbench.modes.effects.badges import badge, duration, factor, power, short_count
from workbench.modes.effects.compared import Compared, Judged
from workbench.modes.effects.statistics import spread
from workbench.records import Badge
from workbench.records.compare import Verdict

CPU = torch.device("cpu")


class Bench:
    """Trains nothing: writes step times as a run would have."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.timings = StepTimings()
        self.rng = np.random.default_rng(0)

    def train(self, modes: str, median: float, steps: int = 60, first: float | None = None) -> None:
        text = str(ModeSet.parse(modes, CPU))
        if first is not None:
            self.timings.first_step(text, first)
        for noise in self.rng.normal(size=steps):
            self.timings.add(text, median * float(np.exp(0.02 * noise)))

    def badge(self, modes: str, name: str) -> Badge:
        modeset = ModeSet.parse(modes, CPU)
        return badge(modeset[name], modeset, self.timings, self.model)


@pytest.fixture
def bench(make_early_exit: Callable[[], nn.Module]) -> Bench:
    return Bench(make_early_exit())


@pytest.fixture
def attention_bench(make_attends: Callable[[], nn.Module]) -> Bench:
    return Bench(make_attends())


def line(found: Badge) -> tuple[str, str, str]:
    return found.kind, found.text, found.detail


def test_before_anything_ran_defaults_are_baseline_and_the_rest_not_measured(bench: Bench) -> None:
    assert line(bench.badge("", "compile")) == ("baseline", "baseline", "")
    assert line(bench.badge("bf16", "precision")) == ("todo", "not measured", "")


def test_compile_says_what_it_gains_and_when_it_has_paid(bench: Bench) -> None:
    bench.train("", 0.0140)
    bench.train("compile", 0.0100, first=3.13)
    found = bench.badge("compile", "compile")
    assert found.kind == "good"
    assert found.text == "1.4× faster"
    paid = int(found.detail.removeprefix("pays back after ").removesuffix(" steps"))
    assert paid == pytest.approx(780, rel=0.05)
    assert "blocks: median 10.0" in found.tooltip.replace("9.9", "10.0")
    assert "60 steps" in found.tooltip
    assert "first step 3.13 s" in found.tooltip


def test_precision_says_what_it_gains_and_how_far_the_logits_moved(bench: Bench) -> None:
    bench.train("compile", 0.0120)
    bench.train("compile+bf16", 0.0100, first=5.0)
    bench.timings.parity("compile+bf16", 0.00312)
    found = bench.badge("compile+bf16", "precision")
    assert line(found) == ("good", "1.2× faster", "max |Δ logit| 3e-3")
    assert "first step" not in found.tooltip


def test_logits_that_moved_for_another_reason_are_not_blamed_on_the_mode(bench: Bench) -> None:
    bench.train("", 0.020)
    bench.train("compile+bf16", 0.015, first=9.0)
    bench.train("compile", 0.010, first=9.0)
    bench.timings.parity("compile", 0.02)
    found = bench.badge("compile", "compile")
    assert found.text == "2.0× faster"
    assert "logit" not in found.tooltip


def test_a_loss_is_said_as_plainly_as_a_gain(bench: Bench) -> None:
    bench.train("", 0.010)
    bench.train("fp16", 0.123)
    assert line(bench.badge("fp16", "precision"))[:2] == ("bad", "12× slower")
    bench.train("compile:whole", 0.0110, first=14.0)
    assert line(bench.badge("compile:whole", "compile")) == (
        "bad",
        "1.1× slower",
        "first step took 14.0 s",
    )


def test_no_verdict_without_support(bench: Bench) -> None:
    bench.train("", 0.010)
    bench.train("bf16", 0.010)
    found = bench.badge("bf16", "precision")
    assert (found.kind, found.text) == ("none", "no clear effect")
    low, high = found.detail.removesuffix(" speed").replace("×", "").split(" to ")
    assert float(low) <= 1.0 <= float(high)


def test_an_interval_too_wide_to_mean_anything_is_not_printed(bench: Bench) -> None:
    bench.train("", 0.010)
    text = str(ModeSet.parse("bf16", CPU))
    for index in range(24):
        bench.timings.add(text, 0.1 if index % 2 else 0.002)
    assert line(bench.badge("bf16", "precision")) == (
        "none",
        "unclear",
        "step times vary too much",
    )


def test_a_badge_is_not_fooled_by_another_mode_changing_too(bench: Bench) -> None:
    bench.train("", 0.020)
    bench.train("compile+bf16", 0.010)
    assert line(bench.badge("compile+bf16", "precision")) == (
        "todo",
        "not measured",
        "no steps with compile and fp32 yet",
    )


def compared(ratio: float, verdict: Verdict, first_s: float = 3.0) -> Compared:
    change = Judged(ratio, ratio * 0.97, ratio * 1.03, verdict=verdict)
    return Compared(change, spread([0.010] * 15), spread([0.010 / ratio] * 15), first_s)


def test_what_was_compared_in_turns_goes_before_what_a_run_measured(bench: Bench) -> None:
    bench.train("", 0.010)
    bench.train("bf16", 0.005)
    bench.timings.take_over(
        {
            ("fp32", "bf16"): compared(0.5, "slower"),
            ("fp32", "fp16"): compared(0.8, "slower"),
            ("fp32", "compile"): compared(1.25, "faster"),
            ("fp32", "compile:whole"): compared(1.01, "unclear"),
        }
    )
    found = bench.badge("bf16", "precision")
    assert line(found) == ("bad", "2.0× slower", "")
    assert found.tooltip == (
        "bf16: 20.0 ms a step, fp32: 10.0 ms, measured in turns by wb.compare, 15 rounds"
    )
    assert line(bench.badge("", "precision")) == ("baseline", "baseline", "fp16: 1.2× slower")
    assert line(bench.badge("", "compile")) == ("baseline", "baseline", "blocks: 1.2× faster")
    paid = "pays back after 1.50k steps"
    assert line(bench.badge("compile", "compile")) == ("good", "1.2× faster", paid)
    unclear = ("none", "unclear", "0.98× to 1.04× speed")
    assert line(bench.badge("compile:whole", "compile")) == unclear
    bench.timings.take_over({("fp32", "compile:whole"): compared(1.01, "tie")})
    tie = ("none", "tie", "0.98× to 1.04× speed")
    assert line(bench.badge("compile:whole", "compile")) == tie
    # of sets that were not compared, what the run measured stands
    bench.train("compile+bf16", 0.0025, first=1.0)
    assert bench.badge("compile+bf16", "compile").text == "2.0× faster"


def test_progress_towards_a_measurement_is_shown(bench: Bench) -> None:
    bench.train("", 0.010)
    bench.train("bf16", 0.005, steps=4)
    assert line(bench.badge("bf16", "precision")) == ("todo", "not measured", "4 of 20 steps")


def test_without_the_default_the_value_compared_with_is_named(bench: Bench) -> None:
    bench.train("compile", 0.012)
    bench.train("compile:whole", 0.010)
    assert bench.badge("compile:whole", "compile").text == "1.2× faster than blocks"


def test_back_at_the_default_the_alternative_is_remembered(bench: Bench) -> None:
    bench.train("", 0.014)
    bench.train("compile", 0.010)
    found = bench.badge("", "compile")
    assert line(found) == ("baseline", "baseline", "blocks: 1.4× faster")
    assert "blocks: median" in found.tooltip


def test_a_model_without_attention_has_nothing_to_choose(
    bench: Bench, attention_bench: Bench
) -> None:
    assert line(bench.badge("", "attention")) == ("none", "no effect", "model has no attention")
    assert line(attention_bench.badge("", "attention")) == ("baseline", "baseline", "")


def test_a_missing_compiler_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor.cpp_builder import cpp_compiler_search

    with monkeypatch.context() as machine:
        machine.setenv("PATH", str(tmp_path))
        cpp_compiler_search.cache_clear()
        refresh()
        assert line(bench.badge("", "compile")) == ("warn", "needs a C++ compiler", "")
    cpp_compiler_search.cache_clear()
    refresh()
    assert bench.badge("", "compile").kind == "baseline"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (factor(1.38), "1.4×"),
        (factor(1.049), "1.05×"),
        (factor(0.8), "0.8×"),
        (factor(37.8), "38×"),
        (duration(14.02), "14.0 s"),
        (duration(0.01213), "12.1 ms"),
        (duration(141e-6), "141 µs"),
        (duration(0.9999), "1.00 s"),
        (short_count(780), "780"),
        (short_count(12_345), "12.3k"),
        (power(3.12e-3), "3e-3"),
        (power(2e-6), "2e-6"),
        (power(0.0), "0"),
        (power(float("inf")), "not finite"),
    ],
)
def test_figures_have_three_digits_and_a_unit(shown: str, expected: str) -> None:
    assert shown == expected
