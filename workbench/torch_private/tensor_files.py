"""Tensors in the files of `torch.distributed.checkpoint`, written and read by one process.

Torch lists the tensors of a checkpoint in a file that it writes as a pickle, and reads with
``pickle.load``, which runs what another user may have put there. That file is written for torch,
and never read here: `write_tensors` returns the same table in plain values
(`workbench.torch_private.tensor_table`), and `read_tensors` makes torch's own of it.

The parts of torch's format are used as a process group would use them. ``save`` and ``load`` of
that package warn that there is no group, in every process that has none; a filter for warnings
belongs to the whole process, and checkpoints are written on a thread of their own.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from workbench.torch_private.lookup import Check, expect, private
from workbench.torch_private.tensor_table import (
    Chunk,
    Entry,
    Table,
    extent,
    from_values,
    to_values,
)
from workbench.trust import open_regular

_storage_info: Any = private("torch.distributed.checkpoint.filesystem._StorageInfo")


def write_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> Table:
    """Write tensors of the CPU, and torch's table of them, into an existing empty folder.

    Raises:
        OSError, RuntimeError: the disk is full, or the folder is gone.
    """
    # without a copy ahead, which would wait for a stream of the GPU; the caller flushes the files
    writer = FileSystemWriter(folder, per_thread_copy_ahead=0, sync_files=False)
    planner = DefaultSavePlanner()
    planner.set_up_planner(
        cast("Any", tensors), storage_meta=writer.storage_meta(), is_coordinator=True
    )
    writer.set_up_storage_writer(is_coordinator=True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, table = planner.create_global_plan([plan])
    (plan,) = writer.prepare_global_plan(plans)
    written = writer.write_data(planner.finish_plan(plan), planner)
    written.wait()
    writer.finish(table, [written.value()])
    return of_torch(table)


def of_torch(table: Metadata) -> Table:
    """Return a table that torch has read or written."""
    chunks: dict[str, list[Chunk]] = {}
    for index, info in table.storage_data.items():
        entry: Any = table.state_dict_metadata[index.fqn]
        sizes = entry.chunks[index.index or 0].sizes
        chunks.setdefault(index.fqn, []).append(
            Chunk(
                tuple(index.offset or ()),
                tuple(sizes),
                info.relative_path,
                info.offset,
                info.length,
            )
        )
    return {
        name: Entry(entry.properties.dtype, tuple(entry.size), tuple(chunks[name]))
        for name, entry in cast("dict[str, Any]", table.state_dict_metadata).items()
    }


def read_tensors(folder: Path, table: Table, into: dict[str, torch.Tensor]) -> None:
    """Read tensors of a checkpoint into those that are given by name.

    Args:
        folder: the checkpoint.
        table: its table.
        into: name -> tensor of the same shape; values are converted to its type.

    Raises:
        KeyError, ValueError: a name is not in the table, or has another shape.
        Exception: whatever torch raises for a damaged file.
    """
    known = _to_torch({name: table[name] for name in into})
    reader = _Reader(folder)
    reader.set_up_storage_reader(known, is_coordinator=True)
    planner = DefaultLoadPlanner()
    planner.set_up_planner(cast("Any", into), known, is_coordinator=True)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    (plan,) = reader.prepare_global_plan(planner.create_global_plan([plan]))
    reader.read_data(planner.finish_plan(plan), planner).wait()


def _to_torch(table: Table) -> Metadata:
    entries: dict[str, Any] = {}
    places: dict[MetadataIndex, Any] = {}
    for name, entry in table.items():
        chunks = [
            ChunkStorageMetadata(torch.Size(one.offsets), torch.Size(one.sizes))
            for one in entry.chunks
        ]
        properties = TensorProperties(dtype=entry.dtype)
        entries[name] = TensorStorageMetadata(properties, torch.Size(entry.size), chunks)
        for at, one in enumerate(entry.chunks):
            index = MetadataIndex(name, torch.Size(one.offsets), at)
            places[index] = _storage_info(one.file, one.start, one.length)
    return Metadata(entries, storage_data=places)


class _Reader(FileSystemReader):
    """Opens no link, and waits for no pipe."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fs = _RegularFiles()


class _RegularFiles(FileSystem):
    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase]:
        """Open a file as torch does, for reading."""
        if mode != "rb":
            raise ValueError(f"mode is {mode!r}; checkpoints are read here, in mode 'rb'")
        with open_regular(path) as stream:
            yield cast("io.IOBase", stream)


# -- checks ---------------------------------------------------------------------------------


def _check_written() -> None:
    """Whether this torch writes tensors and a table that are read here."""
    tensors = {"a": torch.arange(6, dtype=torch.float16, device="cpu").reshape(2, 3)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = from_values(to_values(write_tensors(folder, tensors)))
        expect(table["a"].size == (2, 3), "a shape is another")
        expect(len(extent(table)) == 1, "a tensor is in no file")
        into = {"a": torch.zeros(2, 3, dtype=torch.float16, device="cpu")}
        read_tensors(folder, table, into)
        expect(torch.equal(into["a"], tensors["a"]), "a tensor has other values")


CHECKS = (
    Check(
        ("torch.distributed.checkpoint.filesystem._StorageInfo",),
        "the tensors of a checkpoint",
        _check_written,
        instead="checkpoints cannot be read",
    ),
)
