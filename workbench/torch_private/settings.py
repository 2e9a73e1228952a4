"""Settings of torch without a public name: of the compiler's modules, and of the process."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._config_module import ConfigModule, SubConfigProxy

__all__ = [
    "ConfigModule",
    "SubConfigProxy",
    "dynamo_module",
    "entries",
    "native",
]

native: Any = torch._C
"""Torch's C++ module, whose names may change."""


def entries(module: ConfigModule) -> dict[str, Any]:
    """Return the settings of a module by name: entries with ``alias`` and ``user_override``."""
    return vars(module)["_config"]


def dynamo_module(name: str) -> Any:
    """Return a module of Dynamo if it has been imported (which takes seconds), else None."""
    return sys.modules.get(f"torch._dynamo.{name}")
