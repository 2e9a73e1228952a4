"""Processes of a launcher of torch's, each of which writes what it saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def seen_by_ranks(num_ranks: int, module: str, *arguments: str, folder: Path) -> list[Any]:
    """Run ``module`` as every rank, with ``arguments`` and ``folder``; the JSON that each left."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(num_ranks), "-m", module, *arguments, str(folder)),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
