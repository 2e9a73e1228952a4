"""Precisions on a real card: TF32 and 8 bits in its own arithmetic, and the scaler's one read."""

from __future__ import annotations

import importlib.util
import warnings

import pytest
import torch
from torch import nn

from workbench.modes import ModeSet
from workbench.modes.precision.float8 import VALUES, is_native, product
from workbench.modes.precision.low_precision import low_precision_layers
from workbench.modes.precision.mode import Precision
from workbench.modes.precision.scaler import GradientScaler, Overflow
from workbench.modes.precision.transformer_engine import engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")


def needs_native(value: str) -> None:
    if importlib.util.find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    if not is_native(value, CUDA):
        pytest.skip(f"{torch.cuda.get_device_name()} has no {value} arithmetic")


@pytest.fixture
def ampere() -> None:
    if torch.version.cuda is None or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs an NVIDIA GPU of compute capability 8.0 or newer")


# -- tf32 ---------------------------------------------------------------------------------------


def test_tf32_is_offered_where_the_card_has_it() -> None:
    if torch.version.cuda is None:
        pytest.skip("says nothing of AMD's cards")
    choice = {choice.value: choice for choice in Precision.choices(CUDA)}["tf32"]
    assert choice.available is (torch.cuda.get_device_capability() >= (8, 0))


def test_forward_and_backward_lose_bits_under_tf32_and_the_settings_come_back(
    ampere: None,
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(1024, 1024, device=CUDA)
    x = torch.randn(512, 1024, device=CUDA, requires_grad=True)
    found: dict[str, list[torch.Tensor]] = {}
    before = (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision)
    for text in ("fp32", "tf32"):
        modes = ModeSet.parse(text, CUDA)
        layer.zero_grad()
        x.grad = None
        with modes.forward_context():
            out = layer(x)
        modes.backward(out.square().mean())
        found[text] = [out.detach(), x.grad, layer.weight.grad]
    assert before == (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.fp32_precision,
    )
    for exact, rounded in zip(found["fp32"], found["tf32"], strict=True):
        error = float((rounded - exact).norm() / exact.norm())
        assert 1e-5 < error < 2e-3


# -- 8 bits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("rows", [4096, 33, 1])
def test_native_products_are_those_that_are_emulated(value: str, rows: int) -> None:
    needs_native(value)
    torch.manual_seed(0)
    shape = (rows, 1024), (2048, 1024), (rows, 2048)
    x, w, g = (torch.randn(size, device=CUDA, dtype=torch.bfloat16) for size in shape)
    found: list[list[torch.Tensor]] = []
    for native in (True, False):
        inputs, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
        out = product(value, native=native)(inputs, weight)
        out.backward(g)
        found.append([out.detach(), inputs.grad, weight.grad])
    for ours, emulated in zip(*found, strict=True):
        error = (ours.float() - emulated.float()).norm() / emulated.float().norm()
        assert float(error) < 1e-2, "both round the same operands"


@pytest.mark.parametrize("value", VALUES)
def test_large_layers_multiply_in_8_bits_and_small_ones_are_left_alone(value: str) -> None:
    needs_native(value)
    model = nn.Sequential(
        nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 8192), nn.Linear(8192, 16)
    ).to(CUDA)
    rows = {row.path: row for row in low_precision_layers(model, value)}
    assert rows["2"].converted
    assert "too small" in rows["3"].reason or value == "fp8"
    choice = {choice.value: choice for choice in Precision.choices(CUDA)}[value]
    assert "mulated" not in choice.why
    modes = ModeSet.parse(value, CUDA)
    assert modes["precision"].note == ""
    modes.attach(model)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        with modes.forward_context():
            loss = model(torch.randn(48, 1024, device=CUDA)).float().square().mean()
        modes.backward(loss)
    modes.detach(model)
    called = {event.key for event in profile.key_averages()}
    marks = ("_Linear", "gemm") if engine(value, CUDA).version else ("scaled_mm",)
    assert any(mark in name for name in called for mark in marks), sorted(called)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("value", ["fp8", "mxfp8"])
def test_transformer_engine_multiplies_where_it_is_installed(value: str) -> None:
    if importlib.util.find_spec("transformer_engine") is None:
        pytest.skip("TransformerEngine is not installed")
    if not is_native(value, CUDA):
        pytest.skip(f"{torch.cuda.get_device_name()} has no {value} arithmetic")
    found = engine(value, CUDA)
    assert found.version, found.problem
    choice = {choice.value: choice for choice in Precision.choices(CUDA)}[value]
    assert f"TransformerEngine {found.version}" in choice.why
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 8192)).to(CUDA)
    names, x = list(model.state_dict()), torch.randn(33, 1024, device=CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: dict[str, list[float]] = {"bf16": [], value: []}
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for text, told in losses.items():
        model.load_state_dict(start)
        modes = ModeSet.parse(text, CUDA)
        modes.attach(model)
        for _ in range(5):
            optimizer.zero_grad()
            with modes.forward_context():
                loss = model(x).float().square().mean()
            modes.backward(loss)
            modes.optimizer_step(optimizer)
            told.append(loss.item())
        modes.detach(model)
        assert list(model.state_dict()) == names
    torch.testing.assert_close(losses[value], losses["bf16"], rtol=0.1, atol=0)
    assert losses[value] != losses["bf16"]


# -- the scaler ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("fused", "limit"), [(False, 1), (True, 0)])
def test_an_applied_step_waits_for_the_device_at_most_once(fused: bool, limit: int) -> None:
    model = nn.Linear(64, 64, device=CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = GradientScaler(CUDA)
    scaler.follow(model)
    x = torch.randn(8, 64, device=CUDA)
    _step(scaler, model, optimizer, x)  # states are made
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _step(scaler, model, optimizer, x)
            scaler.scalars()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waited = [str(one.message) for one in caught if "synchroniz" in str(one.message)]
    assert len(waited) <= limit, waited


@pytest.mark.parametrize("fused", [False, True])
def test_a_skip_is_counted_and_named_where_it_can_be(fused: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = GradientScaler(CUDA)
    scaler.follow(model)
    x = torch.randn(8, 64, device=CUDA)
    assert _step(scaler, model, optimizer, x)
    before = model[0].weight.detach().clone()
    assert _step(scaler, model, optimizer, x, bad=True) is fused
    assert torch.equal(model[0].weight, before)
    assert (scaler.num_skipped, scaler.scale) == (1, 2.0**15)
    assert scaler.first == (None if fused else Overflow(2, "0.weight"))
    assert float(scaler.scalars()["precision/scale"]) == 2.0**15


def _step(
    scaler: GradientScaler,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    *,
    bad: bool = False,
) -> bool:
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = model(x).float().square().mean() * 1e-3
    scaler.backward(loss)
    if bad:
        weight = next(model.parameters())
        weight.grad[0] = float("inf")
    scaler.unscale(optimizer)
    return scaler.step(optimizer)
