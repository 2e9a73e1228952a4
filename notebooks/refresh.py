"""Run every notebook from top to bottom and store it as it should be read without a kernel.

    python notebooks/refresh.py [NAME.ipynb ...]

Widget views and widget state are taken out of the stored outputs: without a kernel they show an
error, and the static picture beside each of them says the same. What a notebook writes (runs, saved
graphs) goes to a folder that is gone afterwards, so names in the outputs never depend on what was
there before. A notebook that grows past 500 kB is refused.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
MAX_BYTES = 500_000
TIMEOUT_S = 600


def refresh(path: Path) -> None:
    """Execute ``path`` in an empty folder and write it back, stripped.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the file is left as it was.
        ValueError: the result is larger than 500 kB.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=TIMEOUT_S, resources=place).execute()
    strip(notebook)
    text = nbformat.writes(notebook)
    if len(text.encode()) > MAX_BYTES:
        raise ValueError(f"{path.name} would be {len(text.encode()):,} bytes, limit {MAX_BYTES:,}")
    path.write_text(text + "\n")


def strip(notebook: nbformat.NotebookNode) -> None:
    """Take widgets and run-dependent metadata out of a notebook, in place."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
            output.get("metadata", {}).pop(WIDGET_VIEW, None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_blank(output)]


def _is_blank(output: nbformat.NotebookNode) -> bool:
    """Whether it shows nothing any more, as a progress that has ended."""
    return output.output_type == "display_data" and not any(output.data.values())


def main(names: list[str]) -> None:
    """Refresh the named notebooks, or all."""
    paths = [HERE / name for name in names] or sorted(HERE.glob("*.ipynb"))
    for path in paths:
        refresh(path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
