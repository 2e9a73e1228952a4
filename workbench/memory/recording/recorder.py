"""Every allocation and every free of a storage, as they happen.

A `Recorder` is a ``TorchDispatchMode``: it sees each operation below autograd, autocast and
functional layers, and lets it run unchanged. A storage that an operation returns and that was not
known before has just been allocated; `workbench.memory.recording.ledger` reports when it dies, and
`workbench.memory.recording.roles` what it is. Views and in-place operations return known storages
and so are not events.

Compiled code runs as it always does. The mode declares ``ignore_compile_internals``, so Dynamo
neither skips nor recompiles because of it, and `workbench.memory.recording.undispatched_memory`
reports the buffers that Inductor's code allocates without the dispatcher.

What is not seen: scratch memory inside a kernel, memory of other threads (a mode belongs to the
thread that entered it, and to the autograd threads that work for it), storages that a library
creates without the dispatcher until an operation first reads them, and what is alive but not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from workbench.memory.recording.attribution import LOSS, Attribution, Site
from workbench.memory.recording.contained_errors import ContainedErrors, in_words
from workbench.memory.recording.roles import ATTENTION_BACKWARD, DRAW, SCALE, Roles
from workbench.memory.recording.storage_lifetimes import Block, Mark
from workbench.torch_private.autograd import in_backward, running_node
from workbench.torch_private.contexts import TorchDispatchMode, dispatch_modes
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.memory import caller, dispatches_itself
from workbench.torch_private.tensors import storage_identity

__all__ = ["Recorder", "current_recorder", "in_words", "refuse_nested"]

_LIFT = torch.ops.aten.lift_fresh.default


class Recorder(Roles, ContainedErrors, TorchDispatchMode):
    """Record the storages of the code that runs inside ``with recorder:``.

    Args:
        automatic_phases: determine forward, backward and optimizer by what runs; False if the
            caller marks them with `begin_phase`.
        on_root: called with each outermost module and its path when it is first seen to run.
        on_optimizer: called with each optimizer when it is first seen to run, and when a step of it
            may have left new state.
    """

    def __init__(
        self,
        *,
        automatic_phases: bool = True,
        on_root: Callable[[Recorder, torch.nn.Module, str], None] | None = None,
        on_optimizer: Callable[[Recorder, torch.optim.Optimizer], None] | None = None,
    ) -> None:
        super().__init__()
        # flex_attention and other operators that take functions also run inside the mode
        self.supports_higher_order_operators = True
        self.attribution = Attribution(on_root=self._on_root)
        self.marks: list[Mark] = []
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.started_ns = time.perf_counter_ns()
        self._automatic = automatic_phases
        self._root_seen, self._optimizer_seen = on_root, on_optimizer
        self._phase, self._phase_row = "", 0
        self._seen: Site | None = None
        """Where the current operation runs, set once it is needed."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: compiled code must not change because it is recorded."""
        return True

    def begin_phase(self, name: str) -> None:
        """Assign everything from here on to phase ``name``; ``""`` ends the current one."""
        if name == self._phase:
            return
        self.ledger.record_frees()
        if self._phase == "optimizer" and self._optimizer_seen is not None:
            left = self.blocks[self._phase_row :]
            if any(block.end < 0 and not block.category for block in left):
                for optimizer in self.optimizers.values():
                    self.name_held(self._optimizer_seen, optimizer)
        self._phase, self._phase_row = name, len(self.blocks)
        self.marks.append(self.ledger.mark(name))

    def allocated(self, storage: torch.UntypedStorage, op: str, site: Site | None = None) -> None:
        """Record that an operation has just made ``storage``."""
        self.ledger.record_frees()
        if self.ledger.block_of(storage) is None:
            block = self.ledger.track(storage)
            if block is not None:
                self._start(block, op, site or self.site())

    def resized(self, storage: torch.UntypedStorage, op: str, site: Site | None = None) -> None:
        """Record that ``storage`` may have another size now: a free and an allocation."""
        self.ledger.record_frees()
        ref = self.ledger.live.get(storage_identity(storage))
        if ref is None:
            self.allocated(storage, op, site)
            return
        old = ref.block
        if old.num_bytes == storage.nbytes() and old.end < 0:
            return
        if old.end < 0:
            self.ledger.end(old)
        if storage.nbytes():  # a storage emptied now and regrown later keeps its role
            ref.block = self.ledger.new_block(storage)
            ref.block.category, ref.block.name = old.category, old.name
            self._start(ref.block, op, site or self.site())

    def site(self) -> Site:
        """Return where the code that runs now is, and begin the phase that this implies."""
        self._seen = None
        return self._site()

    def _site(self) -> Site:
        """Do the same for the current operation, whose stack may have been read already."""
        node = running_node()
        site = self._seen or self._look(node)
        builds_graph = self.attribution.has_new_nodes()
        if self._automatic:
            self.begin_phase(_phase_of(site, node, builds_graph, self._phase))
        # backward's own root, made before the engine starts, is the gradient of the loss
        of_loss = self._phase == "forward" or (self._phase == "backward" and site.in_backward)
        if of_loss and node is None and site.module is None and not in_backward():
            site.module = LOSS
        if builds_graph:
            self.attribution.note_nodes(site)
        return site

    def close(self) -> None:
        """Release every weak reference, module and optimizer; the blocks stay."""
        self.ledger.close()
        self.attribution.close()
        self.optimizers.clear()
        self._seen = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let ``func`` run and record the storages it made."""
        if types and any(map(dispatches_itself, types)):
            return NotImplemented  # a wrapper subclass unpacks itself; its parts are seen then
        if self.failure:
            return func(*args, **(kwargs or {}))
        # `ContainedErrors.guarded` inlined: this runs for every operation
        try:
            self._before(func, args, kwargs)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self._fail(error)
        result = func(*args, **(kwargs or {}))
        try:
            self._note(func, result)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self._fail(error)
        return result

    def _before(self, func: Any, args: Any, kwargs: Any) -> None:
        self._seen = None
        if self.ledger.dead_storages:
            self.ledger.record_frees()
        if func is _LIFT:  # torch.tensor and torch.from_numpy end here, with memory just made
            self.allocated(args[0].untyped_storage(), "torch.tensor")
            return
        if self._phase == "backward" and self._automatic and not in_backward():
            self._site()  # the engine is done: what is freed from here on is not backward's
        if func in SCALE:
            self._scaled(_tensors(args, None))
        for tensor in _tensors(args, kwargs):
            self._read(tensor)

    def _note(self, func: Any, result: Any) -> None:
        if self.ledger.dead_storages:
            self.ledger.record_frees()
        site = self._site() if self.attribution.has_new_nodes() else None
        leaf = leaf_of(running_node())
        live = self.ledger.live
        for tensor in _tensors((result,), None):
            for storage in self.ledger.storages(tensor):
                ref = live.get(storage_identity(storage))
                if ref is None:
                    site = site or self._site()
                    self.allocated(storage, _op_name(func), site)
                elif ref.block.num_bytes != storage.nbytes():
                    site = site or self._site()
                    self.resized(storage, _op_name(func), site)
            if leaf is not None:
                self._gradient(tensor, leaf)
            if func is DRAW:
                self._drawn(tensor)
        if func is ATTENTION_BACKWARD:
            self._name_plain(_tensors((result[0],), None), "attention gradient")

    def _read(self, tensor: torch.Tensor) -> None:
        """Handle a tensor that is read: one not made in this recording existed before it."""
        for storage in self.ledger.storages(tensor):
            ref = self.ledger.live.get(storage_identity(storage))
            if ref is None:
                self._read_existing(tensor, storage)
            elif ref.block.outside_modules and not ref.block.category:
                self._read_outside_modules(tensor, ref.block)

    def _read_existing(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        """Classify it as a parameter, an input (data not differentiated) or unknown; never guess.

        What an optimizer reads may be its state, even if its step allocates nothing (fused
        optimizers, and those that work in place): then the optimizer is queried first.
        """
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        site = None if is_parameter else self._look(running_node())
        of_optimizer = site is not None and site.optimizer is not None and self._phase != "forward"
        if self.ledger.block_of(storage) is not None:
            return  # the optimizer, or the module, that holds it has been handled by `_look`
        block = self.ledger.track(storage)
        if block is None:
            return
        followed = tensor.requires_grad or tensor.grad_fn is not None
        if is_parameter:
            block.category = "parameters"
        elif followed or of_optimizer:
            block.category = "unknown"
        else:
            block.category, block.name = "buffers", "input"

    def _read_outside_modules(self, tensor: torch.Tensor, block: Block) -> None:
        """Handle the reading of a tensor made outside every module, before a forward or in it.

        If a module reads it and it is not a result of the graph, it is an input; so is a tensor
        that was made between two steps and is read in the next forward outside modules: a target.
        """
        if isinstance(tensor, torch.nn.Parameter):
            block.category = "parameters"
            return
        if tensor.grad_fn is not None:
            return
        site = self._look(running_node())
        if block.category or site.in_backward or site.optimizer is not None:
            return
        if site.in_module or (self._phase == "forward" and not block.module):
            block.category, block.name = "buffers", "input"

    def _look(self, node: Any) -> Site:
        """Return where the current operation runs; report an optimizer when it is first seen."""
        if self._seen is not None:
            return self._seen
        site = self._seen = self.attribution.site(caller(1), node)
        site.in_backward = site.in_backward or node is not None or in_backward()
        if site.optimizer is not None and id(site.optimizer) not in self.optimizers:
            self.optimizers[id(site.optimizer)] = site.optimizer
            if self._optimizer_seen is not None:
                self.name_held(self._optimizer_seen, site.optimizer)
        return site

    def _on_root(self, module: torch.nn.Module, path: str) -> None:
        if self._root_seen is not None:
            self.name_held(self._root_seen, module, path)

    def _start(self, block: Block, op: str, site: Site) -> None:
        block.op, block.module = op, site.module or ""
        block.line, block.call = site.line, site.call
        outside = not (site.in_module or site.in_backward)
        block.outside_modules = outside and site.optimizer is None
        if site.in_backward:
            block.differentiable = torch.is_grad_enabled() and not site.in_module
            block.result = site.in_grad
        self.ledger.start(block)


def current_recorder() -> Recorder | None:
    """Return the recorder of this thread (autograd's threads inherit it), or None."""
    for mode in reversed(dispatch_modes()):
        if isinstance(mode, Recorder):
            return mode
    return None


def refuse_nested() -> None:
    """Raise if this thread is already recording."""
    if current_recorder() is not None:
        raise RuntimeError(
            "a memory recording already runs on this thread: recordings do not nest; end the outer "
            "`with wb.memory()` block first"
        )


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value, None)
    if kwargs:
        found += _tensors(kwargs.values(), None)
    return found


def _op_name(func: Any) -> str:
    """Return the name without the overload, such as ``aten.convolution``."""
    return str(getattr(func, "overloadpacket", func))


def _phase_of(site: Site, node: Any, builds_graph: bool, current: str) -> str:
    if node is not None or site.in_backward:
        return "backward"
    if site.in_module or builds_graph:  # also inside a step: the closure of LBFGS
        return "forward"
    if site.optimizer is not None:
        return "optimizer"
    # Code between modules (a loss under no_grad, a batch being prepared) belongs to the forward it
    # follows; before any forward it belongs to no phase.
    return current if current == "forward" else ""
