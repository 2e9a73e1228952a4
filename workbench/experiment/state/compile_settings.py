"""Settings of torch.compile that a cell made, for a run that another thread starts.

Torch keeps what is assigned to ``torch._dynamo.config`` and its siblings in context variables: a
setting holds for the thread that made it. A run takes the context of the thread that starts it, but
a run that is started by the panel is started by a thread that has made none. No thread can read the
context of another, so the main thread's is saved whenever it makes a setting, and `apply` makes the
same settings where a run is to be computed.

Before torch 2.12 a setting holds for all threads: it is stored as a plain value, not as a variable.

Settings within ``with torch._dynamo.config.patch(...)`` belong to that block: a run that is started
while the main thread is in it takes them, whoever starts it, and a later one does not.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Iterator
from contextvars import Context, ContextVar
from typing import Any

from workbench.torch_private.settings import ConfigModule, entries

_UNSET = object()
_of_main_thread: Context | None = None
"""The main thread's context after its latest setting."""


def watch() -> None:
    """Save the main thread's settings from now on; a second call does nothing."""
    assign = ConfigModule.__setattr__
    if hasattr(assign, "__wrapped__"):
        return

    @functools.wraps(assign)
    def assign_and_keep(self: ConfigModule, name: str, value: object) -> None:
        global _of_main_thread  # noqa: PLW0603 - there is one main thread
        assign(self, name, value)
        if threading.current_thread() is threading.main_thread():
            _of_main_thread = contextvars.copy_context()

    ConfigModule.__setattr__ = assign_and_keep


def apply(context: Context) -> None:
    """Make in ``context`` the settings of the main thread, and over them those of the caller."""
    for module, name, variable, value in _made():
        is_of_a_thread = isinstance(variable, ContextVar)
        if is_of_a_thread and value is not context.get(variable, _UNSET):
            context.run(setattr, module, name, value)


def made() -> Iterator[tuple[str, str, Any]]:
    """Yield (module, name, value) of every setting that holds on the calling thread.

    Those of the main thread are included, unless the caller's own differ.
    """
    for module, name, _, value in _made():
        yield module.__name__, name, value


def _made() -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield module, name, variable and value of what holds on this thread or on the main one."""
    here = contextvars.copy_context()
    above = here if _of_main_thread is None else _of_main_thread
    for module, name, variable in _settings():
        value = variable
        if isinstance(variable, ContextVar):
            value = here.get(variable, _UNSET)
            if not _is_set(value):
                value = above.get(variable, _UNSET)
        if _is_set(value):
            yield module, name, variable, value


def _settings() -> Iterator[tuple[Any, str, Any]]:
    """Yield module, name and context variable (or value) of every setting of an imported module."""
    for module in tuple(sys.modules.values()):
        if isinstance(module, ConfigModule):
            for name, entry in entries(module).items():
                if entry.alias is None:
                    yield module, name, entry.user_override


def _is_set(value: object) -> bool:
    """Return whether ``value`` is a setting.

    Our mark for none, and torch's for one that was reverted, are both bare objects.
    """
    return type(value) is not object
