"""Settings of torch without a public name: of the compiler's modules, and of the process."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.torch_private.lookup import Check, expect, is_missing, private

if TYPE_CHECKING:
    from torch.utils._config_module import ConfigModule, SubConfigProxy
else:
    ConfigModule = private("torch.utils._config_module.ConfigModule")
    SubConfigProxy = private("torch.utils._config_module.SubConfigProxy")

__all__ = [
    "CHECKS",
    "ConfigModule",
    "SubConfigProxy",
    "dynamo_module",
    "entries",
    "is_nnpack_enabled",
    "sdp_priority",
    "set_sdp_priority",
    "stance",
]

sdp_priority: Callable[[], list[int]] = private("torch._C._get_sdp_priority_order")
"""Kernels of attention by priority, as ``sdpa_kernel(..., set_priority=True)`` sets it."""
set_sdp_priority: Callable[[list[int]], None] = private("torch._C._set_sdp_priority_order")
is_nnpack_enabled: Callable[[], bool] = private("torch._C._get_nnpack_enabled")


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


# -- checks ---------------------------------------------------------------------------------


def _check_config() -> None:
    config: Any = importlib.import_module("torch.compiler.config")  # imported with torch anyway
    expect(isinstance(config, ConfigModule), "a module of settings has another class")
    entry: Any = next(iter(entries(config).values()))
    expect(hasattr(entry, "alias"), "a setting has no alias")
    expect(hasattr(entry, "user_override"), "a setting does not show what was set")


def _check_proxy() -> None:
    expect(not is_missing(SubConfigProxy), "settings within settings have no class")


def _check_attention() -> None:
    before = sdp_priority()
    expect(sorted(before) == sorted(set(before)) and before, "kernels of attention have no order")
    # setting it, even to what it is, could undo what a cell sets at this moment
    expect(not is_missing(set_sdp_priority), "the order of kernels of attention cannot be set")


def _check_nnpack() -> None:
    expect(is_nnpack_enabled() in (True, False), "NNPACK is neither enabled nor disabled")


def _check_stance() -> None:
    name, skips, _ = stance()
    expect(isinstance(name, str) and isinstance(skips, bool), "the stance is of another kind")


CHECKS = (
    Check(
        (
            "torch.utils._config_module.ConfigModule",
            "torch.utils._config_module._ConfigEntry.alias",
            "torch.utils._config_module._ConfigEntry.user_override",
        ),
        "settings of the compiler that a cell made",
        _check_config,
    ),
    Check(
        ("torch.utils._config_module.SubConfigProxy",),
        "settings of the compiler that a cell made",
        _check_proxy,
    ),
    Check(
        ("torch._C._get_sdp_priority_order", "torch._C._set_sdp_priority_order"),
        "the order of attention kernels that a cell set",
        _check_attention,
    ),
    Check(("torch._C._get_nnpack_enabled",), "whether a cell turned off NNPACK", _check_nnpack),
    Check(("torch._dynamo.eval_frame._stance",), "the stance of the compiler", _check_stance),
)
