"""Bytes that a live forward saves for backward, counted by torch's own saved-tensor hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from workbench.graph.core.tensor_memory import memory_keys, memory_of


@dataclass
class _Held:
    """What stands for a saved tensor while the graph holds it."""

    tensor: torch.Tensor


def saved_in_forward(model: nn.Module, step: Callable[[], torch.Tensor]) -> int:
    """Bytes of what one ``step`` saves for backward and still holds when it returns.

    Each storage counts once; those of parameters, buffers and the model's inputs do not count.

    Args:
        model: the model that ``step`` runs.
        step: runs a forward and returns the loss, without calling backward.

    Raises:
        ValueError: ``step`` returns no loss, or has called backward.
    """
    saved: list[weakref.ref[_Held]] = []
    anyway: set[int] = set()

    def pack(tensor: torch.Tensor) -> _Held:
        held = _Held(tensor)
        saved.append(weakref.ref(held))
        return held

    def note_inputs(_: nn.Module, args: Any, kwargs: Any) -> None:
        leaves = _pytree.tree_leaves((args, kwargs))
        anyway.update(memory_keys(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))

    anyway.update(memory_keys([*model.parameters(), *model.buffers()]))
    hook = model.register_forward_pre_hook(note_inputs, prepend=True, with_kwargs=True)
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
            loss: Any = step()
    finally:
        hook.remove()
    if not isinstance(loss, torch.Tensor) or loss.grad_fn is None:
        raise ValueError("step() must return the loss, a tensor that requires grad")
    sizes: dict[int, int] = {}
    for held in (reference() for reference in saved):
        if held is not None:
            for memory in memory_of(held.tensor) or ():
                sizes[memory.key] = memory.num_bytes
    if saved and not sizes:
        raise ValueError("step() has freed what it saved: it must not call backward")
    return sum(size for key, size in sizes.items() if key not in anyway)


def _unpack(held: _Held) -> torch.Tensor:
    return held.tensor
