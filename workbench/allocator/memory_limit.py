"""A simulated GPU, in words: how much memory it has, and the settings of its allocator.

``"8 GiB"``, ``"RTX 4090"`` or a number of bytes is what the GPU reports; what is left for a program
is less (`workbench.allocator.simulator.gpus`). Settings follow after a comma, as they are written
in ``PYTORCH_CUDA_ALLOC_CONF``: ``"8 GiB, expandable_segments:True"``.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, SupportsIndex

from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.gpus import CONTEXT_BYTES, GPUS, Gpu, gpu_named
from workbench.allocator.simulator.settings import GIB, MIB, AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(GiB|MiB|GB|MB|B)", re.IGNORECASE)
_UNITS = {"GiB": GIB, "MiB": MIB, "GB": 10**9, "MB": 10**6, "B": 1}
_MOST_BYTES = 1 << 47
"""The largest size of a GPU: as many bytes as a process has addresses."""


@dataclass(frozen=True)
class GpuLimit:
    """A GPU and the settings of its allocator."""

    gpu: Gpu
    settings: AllocatorSettings

    @classmethod
    def parse(cls, given: str | SupportsIndex) -> Self:
        """Read ``"8 GiB, expandable_segments:True"``, ``"RTX 4090"``, or bytes.

        Raises:
            TypeError: ``given`` is neither text nor a whole number.
            ValueError: no GPU has that name, it has too much or too little memory, or the allocator
                does not accept the settings.
        """
        if not isinstance(given, str):
            return cls(gpu_given(given), AllocatorSettings())
        name, _, words = given.partition(",")
        return cls(gpu_called(name.strip()), AllocatorSettings.parse(words))

    def with_settings(self, words: str) -> GpuLimit:
        """Return the same GPU under its settings and ``words``; of two values the later applies."""
        return replace(
            self,
            settings=AllocatorSettings.parse(",".join(filter(None, [self.settings.words, words]))),
        )

    def allocator(self, device: type[Device] = Device) -> CachingAllocator:
        """Make a new allocator on such a GPU."""
        usable = self.gpu.usable_bytes
        allowed = usable if self.settings.garbage_collection_threshold else None
        return CachingAllocator(
            self.settings, device(usable, self.gpu.total_bytes), allowed=allowed
        )

    def __str__(self) -> str:
        """As `parse` reads it: a rounded name is replaced by the bytes."""
        name, total = self.gpu.name, self.gpu.total_bytes
        amount = _Amount.read(name)
        exact = name if amount is None or amount.total == total else f"{total} B"
        return ", ".join(filter(None, [exact, self.settings.words]))


def gpu_given(given: str | SupportsIndex) -> Gpu:
    """Return the GPU given by a name, an amount or bytes.

    Raises:
        TypeError: it is none of these.
        ValueError: no GPU has that name, or so much or so little memory.
    """
    if isinstance(given, str):
        name, comma, words = given.partition(",")
        if comma:
            raise ValueError(
                f"this takes only a GPU, such as {name.strip()!r}; give the settings of the "
                f"allocator separately: settings={words.strip()!r}"
            )
        return gpu_called(given)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(
            f"a GPU is a name, an amount such as '8 GiB' or bytes, got {type(given).__name__}"
        )
    return gpu_of_bytes(operator.index(given))


class _Amount(NamedTuple):
    """An amount of memory, such as ``8 GiB``."""

    number: float
    unit: str

    @classmethod
    def read(cls, name: str) -> Self | None:
        """Read an amount, ignoring case; return None if the name is not an amount."""
        found = _AMOUNT.fullmatch(name)
        if found is None:
            return None
        return cls(float(found[1]), next(u for u in _UNITS if u.lower() == found[2].lower()))

    @property
    def total(self) -> int:
        """Bytes; more than any GPU has if the amount is too large."""
        total = self.number * _UNITS[self.unit]  # infinite after hundreds of digits
        return round(min(total, _MOST_BYTES + 1))

    def __str__(self) -> str:
        return f"{self.number:.15g} {self.unit}"


def gpu_called(name: str) -> Gpu:
    """Return the GPU of that name, or with that amount of memory: ``"RTX 4090"``, ``"8 GiB"``.

    Raises:
        ValueError: no GPU has that name, or so much or so little memory.
    """
    amount = _Amount.read(name)
    if amount is not None:
        found = gpu_of_bytes(amount.total)
        return found if amount.unit == "B" else replace(found, name=str(amount))
    try:
        return gpu_named(name)
    except ValueError:
        known = ", ".join(gpu.name for gpu in GPUS)
        raise ValueError(
            f"no GPU is called {name!r}; known are {known}, or give an amount such as '8 GiB', "
            "in GiB, MiB, GB or MB, or in B"
        ) from None


def gpu_of_bytes(total: int) -> Gpu:
    """Return a GPU that reports ``total`` bytes, named by the roundest amount equal or near to it.

    Raises:
        ValueError: nothing of it is left for a program, or no GPU has so many bytes.
    """
    if total <= CONTEXT_BYTES:
        raise ValueError(
            f"a GPU of {total:,} B has nothing left: CUDA itself takes about "
            f"{CONTEXT_BYTES >> 20} MiB; give what the GPU reports"
        )
    if total > _MOST_BYTES:
        raise ValueError(
            f"a GPU has at most {_MOST_BYTES >> 40} TiB here, and more was requested: give "
            "what the GPU reports, such as '80 GiB'"
        )
    for unit, digits in (("GiB", 2), ("GB", 1), ("MiB", 0)):
        amount = _Amount(round(total / _UNITS[unit], digits), unit)
        if amount.total == total:
            return Gpu(str(amount), total, "given")
    return Gpu(f"{total / GIB:.2f} GiB", total, "given")
