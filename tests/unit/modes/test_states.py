from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from workbench.modes import ModeSet, StepTimings, mode_states
from workbench.modes.effects.compared import Compared, Judged
from workbench.modes.effects.statistics import spread
from workbench.modes.precision.mode import Precision
from workbench.records import to_json


def test_the_panel_gets_every_mode_with_its_choices_in_order(
    make_early_exit: Callable[[], nn.Module],
) -> None:
    modeset = ModeSet.parse("compile:whole+bf16", torch.device("cpu"))
    states = mode_states(modeset, make_early_exit(), StepTimings())
    assert [(s.label, s.value, s.default) for s in states] == [
        ("Compile", "whole", "off"),
        ("Precision", "bf16", "fp32"),
        ("Attention", "auto", "auto"),
        ("Checkpoint", "off", "off"),
        ("Parallel", "off", "off"),
    ]
    assert [c.value for c in states[0].choices] == ["off", "blocks", "whole"]
    assert [c.value for c in states[1].choices] == list(Precision.values)
    assert [s.badge.kind for s in states] == ["todo", "todo", "none", "baseline", "baseline"]
    assert to_json(states)[0]["badge"]["text"] == "not measured"


def test_what_this_experiment_has_measured_is_what_a_choice_says(
    make_early_exit: Callable[[], nn.Module],
) -> None:
    """Its own steps go before a product's ratio, and a comparison in turns before its own steps."""
    modeset, timings = ModeSet.parse("bf16", torch.device("cpu")), StepTimings()
    model = make_early_exit()

    def said() -> tuple[str, str]:
        state = next(one for one in mode_states(modeset, model, timings) if one.name == "precision")
        choice = next(one for one in state.choices if one.value == "bf16")
        assert next(one for one in state.choices if one.value == "fp32").why == ""
        return choice.why, choice.remedy

    assert "products of" in said()[0]
    for modes, seconds in (("fp32", 0.010), ("bf16", 0.027)):
        for _ in range(40):
            timings.add(modes, seconds)
    assert said() == (
        "2.7× slower than fp32 in steps of this experiment: bf16: median 27.0 ms, middle half "
        "27.0 ms to 27.0 ms, 40 steps; fp32: median 10.0 ms, middle half 10.0 ms to 10.0 ms, "
        "40 steps.",
        "Use fp32 here.",
    )
    times = spread([0.010] * 12)
    change = Judged(1.5, 1.4, 1.6, verdict="faster")
    timings.take_over({("fp32", "bf16"): Compared(change, times, times, 1.0)})
    why, remedy = said()
    assert why.startswith("1.5× faster than fp32 in steps of this experiment: bf16: ")
    assert why.endswith("measured in turns by wb.compare, 12 rounds.")
    assert remedy == ""
