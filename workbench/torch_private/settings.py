"""Settings of torch without a public name: of the compiler's modules, and of the process."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._config_module import ConfigModule, SubConfigProxy

__all__ = [
    "ConfigModule",
    "SubConfigProxy",
    "dynamo_module",
    "entries",
    "is_nnpack_enabled",
    "sdp_priority",
    "set_sdp_priority",
    "stance",
]

_native: Any = torch._C
sdp_priority: Callable[[], list[int]] = _native._get_sdp_priority_order
"""Kernels of attention by priority, as ``sdpa_kernel(..., set_priority=True)`` sets it."""
set_sdp_priority: Callable[[list[int]], None] = _native._set_sdp_priority_order
is_nnpack_enabled: Callable[[], bool] = _native._get_nnpack_enabled


def entries(module: ConfigModule) -> dict[str, Any]:
    """Return the settings of a module by name: entries with ``alias`` and ``user_override``."""
    return vars(module)["_config"]


def dynamo_module(name: str) -> Any:
    """Return a module of Dynamo if it has been imported (which takes seconds), else None."""
    return sys.modules.get(f"torch._dynamo.{name}")


def stance() -> tuple[Any, ...]:
    """What ``torch.compiler.set_stance`` has set: stance, ``skip_guard_eval_unsafe``, backend."""
    frames = dynamo_module("eval_frame")
    if frames is None:
        return "default", False, None
    return frames._stance.stance, frames._stance.skip_guard_eval_unsafe, frames._stance.backend
