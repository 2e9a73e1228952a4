"""What ``import workbench`` costs, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)

HEAVY = {"torch", "numpy", "IPython", "anywidget", "ipywidgets", "matplotlib", "tensorboard"}


AT_MOST = 0.7
"""Times what ``import asyncio`` takes, a package of Python's own, each with its interpreter."""
ROUNDS = 15


def milliseconds_to_run(code: str) -> float:
    """Processor time of a fresh interpreter: what else the machine does is not in it."""
    return float(output_of(f"{code}\nimport time; print(1e3 * time.process_time())"))


def output_of(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.benchmark
def test_import_takes_less_than_that_of_asyncio() -> None:
    codes = {
        "python -c pass": "pass",
        "import workbench": "import workbench",
        "import asyncio": "import asyncio",
    }
    contenders = {name: partial(milliseconds_to_run, code) for name, code in codes.items()}
    results = measure_interleaved(contenders, ROUNDS)
    title = "A fresh interpreter, processor time"
    print("\n" + compare(title, "ms", results, baseline="python -c pass"))
    over = ratios(results["import workbench"], results["import asyncio"])
    print(ratio_line("import workbench over import asyncio", over, AT_MOST))
    print(versions("torch"), "python", sys.version.split()[0])
    assert median(over) <= AT_MOST


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(output_of(script).split())


def test_import_loads_neither_torch_nor_a_front_end() -> None:
    assert loaded_by("import workbench; dir(workbench)") & HEAVY == set()


def test_the_server_part_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import workbench.server, workbench.records")
