# ruff: noqa: D102, D103, N812, S101 - a script that makes pictures to look at, not a library
"""Records real graphs and memory of small models to look at the views with.

Usage: python memory_records.py OUT_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import graph_models as models
import torch
import torch.nn.functional as F
from torch import nn

from workbench.graph import graph
from workbench.memory import memory


class EarlyExitCNN(nn.Module):
    """Leaves after the second block when it is sure enough."""

    def __init__(self) -> None:
        super().__init__()
        self.block1 = models.Block(3, 32, 2)
        self.block2 = models.Block(32, 64, 2)
        self.block3 = models.Block(64, 128, 2)
        self.aux = nn.Linear(64, 10)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        x = self.block2(self.block1(x))
        early = self.aux(x.mean((2, 3)))
        if early.softmax(1).amax() > 0.99:
            return early, None
        return early, self.head(self.block3(x).mean((2, 3)))


class Classifier(nn.Module):
    """A small transformer: attention has no obvious trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    """A cell in a Python loop."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, 10)
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(self.steps):
            state = self.cell(x[:, step], state)
        assert state is not None
        return self.head(state[0])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    labels = torch.randint(10, (32,))
    model = EarlyExitCNN()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        with memory() as recording:
            early, late = model(torch.randn(32, 3, 32, 32))
            loss = F.cross_entropy(early, labels) * 0.3
            if late is not None:
                loss = loss + F.cross_entropy(late, labels)
            view = graph(loss, model=model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    view.record.save(folder / "real_exit.wb")
    recording.save(folder / "real_memory.wb")
    net = Classifier()
    with graph(net) as traced:
        loss = F.cross_entropy(net(torch.randint(1000, (32, 20))), labels)
    graph(loss).record.save(folder / "real_transformer.wb")
    del traced
    cells = Recurrent(40)
    loss = F.cross_entropy(cells(torch.randn(32, 40, 16)), labels)
    graph(loss, model=cells).record.save(folder / "real_lstm.wb")


if __name__ == "__main__":
    main()
