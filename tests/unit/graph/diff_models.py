"""Models that take another way from one capture to the next, and how they are captured."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb


class Exit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class EarlyExit(nn.Module):
    """Leaves after the first exit when ``early`` is set."""

    def __init__(self):
        super().__init__()
        self.block1, self.block2 = Block(3, 8), Block(8, 16)
        self.aux, self.head = Exit(8), Exit(16)
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.early = False

    def forward(self, x):
        x = self.block1(x)
        first = self.aux(x)
        if self.early:
            return [first / self.temperature]
        return [first, self.head(self.block2(x))]


class OneLayerTwoBranches(nn.Module):
    """Both branches call the same layer, each on a line of its own."""

    def __init__(self):
        super().__init__()
        self.head, self.more = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x, leave):
        if leave:
            return self.head(x) * 2
        return self.head(x) + self.more(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 8)
        states = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        return [self.head(torch.stack(states, 1).mean(1))]


class Swapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.order = (self.first, self.second)

    def forward(self, x):
        for layer in self.order:
            x = layer(x)
        return [x]


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(12))
        self.dropped = frozenset()

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if number not in self.dropped:
                x = torch.tanh(layer(x))
        return [x]


def capture(model, x, autocast=False):
    torch.manual_seed(0)
    y = torch.zeros(x.shape[0], dtype=torch.long)
    with wb.graph(model), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = sum(F.cross_entropy(out, y) for out in model(x))
    return wb.graph(loss).record


def names(record, state):
    """(module, operation) of the operations in one state."""
    rows = np.flatnonzero((record.node_state == state) & (record.node_kind != 1))
    return [(record.nodes[row].module, record.nodes[row].op) for row in rows]


def parameters(record, state):
    rows = np.flatnonzero((record.node_state == state) & (record.node_kind == 1))
    return {record.nodes[row].name for row in rows}
