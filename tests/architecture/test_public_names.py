"""The public surface is frozen: growing or shrinking it is a decision, made here."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import workbench as wb

PUBLIC = [
    "Experiment",
    "Modes",
    "Run",
    "attach",
    "compare",
    "compile_ahead",
    "compile_report",
    "dtypes",
    "graph",
    "memory",
    "open",
    "tensorboard",
]


def test_the_public_names() -> None:
    assert wb.__all__ == PUBLIC
    assert [name for name in dir(wb) if not name.startswith("_")] == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_resolves_and_is_documented(name: str) -> None:
    value = getattr(wb, name)
    assert callable(value)
    assert not isinstance(value, types.ModuleType)
    assert (value.__doc__ or "").strip()


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'grpah'.*'graph'"):
        _ = wb.grpah


def test_names_resolve_after_their_packages_were_imported() -> None:
    """``import workbench.graph`` binds the package to the name of the function; ours wins."""
    code = (
        "import workbench.graph, workbench.memory, workbench as wb\n"
        "assert callable(wb.graph) and callable(wb.memory), (wb.graph, wb.memory)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
