"""Have the optimizer follow a model's parameters when the model is laid out over ranks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from workbench.torch_private.distributed import sharded_parameters

if TYPE_CHECKING:
    from workbench.experiment.training import Training


@contextmanager
def parameters_followed(training: Training) -> Generator[None]:
    """Have the optimizer continue with whatever the model's parameters become inside.

    `fully_shard` puts new parameters into the modules; moments become shards of the same kind.
    """
    before = dict(training.model.named_parameters())
    yield
    after = dict(training.model.named_parameters())
    changed: dict[torch.Tensor, torch.Tensor] = {
        before[name]: after[name] for name in before if before[name] is not after[name]
    }
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    for group in groups:
        group["params"] = [changed.get(old, old) for old in group["params"]]
    state = cast("dict[torch.Tensor, dict[str, Any]]", dict(training.optimizer.state))
    training.optimizer.state.clear()
    for old, kept in state.items():
        new = changed.get(old, old)
        training.optimizer.state[new] = {
            key: _moment(value, new, training.optimizer) if new is not old else value
            for key, value in kept.items()
        }


def keep_attributes(model: nn.Module, before: dict[str, nn.Parameter]) -> None:
    """Keep what the user has set on a parameter, on its shards and while `fsdp` has it gathered.

    Args:
        model: the model as it is laid out over the ranks.
        before: its parameters before that, by name.
    """
    attributes: dict[int, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if found := vars(before[name]):
            attributes[id(parameter)] = found
            vars(parameter).update(found)
    for parameter in sharded_parameters(model):
        if (found := attributes.get(id(parameter.sharded_param))) is not None:
            _have_when_gathered(parameter, found)


def _have_when_gathered(parameter: Any, attributes: dict[str, Any]) -> None:
    make = parameter.init_unsharded_param

    def make_with_attributes() -> None:
        make()
        vars(parameter._unsharded_param).update(attributes)

    parameter.init_unsharded_param = make_with_attributes


def _moment(value: Any, parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> Any:
    """Shard a whole moment like its parameter; what is not a moment is returned as it is.

    Under ``offload`` shards are in host memory, and so are their moments, and the step counts that
    a fused optimizer has next to them.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(parameter, DTensor):
        return value
    if not value.ndim:
        return value if value.device.type == "cpu" else value.to(parameter.device)
    if value.shape != parameter.shape:
        raise ValueError(
            f"{type(optimizer).__name__} keeps a tensor of shape {list(value.shape)} for a "
            f"parameter of shape {list(parameter.shape)}; fsdp can shard moments of the "
            "parameter's own shape only: use ddp, or an optimizer such as AdamW"
        )
    # every rank has the whole of it: nothing needs to be sent
    shard = distribute_tensor(
        value, parameter.device_mesh, parameter.placements, src_data_rank=None
    )
    return shard.to(parameter.device)
