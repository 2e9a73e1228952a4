"""What ``import workbench`` costs, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.benchmarks.table import compare, measure_interleaved, median, versions

HEAVY = {"torch", "numpy", "IPython", "anywidget", "ipywidgets", "matplotlib", "tensorboard"}


def seconds_to_run(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


@pytest.mark.benchmark
def test_import_takes_at_most_60_ms() -> None:
    codes = {"python -c pass": "pass", "import workbench": "import workbench"}
    contenders = {
        name: lambda code=code: seconds_to_run(code) * 1e3 for name, code in codes.items()
    }
    results = measure_interleaved(contenders, rounds=15)
    print("\n" + compare("A fresh interpreter", "ms", results, baseline="python -c pass"))
    print(versions("torch"), "python", sys.version.split()[0])
    pairs = zip(results["import workbench"], results["python -c pass"], strict=True)
    assert median([ours - bare for ours, bare in pairs]) <= 60


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_loads_neither_torch_nor_a_front_end() -> None:
    assert loaded_by("import workbench; dir(workbench)") & HEAVY == set()


def test_the_server_part_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import workbench.server, workbench.records")
