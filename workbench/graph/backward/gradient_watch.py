"""Observation of the backward pass of a captured graph.

Every node gets a hook that receives the gradient of the node's output right before the node runs;
for a leaf it is the gradient that the backward pass gives it. Hooks record numbers (of small
gradients a copy until the buffer for these is full; on an accelerator, scalars that stay there
until the backward pass has ended). Hooks keep neither a
node nor their watch alive; a watch lives as long as its view.

The backward pass of *this* loss begins when the root's hook is called. A backward pass of another
loss that shares some nodes is not watched, whether it ran before, runs at the same time on another
thread or runs inside one of this pass's hooks. The first pass is watched, on whatever thread it
runs; the hooks are removed when it ends. A graph that is run twice (``retain_graph=True``) is
measured in the first run.

To determine which node *made* a non-finite value, it is enough to know which gradient each node
received, as long as it comes from only one node. Where it comes from several (a residual
connection, a shared weight), the gradients returned by those that could make such a value are
checked too, unless only one of them could.
"""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.graph.backward.cpu_batch import SmallGradients
from workbench.graph.backward.device_batch import Pending
from workbench.graph.backward.gradient_stats import (
    Statistics,
    combine,
    has_rows,
    is_dense,
    is_finite,
    is_plain,
    measure,
    parts_of,
)
from workbench.graph.backward.histogram import Histograms, usable
from workbench.graph.core.gc_pause import without_collections
from workbench.graph.core.gradient_paths import slots_to_check, upstream_nodes
from workbench.graph.core.tensor_memory import NoValuesError
from workbench.graph.forward.loss_scale import scales_of
from workbench.modes.precision.scaled_backward import listen, listen_no_more
from workbench.torch_private.autograd import (
    at_end_of_backward,
    current_backward,
    hook_table,
    in_compiled_autograd,
    without_dispatch,
    without_functions,
)
from workbench.torch_private.tensors import version_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.amp import GradScaler
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

    from workbench.graph.core.walk import Walk


# Hooks on the nodes of one graph, made of as few and as small objects as torch allows.
#
# A deep graph has tens of thousands of nodes. Until the backward pass has ended, every run of
# Python's garbage collector traverses the objects made for each of them, and that can cost more
# than the backward pass; so a hook is one object, and nothing of its handle is kept.
#
# A hook refers to its row, never to a node, and to its watch weakly: a hook whose watch is gone
# does nothing.

Slots = Sequence[tuple[int, int]]
"""(index of a gradient that a node returns, row of the node that receives it)."""


class NodeHooks:
    """The hooks of one watch, until they are removed."""

    def __init__(self, watch: weakref.ref[GradientWatch]) -> None:
        self._watch = watch
        self._tables: list[dict[int, Any]] = []
        self._ids: list[int] = []
        """Id of each hook, in the order of `_tables`."""

    def before(self, node: Node, row: int) -> None:
        """Register a call of `GradientWatch.see` before ``node`` runs."""
        self._keep(node.register_prehook(_Before(self._watch, row)))

    def after(self, node: Node, row: int, slots: Slots) -> None:
        """Register a call of `GradientWatch.see_made` after ``node`` has run."""
        self._keep(node.register_hook(_After(self._watch, row, slots)))

    def _keep(self, handle: RemovableHandle) -> None:
        self._tables.append(hook_table(handle))
        self._ids.append(handle.id)

    def remove(self) -> None:
        """Remove all hooks; idempotent, and safe to call from a destructor."""
        tables, self._tables = self._tables, []
        ids, self._ids = self._ids, []
        for table, hook in zip(tables, ids, strict=True):
            table.pop(hook, None)


