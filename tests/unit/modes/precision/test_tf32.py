from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from workbench.modes import ModeSet
from workbench.modes.precision import tf32
from workbench.modes.precision.mode import Precision
from workbench.modes.precision.tf32 import tf32_choice, tf32_products


def switches() -> dict[str, Any]:
    """Everything torch has to say about products in float32."""
    reads: dict[str, Callable[[], Any]] = {
        "older": torch.get_float32_matmul_precision,
        "allow": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cuda": lambda: torch.backends.cuda.matmul.fp32_precision,
        "mkldnn": lambda: torch.backends.mkldnn.matmul.fp32_precision,
        "conv": lambda: torch.backends.cudnn.conv.fp32_precision,
        "conv older": lambda: torch.backends.cudnn.allow_tf32,
        "all": lambda: torch.backends.fp32_precision,
    }
    found: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            found[name] = read()
        except RuntimeError:
            found[name] = "torch refuses to say"
    return found


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = tf32._Settings.now()
    yield
    tf32._set("none", "none")
    before.put_back()


def untouched() -> None:
    """As a process begins."""


def high() -> None:
    torch.set_float32_matmul_precision("high")


def medium() -> None:
    torch.set_float32_matmul_precision("medium")


def allowed() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True


def newer() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def newer_ieee() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.fp32_precision = "ieee"


@pytest.mark.parametrize("start", [untouched, high, medium, allowed, newer, newer_ieee])
def test_whatever_was_set_is_put_back_exactly(start: Callable[[], None]) -> None:
    start()
    before = switches()
    with tf32_products():
        assert switches()["cuda"] == "tf32"
        assert switches()["conv"] == before["conv"], "convolutions have a switch of their own"
        with tf32_products():
            pass
        assert switches()["cuda"] == "tf32", "the outer one still computes"
    assert switches() == before


def test_inductor_can_still_read_the_older_interface_inside() -> None:
    with tf32_products():
        assert switches()["allow"] is True
        assert switches()["older"] == "high"


def test_an_exception_puts_them_back_too() -> None:
    before = switches()
    with pytest.raises(KeyError), tf32_products():
        raise KeyError
    assert switches() == before


def test_steps_that_overlap_do_not_end_each_others_setting() -> None:
    before = switches()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with tf32_products():
            entered.set()
            assert leave.wait(300)

    thread = threading.Thread(target=other)
    with tf32_products():
        thread.start()
        assert entered.wait(120)
    assert switches()["cuda"] == "tf32", "the other step computes on"
    leave.set()
    thread.join()
    assert switches() == before


def test_it_is_held_in_forward_and_backward_and_nowhere_else(cpu: torch.device) -> None:
    held: dict[str, str] = {}

    class Looks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            held["forward"] = switches()["cuda"]
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            held["backward"] = switches()["cuda"]
            return grad

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: held.update(update=switches()["cuda"]))
    modes = ModeSet.parse("tf32", cpu)
    with modes.forward_context():
        loss = Looks.apply(model(torch.ones(3, 4))).sum()
    held["between"] = switches()["cuda"]
    modes.backward(loss)
    modes.before_clip(optimizer)
    assert modes.optimizer_step(optimizer)
    before = switches()["cuda"]
    assert held == {"forward": "tf32", "between": before, "backward": "tf32", "update": before}
    assert before != "tf32"


def test_a_device_that_keeps_all_bits_is_refused_with_a_remedy(
    cpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    tf32_choice.cache_clear()
    monkeypatch.setattr(tf32, "_loses_bits", lambda _: False)
    choice = tf32_choice(cpu)
    tf32_choice.cache_clear()
    assert not choice.available
    assert "kept all its bits" in choice.why
    assert "bf16" in choice.remedy


def test_what_is_offered_here_is_what_a_product_here_does(cpu: torch.device) -> None:
    """On CPUs with AMX for float16 oneDNN has TF32, elsewhere it has not; no list is consulted."""
    torch.manual_seed(0)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    exact = left @ right
    with tf32_products():
        rounded = left @ right
    offered = {choice.value: choice.available for choice in Precision.choices(cpu)}["tf32"]
    assert offered is not torch.equal(exact, rounded)
