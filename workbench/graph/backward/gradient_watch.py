"""Watching the backward of a captured graph.

Every node gets a hook that is handed the gradient of the node's output right before the node runs;
a leaf's is what backward gave it. What the hook notes are numbers (of small gradients a copy until
the buffer for these is full; on an accelerator, scalars that stay there until the backward has
ended). Hooks (`workbench.graph.backward.gradient_watch`) keep neither a node nor their watch alive;
a watch goes with its view.

Backward of *this* loss begins when the root's hook is called: a backward of another loss that
shares some nodes is none of ours, whether it ran before, runs beside it on another thread or inside
one of its hooks. The first one is watched, whatever thread it runs on; the hooks are taken off when
it ends. A graph that is run twice (``retain_graph=True``) is measured in the first run.

To tell which node *made* a value that is not finite, it is enough to know what each node was
handed, as long as one node alone hands it on. Where several do (a residual connection, a shared
weight) those that could make such a value are asked what they handed out too, unless only one can.
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
from workbench.graph.core.gradient_paths import doubtful, givers
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
    # HOUSE
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.amp import GradScaler
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

    from workbench.graph.core.walk import Walk


# Hooks on the nodes of one graph, as few and as small objects as torch lets them be.
#
# A deep graph has tens of thousands of nodes. What is made for each of them is looked through by
# every collection of Python's garbage until the backward has ended, and that can cost more than the
# backward; so a hook is one object, and of its handle nothing is kept.
#
# A hook refers to its row, never to a node, and to its watch weakly: one whose watch is gone does
# nothing.

Slots = Sequence[tuple[int, int]]
"""(index of a gradient that a node hands out, row of the node that gets it)."""


class NodeHooks:
    """The hooks of one watch, until they are taken off."""

    def __init__(self, watch: weakref.ref[GradientWatch]) -> None:
        self._watch = watch
        self._tables: list[dict[int, Any]] = []
        self._ids: list[int] = []
        """By place in `_tables`."""

    def before(self, node: Node, row: int) -> None:
        """Have `GradientWatch.see` called before ``node`` runs."""
        self._keep(node.register_prehook(_Before(self._watch, row)))

    def after(self, node: Node, row: int, slots: Slots) -> None:
        """Have `GradientWatch.see_made` called after ``node`` has run."""
        self._keep(node.register_hook(_After(self._watch, row, slots)))

    def _keep(self, handle: RemovableHandle) -> None:
        self._tables.append(hook_table(handle))
        self._ids.append(handle.id)

    def take_off(self) -> None:
        """Take all of them off; safe to call twice, also from a destructor."""
        tables, self._tables = self._tables, []
        ids, self._ids = self._ids, []
        for table, hook in zip(tables, ids, strict=True):
            table.pop(hook, None)


class _Before:
    __slots__ = ("row", "watch")

    def __init__(self, watch: weakref.ref[GradientWatch], row: int) -> None:
        self.watch, self.row = watch, row

    def __call__(self, gradients: Any) -> None:
        look(self.watch, self.row, self.tell, gradients)

    def tell(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see(self.row, gradients)


class _After(_Before):
    __slots__ = ("slots",)

    def __init__(self, watch: weakref.ref[GradientWatch], row: int, slots: Slots) -> None:
        super().__init__(watch, row)
        self.slots = slots

    def __call__(self, made: Any, _: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        look(self.watch, self.row, self.tell, made)

    def tell(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see_made(self.row, self.slots, gradients)


def look(
    watch: weakref.ref[GradientWatch], row: int, tell: Callable[..., None], *what: Any
) -> None:
    """Call ``tell(watch, *what)`` unseen by modes; whatever it raises becomes a fault."""
    alive = watch()
    if alive is None:
        return
    try:
        if in_compiled_autograd():  # first: Dynamo reads this, and no further
            alive.see_compiled(row)
            return
        with without_functions(), without_dispatch():
            tell(alive, *what)
    except Exception as error:  # noqa: BLE001 - it must never end the user's backward
        alive.fault(error)


class GradientWatch:
    """What the next backward from the root of ``graph`` hands to each of its nodes.

    Args:
        graph: a live graph; nothing of it is kept.
        batch_size: length of the first dimension of tensors that have one row per sample, where
            it is known; rows with non-finite values are looked for in these.
        scale: what a gradient scaler multiplied the loss with, where that is known.
        scalers: whose scale it is if the loss gets just that as its gradient. One of Workbench
            tells its own while the backward runs.
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
        self._told: tuple[int, Callable[[], float]] | None = None
        """A backward that carries a scale, and what gives it."""
        self.scale = 1.0
        """Of the gradient scaler of this backward; what was measured carries it."""
        self._root = len(graph.nodes) - 1
        self._size = len(graph.nodes)
        self.begun = False
        """Whether a backward from the root has started."""
        self.done = False
        """Whether it has run to its end."""
        self.is_compiled = False
        """Whether compiled autograd ran it, whose gradients have no values to look at."""
        self.faults: list[str] = []
        """What could not be measured: one message for each."""
        self._giver = givers(graph)
        self._is_linked = set(self._giver) | set(self._giver.values())
        self._forget()
        with without_collections():
            for row, node in enumerate(graph.nodes):
                self._hooks.before(node, row)
            for row, slots in doubtful(graph).items():
                self._hooks.after(graph.nodes[row], row, slots)
        listen(self)

    def __del__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the hooks off; what was measured stays."""
        listen_no_more(self)
        self._hooks.take_off()

    def scaled_by(self, scale: Callable[[], float]) -> None:
        """The backward that runs now, of whichever loss, carries a scale."""
        self._told = current_backward(), scale

    def order(self) -> list[int]:
        """Per row, the how manieth it ran in the backward; -1 where it did not run."""
        self._read()
        return self._order

    def statistics(self) -> dict[int, Statistics]:
        """Row -> statistics of the gradient it was handed; absent where there was none."""
        self._read()
        return {row: combine(found) for row, found in self._found.items()}

    def made(self) -> dict[tuple[int, int], bool]:
        """(maker, user) -> whether what ``user`` handed to ``maker`` was finite, where asked."""
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
        """Row -> where the gradient that it was handed lies, while it may be handed on."""

    def see(self, row: int, gradients: tuple[Tensor | None, ...]) -> None:
        """A node is about to run."""
        if self.done:
            return
        if row == self._root:  # again, where the backward before this one raised
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
        """The scale on ``gradients``, which the root was handed; 1 where there is none."""
        if self._told is not None and self._told[0] == self._backward:
            return self._told[1]()
        if self._given is not None:
            return self._given
        (gradient,) = gradients if len(gradients) == 1 else (None,)
        if not self._scalers or gradient is None or gradient.numel() != 1:
            return 1.0
        factor = float(gradient.detach())
        return factor if factor in scales_of(self._scalers) else 1.0

    def see_compiled(self, row: int) -> None:
        """Compiled autograd is about to run a node, with gradients that may have no values."""
        if row == self._root and not self.done:
            self.begun = self.is_compiled = True

    def see_made(self, row: int, slots: Slots, made: Any) -> None:
        """A node has run; ``slots`` are (index, row of the maker) of the gradients in question."""
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
        """Something of ours failed; the user's backward goes on."""
        is_told = isinstance(error, NoValuesError)
        text = (str(error) if is_told else f"{type(error).__name__}: {error}").split("\n", 1)[0]
        if text not in self.faults:
            self.faults.append(text)

    def end(self) -> None:
        """The backward has run to its end."""
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
        """Take over what was measured of the same memory, where a node handed it on untouched.

        The giver's memory was alive while it handed this on, and has been since if this is it.
        """
        if not is_plain(gradient):
            return False
        memory = self._memory[row] = _memory_of(gradient)
        giver = self._giver.get(row, -1)
        found = self._found.get(giver, ())
        if len(found) != 1 or found[0].non_finite or self._memory.get(giver) != memory:
            return False
        self._found[row] = [found[0]]
        return True

    def _was_finite(self, row: int) -> bool:
        """Whether the gradient that ``row`` was handed was; True where not known yet."""
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
    """What two gradients agree in that have the same values, in some order of the dimensions.

    The real part of a complex gradient, and one value that is broadcast, begin at the same address
    and may be as many.
    """
    order = () if is_dense(gradient) else (gradient.shape, gradient.stride())
    flags = gradient.dtype, gradient.is_conj(), gradient.is_neg()
    return gradient.data_ptr(), gradient.numel(), version_of(gradient), *flags, *order
