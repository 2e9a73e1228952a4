"""What an experiment trains on: one interface over arrays, datasets and loaders.

A `DataSource` gives the batches of one epoch from any position on. Where the order is ours to
choose (arrays, datasets, loaders with a plain sampler) it is `EpochSampler`'s, and the loader draws
from a generator of its own, so fetching a batch never moves the global random state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

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

from workbench.experiment.sampler import EpochSampler, mix


class DataError(ValueError):
    """Data that cannot be trained on; the message says what came in and what is valid."""


class DataSource:
    """Batches of one epoch, in an order of its own."""

    name: str = ""
    """Class name of what was given, for display."""
    batch_size: int | None = None
    num_samples: int | None = None
    steps_per_epoch: int = 0
    """0 when it is not known before the epoch has ended."""
    note: str = ""
    """What is not guaranteed about the order, in one sentence, or ``""``."""
    repeats: bool = True
    """Whether the same epoch gives the same batches when it is asked for again."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of ``epoch`` (from 0), without the first ``start``."""
        raise NotImplementedError(f"{type(self).__name__} must give batches")


_BATCHES_AT_ONCE = 256
"""The order is cut for so many batches at a time: one call for all is cheaper than one for each."""


class ArraySource(DataSource):
    """A pair of arrays in memory: a batch is one indexing operation per array."""

    def __init__(
        self, inputs: torch.Tensor, targets: torch.Tensor, batch_size: int, seed: int, shuffle: bool
    ) -> None:
        self.name = "arrays"
        self.inputs, self.targets = inputs, targets
        self.batch_size = self._size = batch_size
        self.num_samples = len(inputs)
        self.steps_per_epoch = -(-len(inputs) // batch_size)
        self.sampler = EpochSampler(len(inputs), seed, shuffle=shuffle)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Pairs ``(inputs, targets)``, the last one smaller where the size does not divide."""
        self.sampler.set_epoch(epoch)
        order = self.sampler.indices()[start * self._size :].to(self.inputs.device)
        if len(order) == 0:
            return  # nothing is left of the epoch, and `split` would make one empty part of it
        for stretch in order.split(self._size * _BATCHES_AT_ONCE):
            for rows in stretch.split(self._size):
                yield self.inputs.index_select(0, rows), self.targets.index_select(0, rows)


class LoaderSource(DataSource):
    """A `DataLoader` rebuilt around `EpochSampler`; all its other settings are kept."""

    def __init__(self, loader: DataLoader[Any], seed: int, *, shuffle: bool, name: str) -> None:
        self.name = name
        self.seed = seed
        dataset = cast(Any, loader.dataset)
        self.sampler = EpochSampler(len(dataset), seed, shuffle=shuffle)
        self.generator = torch.Generator()
        self.batch_size = loader.batch_size
        self.num_samples = len(dataset)
        self.loader = _rebuilt(loader, self.sampler, self.generator)
        self.steps_per_epoch = len(self.loader)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The loader's own batches, from the ``start``-th on."""
        self.sampler.set_epoch(epoch, start * (self.batch_size or 1))
        self.generator.manual_seed(mix(self.seed, epoch, stream=1))
        return iter(self.loader)


class ForeignSource(DataSource):
    """An iterable whose order is its own: used as it is."""

    repeats = False

    def __init__(self, loader: Any, name: str, why: str) -> None:
        self.name = name
        self.loader = loader
        self.batch_size = getattr(loader, "batch_size", None)
        self.steps_per_epoch = _length(loader)
        self.num_samples = _length(getattr(loader, "dataset", None)) or None
        self.note = f"order of samples is the loader's own ({why}): a resume cannot repeat it"

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:  # noqa: ARG002 - its own order
        """A new pass over the loader; ``start`` batches are fetched and left out."""
        return islice(iter(self.loader), start, None)


def data_source(
    data: Any, *, batch_size: int, seed: int, shuffle: bool, what: str = "train"
) -> DataSource:
    """The `DataSource` of anything an experiment accepts.

    Args:
        data: a pair of arrays or tensors, a `Dataset`, a `DataLoader`, a Hugging Face dataset, a
            list of samples, or any iterable of batches that can be iterated more than once.
        batch_size: samples per batch where ``data`` does not say so itself.
        seed: of the order of samples.
        shuffle: whether the order changes with the epoch, where it is ours to choose.
        what: ``train`` or ``val``, for messages.

    Raises:
        DataError: ``data`` is none of these, or is empty, or its arrays differ in length.
    """
    if isinstance(data, DataLoader):
        return _of_loader(data, seed, what)
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
    """A batch as ``(inputs, targets)``.

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
    """Every tensor in a batch on ``device``; a tensor that is there already is not copied."""
    if isinstance(value, torch.Tensor):
        # the comparison is a quarter of what a `to` that has nothing to do costs
        return value if value.device == device else value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: to_device(item, device) for key, item in items}
    if isinstance(value, (tuple, list)):
        items = [to_device(item, device) for item in cast("list[Any]", value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


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
    """A list of batches if the first one has as many labels as inputs; else one of samples.

    Torch takes a list for a dataset of samples too.
    """
    if not items:
        raise DataError(f"{what} is an empty list; give at least one sample or batch")
    inputs, targets = split(items[0])
    labels = _shape(targets)
    if labels and labels[0] == _leading(inputs):
        return ForeignSource(items, "list", "a list of batches")
    return _of_dataset(items, "list", batch_size, seed, shuffle=shuffle, what=what)


def _of_dataset(
    dataset: Any, name: str, batch_size: int, seed: int, *, shuffle: bool, what: str
) -> DataSource:
    if isinstance(dataset, IterableDataset):
        return ForeignSource(DataLoader(dataset, batch_size), name, "an IterableDataset")
    if len(dataset) == 0:
        raise DataError(f"{what} is an empty {name}; give at least one sample")
    loader = DataLoader(dataset, batch_size)
    return LoaderSource(loader, seed, shuffle=shuffle, name=name)


def _of_loader(loader: DataLoader[Any], seed: int, what: str) -> DataSource:
    name = type(cast(Any, loader.dataset)).__name__
    if isinstance(loader.dataset, IterableDataset):
        return ForeignSource(loader, name, "an IterableDataset")
    if _length(loader) == 0:
        hint = "with drop_last, it holds less than one batch" if loader.drop_last else "no samples"
        raise DataError(f"{what} is a DataLoader without batches ({hint}); give at least one batch")
    plain = type(loader.sampler) in (RandomSampler, SequentialSampler)
    whole = not getattr(loader.sampler, "replacement", False) and (
        _length(loader.sampler) == _length(loader.dataset)
    )
    ours = type(loader) is DataLoader and type(loader.batch_sampler) is BatchSampler
    if plain and whole and ours:
        shuffle = isinstance(loader.sampler, RandomSampler)
        return LoaderSource(loader, seed, shuffle=shuffle, name=name)
    kept = loader.sampler if loader.batch_size is not None else loader.batch_sampler
    why = type(kept).__name__ if type(loader) is DataLoader else type(loader).__name__
    return ForeignSource(loader, name, why)


def _rebuilt(
    loader: DataLoader[Any], sampler: EpochSampler, generator: torch.Generator
) -> DataLoader[Any]:
    settings: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "in_order": loader.in_order,
    }
    if loader.num_workers > 0:
        settings["prefetch_factor"] = loader.prefetch_factor
        settings["persistent_workers"] = loader.persistent_workers
        settings["multiprocessing_context"] = loader.multiprocessing_context
    return DataLoader(
        loader.dataset, loader.batch_size, sampler=sampler, generator=generator, **settings
    )


def _tensor(array: Any, what: str) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        tensor = array.detach()
    else:
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(np.asarray(array)))
        except TypeError as error:
            raise DataError(f"{what} cannot become a tensor: {error}") from error
        if tensor.dtype == torch.float64:
            tensor = tensor.to(torch.get_default_dtype())  # numpy's default is no choice of theirs
    if tensor.ndim == 0:
        raise DataError(f"{what} is a single number; it needs a first dimension of samples")
    return tensor


def _are_arrays(pair: Any) -> bool:
    shaped = all(hasattr(item, "shape") and hasattr(item, "dtype") for item in pair)
    return len(pair) == 2 and (shaped or (hasattr(pair[0], "shape") and isinstance(pair[1], list)))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def _leading(inputs: Any) -> int | None:
    """The first dimension of a batch's inputs, or of the first of them; None without any."""
    if isinstance(inputs, Mapping):
        inputs = next(iter(cast("Mapping[str, Any]", inputs).values()), None)
    elif isinstance(inputs, (tuple, list)):
        inputs = cast("list[Any]", inputs)[0] if inputs else None
    shape = _shape(inputs)
    return shape[0] if shape else None


def _is_map_style(data: Any) -> bool:
    builtin = isinstance(data, (str, bytes, Mapping, list, tuple, np.ndarray, torch.Tensor))
    return not builtin and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _is_hugging_face(data: Any) -> bool:
    return type(data).__module__.startswith("datasets.") and hasattr(data, "with_format")


def _length(sized: Any) -> int:
    try:
        return len(sized)
    except TypeError:
        return 0
