from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workbench.modes import ModeSet, mode_classes
from workbench.modes.core.base import Mode

Make = Callable[..., nn.Module]
CPU = torch.device("cpu")
EVERY_VALUE = st.fixed_dictionaries({c.name: st.sampled_from(c.values) for c in mode_classes()})


@given(EVERY_VALUE, st.randoms(), st.sampled_from(["+", " + ", "+ "]))
def test_every_set_is_printed_so_that_it_reads_back_as_itself(
    values: dict[str, str], rng: object, plus: str
) -> None:
    ms = ModeSet(values, CPU)
    assert ModeSet.parse(str(ms), CPU) == ms
    tokens = [f"{name}:{value}" for name, value in values.items()]
    rng.shuffle(tokens)
    parsed = ModeSet.parse(plus.join(tokens), CPU)
    assert parsed == ms
    assert {mode.name: mode.value for mode in parsed} == values


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", "fp32"),
        ("fp32", "fp32"),
        ("compile:off", "fp32"),
        ("bf16 + compile", "compile+bf16"),
        ("compile:blocks+precision:bf16", "compile+bf16"),
        ("COMPILE:whole", "compile:whole"),
        ("fp16+attention:math+compile", "attention:math+compile+fp16"),
        ("attention", "attention"),
    ],
)
def test_a_set_prints_its_changes_in_order_of_application(text: str, printed: str) -> None:
    assert str(ModeSet.parse(text, CPU)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fp4", r"unknown mode 'fp4'; valid modes are: compile, .*fp32, tf32, bf16, fp16, fp8"),
        ("bf16+", r"unknown mode ''; valid modes are"),
        ("compile:fast", r"unknown value 'fast' for compile; valid values are: off, blocks, whole"),
        ("bf16+fp16", r"'bf16\+fp16' give precision twice"),
        ("<script>", r"unknown mode '<script>'"),
    ],
)
def test_a_bad_mode_string_is_refused_with_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModeSet.parse(text, CPU)


def test_one_mode_is_changed_and_the_others_kept() -> None:
    ms = ModeSet.parse("compile+bf16", CPU)
    assert str(ms.with_value("precision", "fp32")) == "compile"
    assert str(ms) == "compile+bf16"
    with pytest.raises(ValueError, match="valid values are: fp32, tf32, bf16, fp16, fp8"):
        ms.with_value("precision", "fp4")
    with pytest.raises(ValueError, match="valid modes are: compile, precision, attention"):
        ms.with_value("speed", "fast")


def test_a_set_at_its_defaults_calls_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for cls, hook in itertools.product(
        mode_classes(), ["forward_context", "backward", "before_clip", "optimizer_step"]
    ):
        monkeypatch.setattr(cls, hook, lambda *_, hook=hook: called.append(hook))
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    ms = ModeSet.parse("", CPU)
    with ms.forward_context():
        loss = model(torch.ones(1, 2)).sum()
    ms.backward(loss)
    ms.before_clip(optimizer)
    assert ms.optimizer_step(optimizer) is True
    assert called == []
    assert not torch.equal(model.weight, before)
    assert ms.forward_context() is ms.forward_context()


def test_attention_and_precision_act_together(make_attends: Make) -> None:
    ms = ModeSet.parse("attention:math+bf16", CPU)
    with ms.forward_context():
        assert make_attends()(torch.randn(2, 8, 16)).dtype == torch.bfloat16
        assert not torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("text", ["", "bf16", "fp16", "attention:math", "compile", "compile:whole"])
def test_attach_and_detach_leave_the_model_as_it_was(make_early_exit: Make, text: str) -> None:
    torch.manual_seed(0)
    model, x = make_early_exit(), torch.randn(4, 8)
    names, calls = list(model.state_dict()), [dict(m.__dict__) for m in model.modules()]
    before = model(x)
    ms = ModeSet.parse(text, CPU)
    ms.attach(model)
    assert list(model.state_dict()) == names
    ms.detach(model)
    assert list(model.state_dict()) == names
    assert [dict(m.__dict__) for m in model.modules()] == calls
    assert torch.equal(model(x), before)


def test_state_of_another_set_is_taken_over_and_unknown_entries_are_ignored() -> None:
    ms = ModeSet.parse("", CPU)
    ms.load_state_dict({"fsdp": {"x": 1}, "precision": {"scaler": {"scale": 8.0}}})
    assert ms.state_dict() == {"precision": {"scaler": {"scale": 8.0}}}


def test_order_of_application() -> None:
    assert [mode.name for mode in ModeSet.parse("", CPU)] == [
        "attention",
        "checkpoint",
        "compile",
        "precision",
        "parallel",
    ]
    assert isinstance(ModeSet.parse("", CPU)["compile"], Mode)
