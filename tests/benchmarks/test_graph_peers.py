"""ResNet-50 at 224 pixels through every tool that draws what a PyTorch model does.

Each in a process of its own, with one thread, each drawing between two plain forwards: the figure
is what the drawing adds to a forward that a training step runs anyway, in processor time, which a
busy machine changes least ("first" holds what is loaded on first use). Graphviz's own time, which
torchviz, torchview and torchlens need on top to make a picture of their text, is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.benchmarks import absent
from tests.benchmarks.graph_browser import ROOT
from tests.benchmarks.graph_peers import PEERS, PEERS_FOLDER
from tests.benchmarks.table import median

pytestmark = pytest.mark.benchmark
ROUNDS = 5

LEAVES_OUT = {
    "workbench": "operations that need no gradient",
    "torchviz": "modules, source lines, bytes of storages; nothing folds; RecursionError when deep",
    "torchview": "backward nodes, saved tensors, source lines; runs the model again, no loss",
    "torchlens": "the live step: runs the model again under its own tracing; static pictures",
    "torchvista": "backward nodes, saved tensors, source lines; runs the model again",
}
"""Read in each package at the versions in the table, and tried on this model."""


HOW = {"torchvista": f"pip install --no-deps --target {PEERS_FOLDER} torchvista"}
"""How to get a peer that is not simply installed."""


def run(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.graph_peers", name, str(ROUNDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return json.loads(line.removeprefix("RESULT"))


def is_there(name: str) -> bool:
    """Whether a peer is installed, or lies in `PEERS_FOLDER`; noted where it is not."""
    if find_spec(name) is not None or (PEERS_FOLDER / name).is_dir():
        return True
    absent.note(
        f"package {name} ({HOW.get(name, f'pip install {name}')})", "its drawing of ResNet-50"
    )
    return False


def test_a_capture_beside_its_peers() -> None:
    print(f"\nResNet-50, 1 x 3 x 224 x 224: added to one forward, median and range of {ROUNDS}")
    print(
        f"{'':18} {'added':>9} {'range':>20} {'first':>9} {'forward':>8} {'nodes':>6} {'output':>9}"
    )
    added: dict[str, float] = {}
    for name in PEERS:
        if not is_there(name):
            print(f"{name:18} not installed: see the end")
            continue
        found = run(name)
        extra = found["extra_ms"]
        added[name] = median(extra)
        shown = f"{found['nodes']:,}" if found["nodes"] else ""
        size = f"{found['output_bytes'] / 1000:,.0f} kB" if found["output_bytes"] else ""
        print(
            f"{name + ' ' + found['version']:18} {median(extra):6.0f} ms "
            f"{min(extra):7.0f} .. {max(extra):4.0f} ms {found['first_ms']:6.0f} ms "
            f"{median(found['plain_ms']):5.0f} ms {shown:>6} {size:>9}"
        )
    print("leaves out:")
    for name in added:
        print(f"  {name:12} {LEAVES_OUT[name]}")
    if "torchlens" not in added:
        pytest.skip("judged beside torchlens: pip install torchlens")
    assert added["workbench"] <= added["torchlens"]
