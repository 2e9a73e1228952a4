"""The public surface is frozen: growing or shrinking it is a decision, made here."""

from __future__ import annotations

import ast
import importlib
import inspect
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
    "load_weights",
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


@pytest.mark.parametrize("name", PUBLIC)
def test_each_takes_what_a_type_checker_is_told(name: str) -> None:
    """A name that is resolved to a wrapper takes every argument of what it wraps."""
    module, declared = _declared()[name]
    told = inspect.signature(getattr(importlib.import_module(module), declared))
    assert _arguments(inspect.signature(getattr(wb, name))) == _arguments(told)


def _declared() -> dict[str, tuple[str, str]]:
    """Public name -> module and name that `workbench/__init__.py` imports for type checkers."""
    tree = ast.parse(Path(wb.__file__).read_text())
    block = next(one for one in tree.body if isinstance(one, ast.If))
    return {
        alias.asname or alias.name: (str(one.module), alias.name)
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }


def _arguments(signature: inspect.Signature) -> list[tuple[str, object, object]]:
    return [(one.name, one.kind, one.default) for one in signature.parameters.values()]


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
