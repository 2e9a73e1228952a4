"""The category of a block of memory, set only if it is known.

Parameters, buffers, inputs, gradients and optimizer state are identified by the object that holds
them. The rest is classified by its lifetime:

* *activations* are allocated in a forward and still there when that forward ends: held for
  backward, or by Python;
* *temporaries* are allocated and freed within one phase, or between two, including the intermediate
  values of backward; so is what an optimizer's step creates, never holds as state, and frees, even
  if a closure's forward and backward are in between;
* what outlives a backward is *activations* if autograd recorded that backward (``create_graph``),
  and *gradients* if ``torch.autograd.grad`` made it;
* everything else is *unknown*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from workbench.memory.recording.attribution import root_name
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block
from workbench.records import CATEGORIES, Phase
from workbench.torch_private.memory import original_module

_MOST_ITEMS = 64


def adopt_model(recorder: Recorder, model: nn.Module, prefix: str = "") -> None:
    """Report to the recorder which storages are parameters, gradients and buffers of ``model``."""
    model = original_module(model)
    own = prefix or root_name(model)
    for name, parameter in model.named_parameters():
        full = f"{prefix}.{name}" if prefix else name
        module = full.rpartition(".")[0] or own
        recorder.adopt(parameter, "parameters", name=full, module=module)
        if parameter.grad is not None:
            recorder.adopt(parameter.grad, "gradients", name=f"{full}.grad", module=module)
    for name, buffer in model.named_buffers():
        full = f"{prefix}.{name}" if prefix else name
        recorder.adopt(buffer, "buffers", name=full, module=full.rpartition(".")[0] or own)


def adopt_optimizer(recorder: Recorder, optimizer: torch.optim.Optimizer) -> None:
    """Report to the recorder which storages are state of ``optimizer`` (moments, step counts)."""
    for row, group in enumerate(optimizer.param_groups):
        for column, parameter in enumerate(group["params"]):
            recorder.adopt(parameter, "parameters")
            owner = recorder.name_of(parameter)
            if not owner:  # no module that ran holds it: named by its place in the optimizer
                owner = f"param_groups[{row}][{column}]"
                recorder.adopt(parameter, "parameters", name=owner)
            if parameter.grad is not None:
                recorder.adopt(parameter.grad, "gradients", name=f"{owner}.grad")
    # A key is a parameter, or a name for what an optimizer keeps for all of them.
    for key, state in cast("Mapping[Any, Any]", optimizer.state).items():
        owner, module = recorder.owner_of(key) if isinstance(key, torch.Tensor) else ("", "")
        for what, tensor in _tensors(state, () if isinstance(key, torch.Tensor) else (str(key),)):
            name = f"{owner}.{what}" if owner else what
            recorder.adopt(tensor, "optimizer", name=name, module=module)


def adopt_inputs(recorder: Recorder, batch: Any) -> None:
    """Report to the recorder that the tensors of ``batch`` (any nesting) are inputs."""
    for key, tensor in _tensors(batch, ("inputs", "targets")):
        recorder.adopt(tensor, "buffers", name=f"batch.{key}")


def categorize(blocks: Sequence[Block], phases: Sequence[Phase]) -> list[int]:
    """Return the row in `CATEGORIES` of each block; ``start`` and ``end`` are event numbers."""
    starts = [phase.start for phase in phases]
    return [CATEGORIES.index(block.category or _by_life(block, phases, starts)) for block in blocks]


def _by_life(block: Block, phases: Sequence[Phase], starts: Sequence[int]) -> str:
    if block.start < 0 or not phases:
        return "unknown"
    row = bisect_right(starts, block.start) - 1
    phase = phases[row] if row >= 0 and block.start < phases[row].end else None
    if phase is None:
        following = starts[row + 1] if row + 1 < len(starts) else block.end + 1
        return "temporaries" if 0 <= block.end < following else "unknown"
    if 0 <= block.end < phase.end or (phase.name == "optimizer" and block.end >= 0):
        return "temporaries"
    if phase.name == "forward" or block.differentiable:
        return "activations"
    return "gradients" if phase.name == "backward" and block.result else "unknown"


def _tensors(value: Any, names: Sequence[str] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a nesting of mappings and sequences with its key in the outermost one."""
    if isinstance(value, torch.Tensor):
        yield (names[0] if names else "0"), value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            for _, tensor in _tensors(item):
                yield str(key), tensor
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:_MOST_ITEMS]):
            key = names[index] if index < len(names) else str(index)
            for _, tensor in _tensors(item):
                yield key, tensor
