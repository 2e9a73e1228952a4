"""Plain Python attributes of modules, that is numbers, text and containers, to be restored.

A block that is computed again in backward would count its calls twice, or compute something else
the second time (a temperature that falls with a count). So it sees what it saw the first time, and
afterwards everything is as it was found. Objects of other kinds stay as they are, and what they
keep is changed once more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn

from workbench.modes.core.containers import CONTAINERS, contents_of, refill

_UNCHANGING = (bool, int, float, complex, str, bytes, tuple, type(None))
_OF_TORCH = frozenset(vars(nn.Module()))
_MOST = 4096
"""Maximum number of elements of a container: a longer one is a record, which no computation
uses."""


class PlainAttributes:
    """Plain attributes of the modules in ``module`` at the time of creation."""

    def __init__(self, module: nn.Module) -> None:
        # torch's own layers keep settings in these, and what they track in buffers
        self._parts = [one for one in module.modules() if not _is_torchs(type(one))]
        self._kept = [_kept_in(part) for part in self._parts]

    @property
    def is_any(self) -> bool:
        """Whether there are any."""
        return any(self._kept)

    @contextmanager
    def restored(self) -> Generator[None]:
        """Context in which they are as they were then; afterwards attributes are as on entry."""
        now = [_kept_in(part, every=True) for part in self._parts]
        for part, kept, found in zip(self._parts, self._kept, now, strict=True):
            made_since = {name for name, one in found.items() if name not in kept and one.is_plain}
            _put(part, kept, made_since)
        try:
            yield
        finally:
            for part, found in zip(self._parts, now, strict=True):
                _put(part, found, vars(part).keys() - found.keys() - _OF_TORCH)


def _is_torchs(kind: type[nn.Module]) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")


class _Kept(NamedTuple):
    value: Any
    contents: Any = None
    """Contents of a container that is restored."""
    is_plain: bool = True


def _kept_in(part: nn.Module, *, every: bool = False) -> dict[str, _Kept]:
    """Attributes by name; with ``every``, those of other kinds too."""
    found: dict[str, _Kept] = {}
    for name, value in vars(part).items():
        if name in _OF_TORCH:
            continue
        if type(value) in _UNCHANGING:
            found[name] = _Kept(value)
        elif type(value) in CONTAINERS and len(value) <= _MOST:
            found[name] = _Kept(value, contents_of(value))
        elif every:
            found[name] = _Kept(value, is_plain=False)
    return found


def _put(part: nn.Module, kept: dict[str, _Kept], gone: Iterable[str]) -> None:
    own = vars(part)
    for name in gone:
        own.pop(name, None)
    for name, one in kept.items():
        own[name] = one.value
        if one.contents is not None:
            refill(one.value, one.contents)
