"""Saved bytes of small programs with numbers in them, against what torch hands to a pack hook."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.models.oracles import saved_by_hooks

ZERO_DIM = {
    "float": torch.tensor(2.0),
    "double": torch.tensor(2.0, dtype=torch.float64),
    "int": torch.tensor(2),
    "bool": torch.tensor(True),
    "complex": torch.tensor(1j),
    "half": torch.tensor(0.5, dtype=torch.float16),
}

PROGRAMS = {
    # Python numbers of each kind, on either side
    "float": lambda x: x * 2.5,
    "int": lambda x: x * 3,
    "bool": lambda x: x * True,
    "complex": lambda x: x * 1j,
    "left": lambda x: 2.5 * x,
    "numpy": lambda x: x * np.float32(2.0),
    "item": lambda x: x * ZERO_DIM["float"].item(),
    "divided": lambda x: x / 3.0,
    "divided by an int": lambda x: x / 3,
    "divides": lambda x: 3.0 / x,
    "of a product": lambda x: (x * x) * 2.0,
    "in place": lambda x: (x * 1.5).mul_(2.0),
    "divided in place": lambda x: x.exp().div_(2.0),
    "a mode of rounding": lambda x: torch.div(x, 2.0, rounding_mode="trunc"),
    "many": lambda x: ((((x * 2.0) / 3.0) * 4) * True).exp() * 0.5,
    "in float64": lambda x: x.double() * 2.0,
    "in float16": lambda x: x.half() * 2.0,
    "of a scalar": lambda x: x.sum() * 2.0,
    "of two scalars": lambda x: x.sum() * x.mean() * 2,
    # numbers that are kept as numbers
    "power of an int": lambda x: x**2,
    "power of a float": lambda x: x.exp() ** 2.5,
    "power of a half": lambda x: x.exp() ** 0.5,
    "number to a power": lambda x: 2.0**x,
    "added": lambda x: x + 1.0,
    "subtracted from": lambda x: 1 - x,
    "alpha": lambda x: torch.add(x, x.exp(), alpha=2.0),
    "addcmul": lambda x: torch.addcmul(x, x, x.exp(), value=3.0),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.exp(), value=0.5),
    "where with a float": lambda x: torch.where(x > 0, x.exp(), 0.0),
    "where with an int": lambda x: torch.where(x > 0, 1, x.exp()),
    "where with two": lambda x: x * torch.where(x > 0, 1.0, 0.0),
    "compared": lambda x: x * (x > 0.5),
    "compared and cast": lambda x: x * (x <= 0.5).float(),
    "equal": lambda x: x * (x == 0),
    "clamped": lambda x: x.clamp(0.1, 2),
    "masked": lambda x: x.exp().masked_fill(x > 0, -1.0),
    "remainder": lambda x: x % 2.0,
    "interpolated": lambda x: torch.lerp(x, x.exp(), 0.3),
    "xlogy": lambda x: torch.xlogy(x.exp(), 2.0),
    "copysign": lambda x: torch.copysign(x, -1.0),
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "softplus": lambda x: F.softplus(x, 2.0),
    "huber": lambda x: F.huber_loss(x, torch.zeros(4, 3), delta=0.5) * 2,
    "norm": lambda x: x.norm(2.0) * 0.1,
    "dropout": lambda x: F.dropout(x, 0.5) * 2.0,
    # scalars that are no numbers
    **{
        f"{name} scalar": lambda x, scalar=scalar: x * scalar.clone()
        for name, scalar in ZERO_DIM.items()
    },
    "scalar divides": lambda x: x / ZERO_DIM["float"].clone(),
    "scalar over": lambda x: ZERO_DIM["double"].clone() / x,
    "scalar from the graph": lambda x: x * x.sum(),
    "scalar of a comparison": lambda x: x * (x.sum() > 0),
    "scalar to a power": lambda x: x.exp() ** ZERO_DIM["float"].clone(),
    "scalar in where": lambda x: x * torch.where(x > 0, ZERO_DIM["float"].clone(), 0.0),
    "scalar maximum": lambda x: torch.maximum(x, ZERO_DIM["float"].clone()),
    "scalar and number": lambda x: x * ZERO_DIM["double"].clone() * 2.0,
    "scalar twice": lambda x: x * x.norm() * x.norm(),
    "scalar times a number": lambda x: x * (ZERO_DIM["float"].clone() * 2.0),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.5) * 2,
    "embedding": lambda x: F.embedding(torch.tensor([0, 1]), x) * 8**0.5,
    "double backward": lambda x: torch.autograd.grad((x.sin() * 3).sum(), x, create_graph=True)[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
def test_saved_bytes_are_those_that_hooks_are_handed(name, default):
    weight = nn.Parameter(torch.randn(4, 3))
    model = nn.Module()
    model.weight = weight

    def loss():
        torch.manual_seed(0)
        out = PROGRAMS[name](weight.cos())
        return (out.abs() if out.is_complex() else out).sum()

    torch.set_default_dtype(default)
    try:
        saved = saved_by_hooks(loss, model, [])
        record = wb.graph(loss(), model=model).record
    finally:
        torch.set_default_dtype(torch.float32)
    held = record.saved_bytes + record.input_bytes
    assert (held, record.parameter_bytes) == (saved.activation, saved.parameter)
    assert not any("not counted" in note for note in record.notes)


def test_a_number_is_no_saved_tensor_and_a_scalar_is_one():
    x = torch.randn(3, requires_grad=True)
    scale = torch.tensor(2.0, dtype=torch.float64)
    number, scalar = wb.graph((x * 2.0).sum()), wb.graph((x * scale.clone()).sum())
    assert [held.names for held in number.holders(1)] == []
    assert [held.num_bytes for held in scalar.holders(1)] == [8]
