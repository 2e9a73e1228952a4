"""What hooks keep, brought back: a moving average, a list, a counter, a second model's optimizer.

A hook is a function, and what it writes is wherever its code reaches: variables around it, globals
of the notebook that it names, the object whose method it is, and everything that those hold. On
ranks these are copies. So before a training is sent, everything that its hooks reach is listed; the
list is sent with it, so that a rank has the copies in the same order; and with a checkpoint rank 0
reports what is in each of them now, which is put into the very objects that the user has here.

What belongs to the training itself (model, optimizer, loss, data) is known by its place and comes
back by other means. Code that is imported by name is that of the other process there, and so are
its module's variables: what such code keeps in a global stays on the ranks.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from workbench.experiment.state import attachments
from workbench.experiment.state.hook_reach import (
    bindings,
    hooks_of,
    is_by_value,
    known_of,
    module_hooks,
    reached,
)
from workbench.experiment.state.object_change import fill
from workbench.experiment.state.object_contents import Contents
from workbench.modes.core.containers import CONTAINERS
from workbench.torch_private.contexts import DeviceContext

if TYPE_CHECKING:
    from workbench.experiment.state.thread_state import ThreadState
    from workbench.experiment.training import Training
    from workbench.modes.layout.layout import Layout


class HookState:
    """The objects that the hooks of a training reach, here or as their copies on a rank.

    Args:
        known: what belongs to the training, and is not brought back by this object.
        objects: what the hooks reach in addition, in the same order in each process.
        names: the path by which each was reached.
    """

    def __init__(self, known: list[Any], objects: list[Any], names: list[str]) -> None:
        self.known, self.objects, self.names = known, objects, names
        self._begun = [Contents(one) for one in objects]

    @classmethod
    def of(cls, training: Training, thread: ThreadState, can: Callable[[Any], bool]) -> HookState:
        """Return the state of a training that is about to be sent.

        Args:
            training: the training whose hooks are inspected.
            thread: what was set for the thread that requested its steps.
            can: whether something can be pickled. An object that is pickled by its name, such as a
                logger, may hold what cannot; that stays where it is.
        """
        known = list(known_of(training))
        found = reached(training, thread, known, here=False)
        if found and not can([one.value for one in found]):
            found = [one for one in found if can(one.value)]
        return cls(known, [one.value for one in found], [one.path for one in found])

    def __reduce__(self) -> Any:
        """Pickle it with the training: the copies are listed in this order there."""
        return HookState, (self.known, self.objects, self.names)

    @property
    def references(self) -> list[Any]:
        """All objects that both sides know by their index."""
        return [*self.known, *self.objects]

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield tensors that share memory with a parameter or a buffer: (path, name of the latter).

        A copy would no longer share it.
        """
        model = cast("nn.Module", self.known[0])
        memory = {
            tensor.untyped_storage().data_ptr(): name
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
            if tensor.layout is torch.strided and tensor.numel()
        }
        for path, one in zip(self.names, self.objects, strict=True):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel():
                whose = memory.get(one.untyped_storage().data_ptr())
                if whose is not None:
                    yield path, whose

    def changes(self) -> list[tuple[int, Any]]:
        """Return (index, what is in it now) of the objects that have changed since they arrived."""
        found = [
            Contents(one).since(begun) for one, begun in zip(self.objects, self._begun, strict=True)
        ]
        return [(number, change) for number, change in enumerate(found) if change is not None]

    def take(self, changes: list[tuple[int, Any]]) -> None:
        """Put into the objects here what `changes` found in their copies."""
        for number, change in changes:
            fill(self.objects[number], change)


# -- notes on hooks -------------------------------------------------------------------------


def notes_on_hooks(training: Training, layout: Layout) -> Iterator[str]:
    """Yield what the user should know about hooks before ranks compute steps."""
    hooks = [path for path, hook in module_hooks(training.model) if not _is_of_torch(hook)]
    paths = list(dict.fromkeys(hooks))
    if paths:
        more = f" and {len(paths) - 2:,} more" if len(paths) > 2 else ""
        yield (
            f"under {layout} {' and '.join(paths[:2])}{more} see{'s' if len(paths) == 1 else ''} "
            "the rows of one rank's part of a batch; what hooks keep comes back from rank 0"
        )
    modes = (*training.caller_settings.function_modes, *training.caller_settings.dispatch_modes)
    for mode in modes:
        if not isinstance(mode, DeviceContext) and not attachments.is_ours(mode):
            yield (
                f"{type(mode).__name__}, which is on where the run was started, sees each rank's "
                "part of a batch; what it keeps comes back from rank 0"
            )
    for path, hook in hooks_of(training, training.caller_settings):
        if (kept := _kept_in_a_module(hook)) is not None:
            yield (
                f"{path} keeps {kept} in {hook.__module__}, which each rank imports for itself: "
                f"what changes in it under {layout} stays on the ranks"
            )


def _is_of_torch(hook: Any) -> bool:
    """Whether torch has registered it itself, as ``weight_norm`` does."""
    return str(getattr(hook, "__module__", "")).startswith("torch.")


def _kept_in_a_module(hook: Any) -> str | None:
    """Return a variable of an imported module that the hook may change."""
    function: Any = getattr(hook, "__func__", hook)
    if not isinstance(function, types.FunctionType) or is_by_value(function):
        return None
    if (function.__module__ or "").partition(".")[0] in ("torch", "workbench"):
        return None
    stored = {one.argval for one in dis.get_instructions(function) if one.opname == "STORE_GLOBAL"}
    for (kind, name), value in bindings(function).items():
        if kind == "global" and (name in stored or isinstance(value, _CHANGEABLE)):
            return name
    return None


_CHANGEABLE = (torch.Tensor, nn.Module, np.ndarray, *CONTAINERS)
