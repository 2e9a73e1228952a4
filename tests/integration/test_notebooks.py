"""The shipped notebooks: as stored, and run from top to bottom without a browser."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
STORED = sorted(NOTEBOOKS.glob("*.ipynb"))
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def outputs(notebook: nbformat.NotebookNode) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def refresher() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", NOTEBOOKS / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_a_stored_notebook_reads_well_without_a_kernel(path: Path) -> None:
    assert path.stat().st_size < 500_000
    notebook = nbformat.read(path, as_version=4)
    assert "widgets" not in notebook.metadata
    found = outputs(notebook)
    assert all(WIDGET_VIEW not in output.get("data", {}) for output in found)
    assert all(output.output_type != "error" for output in found)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "run notebooks/refresh.py"
    pictures = [o for o in found if "<svg" in str(o.get("data", {}).get("text/html", ""))]
    assert len(pictures) >= 3
    assert all(len(o["data"]["text/plain"]) > 80 for o in pictures), "a summary beside each picture"


def test_the_first_notebook_runs_headless_in_two_minutes(tmp_path: Path) -> None:
    path = NOTEBOOKS / "01_first_classifier.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    started = time.monotonic()
    folder = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=folder).execute()
    seconds = time.monotonic() - started
    text = json.dumps(notebook.cells)
    accuracy = float(text.split("best validation accuracy ")[1].split("%")[0])
    print(f"notebook: {seconds:.0f} s, best validation accuracy {accuracy} %")
    assert accuracy >= 97.0
    assert list((tmp_path / "runs" / "early-exit").glob("events.out.tfevents.*"))
    run = json.loads((tmp_path / "runs" / "early-exit" / "run.json").read_text())
    assert run["status"] == "finished"
    refresher().strip(notebook)
    assert len(nbformat.writes(notebook).encode()) < 500_000
    views = [o for o in outputs(notebook) if "<svg" in str(o.get("data", {}).get("text/html", ""))]
    assert len(views) >= 3
