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


def run(name: str, folder: Path, also: str = "") -> tuple[nbformat.NotebookNode, float]:
    """The notebook after a run of all its cells in ``folder``, and the seconds that took.

    ``also`` is run at the end of its first cell.
    """
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    code[0].source += f"\n{also}"
    started = time.monotonic()
    NotebookClient(notebook, timeout=1500, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook, time.monotonic() - started


def printed(notebook: nbformat.NotebookNode) -> str:
    """What the cells wrote, and the text beside every picture."""
    found = outputs(notebook)
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in found)


def stored_bytes(notebook: nbformat.NotebookNode) -> int:
    refresher().strip(notebook)
    return len(nbformat.writes(notebook).encode())


def num_pictures(notebook: nbformat.NotebookNode) -> int:
    return len(with_pictures(outputs(notebook)))


@pytest.mark.quick
def test_the_first_notebook_runs_headless(tmp_path: Path) -> None:
    notebook, seconds = run("01_first_classifier.ipynb", tmp_path)
    text = json.dumps(notebook.cells)
    accuracy = float(text.split("best validation accuracy ")[1].split("%")[0])
    print(f"notebook: {seconds:.0f} s, best validation accuracy {accuracy} %")
    assert accuracy >= 97.0
    assert list((tmp_path / "runs" / "early-exit").glob("events.out.tfevents.*"))
    ended = json.loads((tmp_path / "runs" / "early-exit" / "run.json").read_text())
    assert ended["status"] == "finished"
    assert stored_bytes(notebook) < 500_000
    assert num_pictures(notebook) >= 3


def test_the_second_notebook_gets_its_answers_headless(tmp_path: Path) -> None:
    notebook, seconds = run("02_autograd_graphs.ipynb", tmp_path)
    text = printed(notebook)
    print(f"notebook: {seconds:.0f} s, {stored_bytes(notebook):,} bytes")
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
    assert num_pictures(notebook) == 6


def test_the_third_notebook_gets_its_answers_headless(tmp_path: Path) -> None:
    notebook, seconds = run("03_memory.ipynb", tmp_path)
    text = printed(notebook)
    print(f"notebook: {seconds:.0f} s, {stored_bytes(notebook):,} bytes")
    for answer in (
        "48.0 MiB  weights = self.dropout(scores.softmax(-1))",  # the line that leads the peak
        "B's peak is 50.8 MiB lower",  # a fused attention
        "B's peak is 376 MiB lower",  # a leak stopped
        "memory/resident",
        "default: peak reserved memory 730 MiB",  # shortest batches first
        "default: peak reserved memory 602 MiB",  # longest first
        "Out of memory: 4.0 MiB asked for in blocks.3 (forward), step 1, on a 640 MiB card",
        "Free on the card  18.0 MiB",
        "what helps, as tried:",
        "Experiment small: finished",
        "predicted peak 3.6 GiB",  # on a T4
        "it asks for the Python object builtins.print",
        "1 of 2 addresses; event 2: 8,388,608 B at 0x7f0000400000, not at 0x7f0000600000",
    ):
        assert answer in text, answer
    assert "this ran on your machine" not in text
    assert stored_bytes(notebook) < 500_000
    assert num_pictures(notebook) == 7


ROUNDS_ALONE = """
from dataclasses import replace
from workbench.compare.measure import Session
Session._undecided = lambda self: []
begun = Session.__init__
Session.__init__ = lambda self, model, shared, arms, plan, say: begun(
    self, model, shared, arms, replace(plan, fresh_cache=False), say
)
"""
"""Arms that the rounds leave undecided are not measured again, and what the cells before compiled
is not compiled anew: `test_compare.py` does both."""


def test_the_fourth_notebook_goes_through_the_modes_headless(tmp_path: Path) -> None:
    notebook, seconds = run("04_modes.ipynb", tmp_path, ROUNDS_ALONE)
    text = printed(notebook)
    print(f"notebook: {seconds:.0f} s, {stored_bytes(notebook):,} bytes")
    for answer in (
        "attention cudnn does not exist on cpu",
        "one for each rank; this machine has room for",
        "Compile report of modes: 1 graph, no breaks",
        "Data-dependent branching",
        "if h.abs().max() > 1:",
        "steps, losses differ by at most",
        "under bf16",
        "Comparison of modes: modes",
        "99 % interval",
    ):
        assert answer in text, answer
    apart = float(text.split("losses differ by at most ")[1].split(" ")[0])
    assert apart <= 1e-6
    assert stored_bytes(notebook) < 500_000
