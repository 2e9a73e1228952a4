"""Private state of DDP and FSDP2 for a model that they wrap."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn


def ignore_in_ddp(model: nn.Module, names: Iterable[str]) -> None:
    """Make DDP leave these parameters and buffers of ``model`` to each rank."""
    ddp: Any = nn.parallel.DistributedDataParallel
    ddp._set_params_and_buffers_to_ignore_for_model(model, list(names))


def ddp_figures(model: nn.parallel.DistributedDataParallel) -> dict[str, Any]:
    """Return what DDP logs about itself: ``bucket_sizes``, ``gradient_as_bucket_view`` etc."""
    return model._get_ddp_logging_data()  # pyright: ignore[reportPrivateUsage]


def gathered_parameters(model: nn.Module) -> dict[int, nn.Parameter]:
    """Return the whole parameters that a forward under ``fsdp`` uses, by identity of the shard.

    The same objects are used in every step; there are none before the first.
    """
    return {
        id(one.sharded_param): whole
        for one in sharded_parameters(model)
        if (whole := getattr(one, "_unsharded_param", None)) is not None
    }


def sharded_parameters(model: nn.Module) -> Iterator[Any]:
    """Yield FSDP's own records of the parameters that it has sharded: torch's ``FSDPParam``."""
    for module in model.modules():
        yield from sharded_together(module)


def sharded_together(module: nn.Module) -> list[Any]:
    """Return those that one call of `fully_shard` has sharded; empty if it was not called."""
    if "torch.distributed.fsdp" not in sys.modules:
        return []
    from torch.distributed.fsdp import FSDPModule

    if not isinstance(module, FSDPModule):
        return []
    state: Any = module._get_fsdp_state()  # pyright: ignore[reportPrivateUsage] - torch has no public way
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12: there is one, or none
        groups = [group for group in (state._fsdp_param_group,) if group is not None]
    return [one for group in groups for one in group.fsdp_params]
