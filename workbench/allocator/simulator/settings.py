"""The settings of the caching allocator that change where a block is placed.

Names and defaults are those of ``PYTORCH_CUDA_ALLOC_CONF`` (``c10/core/AllocatorConfig.h``,
``c10/cuda/CUDAAllocatorConfig.h`` of torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

KIB, MIB, GIB = 2**10, 2**20, 2**30
NUM_DIVISIONS = 16
"""Number of intervals of sizes for which `AllocatorSettings.roundup_power2_divisions` has an entry:
those from 1 MiB, 2 MiB, 4 MiB up to 32 GiB; smaller sizes use the first, larger ones the last."""
_LEAST_LARGE_SEGMENT = 10 * MIB
_IGNORED = (
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "throw_on_cudamalloc_oom",
)
"""Keys that are known and do not move a block in a replay."""


_VARIABLE = re.compile(r"\s*(?:export\s+)?PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF\s*=\s*(.*?)\s*")


class SettingsError(ValueError):
    """A setting that the allocator does not accept."""


@dataclass(frozen=True)
class AllocatorSettings:
    """The settings of a replay."""

    max_split_size: int | None = None
    """Bytes; a block of at least this many is never split. None: every block may be."""
    max_non_split_rounding: int = 20 * MIB
    """Bytes by which such a block may exceed the request that is served with it."""
    garbage_collection_threshold: float = 0.0
    """Part of the allowed memory from which unused segments are released; 0: never."""
    expandable_segments: bool = False
    """Whether segments are ranges of addresses into which pages are mapped."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * NUM_DIVISIONS
    """The number of steps into which each power of two is divided for rounding; 0: to 512 B."""
    large_segment_size: int = 20 * MIB
    """Bytes of a segment, or of a page of an expandable one, for blocks of 1 to 10 MiB."""

    def __post_init__(self) -> None:
        segment = self.large_segment_size
        if segment <= _LEAST_LARGE_SEGMENT or segment % MIB:
            raise SettingsError(
                f"large_segment_size is {segment:,} B; it is a whole number of MiB above 10"
            )
        if self.max_split_size is not None and self.max_split_size < segment:
            raise SettingsError(
                f"max_split_size is {self.max_split_size:,} B; the allocator takes at least "
                f"{segment // MIB} MiB (large_segment_size), or None for no limit"
            )
        if self.max_non_split_rounding < segment:
            raise SettingsError(
                f"max_non_split_rounding is {self.max_non_split_rounding:,} B; the allocator takes "
                f"at least {segment // MIB} MiB (large_segment_size)"
            )
        if not 0 <= self.garbage_collection_threshold < 1:
            raise SettingsError(
                f"garbage_collection_threshold is {self.garbage_collection_threshold}; it is a part"
                " of the allowed memory, from 0 (off) to less than 1"
            )
        divisions = self.roundup_power2_divisions
        if len(divisions) != NUM_DIVISIONS or any(d < 0 or d & (d - 1) for d in divisions):
            raise SettingsError(
                f"roundup_power2_divisions is {divisions}; it has {NUM_DIVISIONS} entries, each 0 "
                "or a power of two"
            )

    @classmethod
    def of_snapshot(cls, found: Mapping[str, Any]) -> Self:
        """Return the settings under which a snapshot file says it was recorded.

        The defaults if it says nothing: files from before ``allocator_settings`` existed.

        Raises:
            SettingsError: a value is not one that the allocator accepts.
        """
        try:
            return cls._of_snapshot(found)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"the file's allocator_settings are none: {error}") from None

    @classmethod
    def of_snapshot_or_default(cls, found: Mapping[str, Any]) -> Self:
        """As `of_snapshot`; the defaults if a file contains what no allocator accepts."""
        try:
            return cls.of_snapshot(found)
        except SettingsError:
            return cls()

    @classmethod
    def _of_snapshot(cls, found: Mapping[str, Any]) -> Self:
        split = int(found.get("max_split_size", -1))
        divisions = found.get("roundup_power2_divisions") or {}
        sizes = [str(2**power) for power in range(NUM_DIVISIONS)]
        base = cls.parse(str(found.get("PYTORCH_CUDA_ALLOC_CONF") or ""), tolerant=True)
        return cls(
            max_split_size=None if split < 0 else split,
            max_non_split_rounding=base.max_non_split_rounding,
            garbage_collection_threshold=float(found.get("garbage_collection_threshold", 0.0)),
            expandable_segments=bool(found.get("expandable_segments", False)),
            roundup_power2_divisions=tuple(int(divisions.get(size, 0)) for size in sizes),
            large_segment_size=base.large_segment_size,
        )

    @classmethod
    def parse(cls, words: str, *, tolerant: bool = False) -> Self:
        """Parse settings written as in ``PYTORCH_CUDA_ALLOC_CONF``.

        Args:
            words: ``"expandable_segments:True,max_split_size_mb:128"``; empty for the defaults. The
                name of the variable may come before them (``PYTORCH_CUDA_ALLOC_CONF=...``).
            tolerant: ignore keys that are not known (a later version of torch wrote them).

        Raises:
            SettingsError: a key or a value is unknown, or not allowed.
        """
        found: dict[str, Any] = {}
        for key, value in _pairs(_without_variable(words)):
            if key == "backend" and value != "native":
                raise SettingsError(f"backend {value!r} is another allocator; native is simulated")
            if key == "per_process_memory_fraction" and not tolerant:
                raise SettingsError(
                    f"{key} is a limit, not a rule: give the bytes of a GPU instead"
                )
            if key == "backend" or key in _IGNORED or (tolerant and key not in _READERS):
                continue
            if key not in _READERS:
                raise SettingsError(
                    f"{key!r} is no setting of the allocator; known are {', '.join(_READERS)}"
                )
            name, read = _READERS[key]
            try:
                found[name] = _given(read, value)
            except ValueError:
                raise SettingsError(f"{key} cannot be {value!r}; it is {_VALID[key]}") from None
        segment = found.get("large_segment_size")
        if segment is not None:
            found.setdefault("max_non_split_rounding", segment)
        return cls(**found)

    @property
    def words(self) -> str:
        """The differences from the defaults, as `parse` reads them; empty if there are none."""
        parts = [
            f"{key}:{_WRITERS.get(key, _as_megabytes)(getattr(self, name))}"
            for key, (name, _) in _READERS.items()
            if getattr(self, name) != getattr(_DEFAULTS, name)
        ]
        return ",".join(parts)

    def __str__(self) -> str:
        """As `words`; ``"default"`` if nothing differs."""
        return self.words or "default"


