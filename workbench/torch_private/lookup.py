"""Private names of torch, any of which another torch may lack, and checks of what they do.

A name that is missing must not keep Workbench from being imported, as most people use only a part
of it: `private` then returns something that raises when it is used. What a name does is exercised
by the `Check` next to its wrapper, on a few numbers; `workbench.torch_private.self_check` runs
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Never

import torch

TESTED = "2.11 to 2.13"
"""Versions of torch with which Workbench was tested."""


class MissingInTorchError(RuntimeError):
    """This torch has no private name that is needed, or the name does something else."""


class Check(NamedTuple):
    """An exercise of private names."""

    names: tuple[str, ...]
    """Dotted paths, such as ``torch.Tensor._base``."""
    used_for: str
    """What Workbench determines with them, as a noun phrase."""
    run: Callable[[], object]
    """Raises if they are missing or do something else. It must not draw random numbers, use another
    device than the CPU, or call a module: a user's hooks on all modules would be called too."""
    instead: str = "that may be wrong or missing"
    """What that means for the user."""
    concerns: tuple[str, ...] = ()
    """Features of `workbench.torch_private.self_check` that use them; empty: all of the file's."""
    vital_for: tuple[str, ...] = ()
    """Features of which nothing can work without them."""


def private(path: str) -> Any:
    """Return the attribute at a dotted path that begins with ``torch``.

    If there is none, the result raises a `MissingInTorchError` when it is called, subclassed,
    entered or asked for an attribute.
    """
    try:
        return resolve(path)
    except (AttributeError, ImportError):
        return _Missing(path)


def is_missing(found: object) -> bool:
    """Return whether `private` found nothing."""
    return isinstance(found, _Missing)


def resolve(path: str) -> Any:
    """Return the attribute at a dotted path, importing modules on the way.

    Raises:
        AttributeError, ImportError: there is none.
    """
    found: Any = torch
    walked = "torch"
    for name in path.split(".")[1:]:
        walked = f"{walked}.{name}"
        if not hasattr(found, name) and hasattr(found, "__path__"):
            importlib.import_module(walked)
        found = getattr(found, name)
    return found


def expect(holds: object, what: str) -> None:
    """Raise an `AssertionError` that says ``what`` is different, unless ``holds`` is true."""
    if not holds:
        raise AssertionError(what)


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Do nothing: a hook of a check."""


class _Missing:
    """Stands for a name that this torch lacks."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _raise(self) -> Never:
        raise MissingInTorchError(
            f"torch {torch.__version__} has no {self._path}, which Workbench uses; it was tested "
            f"with torch {TESTED}"
        )

    def __call__(self, *_args: object, **_kwargs: object) -> Never:
        self._raise()

    def __getattr__(self, name: str) -> Never:
        self._raise()

    def __enter__(self) -> Never:
        self._raise()

    def __exit__(self, *_: object) -> None: ...

    def __instancecheck__(self, instance: object) -> bool:
        self._raise()

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        def refuse(*_args: object, **_kwargs: object) -> Never:
            self._raise()

        return (type("Missing", (), {"__new__": refuse}),)
