"""A notebook that papermill runs, as a night's job does: to the end, with outputs, and all over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from tests.integration.scripts import environment
from tests.waiting import wait_until

CELLS = (
    """
import torch, workbench as wb
epochs = 2
""",
    """
data = torch.utils.data.TensorDataset(torch.randn(256, 16), torch.randint(0, 3, (256,)))
train = torch.utils.data.DataLoader(data, batch_size=32, num_workers=1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
exp = wb.Experiment(model, train, epochs=epochs, name="by-night")
run = exp.run(wait=True)
exp
""",
    "wb.graph(exp)",
    """
other = wb.Experiment(model, train, epochs=1_000_000, name="left-alone")
other.run()
other
""",
)


def test_papermill_runs_an_experiment_to_its_end(tmp_path: Path) -> None:
    pytest.importorskip("papermill", reason="needs papermill: pip install papermill")
    notebook: Any = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source=cell.strip()) for cell in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
    )
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, tmp_path / "job.ipynb")
    command = [sys.executable, "-m", "papermill", "job.ipynb", "done.ipynb", "-p", "epochs", "3"]
    env = {**environment(), "WORKBENCH_NIGHT": str(tmp_path)}
    done = subprocess.run(
        [*command, "--no-progress-bar"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told: Any = nbformat.read(tmp_path / "done.ipynb", as_version=4)
    cells = [cell for cell in told.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert "24" in shown(cells[2]), "three epochs of eight steps"
    assert "data:image/svg+xml;base64," in str(cells[3].outputs[-1]["data"]["text/html"])
    assert sorted(run.name for run in (tmp_path / "runs").iterdir()) == ["by-night", "left-alone"]
    wait_until(lambda: not started_by(tmp_path), "the end of all that the notebook started")


def shown(cell: Any) -> str:
    """The text of a cell's outputs."""
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def started_by(folder: Path) -> list[psutil.Process]:
    """What papermill started and what that started in turn, whoever is its parent by now."""

    def is_of(process: psutil.Process) -> bool:
        try:
            return process.environ().get("WORKBENCH_NIGHT") == str(folder)
        except (psutil.Error, OSError):  # it has ended, or is somebody else's
            return False

    return [one for one in psutil.process_iter() if one.pid != os.getpid() and is_of(one)]