def _given(read: Callable[[str], Any], value: str) -> Any:
    """Read a value that was given explicitly; torch does not accept 0 for "off"."""
    found = read(value)
    if not isinstance(found, bool) and found == 0:
        raise ValueError(value)
    if isinstance(found, tuple) and value == "0":
        raise ValueError(value)
    return found


def _without_variable(words: str) -> str:
    """Return the value that a shell line gives to the variable; other text as it is."""
    line = _VARIABLE.fullmatch(words)
    return words if line is None else line[1].strip("'\"")


def _pairs(words: str) -> list[tuple[str, str]]:
    """Return ``key:value`` parts; a value in brackets may contain commas and colons."""
    parts: list[str] = []
    depth = 0
    for letter in "".join(words.split()):
        if letter == "," and not depth:
            parts.append("")
            continue
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if not parts:
            parts.append("")
        parts[-1] += letter
    pairs = [part.partition(":") for part in parts if part]
    for key, colon, value in pairs:
        if not colon or not value:
            raise SettingsError(f"{key!r} has no value; write key:value, with commas between them")
    return [(key, value) for key, _, value in pairs]


def _megabytes(value: str) -> int:
    if not value.isdecimal():  # int() takes signs and underscores, too
        raise ValueError(value)
    return int(value) * MIB


def _flag(value: str) -> bool:
    if value not in ("True", "False"):
        raise ValueError(value)
    return value == "True"


def _divisions(value: str) -> tuple[int, ...]:
    """Read ``8``, or ``[256:1,512:2,1024:4,>:8]``: megabytes and the number of divisions there.

    Sizes below the first use its number, sizes above the last that of ``>``, and sizes between two
    of them that are not named stay undivided, as in torch.
    """
    if not value.startswith("["):
        return (int(value),) * NUM_DIVISIONS
    found = [0] * NUM_DIVISIONS
    last, is_first = 0, True
    for part in value.strip("[]").split(","):
        size, _, number = part.partition(":")
        if size == ">":
            found[last + 1 :] = [int(number)] * (NUM_DIVISIONS - last - 1)
            continue
        if int(size) < 1 or int(size) & (int(size) - 1):
            raise ValueError(size)
        at = min(int(size).bit_length() - 1, NUM_DIVISIONS - 1)
        if is_first:
            found[:at] = [int(number)] * at
        found[at], last, is_first = int(number), at, False
    return tuple(found)


def _as_megabytes(value: int) -> str:
    return str(value // MIB)


def _as_divisions(divisions: tuple[int, ...]) -> str:
    if len(set(divisions)) == 1:
        return str(divisions[0])
    each = ",".join(f"{2**power}:{number}" for power, number in enumerate(divisions))
    return f"[{each}]"


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max_split_size_mb": ("max_split_size", _megabytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _megabytes),
    "garbage_collection_threshold": ("garbage_collection_threshold", float),
    "expandable_segments": ("expandable_segments", _flag),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "large_segment_size_mb": ("large_segment_size", _megabytes),
}
_VALID = {
    "max_split_size_mb": "a whole number of MiB",
    "max_non_split_rounding_mb": "a whole number of MiB",
    "garbage_collection_threshold": "a part of the allowed memory, such as 0.8",
    "expandable_segments": "True or False",
    "roundup_power2_divisions": "a power of two such as 8, or such as [256:1,512:2,>:4] by size",
    "large_segment_size_mb": "a whole number of MiB",
}
"""The valid values of each, for messages about other values."""
_WRITERS: dict[str, Callable[[Any], str]] = {
    "garbage_collection_threshold": str,
    "expandable_segments": str,
    "roundup_power2_divisions": _as_divisions,
}
_DEFAULTS = AllocatorSettings()
