# ruff: noqa: N812, T201 - a script that makes pictures to look at, not a library
"""Captures graphs to look at: real models, one step each, written as record files.

Usage: python graph_records.py OUT_FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import graph_models as models
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.records import GraphRecord


def _captured(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> GraphRecord:
    """One step of ``model``, forward and backward, as a record."""
    with wb.graph(model) as view:
        loss_of().backward()
    return view.record


def _classified(model: nn.Module, *shape: int) -> GraphRecord:
    x, y = torch.randn(shape), torch.randint(0, 10, (shape[0],))
    return _captured(model, lambda: F.cross_entropy(model(x), y))


def resnet50() -> GraphRecord:
    """ResNet-50."""
    return _classified(models.ResNet(), 4, 3, 64, 64)


def dense() -> GraphRecord:
    """The blocks of DenseNet-201."""
    return _classified(models.DenseNet(), 2, 3, 32, 32)


def early_exit() -> GraphRecord:
    """Two losses, and parameters that no gradient reaches."""
    model = models.EarlyExit()
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))

    def loss() -> torch.Tensor:
        early, late, _ = model(x)
        return F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)

    return _captured(model, loss)


def bf16() -> GraphRecord:
    """`early_exit` under autocast: 16 bits, 32, both, and casts."""
    with torch.autocast("cpu", torch.bfloat16):
        return early_exit()


def _asking(threshold: float) -> GraphRecord:
    model = models.Asking(threshold)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))

    def loss() -> torch.Tensor:
        early, late = model(x)
        return F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)

    return _captured(model, loss)


def asking() -> GraphRecord:
    """An early exit that was not taken, and tests further on."""
    return _asking(0.75)


def asking_taken() -> GraphRecord:
    """The same, taken."""
    return _asking(0.05)


def bert() -> GraphRecord:
    """BERT-base's twelve layers, narrow."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=96, intermediate_size=384, num_attention_heads=12, vocab_size=500
    )
    model = BertForSequenceClassification(config)
    ids, labels = torch.randint(0, 500, (4, 32)), torch.randint(0, 2, (4,))
    return _captured(model, lambda: model(input_ids=ids, labels=labels).loss)


def non_finite() -> GraphRecord:
    """Pairs of which three are equal, so the root of their distance has no gradient."""
    model = models.Distance()
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    b[[3, 17, 21]] = a[[3, 17, 21]]
    return _captured(model, lambda: model(a, b).mean())


def chain() -> GraphRecord:
    """Fifty thousand operations one after the other."""
    model = models.Chain(50_000)
    x = torch.randn(4, 64)
    return _captured(model, lambda: model(x).sum())


def hostile() -> GraphRecord:
    """Names that try to be markup, break lines, turn the writing around, or never end."""
    record = early_exit()
    bad = ("<img src=x onerror=alert(1)>", "two\nlines\r\n\t" * 50, "a" * 10_000, "\u202ertl<i>")
    names = {text: bad[at % 4] + text for at, text in enumerate(record.strings) if text}
    modules = tuple(
        replace(module, path=f"{bad[at % 4]}{module.path}", cls=bad[(at + 1) % 4])
        for at, module in enumerate(record.modules)
    )
    strings = tuple(names.get(text, text) for text in record.strings)
    return replace(record, title=bad[0], model=bad[1], strings=strings, modules=modules)


def compiled() -> GraphRecord:
    """A transformer compiled as a whole: one node."""
    encoder = models.Encoder()
    model = torch.compile(encoder, backend="aot_eager")
    x, y = torch.randn(8, 16, 64), torch.randint(0, 10, (8,))
    return _captured(model, lambda: F.cross_entropy(model(x), y))


def compiled_blocks() -> GraphRecord:
    """The early exit with its blocks compiled one by one by Inductor."""
    model = models.EarlyExit()
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    for block in (model.block1, model.block2, model.block3):
        block.compile()

    def loss() -> torch.Tensor:
        early, late, _ = model(x)
        return F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)

    return _captured(model, loss)


MAKERS = (
    resnet50, dense, early_exit, bf16, asking, asking_taken, bert, non_finite, chain, hostile,
    compiled, compiled_blocks,
)  # fmt: skip


def main() -> None:
    """Write the records asked for."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in MAKERS:
        if len(sys.argv) == 2 or make.__name__ in sys.argv[2:]:
            torch.manual_seed(0)
            path = make().save(folder / f"{make.__name__}.wb")
            print(f"{path}  {path.stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()
