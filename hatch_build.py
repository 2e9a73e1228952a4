"""Hatch's build hook: the front end is built before it is packed, when it is missing or stale."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = Path(__file__).resolve().parent


class FrontEndHook(BuildHookInterface[Any]):
    """Builds ``workbench/static`` and ``workbench/labextension``."""

    def dependencies(self) -> list[str]:
        """What the build needs: nothing at all when the outputs are there already."""
        frontend = _frontend()
        if not frontend.is_stale(_HERE):
            return []
        node = [] if frontend.fitting_node() else [frontend.NODE_WHEEL]
        return ["jupyter-builder>=1.2,<2", *node]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - Hatch's signature
        """Build what is missing or stale."""
        frontend = _frontend()
        if frontend.is_stale(_HERE):
            frontend.build(_HERE)


def _frontend() -> ModuleType:
    # by path: during a build neither this folder nor scripts/ is importable
    spec = importlib.util.spec_from_file_location("frontend", _HERE / "scripts/frontend.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{_HERE}/scripts/frontend.py is missing from this source tree.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
