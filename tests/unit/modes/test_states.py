from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from workbench.modes import ModeSet, StepTimings, mode_states
from workbench.modes.precision import Precision
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
