"""The scalar log: values are added on the training thread, and read on other threads.

`ScalarLog.add` appends to a queue and does nothing more, so a device scalar costs no
synchronisation where it is logged. `ScalarLog.flush` (ten times a second, on the pulse thread)
stacks the device scalars that wait, reads them in one transfer per device, extends the history and
passes the batch to the sinks.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

Series = tuple[str, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""(name, steps, values, wall times in unix seconds)"""

Sink = Callable[[list[Series]], None]
Flush = Callable[[], bool]
"""Waits until all that a sink was given has reached its destination; returns False if that takes
too long."""

log = logging.getLogger("workbench")


class _Column:
    """The growing history of one name."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")

    def since(self, start: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        return (
            np.array(self.steps[start:], dtype=np.int64),
            np.array(self.values[start:], dtype=np.float64),
        )


class ScalarLog:
    """Every scalar of one experiment: a queue, a history and the sinks that follow it."""

    def __init__(self) -> None:
        self._pending: deque[tuple[str, int, float | torch.Tensor, float]] = deque()
        self._columns: dict[str, _Column] = {}
        self._sinks: list[Sink] = []
        self._flushes: dict[Sink, Flush] = {}
        self._flushing = threading.RLock()
        """Held until the sinks have a batch, so that they get all batches in order. A sink may
        flush itself."""

    def add(self, name: str, step: int, value: float | torch.Tensor) -> None:
        """Log ``value``: a number, or a detached scalar tensor that is read at the next flush."""
        self._pending.append((name, step, value, time.time()))

    def add_sink(self, sink: Sink, flush: Flush | None = None) -> Callable[[], None]:
        """Call ``sink`` with every flushed batch from now on; return a function that removes it.

        Args:
            sink: receives what was logged.
            flush: for a sink that buffers: waits until it has passed everything on.
        """
        self._sinks.append(sink)
        if flush is not None:
            self._flushes[sink] = flush

        def remove() -> None:
            if sink in self._sinks:
                self._sinks.remove(sink)
            self._flushes.pop(sink, None)

        return remove

    def remember(
        self, name: str, steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
    ) -> None:
        """Add points that were logged before, in another process; no sink gets them.

        Args:
            name: name of the scalar.
            steps: ``[n]`` int64.
            values: ``[n]`` float64.
        """
        with self._flushing:
            column = self._columns.setdefault(name, _Column())
            column.values.frombytes(np.asarray(values, dtype=np.float64).tobytes())
            column.steps.frombytes(np.asarray(steps, dtype=np.int64).tobytes())

    def flush(self) -> int:
        """Read, store and pass on what waits; return the number of points. Safe on any thread."""
        with self._flushing:
            points = [self._pending.popleft() for _ in range(len(self._pending))]
            if not points:
                return 0
            batch = self._store(points)
            for sink in tuple(self._sinks):
                try:
                    sink(batch)
                except Exception:
                    # a sink may be a subscriber of the user's: its fault must not end the pulse or
                    # the run
                    log.exception("a scalar sink failed")
            return len(points)

    def flush_sinks(self) -> bool:
        """Call `flush`, then wait until sinks have passed all on; False if one takes too long."""
        self.flush()
        done = [flush() for flush in tuple(self._flushes.values())]
        return all(done)

    def _store(self, points: list[tuple[str, int, float | torch.Tensor, float]]) -> list[Series]:
        # by columns: a loop over the points would hold the interpreter's lock, and so the training,
        # for a microsecond per point
        names, steps, values, times = zip(*points, strict=True)
        at = np.array(steps, dtype=np.int64)
        numbers = np.array(_read(values), dtype=np.float64)
        seconds = np.array(times, dtype=np.float64)
        batch: list[Series] = []
        for name, rows in _rows_by_name(names).items():
            column = self._columns.setdefault(name, _Column())
            # values first: a reader on another thread takes as many as there are steps
            column.values.frombytes(numbers[rows].tobytes())
            column.steps.frombytes(at[rows].tobytes())
            batch.append((name, at[rows], numbers[rows], seconds[rows]))
        return batch

    def names(self) -> tuple[str, ...]:
        """The names that have points."""
        return tuple(self._columns)

    def since(self, name: str, start: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Steps and values of ``name`` from point ``start`` on; empty for an unknown name."""
        steps, values = self._columns.get(name, _Column()).since(start)
        return steps, values[: len(steps)]

    def last(self, name: str, count: int = 1) -> list[float]:
        """The last ``count`` values of ``name``, oldest first."""
        column = self._columns.get(name)
        return list(column.values[-count:]) if column is not None else []

    def at(self, name: str, step: int) -> float | None:
        """The value of ``name`` that was logged last, if that was at ``step``; flush before."""
        column = self._columns.get(name)
        if column is None or not column.steps or column.steps[-1] != step:
            return None
        return column.values[len(column.steps) - 1]

    def history(self) -> Metrics:
        """Points of every name as arrays, read on access."""
        return Metrics(self)


class Metrics(Mapping[str, dict[str, npt.NDArray[Any]]]):
    """``metrics["train/loss"]`` is ``{"step": int64[n], "value": float64[n]}``."""

    def __init__(self, scalars: ScalarLog) -> None:
        self._scalars = scalars

    def __getitem__(self, name: str) -> dict[str, npt.NDArray[Any]]:
        self._scalars.flush()
        if name not in self._scalars.names():
            known = ", ".join(self._scalars.names()) or "nothing yet"
            raise KeyError(f"no metric {name!r}; logged so far: {known}")
        steps, values = self._scalars.since(name, 0)
        return {"step": steps, "value": values}

    def __iter__(self) -> Any:
        self._scalars.flush()
        return iter(self._scalars.names())

    def __len__(self) -> int:
        self._scalars.flush()
        return len(self._scalars.names())

    def __repr__(self) -> str:
        rows = [f"{name}: {len(self[name]['step']):,} points" for name in self]
        return f"Metrics({', '.join(rows)})"


def _rows_by_name(names: tuple[str, ...]) -> Mapping[str, slice | npt.NDArray[np.intp]]:
    """Rows of each name."""
    if len(set(names)) == 1:
        return {names[0]: slice(None)}
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return {name: np.array(rows, dtype=np.intp) for name, rows in found.items()}


def _read(values: tuple[float | torch.Tensor, ...]) -> Sequence[float]:
    """All values as floats, with one transfer per device."""
    found = cast("list[float]", list(values))
    devices: dict[torch.device, list[int]] = {}
    for row in [row for row, value in enumerate(values) if type(value) is not float]:
        value = values[row]
        if isinstance(value, torch.Tensor):
            devices.setdefault(value.device, []).append(row)
        else:
            found[row] = float(value)
    for rows in devices.values():
        tensors = [cast(torch.Tensor, values[row]).detach().reshape(()).double() for row in rows]
        for row, number in zip(rows, torch.stack(tensors).tolist(), strict=True):
            found[row] = number
    return found
