"""What each storage is, told by what holds it and by what is done with it.

A model names its parameters, an optimizer its state, autograd a leaf's gradient; dropout is known
by how it makes its mask. Nothing is guessed: a storage of which nobody tells keeps no name, and
`workbench.memory.recording.categories` judges it by its life.
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
    """The storages that a recording knows, and what it was told of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.blocks = self.ledger.blocks
        self.uncounted = self.ledger.uncounted

    def adopt(
        self, tensor: torch.Tensor, category: str, *, name: str = "", module: str = ""
    ) -> None:
        """Say what the storage of ``tensor`` is; one not yet known was there from the start.

        A storage that is two things at once keeps the stronger: parameters, then gradients, then
        optimizer, then buffers.
        """
        self.ledger.bury()
        for storage in self.ledger.storages(tensor):
            block = self.ledger.block_of(storage) or self.ledger.track(storage)
            if block is not None and _STRENGTH[category] <= _STRENGTH[block.category]:
                block.category, block.name = category, name or block.name
                block.module = block.module or module

    def name_of(self, tensor: torch.Tensor) -> str:
        """The name `adopt` gave the tensor's storage, ``""`` if none."""
        return self.owner_of(tensor)[0]

    def owner_of(self, tensor: torch.Tensor) -> tuple[str, str]:
        """A parameter's name, and the module that holds it under that name; ``""`` if none."""
        block = next(self.ledger.blocks_of(tensor), None)
        if block is None:
            return "", ""
        return block.name, block.name.rpartition(".")[0] or block.module

    def _gradient(self, tensor: torch.Tensor, leaf: torch.Tensor) -> None:
        """What ``AccumulateGrad`` makes or keeps becomes the leaf's ``.grad``."""
        owner, module = self.owner_of(leaf)
        name = f"{owner}.grad" if owner else ""
        self.adopt(tensor, "gradients", name=name, module=module)

    def _drawn(self, tensor: torch.Tensor) -> None:
        """What dropout makes like its input and draws zeros and ones into is its mask."""
        for block in self.ledger.blocks_of(tensor):
            if block.op == "aten.empty_like" and not block.name:
                block.name = f"{_dtype_name(tensor)}{_MASK}"

    def _scaled(self, tensors: Iterable[torch.Tensor]) -> None:
        """A mask that is multiplied in place is no mask of plain dropout, which has a fused kernel.

        ``dropout_`` multiplies its input by it in place, ``alpha_dropout`` it by a number.
        """
        for tensor in tensors:
            for block in self.ledger.blocks_of(tensor):
                if block.name.endswith(_MASK):
                    block.name = f"{block.name.removesuffix(_MASK)} dropout noise"

    def _name_plain(self, tensors: Iterable[torch.Tensor], what: str) -> None:
        """A result that has no name is called by its type and what it is."""
        for tensor in tensors:
            for block in self.ledger.blocks_of(tensor):
                block.name = block.name or f"{_dtype_name(tensor)} {what}"


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
