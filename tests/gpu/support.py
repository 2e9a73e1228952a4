"""Programs that run on a GPU in a process of their own, and tables of what came out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def run_apart(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Run ``python -m module`` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def kept_in(tmp_path: Path) -> Path:
    """Where what was recorded stays: the folder that ``WORKBENCH_TRACES`` names, or the test's."""
    folder = Path(os.environ.get("WORKBENCH_TRACES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def printed_table(head: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    """The rows of a table, to be filled by tests; it is printed when all of them have run."""
    found: list[tuple[str, ...]] = []
    yield found
    if not found:
        return
    table = [head, *found]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
