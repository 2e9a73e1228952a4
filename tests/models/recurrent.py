"""A loop of LSTM cells (Hochreiter and Schmidhuber, 1997), one call a time step."""

from __future__ import annotations

import torch
from torch import nn


class LSTMLoop(nn.Module):
    """Takes ``[batch, steps, inputs]``, gives logits ``[batch, classes]``."""

    def __init__(self, inputs: int = 16, hidden: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(inputs, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(len(x), self.hidden)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return self.head(h)
