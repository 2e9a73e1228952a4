"""Children find this package, and the standard library before anything that is installed."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from workbench.processes import environment, python_path

ROOT = Path(environment.__file__).resolve().parents[2]


def test_a_checkout_is_found_by_children_and_site_packages_come_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert python_path() == str(ROOT)
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert python_path() == os.pathsep.join(["mine", str(ROOT)])
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(ROOT))
    assert python_path() == "mine", "installed: what is there must not precede the standard library"
