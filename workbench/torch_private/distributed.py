"""Private state of DDP and FSDP2 for a model that they wrap."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from workbench.torch_private.lookup import Check, expect, resolve


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


# -- checks ---------------------------------------------------------------------------------


_STATE = "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState"
_PARAMETER = "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam"


def _check_ddp() -> None:
    model = nn.Identity()
    ignore_in_ddp(model, ["weight"])
    noted: Any = model
    expect(
        noted._ddp_params_and_buffers_to_ignore == ["weight"], "DDP ignores parameters otherwise"
    )
    ddp: Any = nn.parallel.DistributedDataParallel
    expect(callable(ddp._get_ddp_logging_data), "DDP does not report its buckets")


def _check_fsdp() -> None:
    if "torch.distributed.fsdp" not in sys.modules:  # then nothing of it is read either
        return
    from torch.distributed.fsdp import FSDPModule

    module: Any = FSDPModule
    expect(callable(module._get_fsdp_state), "FSDP keeps its state elsewhere")
    attributes = _assigned(resolve(_STATE))
    expect(
        attributes & {"_fsdp_param_groups", "_fsdp_param_group"}, "FSDP keeps parameters elsewhere"
    )
    of_parameter = _assigned(resolve(_PARAMETER))
    for name in ("sharded_param", "_unsharded_param", "_module_info"):
        expect(name in of_parameter, f"a sharded parameter has no {name}")


def _assigned(kind: type) -> set[str]:
    """Return the names that the methods of a class use: no instance exists outside of ranks."""
    methods = [one for one in vars(kind).values() if hasattr(one, "__code__")]
    declared: dict[str, Any] = getattr(kind, "__annotations__", {})
    return {*declared, *(name for method in methods for name in method.__code__.co_names)}


CHECKS = (
    Check(
        (
            "torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model",
            "torch.nn.parallel.DistributedDataParallel._get_ddp_logging_data",
        ),
        "what DDP leaves to each rank",
        _check_ddp,
    ),
    Check(
        ("torch.distributed.fsdp.FSDPModule._get_fsdp_state", _STATE, _PARAMETER),
        "the parameters that FSDP has sharded",
        _check_fsdp,
    ),
)
