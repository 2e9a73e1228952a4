"""Programs whose allocator traces are worth replaying: ``python -m tests.gpu.programs NAME FILE``.

Each runs in a process of its own, because settings are read when CUDA starts, records its own
history without stacks, and leaves a snapshot behind. What is trained is small enough for any card,
and large enough that blocks of both pools come and go, are split and merge again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import torch
from torch import nn

Step = Callable[[], None]
MIB = 2**20
NUM_STEPS = 3


def record() -> None:
    """Before anything else, so that no block was there before."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1_000_000)


def empty(num_bytes: int) -> torch.Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8, device="cuda")


def limit(num_bytes: int) -> None:
    """Let this process have so much of the card, on top of what it holds already."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(
        min(1.0, (torch.cuda.memory_reserved() + num_bytes) / total)
    )


# -- backbones, on any device ------------------------------------------------------------------


def block(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def cnn(device: str, batch: int = 32) -> Step:
    widths = (3, 32, 64, 128, 256)
    blocks = [block(a, b, 2) for a, b in pairwise(widths)]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return training(model.to(device), torch.randn(batch, 3, 96, 96, device=device))


class Transformer(nn.Module):
    def __init__(self, width: int = 256, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


def transformer(device: str, batch: int = 16) -> Step:
    tokens = torch.randint(0, 1000, (batch, 128), device=device)
    return training(Transformer().to(device), tokens)


class Recurrent(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, width, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm(device: str, batch: int = 32) -> Step:
    return training(Recurrent().to(device), torch.randn(batch, 100, 64, device=device))


BACKBONES: dict[str, Callable[[str], Step]] = {"CNN": cnn, "transformer": transformer, "LSTM": lstm}


def training(model: nn.Module, x: torch.Tensor) -> Step:
    y = torch.arange(len(x), device=x.device) % 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


# -- programs ----------------------------------------------------------------------------------


def from_the_start(name: str) -> None:
    torch.manual_seed(0)
    record()
    step = BACKBONES[name]("cuda")
    for _ in range(NUM_STEPS):
        step()


def mid_life() -> None:
    """Recorded when the training is under way: blocks are there before the trace."""
    step = transformer("cuda")
    for _ in range(NUM_STEPS):
        step()
    record()
    for _ in range(NUM_STEPS):
        step()


def emptied() -> None:
    """The cache is emptied by hand between steps."""
    record()
    step = transformer("cuda")
    for _ in range(NUM_STEPS):
        step()
        torch.cuda.empty_cache()


def streams() -> None:
    """Blocks used on a second stream wait for it after they are freed."""
    record()
    side = torch.cuda.Stream()
    for number in range(200):
        a = torch.randn(1 << (10 + number % 14), device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            b = a * 2
            a.record_stream(side)
        del a
        torch.cuda.default_stream().wait_stream(side)
        del b


def out_of_memory() -> None:
    """Two requests are refused: one with the card full, one with enough room but in pieces."""
    record()
    limit(1024 * MIB)
    kept = []
    try:
        while True:
            kept.append(empty(37 * MIB))
    except torch.cuda.OutOfMemoryError:
        del kept[::2]
    with suppress(torch.cuda.OutOfMemoryError):
        empty(500 * MIB)


def private_pool() -> None:
    """Some blocks live in a pool of their own."""
    record()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = [empty(16 * MIB) for _ in range(8)]
    other = [empty(4 * MIB) for _ in range(8)]
    del kept[::2], other[::2]
    again = [empty(2 * MIB) for _ in range(16)]
    del again


def captured() -> None:
    """A CUDA graph: what is allocated while it is captured lives in the graph's private pool."""
    record()
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
    x = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():  # libraries make their workspaces now
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = model(x)
    for _ in range(3):
        graph.replay()
    others = [empty(3 * MIB) for _ in range(8)]
    del others, y


def garbage() -> None:
    """Large blocks of ever other sizes: what was not asked for in a while is given back."""
    record()
    limit(2048 * MIB)
    for number in range(60):
        blocks = [empty((20 + 2 * (number % 23)) * MIB), empty((60 + 4 * (number % 17)) * MIB)]
        del blocks


def large_blocks() -> None:
    """Sizes on both sides of ``max_split_size_mb:64``."""
    record()
    for number in range(40):
        blocks = [empty(size * MIB) for size in (11, 48 + number, 100 + 3 * number, 200)]
        del blocks[::2]
        again = empty((90 + number) * MIB)
        del blocks, again


PROGRAMS: dict[str, Callable[[], None]] = {
    **{name: lambda name=name: from_the_start(name) for name in BACKBONES},
    "mid life": mid_life,
    "emptied": emptied,
    "streams": streams,
    "out of memory": out_of_memory,
    "private pool": private_pool,
    "CUDA graph": captured,
    "garbage": garbage,
    "large blocks": large_blocks,
}


def main(name: str, path: str) -> None:
    PROGRAMS[name]()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
