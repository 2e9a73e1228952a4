"""The role of each storage, determined by what holds it and what is done with it.

A model names its parameters, an optimizer its state, autograd a leaf's gradient; dropout is
recognised by how it makes its mask. Nothing is guessed: a storage about which nothing is reported
keeps no name, and `workbench.memory.recording.categories` classifies it by its lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from workbench.memory.recording.ledger import Ledger

DRAW = torch.ops.aten.bernoulli_.float
SCALE = (torch.ops.aten.mul_.Tensor, torch.ops.aten.mul_.Scalar)
ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_MASK = " dropout mask"
_STRENGTH = {"parameters": 0, "gradients": 1, "optimizer": 2, "buffers": 3, "unknown": 4, "": 5}


class Roles:
    """The storages that a recording knows, and what has been reported about them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.blocks = self.ledger.blocks
        self.uncounted = self.ledger.uncounted

    def adopt(
        self, tensor: torch.Tensor, category: str, *, name: str = "", module: str = ""
    ) -> None:
        """Set the category of the storage of ``tensor``; one not yet known existed from the start.

        A storage that fits two categories gets the stronger one: parameters, then gradients, then
        optimizer, then buffers.
        """
        self.ledger.record_frees()
        for storage in self.ledger.storages(tensor):
            block = self.ledger.block_of(storage) or self.ledger.track(storage)
            if block is not None and _STRENGTH[category] <= _STRENGTH[block.category]:
                block.category, block.name = category, name or block.name
                block.module = block.module or module

    def name_of(self, tensor: torch.Tensor) -> str:
        """Return the name that `adopt` gave to the tensor's storage, ``""`` if none."""
        return self.owner_of(tensor)[0]

    def owner_of(self, tensor: torch.Tensor) -> tuple[str, str]:
        """Return a parameter's name and the module that holds it by that name; ``""`` if none."""
        block = next(self.ledger.blocks_of(tensor), None)
        if block is None:
            return "", ""
        return block.name, block.name.rpartition(".")[0] or block.module

    def _gradient(self, tensor: torch.Tensor, leaf: torch.Tensor) -> None:
        """Classify what ``AccumulateGrad`` makes or keeps, which becomes the leaf's ``.grad``."""
        owner, module = self.owner_of(leaf)
        name = f"{owner}.grad" if owner else ""
        self.adopt(tensor, "gradients", name=name, module=module)

    def _drawn(self, tensor: torch.Tensor) -> None:
        """Name the mask of a dropout: made like its input, with zeros and ones drawn into it."""
        for block in self.ledger.blocks_of(tensor):
            if block.op == "aten.empty_like" and not block.name:
                block.name = f"{_dtype_name(tensor)}{_MASK}"

    def _scaled(self, tensors: Iterable[torch.Tensor]) -> None:
        """Rename masks used in an in-place multiplication: they are not masks of plain dropout.

        Plain dropout has a fused kernel. ``dropout_`` multiplies its input by the mask in place,
        ``alpha_dropout`` multiplies the mask by a number.
        """
        for tensor in tensors:
            for block in self.ledger.blocks_of(tensor):
                if block.name.endswith(_MASK):
                    block.name = f"{block.name.removesuffix(_MASK)} dropout noise"

    def _name_plain(self, tensors: Iterable[torch.Tensor], what: str) -> None:
        """Name results without a name by their dtype and what they are."""
        for tensor in tensors:
            for block in self.ledger.blocks_of(tensor):
                block.name = block.name or f"{_dtype_name(tensor)} {what}"


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
