"""Find where the samples are in batches, labels and outputs, by comparing more with fewer.

Mostly they are the first dimension of every tensor. But a sequence may come first, tokens of all
samples may be one long dimension, labels may be a list, and a coefficient by which samples were
mixed belongs to all of them. So the same value is made from some samples and from fewer, and
whatever grows with their number is indexed by samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

Rows = Any
"""Nested like the value: a dimension of a tensor, `ITEMS`, or None for what all samples share."""

ITEMS = "items"
"""Marks a list with an item for each sample."""


class RowsError(ValueError):
    """The samples cannot be found; the message ends the sentence that names what they are in."""


@dataclass(frozen=True)
class _Parts:
    """Rows of a container whose length is the same for any number of samples."""

    parts: dict[Any, Rows]


def find_rows(more: Any, fewer: Any, num_more: int, num_fewer: int) -> Rows:
    """Return where the samples are in ``more``.

    Args:
        more: a value made of ``num_more`` samples.
        fewer: the same, made of ``num_fewer``; if the numbers are equal, `first_rows` is used.
        num_more: at least 1.
        num_fewer: at least 1.

    Raises:
        RowsError: a part of it is neither indexed by samples nor shared by all of them.
    """
    if num_more == num_fewer:
        return first_rows(more, num_more)
    if isinstance(more, torch.Tensor):
        return _dimension(more.shape, fewer.shape, num_more, num_fewer)
    if isinstance(more, Mapping):
        keys = cast("Mapping[Any, Any]", more)
        return _Parts({key: find_rows(keys[key], fewer[key], num_more, num_fewer) for key in keys})
    if isinstance(more, (list, tuple)):
        items = cast("list[Any]", more)
        if len(items) == num_more and len(fewer) == num_fewer:
            return ITEMS
        if len(items) != len(fewer):
            raise RowsError(f"has {len(items)} items for {num_more} samples")
        pairs = enumerate(zip(items, fewer, strict=True))
        return _Parts({at: find_rows(a, b, num_more, num_fewer) for at, (a, b) in pairs})
    return None


def first_rows(value: Any, num: int) -> Rows:
    """Return where samples mostly are: in the first dimension.

    Raises:
        RowsError: its size is neither ``num`` nor a multiple of that.
    """
    if isinstance(value, torch.Tensor):
        if not value.ndim:
            return None
        if not num or len(value) % num:
            raise RowsError(f"has shape {list(value.shape)} for {num} samples")
        return 0
    if isinstance(value, Mapping):
        parts = cast("Mapping[Any, Any]", value)
        return _Parts({key: first_rows(part, num) for key, part in parts.items()})
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        if len(items) == num and not any(isinstance(one, torch.Tensor) for one in items):
            return ITEMS
        return _Parts({at: first_rows(part, num) for at, part in enumerate(items)})
    return None


def cut(value: Any, rows: Rows, first: int, last: int, of: int) -> Any:
    """Return ``value`` for samples ``first`` to ``last`` (exclusive) only, of ``of`` samples.

    Tensors are views.
    """
    if rows is None:
        return value
    if rows == ITEMS:
        return value[first:last]
    if isinstance(rows, int):
        each = value.shape[rows] // of
        return value.narrow(rows, first * each, (last - first) * each)
    return _rebuilt(
        value, {key: cut(value[key], at, first, last, of) for key, at in rows.parts.items()}
    )


def taken(value: Any, rows: Rows, indices: Sequence[int], of: int) -> Any:
    """Return ``value`` for these samples only, in this order, of ``of`` samples."""
    if rows is None:
        return value
    if rows == ITEMS:
        return type(value)(value[at] for at in indices)
    if isinstance(rows, int):
        each = value.shape[rows] // of
        first = torch.tensor(indices, device=value.device, dtype=torch.int64)[:, None] * each
        every = (first + torch.arange(each, device=value.device)).reshape(-1)
        return value.index_select(rows, every)
    return _rebuilt(
        value, {key: taken(value[key], at, indices, of) for key, at in rows.parts.items()}
    )


def leaves(value: Any, rows: Rows) -> list[tuple[torch.Tensor, int]]:
    """Return every tensor that is indexed by samples, with its dimension of samples."""
    if isinstance(rows, _Parts):
        return [leaf for key, at in rows.parts.items() for leaf in leaves(value[key], at)]
    return [(value, rows)] if isinstance(rows, int) else []


def with_leaves(value: Any, rows: Rows, tensors: list[torch.Tensor]) -> Any:
    """Replace the `leaves` of ``value`` by tensors that are popped off the front of a list."""
    if isinstance(rows, _Parts):
        parts = {key: with_leaves(value[key], at, tensors) for key, at in rows.parts.items()}
        return _rebuilt(value, parts)
    return tensors.pop(0) if isinstance(rows, int) else value


def has_items(rows: Rows) -> bool:
    """Return whether it contains a list with an item for each sample."""
    if isinstance(rows, _Parts):
        return any(map(has_items, rows.parts.values()))
    return rows == ITEMS


def joined_items(values: list[Any], rows: Rows) -> Any:
    """Return the first of ``values``, with the lists of all of them one after the other."""
    if isinstance(rows, _Parts):
        parts = {
            key: joined_items([value[key] for value in values], at)
            for key, at in rows.parts.items()
        }
        return _rebuilt(values[0], parts)
    if rows == ITEMS:
        return type(values[0])(item for value in values for item in value)
    return values[0]


def _dimension(more: torch.Size, fewer: torch.Size, num_more: int, num_fewer: int) -> int | None:
    if len(more) == len(fewer):
        if more == fewer:
            return None
        pairs = list(zip(more, fewer, strict=True))
        if (num_more, num_fewer) in pairs:  # rather than a length that has grown as they did
            return pairs.index((num_more, num_fewer))
        for dim, (here, there) in enumerate(pairs):
            if here != there and here * num_fewer == there * num_more:
                return dim
    raise RowsError(
        f"has shape {list(more)} for {num_more} samples and {list(fewer)} for {num_fewer}"
    )


def _rebuilt(value: Any, parts: dict[Any, Any]) -> Any:
    """A container of the type of ``value`` with other parts."""
    if isinstance(value, Mapping):
        return {**cast("Mapping[Any, Any]", value), **parts}
    items = list(parts.values())
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
