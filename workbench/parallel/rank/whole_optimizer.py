"""An optimizer that must see whole parameters, under `fsdp`: they are gathered for its step.

The optimizer continues with the very parameters that it was made with (its groups, its state, lists
of its own and its hooks are as in one process), and they are whole from a backward to the end of
the update: values and gradients are gathered, everything that reads gradients reads these, the
optimizer steps, and each rank keeps its rows of the result. During that time the modules have them
too, so that a hook of the optimizer that uses ``model.parameters()`` sees what it sees in one
process.

*What it costs.* One gathering of parameters and one of gradients in each step, the memory of both
during the update, and the optimizer's state is whole on every rank, as under `ddp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from workbench.modes.layout.layout import reshard
from workbench.parallel.checks.parameter_use import own_parameters, set_parameter
from workbench.parallel.checks.replicas import Checksum, checksums

if TYPE_CHECKING:
    from workbench.experiment.training import Training


class _Pair(NamedTuple):
    """A parameter as the optimizer has it, and as it is sharded over the ranks."""

    name: str
    own: nn.Parameter
    sharded: nn.Parameter
    places: Sequence[tuple[nn.Module, str]]
    """Modules that have it, and the name that it has there."""


class WholeStep:
    """Gathers parameters and gradients for an update, and scatters the rows of the result.

    Args:
        training: its model has been laid out over the ranks, and its optimizer still has those of
            before.
        before: the model's parameters before that, by name.
    """

    def __init__(self, training: Training, before: dict[str, nn.Parameter]) -> None:
        self._model = training.model
        places: dict[int, list[tuple[nn.Module, str]]] = {}
        for module in self._model.modules():
            for name, parameter in own_parameters(module).items():
                places.setdefault(id(parameter), []).append((module, name))
        self._pairs = [
            _Pair(name, before[name], parameter, places[id(parameter)])
            for name, parameter in self._model.named_parameters()
            if parameter is not before[name]
        ]
        for pair in self._pairs:
            _empty(pair.own)
        self._is_gathered = False
        self._updated: dict[str, Checksum] | None = None
        """Checksums after an update; None: the next one is to be compared with that of other
        ranks."""
        training.stand_ins = {pair.own: pair.name for pair in self._pairs}

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The optimizer's parameters: they have values only between `gather` and `scatter`."""
        return [pair.own for pair in self._pairs]

    def updated(self) -> dict[str, Checksum]:
        """Return checksums of the parameters after the first update since the last call."""
        found, self._updated = self._updated, None
        return found or {}

    @torch.no_grad()
    def gather(self) -> None:
        """Make the optimizer's parameters and their gradients whole, after a backward."""
        reshard(self._model)
        self._is_gathered = True
        for pair in self._pairs:
            gradient = pair.sharded.grad
            pair.own.data = _whole(pair.sharded.detach(), pair.own.device)
            pair.own.requires_grad_(pair.sharded.requires_grad)
            pair.own.grad = None if gradient is None else _whole(gradient, pair.own.device)
            pair.sharded.grad = None
            for module, name in pair.places:
                set_parameter(module, name, pair.own)

    @torch.no_grad()
    def scatter(self) -> None:
        """Give each rank its rows of the parameters, after the update or instead of it."""
        if not self._is_gathered:
            return
        self._is_gathered = False
        if self._updated is None:
            self._updated = checksums((pair.name, pair.own) for pair in self._pairs)
        for pair in self._pairs:
            for module, name in pair.places:
                set_parameter(module, name, pair.sharded)
            pair.sharded.requires_grad_(pair.own.requires_grad)
            lying = cast("DTensor", pair.sharded.detach())
            # every rank has the whole of it: nothing needs to be sent
            mine = distribute_tensor(
                pair.own.detach(), lying.device_mesh, lying.placements, src_data_rank=None
            )
            lying.to_local().copy_(mine.to_local())
            _empty(pair.own)


def _whole(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return all rows, in new memory; shards may be in host memory when the optimizer's are not."""
    whole = cast("DTensor", tensor).full_tensor()
    return whole.to(device).clone(memory_format=torch.contiguous_format)


def _empty(parameter: nn.Parameter) -> None:
    """Release values and gradient; the parameter stays the one that the optimizer has."""
    parameter.grad = None
    parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
