"""Every storage that operations create, also requested from a simulated GPU.

A `GpuRecorder` is a `Recorder` whose ledger outlives a step: it knows which storages are on the
simulated GPU, requests a block from the simulated allocator when one is created and frees the block
when it dies, in the order in which that happens. What an operation reads and the simulated GPU does
not have yet (a batch that comes from the host) is put there first. The storages themselves are
where they always were; the simulated GPU consists only of addresses.

A request that the simulated GPU cannot serve raises ``torch.OutOfMemoryError`` from the operation
that made it, as CUDA's allocator does. (CUDA raises before the operation computes, this after: its
result is dropped.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from workbench.allocator.memory_limit import GpuLimit
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError
from workbench.memory.reading.text import format_bytes
from workbench.memory.recording.categories import adopt_model, adopt_optimizer
from workbench.memory.recording.ledger import Ledger
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block

if TYPE_CHECKING:
    from workbench.memory.simulated_gpu.work_record import Work

NOWHERE = -1
"""Address of a block that is not on the simulated GPU."""


class Interrupted(BaseException):
    """The trial on a simulated GPU should end; not an error that code should catch."""


class Refused(NamedTuple):
    """A request that the simulated GPU could not serve."""

    tick: int
    block: Block
    """The block it was for."""
    error: int
    """Id of the exception that reports it: the work ended by it if it is the one that
    propagates."""


class GpuLedger(Ledger):
    """The storages on a simulated GPU, step after step.

    Args:
        limit: the simulated GPU.
        device: the device whose storages are on it, as storages name it.
    """

    def __init__(self, limit: GpuLimit, device: str) -> None:
        super().__init__()
        self.limit = limit
        self.device = device
        self.allocator: CachingAllocator = limit.allocator()
        self.allocated = self.peak_allocated = self.peak_reserved = 0
        self.refused: list[Refused] = []
        """The refused requests of this step."""
        self.interrupted: Callable[[], bool] | None = None
        """During a trial: returns whether it should end."""

    def next_step(self) -> None:
        """Mark what is live as there before; forget what is gone."""
        self.record_frees()
        self.blocks[:] = [block for block in self.blocks if block.end < 0]
        for block in self.blocks:
            block.start, block.call = -1, -1
        self.refused.clear()

    def new_block(self, storage: torch.UntypedStorage) -> Block:
        """Make a block that is not on the simulated GPU yet."""
        block = super().new_block(storage)
        block.address = NOWHERE
        return block

    def start(self, block: Block) -> None:
        """Record that the block was allocated just now, also on the simulated GPU.

        Raises:
            torch.OutOfMemoryError: it does not fit.
            Interrupted: the trial should end.
        """
        if self.interrupted is not None and self.interrupted():
            raise Interrupted("the trial was interrupted")
        super().start(block)
        self.place(block)

    def end(self, block: Block) -> None:
        """Record that the block was freed just now; it keeps its address."""
        super().end(block)
        if block.address != NOWHERE:
            self.allocated -= self.allocator.blocks[block.address].size
            self.allocator.free(block.address)

    def place(self, block: Block) -> None:
        """Allocate the block on the simulated GPU.

        Raises:
            torch.OutOfMemoryError: there is no room for it.
        """
        if block.device != self.device or block.address != NOWHERE:
            return
        try:
            block.address = self.allocator.malloc(block.num_bytes)
        except OutOfMemoryError as error:
            self.blocks.remove(block)
            refusal = torch.OutOfMemoryError(self._message(error))
            self.refused.append(Refused(block.start, block, id(refusal)))
            raise refusal from None
        self.allocated += self.allocator.blocks[block.address].size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.allocator.reserved)

    def readmit(self, block: Block) -> None:
        """Add a refused block again whose storage still exists: it makes another request."""
        if not any(known is block for known in self.blocks):
            self.blocks.append(block)

    def _message(self, error: OutOfMemoryError) -> str:
        usable = self.limit.gpu.usable_bytes
        free, unused = usable - error.reserved, error.reserved - self.allocated
        return (
            f"Out of memory on a simulated GPU ({self.limit}). Tried to allocate "
            f"{format_bytes(error.requested)}. Of {format_bytes(usable)} usable, "
            f"{format_bytes(free)} are free; {format_bytes(self.allocated)} are allocated, and "
            f"{format_bytes(unused)} are reserved by the allocator but unallocated. No GPU ran "
            "out: exp.card = None ends the simulation"
        )


class GpuRecorder(Recorder):
    """Record one step on a simulated GPU."""

    def __init__(self, ledger: GpuLedger) -> None:
        super().__init__(on_optimizer=adopt_optimizer)
        self.gpu = ledger
        self.ledger = ledger
        self.blocks, self.uncounted = ledger.blocks, ledger.uncounted
        self.work: Work | None = None
        """The work that runs on the simulated GPU."""

    def settle(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put missing parameters, gradients, buffers and optimizer state on the simulated GPU.

        Raises:
            torch.OutOfMemoryError: they do not fit.
        """
        with torch.no_grad():
            self.name_held(adopt_model, model)
            self.name_held(adopt_optimizer, optimizer)

    def adopt(
        self, tensor: torch.Tensor, category: str, *, name: str = "", module: str = ""
    ) -> None:
        """Set the category of a storage; one that is not on the simulated GPU is put there."""
        super().adopt(tensor, category, name=name, module=module)
        self._put(tensor, "parameters and state")

    def close(self) -> None:
        """Release modules and optimizers; the ledger continues."""
        self.attribution.close()
        self.optimizers.clear()
        self._seen = None

    def _read_existing(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        super()._read_existing(tensor, storage)
        self._put(tensor, "copied to the GPU")

    def _put(self, tensor: torch.Tensor, op: str) -> None:
        """Place the blocks of a tensor that exists already."""
        for storage in self.ledger.storages(tensor):
            block = self.ledger.block_of(storage)
            if block is not None and block.address == NOWHERE and block.device == self.gpu.device:
                block.op = block.op or op
                self.gpu.readmit(block)
                self.gpu.start(block)

    def _fail(self, error: Exception, unnamed: str = "") -> None:
        """Let a full GPU reach the step: it is not a failure of the recording."""
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        super()._fail(error, unnamed)
