from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from workbench.modes import ModeSet, refresh
from workbench.modes.precision import low_precision_speed
from workbench.modes.precision.low_precision_speed import Ratio
from workbench.modes.precision.mode import Precision
from workbench.records import ModeChoice


def overflow(model: nn.Module) -> None:
    next(model.parameters()).grad.fill_(float("inf"))


def small_loss(model: nn.Module) -> torch.Tensor:
    """Small enough that the scaler's first scale, 65,536, does not overflow fp16."""
    return model(torch.ones(4, 8)).float().square().mean() * 1e-3


def train_step(ms: ModeSet, model: nn.Module, opt: torch.optim.Optimizer, *, bad: bool) -> bool:
    opt.zero_grad()
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    if bad:
        overflow(model)
    ms.before_clip(opt)
    return ms.optimizer_step(opt)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 4)


@pytest.mark.parametrize(("value", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_forward_computes_in_the_chosen_type_and_weights_stay_float32(
    model: nn.Module, cpu: torch.device, value: str, dtype: torch.dtype
) -> None:
    mode = Precision(value, cpu)
    with mode.forward_context():
        out = model(torch.ones(4, 8))
    assert out.dtype == dtype
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model(torch.ones(4, 8)).dtype == torch.float32


def test_sixteen_bit_training_follows_updated_weights(model: nn.Module, cpu: torch.device) -> None:
    """A context that outlived the update would freeze the loss on stale cast weights."""
    ms = ModeSet.parse("bf16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        with ms.forward_context():
            loss = model(torch.ones(4, 8)).float().square().mean()
        ms.backward(loss)
        ms.optimizer_step(opt)
        opt.zero_grad()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4


def test_clipping_sees_unscaled_gradients(model: nn.Module, cpu: torch.device) -> None:
    plain = nn.Linear(8, 4)
    plain.load_state_dict(model.state_dict())
    small_loss(plain).backward()
    ms = ModeSet.parse("fp16", cpu)
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    scaled = model.weight.grad.norm().item()
    ms.before_clip(torch.optim.SGD(model.parameters()))
    assert scaled > 1000 * plain.weight.grad.norm().item()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad, rtol=2e-2, atol=1e-6)


def test_overflowing_gradients_skip_the_update_and_lower_the_scale(
    model: nn.Module, cpu: torch.device
) -> None:
    ms = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    assert train_step(ms, model, opt, bad=False) is True
    scale = ms.state_dict()["precision"]["scaler"]["scale"]
    before = model.weight.detach().clone()
    assert train_step(ms, model, opt, bad=True) is False
    assert torch.equal(model.weight, before)
    assert ms.state_dict()["precision"]["scaler"]["scale"] == scale / 2


def test_a_step_given_up_after_unscaling_does_not_block_the_next(
    model: nn.Module, cpu: torch.device
) -> None:
    ms = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with ms.forward_context():
        loss = small_loss(model)
    ms.backward(loss)
    ms.before_clip(opt)
    assert train_step(ms, model, opt, bad=False) is True


def test_the_scale_survives_a_detour_over_other_precisions(
    model: nn.Module, cpu: torch.device
) -> None:
    fp16 = ModeSet.parse("fp16", cpu)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(fp16, model, opt, bad=True)
    train_step(fp16, model, opt, bad=False)
    state = fp16.state_dict()
    for text in ("bf16", "fp32", "fp16"):
        following = ModeSet.parse(text, cpu)
        following.load_state_dict(state)
        state = following.state_dict()
    assert state["precision"]["scaler"] == fp16.state_dict()["precision"]["scaler"]
    assert state["precision"]["scaler"]["scale"] == 2.0**15
    assert train_step(following, model, opt, bad=False) is True


@pytest.fixture
def nothing_measured() -> Iterator[None]:
    refresh()
    yield
    refresh()


def words_of(choices: tuple[ModeChoice, ...]) -> dict[str, str]:
    return {choice.value: choice.why for choice in choices}


def test_what_16_bits_cost_is_shown_before_a_switch(
    nothing_measured: None, model: nn.Module, cpu: torch.device
) -> None:
    asked_for_a_refusal = words_of(Precision.choices(cpu))
    assert asked_for_a_refusal["bf16"] == asked_for_a_refusal["fp16"] == "", "costs nothing"
    shown = words_of(Precision("fp32", cpu).choices_for(model))
    for value in ("bf16", "fp16"):
        assert re.fullmatch(
            r"([\d.e+]+× \([\d.e+]+ to [\d.e+]+×\) (slower|faster) than fp32 "
            r"|Not distinguishable from fp32: [\d.e+]+ to [\d.e+]+× its time )"
            r"on this CPU at \d\d:\d\d, in \d products? of \d+ × \d+ matrices; "
            r"steps of a model may differ\.",
            shown[value],
        ), shown[value]
    assert shown["fp32"] == ""
    assert words_of(Precision.choices(cpu))["fp16"] == shown["fp16"], "one measurement for all"


def test_it_is_measured_once_and_within_its_budget(
    nothing_measured: None, monkeypatch: pytest.MonkeyPatch, model: nn.Module, cpu: torch.device
) -> None:
    timed: list[torch.dtype] = []
    budgets: list[float] = []
    plain = low_precision_speed.time_products

    def count(dtype: torch.dtype, budget_s: float) -> Ratio:
        timed.append(dtype)
        budgets.append(budget_s)
        return plain(dtype, budget_s)

    monkeypatch.setattr(low_precision_speed, "time_products", count)
    threads = [
        threading.Thread(target=Precision("fp32", cpu).choices_for, args=(model,)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timed == [torch.bfloat16, torch.float16]
    assert sum(budgets) == pytest.approx(low_precision_speed.BUDGET_S)
    refresh()
    Precision("fp32", cpu).choices_for(model)
    assert len(timed) == 4, "checked again"


def test_products_are_timed_until_the_budget_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a played clock, by which a product takes 5 ms whatever its size."""
    now = [0.0]

    def played(_work: object) -> float:
        now[0] += 0.005
        return 0.005

    monkeypatch.setattr(low_precision_speed, "_seconds", played)
    clock = SimpleNamespace(perf_counter=lambda: now[0], strftime=str)
    monkeypatch.setattr(low_precision_speed, "time", clock)
    found = low_precision_speed.time_products(torch.bfloat16, 0.075)
    assert (found.value, found.low, found.high, found.size) == (1.0, 1.0, 1.0, 64)
    assert now[0] < 0.075 + 2 * 0.005 + 1e-9, "those under way are waited for"


def test_a_slow_product_is_timed_in_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fp16 is where it is computed 56 times slower, and worse."""
    assert low_precision_speed.time_products(torch.bfloat16, 1e6).size == 512
    found = low_precision_speed.time_products(torch.bfloat16, 1e-9)
    assert found.size == 64
    assert found.value > 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((50.0, 56.0, 70.0), "56× (50 to 70×) slower than fp32 on this CPU"),
        ((0.2, 0.25, 0.5), "4× (2 to 5×) faster than fp32 on this CPU"),
        ((0.9, 1.02, 1.2), "Not distinguishable from fp32: 0.9 to 1.2× its time on this CPU"),
        ((0.9, 14.0, 31.0), "Not distinguishable from fp32: 0.9 to 31× its time on this CPU"),
    ],
)
def test_a_ratio_says_which_way_it_goes(values: tuple[float, float, float], words: str) -> None:
    assert str(ratio(*values)) == (
        f"{words} at 14:02, in 7 products of 256 × 256 matrices; steps of a model may differ."
    )


def ratio(low: float, value: float, high: float) -> Ratio:
    return Ratio(value=value, low=low, high=high, size=256, num_pairs=7, at="14:02")


@pytest.mark.parametrize(
    ("bf16", "fp16", "remedies"),
    [
        (0.5, 56.0, ("", "Use bf16 here.")),
        (40.0, 30.0, ("Use fp32 here.", "Use fp32 here.")),
        (1.2, 1.3, ("", "")),
    ],
)
def test_what_is_slow_is_offered_with_something_better(
    nothing_measured: None,
    monkeypatch: pytest.MonkeyPatch,
    cpu: torch.device,
    bf16: float,
    fp16: float,
    remedies: tuple[str, str],
) -> None:
    ratios = {torch.bfloat16: ratio(bf16, bf16, bf16), torch.float16: ratio(fp16, fp16, fp16)}
    for dtype, one in ratios.items():
        monkeypatch.setitem(low_precision_speed._measured, ("cpu", dtype), one)
    choices = {choice.value: choice for choice in Precision.choices(cpu)}
    assert (choices["bf16"].remedy, choices["fp16"].remedy) == remedies
    assert choices["fp16"].available, "offered, with its price"
