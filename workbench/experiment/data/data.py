"""Data that an experiment trains on: one interface to arrays, datasets and loaders.

This module recognises what was given, and splits a batch; `workbench.experiment.data.sources`
provides the batches. If Workbench chooses their order, the loader draws from its own generator, so
fetching a batch never changes the global random state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from workbench.experiment.data.sources import (
    ArraySource,
    DataError,
    DataSource,
    ForeignSource,
    LoaderSource,
    length,
)
from workbench.torch_private.pytree import tree_map_only

Order = Literal["workbench", "loader"]
"""Whose order is used for the samples of a `DataLoader`."""
_ORDERS = ("workbench", "loader")


def data_source(
    data: Any,
    *,
    batch_size: int,
    seed: int,
    shuffle: bool,
    what: str = "train",
    order: Order = "workbench",
) -> DataSource:
    """Create the `DataSource` of any data that an experiment accepts.

    Args:
        data: a pair of arrays or tensors, a `Dataset`, a `DataLoader`, a Hugging Face dataset, a
            list of samples, or any iterable of batches that can be iterated more than once.
        batch_size: samples per batch, if ``data`` does not define it.
        seed: seed of the order of samples.
        shuffle: whether the order changes with the epoch, if Workbench chooses it.
        what: ``train`` or ``val``, for messages.
        order: whose order to use, if ``data`` is a `DataLoader`.

    Raises:
        DataError: ``data`` is none of these, or is empty, or its arrays differ in length; or the
            loader's own order is requested and there is no loader.
    """
    if order not in _ORDERS:
        raise DataError(f"order is {order!r}; valid: {', '.join(map(repr, _ORDERS))}")
    if isinstance(data, DataLoader):
        return _of_loader(data, seed, what, order)
    if order == "loader" and what == "train":
        raise DataError(
            f"order='loader' keeps the order of a DataLoader, and {what} is a "
            f"{type(data).__name__}: give DataLoader({what}, batch_size, shuffle=True), or leave "
            "order out"
        )
    if _is_hugging_face(data):
        name = str(getattr(data, "builder_name", None) or type(data).__name__)
        ready = data if data.format["type"] is not None else data.with_format("torch")
        return _of_dataset(ready, name, batch_size, seed, shuffle=shuffle, what=what)
    if isinstance(data, (tuple, list)) and _are_arrays(cast(Any, data)):
        return _of_arrays(cast(Any, data), batch_size, seed, shuffle=shuffle, what=what)
    if type(data) is tuple:
        parts = ", ".join(type(part).__name__ for part in cast("tuple[Any, ...]", data)[:5])
        raise DataError(
            f"{what} is a tuple of {len(cast(Any, data))} ({parts}); valid is a pair of arrays or "
            f"tensors (inputs, labels)"
        )
    if isinstance(data, (Dataset, IterableDataset)) or _is_map_style(data):
        name = type(cast(Any, data)).__name__
        return _of_dataset(data, name, batch_size, seed, shuffle=shuffle, what=what)
    if isinstance(data, list):
        return _of_list(cast("list[Any]", data), batch_size, seed, shuffle=shuffle, what=what)
    if (
        hasattr(data, "__iter__")
        and not isinstance(data, torch.Tensor)
        and not hasattr(data, "__next__")
        and not isinstance(data, Mapping)
    ):
        return ForeignSource(data, type(data).__name__, "an iterable of batches")
    raise DataError(
        f"{what} is a {type(data).__name__}; valid: a Dataset, a DataLoader, a pair of arrays or "
        f"tensors (inputs, labels), a Hugging Face Dataset, or a list of samples or of batches"
    )


def split(batch: Any) -> tuple[Any, Any]:
    """Split a batch into ``(inputs, targets)``.

    Raises:
        DataError: the batch is neither a pair nor a mapping with ``labels`` (or ``label``).
    """
    if isinstance(batch, (tuple, list)) and len(cast(Any, batch)) == 2:
        return cast(Any, batch)[0], cast(Any, batch)[1]
    if isinstance(batch, Mapping):
        rest = dict(cast("Mapping[str, Any]", batch))
        for key in ("labels", "label"):
            if key in rest:
                targets = rest.pop(key)
                return rest, targets
        keys = ", ".join(map(str, rest)) or "none"
        raise DataError(f"a batch is a mapping with keys {keys}; it needs a key 'labels'")
    size = f" of {len(cast(Any, batch))}" if isinstance(batch, (tuple, list)) else ""
    raise DataError(
        f"a batch is a {type(batch).__name__}{size}; valid: a pair (inputs, labels), or a mapping "
        f"with a key 'labels'"
    )


def to_device(value: Any, device: torch.device) -> Any:
    """Move every tensor in a batch to ``device``; a tensor that is already there is not copied.

    An object that can move itself (a `PackedSequence`, a graph) does so.
    """
    if isinstance(value, torch.Tensor):
        # the comparison costs a quarter of a `to` that has nothing to do
        return value if value.device == device else value.to(device, non_blocking=True)
    if callable(move := getattr(value, "to", None)) and not isinstance(value, Mapping):
        return move(device)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: to_device(item, device) for key, item in items}
    if isinstance(value, (tuple, list)):
        items = [to_device(item, device) for item in cast("list[Any]", value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def copied(batch: Any) -> Any:
    """Copy ``batch`` with its tensors: the caller may write into them."""
    return tree_map_only(torch.Tensor, torch.clone, batch)


def batch_size_of(inputs: Any, targets: Any) -> int:
    """Return the number of samples in a batch; -1 if neither inputs nor targets determine it.

    It is the number of rows of the first input. Labels determine it if the inputs are not tensors,
    or have their sequence first; labels alone may be concatenated, or a list with a tensor for each
    sample.
    """
    firsts = [tensor for tensor in tensors_in(inputs) if tensor.ndim]
    labels = [len(tensor) for tensor in tensors_in(targets) if tensor.ndim]
    num_labels = len(cast("list[Any]", targets)) if isinstance(targets, list) else -1
    if firsts and len({*map(len, firsts), *labels}) == 1:
        return len(firsts[0])
    parts = cast("list[Any]", targets) if isinstance(targets, (list, tuple)) else []
    has_rows = any(isinstance(part, torch.Tensor) and part.ndim for part in parts)
    if isinstance(inputs, (list, tuple)) and len(cast("list[Any]", inputs)) == num_labels:
        whole = has_rows and firsts and len(firsts[0]) in labels
        return len(firsts[0]) if whole else num_labels
    is_own_type = hasattr(inputs, "_fields")  # a `PackedSequence`, whose tensors have other rows
    if firsts and not (is_own_type and labels):
        rows = firsts[0].shape
        is_sequence_first = len(rows) > 1 and isinstance(targets, torch.Tensor) and targets.ndim
        if rows[0] not in (num_labels, *labels) and is_sequence_first and rows[1] == labels[0]:
            return labels[0]
        return rows[0]
    if num_labels > 0 and len(set(labels)) != 1:
        return num_labels
    return labels[0] if labels else -1


def _of_arrays(
    pair: tuple[Any, Any], batch_size: int, seed: int, *, shuffle: bool, what: str
) -> DataSource:
    inputs, targets = (_tensor(array, f"{what}[{index}]") for index, array in enumerate(pair))
    if len(inputs) != len(targets):
        raise DataError(
            f"{what} holds {len(inputs):,} inputs and {len(targets):,} labels; "
            f"there must be as many of one as of the other"
        )
    if len(inputs) == 0:
        raise DataError(f"{what} holds no samples; give at least one")
    if targets.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        targets = targets.long()  # cross entropy takes int64 classes only
    return ArraySource(inputs, targets, batch_size, seed, shuffle)


def _of_list(
    items: list[Any], batch_size: int, seed: int, *, shuffle: bool, what: str
) -> DataSource:
    """Treat a list as batches if the first one has as many labels as inputs; else as samples.

    Torch treats a list as a dataset of samples too.

    Raises:
        DataError: it is empty, or could be either: pairs of vectors of one length, or of arrays
            whose first dimension is 1.
    """
    if not items:
        raise DataError(f"{what} is an empty list; give at least one sample or batch")
    inputs, targets = split(items[0])
    labels = _shape(targets)
    if labels and labels[0] == _leading(inputs):
        if len(labels) == _dimensions(inputs) and (len(labels) == 1 or labels[0] == 1):
            shape = "×".join(map(str, labels))
            raise DataError(
                f"{what} is a list of pairs of shape {shape} each, which may be samples or batches "
                f"of {labels[0]:,}: give DataLoader({what}, batch_size, shuffle=True) for samples, "
                f"or DataLoader({what}, batch_size=None) for batches"
            )
        last = items[-1]
        ends_in_one = len(items) > 1 and _is_batch(last) and batch_size_of(*split(last)) == 1
        return ForeignSource(items, "list", "a list of batches", ends_in_one=ends_in_one)
    return _of_dataset(items, "list", batch_size, seed, shuffle=shuffle, what=what)


def _is_batch(item: Any) -> bool:
    """Return whether `split` accepts ``item``; if not, its step reports what is wrong with it."""
    try:
        split(item)
    except DataError:
        return False
    return True


def _of_dataset(
    dataset: Any, name: str, batch_size: int, seed: int, *, shuffle: bool, what: str
) -> DataSource:
    if isinstance(dataset, IterableDataset):
        return ForeignSource(DataLoader(dataset, batch_size), name, "an IterableDataset")
    if len(dataset) == 0:
        raise DataError(f"{what} is an empty {name}; give at least one sample")
    loader = DataLoader(dataset, batch_size)
    return LoaderSource(loader, seed, shuffle=shuffle, name=name)


def _of_loader(loader: DataLoader[Any], seed: int, what: str, order: Order) -> DataSource:
    name = type(cast(Any, loader.dataset)).__name__
    if isinstance(loader.dataset, IterableDataset):
        return ForeignSource(loader, name, "an IterableDataset")
    if length(loader) == 0:
        hint = "with drop_last, it holds less than one batch" if loader.drop_last else "no samples"
        raise DataError(f"{what} is a DataLoader without batches ({hint}); give at least one batch")
    plain = type(loader.sampler) in (RandomSampler, SequentialSampler)
    whole = not getattr(loader.sampler, "replacement", False) and (
        length(loader.sampler) == length(loader.dataset)
    )
    # with a user-defined batch sampler, `sampler` is a sequential one that is never used
    made = loader.batch_size is not None and type(loader.batch_sampler) is BatchSampler
    ours = type(loader) is DataLoader and made
    if plain and whole and ours and order == "workbench":
        shuffle = isinstance(loader.sampler, RandomSampler)
        source = LoaderSource(loader, seed, shuffle=shuffle, name=name)
        if shuffle and (loader.generator or getattr(loader.sampler, "generator", None)) is not None:
            source.note = (
                f"{what} is shuffled with seed {seed}, so that a run can be resumed at any step, "
                "and not with the loader's generator: order='loader' keeps the loader's own order"
            )
        return source
    if plain and whole and ours:
        return ForeignSource(loader, name, "")
    own = loader.batch_size is None and loader.batch_sampler is not None
    kept = loader.batch_sampler if own else loader.sampler
    why = type(kept).__name__ if type(loader) is DataLoader else type(loader).__name__
    return ForeignSource(loader, name, why)


def _tensor(array: Any, what: str) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        tensor = array.detach()
    else:
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(np.asarray(array)))
        except TypeError as error:
            raise DataError(f"{what} cannot become a tensor: {error}") from error
        if tensor.dtype == torch.float64:
            tensor = tensor.to(torch.get_default_dtype())  # numpy's default, not the user's choice
    if tensor.ndim == 0:
        raise DataError(f"{what} is a single number; it needs a first dimension of samples")
    return tensor


def _are_arrays(pair: Any) -> bool:
    shaped = all(hasattr(item, "shape") and hasattr(item, "dtype") for item in pair)
    return len(pair) == 2 and (shaped or (hasattr(pair[0], "shape") and isinstance(pair[1], list)))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def _leading(inputs: Any) -> int | None:
    """Return the first dimension of a batch's inputs, or of the first of them; None without any."""
    shape = _shape(_first_of(inputs))
    return shape[0] if shape else None


def _dimensions(inputs: Any) -> int:
    """Return the number of dimensions of a batch's inputs, or of the first of them."""
    return len(_shape(_first_of(inputs)))


def _first_of(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return next(iter(cast("Mapping[str, Any]", inputs).values()), None)
    if isinstance(inputs, (tuple, list)):
        return cast("list[Any]", inputs)[0] if inputs else None
    return inputs


def _is_map_style(data: Any) -> bool:
    builtin = isinstance(data, (str, bytes, Mapping, list, tuple, np.ndarray, torch.Tensor))
    return not builtin and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _is_hugging_face(data: Any) -> bool:
    return type(data).__module__.startswith("datasets.") and hasattr(data, "with_format")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a part of a batch, in its order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(cast("Mapping[str, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in cast("list[Any]", value) for tensor in tensors_in(item)]
    return []
