"""The hooks of one trace on the user's modules: installed, removed, and left out of copies.

``torch.save(model)``, ``pickle`` and ``copy`` include the hooks of a module. Ours are closures over
a trace: they cannot be pickled, and have no place in a user's file. So while a module is watched,
`copyreg` has a reducer for its class. The reducer calls ``__reduce_ex__``, as for any module, and
leaves our hooks out of what it returns; the module itself stays as it is.
"""

from __future__ import annotations

import copy
import copyreg
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from workbench.torch_private.autograd import HOOK_TABLES, set_compiled_call

if TYPE_CHECKING:
    from torch import nn

_REDUCE_PROTOCOL = 2
"""Protocol of ``__reduce_ex__``; its result for a module is the same for every later one."""

_lock = threading.Lock()
_num_hooked: Counter[type] = Counter()
"""Class -> number of its modules that are hooked now."""
_ours: set[int] = set()
"""Ids of the hooks that are installed, of every trace; torch uses each id once."""


class ModuleHooks:
    """What is installed on each module, by the module's row."""

    def __init__(self) -> None:
        self._undo: dict[int, list[Callable[[], None]]] = defaultdict(list)

    def add(
        self,
        row: int,
        module: nn.Module,
        enter: Callable[..., None],
        leave: Callable[..., None],
        *,
        inside: bool,
    ) -> None:
        """Call ``enter(module, args, kwargs)`` and ``leave(module, args, kwargs, output)``.

        Args:
            row: row of the module.
            module: the module to hook.
            enter: called before each forward.
            leave: called after it, also when it raised.
            inside: whether the user's own hooks run around ours, not between them.
        """
        before = module.register_forward_pre_hook(enter, prepend=not inside, with_kwargs=True)
        self._keep(row, module, before)
        after = module.register_forward_hook(
            leave, prepend=inside, with_kwargs=True, always_call=True
        )
        self._keep(row, module, after)

    def replace_call(
        self, row: int, module: nn.Module, installed: Any, call: Callable[..., Any]
    ) -> None:
        """Put ``call`` in place of what `nn.Module.compile` has ``installed`` (None: nothing)."""
        set_compiled_call(module, call)
        self._undo[row].append(lambda: set_compiled_call(module, installed))

    def remove(self, rows: Iterable[int] | None = None) -> None:
        """Remove what is installed on ``rows``, or everything; idempotent."""
        for row in list(self._undo if rows is None else rows):
            for undo in self._undo.pop(row, ()):
                undo()

    def _keep(self, row: int, module: nn.Module, handle: Any) -> None:
        _register(type(module), handle.id)

        def undo() -> None:
            handle.remove()
            _unregister(type(module), handle.id)

        self._undo[row].append(undo)


def _register(cls: type, hook: int) -> None:
    with _lock:
        _ours.add(hook)
        _num_hooked[cls] += 1
        copyreg.dispatch_table.setdefault(cls, _reduced)  # one of the user's own stays


def _unregister(cls: type, hook: int) -> None:
    with _lock:
        _ours.discard(hook)
        _num_hooked[cls] -= 1
        if not _num_hooked[cls]:
            del _num_hooked[cls]
            if copyreg.dispatch_table.get(cls) is _reduced:
                del copyreg.dispatch_table[cls]


def _reduced(module: nn.Module) -> Any:
    """What `pickle` and `copy` would have got from ``module``, without our hooks."""
    return _without_ours(module.__reduce_ex__(_REDUCE_PROTOCOL))


def _without_ours(part: Any) -> Any:
    """``part`` of a reduced module without our hooks, which are in its state or its arguments."""
    if type(part) is tuple:
        return tuple(map(_without_ours, part))
    if type(part) is dict and HOOK_TABLES[0] in part:
        return part | {name: _cleared(part[name]) for name in HOOK_TABLES if name in part}
    return part


def _cleared(table: Any) -> Any:
    found = _ours.intersection(table)
    if not found:
        return table
    cleared = copy.copy(table)
    for hook in found:
        del cleared[hook]
    return cleared
