"""The shipped notebooks as stored, and one run without a browser; tests/ui runs all four in one."""

from __future__ import annotations

import importlib.util
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
    shown = str([output.get("data", {}) for output in found])
    assert "is not built" not in shown, "run `make lab` before notebooks/refresh.py"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "run notebooks/refresh.py"
    pictures = with_pictures(found)
    assert len(pictures) >= 2
    assert all(len(o["data"]["text/plain"]) > 80 for o in pictures), "a summary beside each picture"


def with_pictures(found: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs that hold a static drawing."""
    drawing = "data:image/svg+xml;base64,"
    return [output for output in found if drawing in str(output.get("data", {}).get("text/html"))]


def run(name: str, folder: Path) -> nbformat.NotebookNode:
    """The notebook after a run of all its cells in ``folder``."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(notebook, timeout=1500, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    """What the cells wrote, and the text beside every picture."""
    found = outputs(notebook)
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in found)


def stored_bytes(notebook: nbformat.NotebookNode) -> int:
    refresher().strip(notebook)
    return len(nbformat.writes(notebook).encode())


def test_the_second_notebook_gets_its_answers_headless(tmp_path: Path) -> None:
    notebook = run("02_autograd_graphs.ipynb", tmp_path)
    text = printed(notebook)
    for answer in (
        "B's graph has nothing of that line",  # two branches: the line only one of them ran
        "stem.0.weight: detached\n  `detach` (cell [8], line 2)",
        "exit.weight: not_differentiable\n  `argmax` (cell [8], line 8)",
        "body.0.0.weight: frozen",
        "lstm_cell × 24",
        "activation, also held by `lstm_cell` in `cell`",
        "The backward of sqrt (cell [11], line 6)",
        "samples (3, 17)",
        "Checkpointing `bert.encoder.layer.0` would free",
        "B computed in bfloat16 what A computed in float32",
        "gradient flow of early-exit-flow: L2 norm",
    ):
        assert answer in text, answer
    saved = {path.suffix for path in (tmp_path / "runs" / "graphs").iterdir()}
    assert saved == {".svg", ".png", ".dot", ".json", ".safetensors"}
    assert stored_bytes(notebook) < 500_000
    assert len(with_pictures(outputs(notebook))) == 6
