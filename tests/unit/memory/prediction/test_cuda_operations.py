"""Calls go the way that allocates what CUDA would, on one thread, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from workbench.memory.prediction.cuda_operations import (
    IN_FLOAT32,
    OPERATIONS,
    TO_FLOAT32,
    as_cuda,
    use_foreach,
)

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


@pytest.fixture(autouse=True)
def _functional_stays_as_it_is() -> Iterator[None]:
    before = {name: getattr(F, name) for name in OPERATIONS}
    yield
    assert {name: getattr(F, name) for name in OPERATIONS} == before


def saved(loss: torch.Tensor) -> list[torch.Tensor]:
    """Every tensor that the graph keeps for its backward."""
    found, nodes = [], [loss.grad_fn]
    while nodes:
        node = nodes.pop()
        names = [name for name in dir(node) if name.startswith("_saved_")]
        values = [getattr(node, name) for name in names]
        found += [value for value in values if isinstance(value, torch.Tensor)]
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.dropout(x, 0.3),
        lambda x: torch.dropout(x, 0.3, True),
        nn.Dropout(0.3),
    ],
    ids=["functional", "torch", "module"],
)
def test_dropout_keeps_a_mask_of_booleans(call: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.randn(16, 32, requires_grad=True)
    with as_cuda() as way:
        masks = [t for t in saved(call(x).sum()) if t.dtype is torch.bool]
    assert [mask.shape for mask in masks] == [(16, 32)]
    assert way.num_dropouts >= 1


@pytest.mark.parametrize("options", [{"p": 0.0}, {"training": False}, {"p": 1.0}])
def test_dropout_that_draws_nothing_is_left_alone(options):
    x = torch.randn(16, 32)
    with as_cuda() as way:
        result = F.dropout(x, **options)
    assert torch.equal(result, F.dropout(x, **options))
    assert way.num_dropouts == 0


def qkv(dtype: torch.dtype = torch.float32, head: int = 16) -> list[torch.Tensor]:
    return [torch.randn(2, 4, 64, head, dtype=dtype, requires_grad=True) for _ in range(3)]


def test_attention_with_dropout_keeps_no_probabilities():
    most = 2 * 4 * 64 * 64
    with as_cuda() as way:
        fused = saved(F.scaled_dot_product_attention(*qkv(), dropout_p=0.1).sum())
    assert max(tensor.numel() for tensor in fused) < most
    assert way.num_attentions == 1
    plain = saved(F.scaled_dot_product_attention(*qkv(), dropout_p=0.1).sum())
    assert max(tensor.numel() for tensor in plain) >= most


def test_attention_deep_inside_torchs_own_modules_is_seen():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    with as_cuda() as way:
        layer(torch.randn(2, 16, 64))
    assert way.num_attentions == 1
    assert way.num_dropouts >= 3


@pytest.mark.parametrize(
    ("dtype", "head", "fused"),
    [(torch.float32, 6, True), (torch.bfloat16, 320, True), (torch.float32, 16, False)],
)
def test_attention_without_a_fused_kernel_on_cuda_is_left_alone(dtype, head, fused):
    with as_cuda(fused_attention=fused) as way:
        F.scaled_dot_product_attention(*qkv(dtype, head), dropout_p=0.1)
    assert way.num_attentions == 0


# -- autocast ------------------------------------------------------------------------------------


def calls() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    return {
        "layer_norm": nn.LayerNorm(32),
        "group_norm": nn.GroupNorm(4, 16),
        "rms_norm": nn.RMSNorm(32),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: F.log_softmax(x, -1),
    }


@pytest.mark.parametrize("name", [*IN_FLOAT32, *TO_FLOAT32])
def test_under_autocast_these_are_computed_in_float32(name):
    call, x = calls()[name], torch.randn(8, 16, 32, dtype=torch.bfloat16)
    with as_cuda() as way, torch.autocast("cpu", torch.bfloat16):
        assert call(x).dtype is torch.float32
    assert way.num_casts >= 1
    with as_cuda() as way:
        assert (x.softmax(-1)).dtype is torch.bfloat16
    assert way.num_casts == 0


def test_a_type_that_was_asked_for_is_kept():
    x = torch.randn(8, 32, dtype=torch.bfloat16)
    with as_cuda(), torch.autocast("cpu", torch.bfloat16):
        assert torch.softmax(x, -1, torch.bfloat16).dtype is torch.bfloat16
        assert F.softmax(x, -1, dtype=torch.float64).dtype is torch.float64
        assert F.softmax(input=x, dim=-1).dtype is torch.float32


@pytest.mark.parametrize(
    ("names", "macro"),
    [(IN_FLOAT32, "AT_FORALL_FP32(_)"), (TO_FLOAT32, "AT_FORALL_FP32_SET_OPT_DTYPE(_)")],
)
def test_torchs_own_lists_have_these_operations(names, macro):
    text = HEADER.read_text(encoding="utf-8")
    listed = text[text.index(f"#define {macro}") :].partition("\n\n")[0]
    for name in names:
        assert f"_({name}" in listed


# -- the optimizer -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_an_optimizer_that_may_choose_works_on_lists(kind):
    optimizer = kind([nn.Parameter(torch.ones(4))], lr=0.1)
    assert use_foreach(optimizer)
    assert optimizer.param_groups[0]["foreach"] is True
    assert not use_foreach(optimizer)


def test_an_optimizer_that_was_told_stays():
    parameters = [nn.Parameter(torch.ones(4))]
    assert not use_foreach(torch.optim.AdamW(parameters, foreach=False))
    assert not use_foreach(torch.optim.AdamW(parameters, fused=True))
    assert not use_foreach(torch.optim.LBFGS(parameters))


# -- where it acts -------------------------------------------------------------------------------


def test_other_threads_are_left_alone():
    found: list[torch.Tensor] = []
    x = torch.randn(16, 32, requires_grad=True)

    def other() -> None:
        found.extend(saved(F.dropout(x, 0.3).sum()))

    with as_cuda() as way:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert way.num_dropouts == 0
    assert found
    assert not any(tensor.dtype is torch.bool for tensor in found)


def test_what_somebody_else_put_into_torch_is_called_and_stays(monkeypatch):
    seen: list[float] = []
    torchs = F.scaled_dot_product_attention

    def mine(*args, **kwargs):
        seen.append(kwargs["dropout_p"])
        return torchs(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", mine)
    with as_cuda():
        F.scaled_dot_product_attention(*qkv(), dropout_p=0.1)
    assert seen == [0.0]
    assert F.scaled_dot_product_attention is mine
    monkeypatch.undo()


def test_it_is_over_after_an_error():
    with pytest.raises(ZeroDivisionError), as_cuda():
        raise ZeroDivisionError
