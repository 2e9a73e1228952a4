"""Fresh traces of a real allocator, replayed: what each setting and each case comes to.

Every trace is recorded in a process of its own, because settings are read when CUDA starts, and
kept beside the test's other files, so that a new kind of trace can become a fixture. The table says
for each how far the replay came; run with ``-s`` to see it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workbench.allocator.decode import read
from workbench.allocator.replay import replay

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BEGIN = """
import sys, torch
from torch import nn
def record():
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1_000_000)
def done():
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(sys.argv[1])
"""
TRAINING = """
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Flatten(), nn.LazyLinear(10)).cuda()
x, y = torch.randn(16, 128, 512, device="cuda"), torch.arange(16, device="cuda") % 10
model(x)
optimizer = torch.optim.AdamW(model.parameters())
def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
PROGRAMS = {
    "training": "record()\n" + TRAINING + "for _ in range(3): step()\ndone()",
    "mid life": TRAINING + "for _ in range(3): step()\nrecord()\nfor _ in range(3): step()\ndone()",
    "emptied": "record()\n"
    + TRAINING
    + "for _ in range(3):\n    step(); torch.cuda.empty_cache()\ndone()",
    "streams": """
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
done()
""",
    "out of memory": """
record()
torch.cuda.set_per_process_memory_fraction(0.05)
kept = []
try:
    while True: kept.append(torch.empty(37 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    del kept[::2]
try: torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError: pass
done()
""",
    "private pool": """
record()
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    kept = [torch.empty(1 << 22, device="cuda") for _ in range(8)]
other = [torch.empty(1 << 20, device="cuda") for _ in range(8)]
del kept[::2], other[::2]
again = [torch.empty(1 << 19, device="cuda") for _ in range(16)]
done()
""",
}
SETTINGS = {
    "": tuple(PROGRAMS),
    "expandable_segments:True": ("training", "mid life", "emptied", "streams"),
    "max_split_size_mb:32": ("training", "emptied"),
    "roundup_power2_divisions:4": ("training",),
}
CASES = [(settings, name) for settings, names in SETTINGS.items() for name in names]


@pytest.mark.parametrize(("settings", "name"), CASES)
def test_a_fresh_trace_is_reproduced(settings: str, name: str, tmp_path: Path):
    folder = Path(os.environ.get("WORKBENCH_TRACES", tmp_path))
    words = "".join(letter if letter.isalnum() else "_" for letter in f"{name} {settings}").strip(
        "_"
    )
    path = folder / f"{words}.pickle"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + PROGRAMS[name], str(path)],
        env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    snapshot = read(path)
    found = replay(snapshot).certificate
    print(f"\n{name:14}{settings or 'default':28}{snapshot.num_events:8,} events: {found}")
    print(f"{'':14}{found.covers}")
    assert found.exact, found
