"""The storages that a recording knows, and when each of them was allocated and freed.

No storage is held. A weak reference reports when one dies, whether Python, autograd or C++ released
it last. The last reference may be dropped on any thread and at any point, also where Dynamo would
compile a Python callback; so a dying storage is only appended to a queue, which involves no Python
code of this package. The queue is read before the next event is numbered: frees keep their order,
and come before the operation that followed them.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Iterator

import torch
from torch.nn.parameter import is_lazy

from workbench.memory.recording.storage_lifetimes import Block, Mark
from workbench.torch_private.memory import sparse_parts, without_transforms
from workbench.torch_private.tensors import storage_identity

_COO, _STRIDED = torch.sparse_coo, torch.strided


class StorageRef(weakref.ref[torch.UntypedStorage]):
    """A weak reference that knows which block dies with its storage."""

    __slots__ = ("block", "key")
    block: Block
    key: int


class Ledger:
    """The blocks of one recording; ``live`` finds the one of a storage by `storage_identity`."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.live: dict[int, StorageRef] = {}
        self.dead_storages: deque[weakref.ref[torch.UntypedStorage]] = deque()
        self.uncounted: set[str] = set()
        """Tensor layouts and classes whose memory could not be counted."""
        self._ticks = itertools.count()
        self._devices: dict[torch.device, str] = {}

    def block_of(self, storage: torch.UntypedStorage) -> Block | None:
        """Return the block of a storage that is alive and known."""
        ref = self.live.get(storage_identity(storage))
        return None if ref is None else ref.block

    def blocks_of(self, tensor: torch.Tensor) -> Iterator[Block]:
        """The known blocks of a tensor's storages."""
        for storage in self.storages(tensor):
            block = self.block_of(storage)
            if block is not None:
                yield block

    def track(self, storage: torch.UntypedStorage) -> Block | None:
        """Make a block for a storage not known before; None if it takes no memory."""
        if storage.nbytes() == 0 or storage.device.type == "meta":
            return None
        ref = StorageRef(storage, self.dead_storages.append)
        ref.block, ref.key = self.new_block(storage), storage_identity(storage)
        self.live[ref.key] = ref
        return ref.block

    def new_block(self, storage: torch.UntypedStorage) -> Block:
        """Make another block, also for a storage known before that now has another size."""
        device = self._devices.get(storage.device)
        if device is None:
            device = self._devices[storage.device] = str(storage.device)
        block = Block(storage.nbytes(), device, storage.data_ptr())
        self.blocks.append(block)
        return block

    def start(self, block: Block) -> None:
        """Record that the block was allocated just now."""
        block.started_ns = time.perf_counter_ns()
        block.start = next(self._ticks)

    def end(self, block: Block) -> None:
        """Record that the block was freed just now."""
        block.ended_ns = time.perf_counter_ns()
        block.end = next(self._ticks)

    def mark(self, phase: str) -> Mark:
        """The moment at which ``phase`` begins."""
        return Mark(next(self._ticks), time.perf_counter_ns(), phase)

    def record_frees(self) -> None:
        """End the blocks of the storages that died since the last event, in their order."""
        while self.dead_storages:
            ref = self.dead_storages.popleft()
            if isinstance(ref, StorageRef):
                if ref.block.end < 0:
                    self.end(ref.block)
                if self.live.get(ref.key) is ref:
                    del self.live[ref.key]

    def storages(self, tensor: torch.Tensor) -> tuple[torch.UntypedStorage, ...]:
        """Return the storages of a tensor: one for a strided tensor, several for a sparse one."""
        if tensor.layout is _STRIDED:
            try:
                return (tensor.untyped_storage(),)
            except ValueError:
                if not is_lazy(tensor):
                    raise
                return ()  # a lazy module's, before its first call: it takes no memory yet
            except (NotImplementedError, RuntimeError):  # a wrapper without memory of its own
                inner = without_transforms(tensor)
                if inner is not tensor:
                    return self.storages(inner)
                self.uncounted.add(type(tensor).__name__)
        elif tensor.layout is _COO:
            return tuple(part.untyped_storage() for part in sparse_parts(tensor))
        else:
            self.uncounted.add(str(tensor.layout))
        return ()

    def close(self) -> None:
        """Release every weak reference; the blocks stay."""
        self.record_frees()
        self.live.clear()