class _Before:
    __slots__ = ("row", "watch")

    def __init__(self, watch: weakref.ref[GradientWatch], row: int) -> None:
        self.watch, self.row = watch, row

    def __call__(self, gradients: Any) -> None:
        look(self.watch, self.row, self.notify, gradients)

    def notify(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see(self.row, gradients)


class _After(_Before):
    __slots__ = ("slots",)

    def __init__(self, watch: weakref.ref[GradientWatch], row: int, slots: Slots) -> None:
        super().__init__(watch, row)
        self.slots = slots

    def __call__(self, made: Any, _: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        look(self.watch, self.row, self.notify, made)

    def notify(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see_made(self.row, self.slots, gradients)


def look(
    watch: weakref.ref[GradientWatch], row: int, notify: Callable[..., None], *what: Any
) -> None:
    """Call ``notify(watch, *what)`` outside all modes; an error in it is recorded as a fault."""
    alive = watch()
    if alive is None:
        return
    try:
        if in_compiled_autograd():  # first: Dynamo traces this, and no further
            alive.see_compiled(row)
            return
        with without_functions(), without_dispatch():
            notify(alive, *what)
    except Exception as error:  # noqa: BLE001 - it must never end the user's backward
        alive.fault(error)


class GradientWatch:
    """Observes the gradient of each node in the next backward from the root of ``graph``.

    Args:
        graph: a live graph; no reference to it is kept.
        batch_size: length of the first dimension of tensors that have one row per sample, if it is
            known; rows with non-finite values are searched for in these.
        scale: the factor by which a gradient scaler multiplied the loss, if it is known.
        scalers: gradient scalers; if the loss receives the scale of one of them as its gradient,
            the pass is taken to be scaled by it. A scaler of Workbench reports its own scale while
            the backward pass runs.
    """

    def __init__(
        self,
        graph: Walk,
        batch_size: int | None = None,
        *,
        scale: float | None = None,
        scalers: Sequence[weakref.ref[GradScaler]] = (),
    ) -> None:
        self._hooks = NodeHooks(weakref.ref(self))
        self._backward = -1
        self._batch_size = batch_size
        self._given, self._scalers = scale, scalers
        self._reported_scale: tuple[int, Callable[[], float]] | None = None
        """A backward pass that carries a scale, and the function that returns the scale."""
        self.scale = 1.0
        """Scale of the gradient scaler in this backward pass; measured values include it."""
        self._root = len(graph.nodes) - 1
        self._size = len(graph.nodes)
        self.begun = False
        """Whether a backward pass from the root has started."""
        self.done = False
        """Whether it has run to its end."""
        self.is_compiled = False
        """Whether compiled autograd ran it, in which case gradients have no values to inspect."""
        self.faults: list[str] = []
        """What could not be measured, one message each."""
        self._upstream = upstream_nodes(graph)
        self._forget()
        with without_collections():
            for row, node in enumerate(graph.nodes):
                self._hooks.before(node, row)
            for row, slots in slots_to_check(graph).items():
                self._hooks.after(graph.nodes[row], row, slots)
        listen(self)

    def __del__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the hooks; measurements are kept."""
        listen_no_more(self)
        self._hooks.remove()

    def scaled_by(self, scale: Callable[[], float]) -> None:
        """Note that the backward pass that runs now, of whichever loss, carries a scale."""
        self._reported_scale = current_backward(), scale

    def order(self) -> list[int]:
        """Per row, its index in the order in which nodes ran in backward; -1 if it did not run."""
        self._read()
        return self._order

    def statistics(self) -> dict[int, Statistics]:
        """Row -> statistics of the gradient it received; absent if there was none."""
        self._read()
        return {row: combine(found) for row, found in self._found.items()}

    def made(self) -> dict[tuple[int, int], bool]:
        """(maker, user) -> whether ``user`` gave ``maker`` a finite gradient, where checked."""
        self._read()
        return self._made

    def _forget(self) -> None:
        self._count = itertools.count()
        self._order = [-1] * self._size
        self._found: dict[int, list[Statistics]] = defaultdict(list)
        self._made: dict[tuple[int, int], bool] = {}
        self._pending = Pending()
        self._small = SmallGradients()
        self._histograms = Histograms()
        self._memory: dict[int, tuple[Any, ...]] = {}
        """Row -> memory of the gradient that it received, while that may be passed on."""

    def see(self, row: int, gradients: tuple[Tensor | None, ...]) -> None:
        """Record the gradients of a node that is about to run."""
        if self.done:
            return
        if row == self._root:  # again, if the previous backward raised
            self._forget()
            self._backward = current_backward()
            self.begun, self.is_compiled = True, False
            watch: weakref.ref[GradientWatch] = weakref.ref(self)
            at_end_of_backward(lambda: look(watch, row, GradientWatch.end))
            self.scale = usable(self._scale_of(gradients))
            self._small.unit = self._histograms.unit = self.scale
        if self._backward != current_backward() or self.is_compiled or self._order[row] >= 0:
            return
        self._order[row] = next(self._count)
        for gradient in gradients:
            if gradient is not None:
                self._measure(row, gradient)

    def _scale_of(self, gradients: tuple[Tensor | None, ...]) -> float:
        """The scale that ``gradients``, received by the root, include; 1 if there is none."""
        if self._reported_scale is not None and self._reported_scale[0] == self._backward:
            return self._reported_scale[1]()
        if self._given is not None:
            return self._given
        (gradient,) = gradients if len(gradients) == 1 else (None,)
        if not self._scalers or gradient is None or gradient.numel() != 1:
            return 1.0
        factor = float(gradient.detach())
        return factor if factor in scales_of(self._scalers) else 1.0

    def see_compiled(self, row: int) -> None:
        """Note that compiled autograd runs a node, with gradients that may have no values."""
        if row == self._root and not self.done:
            self.begun = self.is_compiled = True

    def see_made(self, row: int, slots: Slots, made: Any) -> None:
        """Check gradients that a node returned; ``slots`` are (index, row of the maker)."""
        if self._backward != current_backward() or self._order[row] < 0:
            return
        for index, maker in slots if self._was_finite(row) else ():
            gradient = made[index]
            if gradient is None:
                continue
            if gradient.is_cpu:
                finite = is_finite(gradient)
                self._made[maker, row] = self._made.get((maker, row), True) and finite
            else:
                for part in parts_of(gradient):
                    self._pending.add((maker, row), part, histogram=False)

    def fault(self, error: Exception) -> None:
        """Record that Workbench's own code failed; the user's backward continues."""
        is_explained = isinstance(error, NoValuesError)
        text = (str(error) if is_explained else f"{type(error).__name__}: {error}").split("\n", 1)[
            0
        ]
        if text not in self.faults:
            self.faults.append(text)

    def end(self) -> None:
        """Finish the watch; the backward pass has run to its end."""
        self.done = True
        self.stop()
        self._read()

    def _measure(self, row: int, gradient: Tensor) -> None:
        if self._is_known(row, gradient):
            return
        with_rows = has_rows(gradient, self._batch_size)
        if is_plain(gradient) and self._small.add(row, gradient, has_rows=with_rows):
            return
        rows_of = gradient if with_rows else None
        for part in parts_of(gradient):
            if part.values.is_cpu:
                found = measure(part, self._histograms, rows_of)
                self._found[row].append(found)
            else:
                self._pending.add(row, part, rows_of)

    def _is_known(self, row: int, gradient: Tensor) -> bool:
        """Reuse the statistics of the same memory if a node passed it on unchanged.

        The upstream node's memory was alive while it passed the gradient on, and has been since if
        this is the same memory.
        """
        if not is_plain(gradient) or gradient.is_inference():  # such a one counts no writes
            return False
        memory = self._memory[row] = _memory_of(gradient)
        upstream = self._upstream.get(row, -1)
        found = self._found.get(upstream, ())
        if len(found) != 1 or found[0].non_finite or self._memory.get(upstream) != memory:
            return False
        self._found[row] = [found[0]]
        return True

    def _was_finite(self, row: int) -> bool:
        """Whether the gradient that ``row`` received was finite; True if not known yet."""
        return not any(one.non_finite for one in self._found.get(row, ()))

    def _read(self) -> None:
        self._histograms.read()
        for row, found in self._small.read():
            self._found[row].append(found)
        for key, found in self._pending.read(self.scale):
            if isinstance(key, int):
                self._found[key].append(found)
            else:
                self._made[key] = self._made.get(key, True) and not found.non_finite


def _memory_of(gradient: Tensor) -> tuple[Any, ...]:
    """A key that is equal for gradients with the same values, in any order of the dimensions.

    The real part of a complex gradient, and one value that is broadcast, begin at the same address
    and may have as many elements.
    """
    order = () if is_dense(gradient) else (gradient.shape, gradient.stride())
    flags = gradient.dtype, gradient.is_conj(), gradient.is_neg()
    return gradient.data_ptr(), gradient.numel(), version_of(gradient), *flags, *order
