"""Every allocation and every free of a storage, as they happen.

A `Recorder` is a ``TorchDispatchMode``: it sees each operation under autograd, autocast and
functional layers, and lets it run untouched. A storage that an operation returns and that was not
known before has just been allocated. It is never held: a weak reference tells when it dies, whether
Python, autograd or C++ let go of it last. Views and in-place operations return known storages and
so are no events.

Compiled code runs as it always does. The mode declares ``ignore_compile_internals``, so Dynamo
neither skips nor recompiles because of it, and `workbench.memory.compiled` reports the buffers that
Inductor's code allocates without the dispatcher.

What is not seen: scratch memory inside a kernel, memory of other threads (a mode belongs to the
thread that entered it, and to the autograd threads that work for it), and storages a library
creates without the dispatcher until an operation first reads them.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.memory.attribution import LOSS, Attribution, Site
from workbench.memory.blocks import Block, Mark
from workbench.memory.torch_private import (
    caller,
    dispatches_itself,
    running_modes,
    running_node,
    sparse_parts,
    storage_key,
)

_LIFT = torch.ops.aten.lift_fresh.default
_STRENGTH = {"parameters": 0, "gradients": 1, "optimizer": 2, "buffers": 3, "unknown": 4, "": 5}
_COO, _STRIDED = torch.sparse_coo, torch.strided


class _Death(weakref.ref[torch.UntypedStorage]):
    """A weak reference that knows which block dies with its storage."""

    __slots__ = ("block", "key")
    block: Block
    key: int


class Recorder(TorchDispatchMode):
    """Records the storages of the code that runs inside ``with recorder:``.

    Args:
        automatic_phases: tell forward, backward and optimizer apart by what runs; False when
            the caller marks them with `begin_phase`.
        on_root: called with each outermost module and its path when it is first seen to run.
        on_optimizer: called with each optimizer when it is first seen to run.
    """

    def __init__(
        self,
        *,
        automatic_phases: bool = True,
        on_root: Callable[[Recorder, torch.nn.Module, str], None] | None = None,
        on_optimizer: Callable[[Recorder, torch.optim.Optimizer], None] | None = None,
    ) -> None:
        super().__init__()
        # flex_attention and other operators that take functions run inside the mode too
        self.supports_higher_order_operators = True
        self.attribution = Attribution(on_root=self._on_root)
        self.blocks: list[Block] = []
        self.marks: list[Mark] = []
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.uncounted: set[str] = set()
        """Tensor layouts whose memory could not be counted."""
        self.failure = ""
        """Why the recording ended before its block did."""
        self.started_ns = time.perf_counter_ns()
        self._automatic = automatic_phases
        self._root_seen, self._optimizer_seen = on_root, on_optimizer
        self._phase = ""
        self._ticks = itertools.count()
        self._live: dict[int, _Death] = {}
        self._deaths: deque[weakref.ref[torch.UntypedStorage]] = deque()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code must not change because it is looked at."""
        return True

    def begin_phase(self, name: str) -> None:
        """Everything from here on belongs to phase ``name``; ``""`` ends the current one."""
        if name != self._phase:
            self._bury()
            self._phase = name
            self.marks.append(Mark(next(self._ticks), time.perf_counter_ns(), name))

    def adopt(
        self, tensor: torch.Tensor, category: str, *, name: str = "", module: str = ""
    ) -> None:
        """Say what the storage of ``tensor`` is; one not yet known was there from the start.

        A storage that is two things at once keeps the stronger: parameters, then gradients, then
        optimizer, then buffers.
        """
        self._bury()
        for storage in self._storages(tensor):
            block = self._block_of(storage) or self._track(storage)
            if block is not None and _STRENGTH[category] <= _STRENGTH[block.category]:
                block.category, block.name = category, name or block.name
                block.module = block.module or module

    def name_of(self, tensor: torch.Tensor) -> str:
        """The name `adopt` gave the tensor's storage, ``""`` if none."""
        blocks = (self._block_of(storage) for storage in self._storages(tensor))
        return next((block.name for block in blocks if block is not None), "")

    def allocated(self, storage: torch.UntypedStorage, op: str, site: Site | None = None) -> None:
        """An operation has just made ``storage``."""
        self._bury()
        if self._block_of(storage) is None:
            block = self._track(storage)
            if block is not None:
                self._start(block, op, site or self.site(caller(1)))

    def resized(self, storage: torch.UntypedStorage, op: str) -> None:
        """``storage`` may have another size now: a free and an allocation."""
        self._bury()
        death = self._live.get(storage_key(storage))
        if death is None:
            self.allocated(storage, op, self.site(caller(1)))
            return
        old = death.block
        if old.num_bytes == storage.nbytes() and old.end < 0:
            return
        if old.end < 0:
            self._end(old)
        if storage.nbytes():  # a storage emptied now and regrown later keeps what it is
            death.block = self._new_block(storage)
            death.block.category, death.block.name = old.category, old.name
            self._start(death.block, op, self.site(caller(1)))

    def site(self, frame: Any) -> Site:
        """Where the code at ``frame`` is, and which phase that makes it."""
        node = running_node()
        site = self.attribution.site(frame, node)
        if site.optimizer is not None and id(site.optimizer) not in self.optimizers:
            self.optimizers[id(site.optimizer)] = site.optimizer
            if self._optimizer_seen is not None:
                self._optimizer_seen(self, site.optimizer)
        for tensor in site.inputs:
            self._input(tensor)
        if self._automatic:
            self.begin_phase(_phase_of(site, node, self.attribution.has_new_nodes(), self._phase))
        if node is None:
            if site.module is None and self._phase == "forward" and not site.in_backward:
                site.module = LOSS
            self.attribution.note_nodes(site)
        return site

    def close(self) -> None:
        """Let go of every weak reference, module and optimizer; the blocks stay."""
        self._bury()
        self._live.clear()
        self.attribution.close()
        self.optimizers.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let ``func`` run and note the storages it made."""
        if any(map(dispatches_itself, types)):
            return NotImplemented  # a wrapper subclass unpacks itself; we then see its parts
        self.guarded(self._before, func, args, kwargs)
        result = func(*args, **(kwargs or {}))
        self.guarded(self._note, func, result)
        return result

    def guarded(self, take_note: Callable[..., None], *args: Any) -> None:
        """Take note of something; a fault of ours ends the recording, never the user's code."""
        if self.failure:
            return
        try:
            take_note(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the user's error
            self.failure = f"{type(error).__name__}: {error}"

    def _before(self, func: Any, args: Any, kwargs: Any) -> None:
        self._bury()
        if func is _LIFT:  # torch.tensor and torch.from_numpy end here, with memory just made
            self.allocated(args[0].untyped_storage(), "torch.tensor")
            return
        for tensor in _tensors(args, kwargs):
            self._meet(tensor)

    def _note(self, func: Any, result: Any) -> None:
        self._bury()
        site: Site | None = None
        if self.attribution.has_new_nodes():
            site = self.site(caller(3))
        accumulated = _accumulated_leaf()
        for tensor in _tensors((result,), None):
            for storage in self._storages(tensor):
                death = self._live.get(storage_key(storage))
                if death is None:
                    site = site or self.site(caller(3))
                    self.allocated(storage, _op_name(func), site)
                elif death.block.num_bytes != storage.nbytes():
                    self.resized(storage, _op_name(func))
            if accumulated is not None:
                self._gradient(tensor, accumulated)

    def _gradient(self, tensor: torch.Tensor, leaf: torch.Tensor) -> None:
        """What ``AccumulateGrad`` makes or keeps becomes the leaf's ``.grad``."""
        owner = self.name_of(leaf)
        name = f"{owner}.grad" if owner else ""
        self.adopt(tensor, "gradients", name=name, module=owner.rpartition(".")[0])

    def _meet(self, tensor: torch.Tensor) -> None:
        """A tensor is read. If nobody made it here, it was there before the recording."""
        for storage in self._storages(tensor):
            if storage_key(storage) not in self._live:
                block = self._track(storage)
                if block is not None:
                    block.category = _category_of_existing(tensor)
                    block.name = "input" if block.category == "buffers" else ""

    def _input(self, tensor: torch.Tensor) -> None:
        """A tensor made outside every module and given to one is an input."""
        for storage in self._storages(tensor):
            block = self._block_of(storage)
            if block is not None and not block.category and not block.module:
                block.category, block.name = "buffers", "input"

    def _on_root(self, module: torch.nn.Module, path: str) -> None:
        if self._root_seen is not None:
            self._root_seen(self, module, path)

    def _block_of(self, storage: torch.UntypedStorage) -> Block | None:
        death = self._live.get(storage_key(storage))
        return None if death is None else death.block

    def _track(self, storage: torch.UntypedStorage) -> Block | None:
        if storage.nbytes() == 0 or storage.device.type == "meta":
            return None
        death = _Death(storage, self._deaths.append)
        death.block, death.key = self._new_block(storage), storage_key(storage)
        self._live[death.key] = death
        return death.block

    def _new_block(self, storage: torch.UntypedStorage) -> Block:
        block = Block(storage.nbytes(), str(storage.device), storage.data_ptr())
        self.blocks.append(block)
        return block

    def _bury(self) -> None:
        """Take note of the storages that died since the last event, in the order they died.

        The last reference may be dropped on any thread and in the middle of anything, also where
        Dynamo would compile a Python callback. So a dying storage only joins a queue, which no
        Python code of ours takes part in; it is read before the next event is numbered.
        """
        while self._deaths:
            death = self._deaths.popleft()
            if isinstance(death, _Death):
                if death.block.end < 0:
                    self._end(death.block)
                if self._live.get(death.key) is death:
                    del self._live[death.key]

    def _start(self, block: Block, op: str, site: Site) -> None:
        block.op, block.module, block.line = op, site.module or "", site.line
        block.started_ns = time.perf_counter_ns()
        block.start = next(self._ticks)

    def _end(self, block: Block) -> None:
        block.ended_ns = time.perf_counter_ns()
        block.end = next(self._ticks)

    def _storages(self, tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
        """The storages of a tensor: one for a strided one, several for a sparse one."""
        if tensor.layout is _STRIDED:
            try:
                yield tensor.untyped_storage()
            except (NotImplementedError, RuntimeError):  # a wrapper without memory of its own
                self.uncounted.add(type(tensor).__name__)
        elif tensor.layout is _COO:
            for part in sparse_parts(tensor):
                yield part.untyped_storage()
        else:
            self.uncounted.add(str(tensor.layout))


def current_recorder() -> Recorder | None:
    """The recorder of this thread (autograd's threads inherit it), or None."""
    for mode in reversed(running_modes()):
        if isinstance(mode, Recorder):
            return mode
    return None


def _tensors(args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value, None)
    if kwargs:
        yield from _tensors(kwargs.values(), None)


def _op_name(func: Any) -> str:
    """``aten.convolution``, whatever the overload."""
    return str(getattr(func, "overloadpacket", func))


def _accumulated_leaf() -> torch.Tensor | None:
    node = running_node()
    if node is None or "AccumulateGrad" not in node.name():
        return None
    return getattr(node, "variable", None)


def _category_of_existing(tensor: torch.Tensor) -> str:
    """A parameter, an input (data nobody differentiates), or unknown: never a guess."""
    if isinstance(tensor, torch.nn.Parameter):
        return "parameters"
    return "unknown" if tensor.requires_grad or tensor.grad_fn is not None else "buffers"


def _phase_of(site: Site, node: Any, builds_graph: bool, current: str) -> str:
    if node is not None or site.in_backward:
        return "backward"
    if site.in_module or builds_graph:  # also inside a step: the closure of LBFGS
        return "forward"
    if site.optimizer is not None:
        return "optimizer"
    # Code between modules (a loss under no_grad, a batch on its way) belongs to the forward it
    # follows; before any forward it belongs to no phase.
    return current if current == "forward" else ""
