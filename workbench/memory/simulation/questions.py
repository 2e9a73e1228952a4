"""Questions of a view about a memory record, and their answers: JSON both ways.

A view cannot simulate an allocator; the process that holds the record answers for it: a kernel, or
a process of the server, which has no torch. There are two kinds.

``{"kind": "what_if", "rows": [{"settings", "card", "batch", "empty_before"}, ...], "chosen": 0}``
    The result of the recorded program (`workbench.memory.simulation.what_if`), row by row:
    ``settings`` as in ``PYTORCH_CUDA_ALLOC_CONF``, ``card`` a name, the bytes that a GPU reports or
    null for no limit, ``batch`` null for the recorded one, ``empty_before`` the phase before which
    the cache is emptied; what is left out is null. For row number ``chosen``, the smallest GPU is
    searched for (``is_lower_bound``: no smaller one is enough, and this one may not be either).

``{"kind": "cards"}``
    The known GPUs, and the sources of their sizes.

An error in one row is reported in that row (``error``); the others are still answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast
from weakref import WeakKeyDictionary

from workbench.allocator.simulator.gpus import CONTEXT_BYTES, GPUS
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.memory.simulation.rerun import Rerun
from workbench.memory.simulation.what_if import (
    Basis,
    WhatIf,
    gpu_of,
    parsed,
    sentence,
    smallest,
    without_limit,
)
from workbench.memory.simulation.what_if import answer as what_becomes
from workbench.records import MemoryRecord

MOST_ROWS = 16
"""The largest number of rows of one question; each is a run of the whole program, or several."""
_MOST_KEPT = 256


class Row(TypedDict):
    """The result of one row."""

    settings: str
    card: str | int | None
    batch: int | None
    empty_before: str
    peak_bytes: int
    """Maximum of the reserved bytes; if it does not fit, what it would take."""
    peak_low: int
    peak_high: int
    """Over all assumptions about what is not known
    (`workbench.memory.simulation.batch_scaling`)."""
    fits: bool
    """Whether it ran to its end on the GPU, under every assumption; True without a GPU."""
    got_past: bool
    """Whether it was served the refused request with which the recording ends: what follows it is
    not known, so it is not said to fit, and every number is a lower bound."""
    usable_bytes: int
    """Bytes of the GPU that the allocator may use; -1 without a GPU."""
    num_retries: int
    failed_event: int
    """Event of the recording at which memory ran out; -1 for none."""
    basis: Basis
    """``recorded``: as measured; ``certified``: by rules that reproduce the recording."""
    sentence: str
    error: str


def answer(record: MemoryRecord, question: object) -> dict[str, Any]:
    """Return the answer to ``question``.

    Raises:
        ValueError: it is not a question: one sentence says what is valid.
    """
    if not isinstance(question, dict):
        # JSON from elsewhere: to its sender, all of its errors are of one kind.
        message = f"a question is an object, as the memory view sends it, not {_shown(question)}"
        raise ValueError(message)  # noqa: TRY004
    request = cast("dict[str, Any]", question)
    kind = request.get("kind")
    if kind == "cards":
        return _gpus()
    if kind == "what_if":
        rows = _rows_of(request)
        return _what_if(record, rows, _chosen_of(request, len(rows)))
    raise ValueError(f"a question of kind {kind!r} is not known; known are 'what_if' and 'cards'")


def has_other_batch(record: MemoryRecord, question: object) -> bool:
    """Return whether ``question`` is about another batch than recorded."""
    request = cast("dict[str, Any]", question) if isinstance(question, dict) else {}
    rows = request.get("rows")
    given = cast("list[Any]", rows) if isinstance(rows, list) else []
    batches = [row.get("batch") for row in given if isinstance(row, dict)]
    return any(batch not in (None, record.batch_size) for batch in batches)


def _gpus() -> dict[str, Any]:
    gpus = [
        {
            "name": gpu.name,
            "total_bytes": gpu.total_bytes,
            "usable_bytes": gpu.usable_bytes,
            "source": gpu.source,
        }
        for gpu in GPUS
    ]
    return {"cards": gpus, "context_bytes": CONTEXT_BYTES}


def _rows_of(question: Mapping[str, Any]) -> list[Row]:
    given = question.get("rows")
    if not isinstance(given, list) or not 0 < len(cast("list[Any]", given)) <= MOST_ROWS:
        raise ValueError(f"rows is a list of 1 to {MOST_ROWS} rows, not {_shown(given)}")
    return [_row_of(row) for row in cast("list[Any]", given)]


def _chosen_of(question: Mapping[str, Any], count: int) -> int:
    chosen = question.get("chosen", 0)
    if not _is_number(chosen) or not 0 <= chosen < count:
        raise ValueError(
            f"chosen is the number of a row, from 0 to {count - 1}, not {chosen!r:.60}"
        )
    return chosen


def _row_of(given: Any) -> Row:
    """Return a row without results."""
    if not isinstance(given, dict):
        message = f"a row is an object with settings, card and batch, not {_shown(given)}"
        raise ValueError(message)  # noqa: TRY004
    row = cast("dict[str, Any]", given)
    settings, card, batch = row.get("settings", ""), row.get("card"), row.get("batch")
    empty_before = row.get("empty_before") or ""
    if not isinstance(settings, str) or not isinstance(empty_before, str):
        raise ValueError("settings and empty_before of a row are text")  # noqa: TRY004
    if not _is_number(card) and not isinstance(card, str | None):
        raise ValueError(f"card of a row is a name, bytes or null, not {_shown(card)}")
    if not _is_number(batch) and batch is not None:
        raise ValueError(f"batch of a row is a whole number or null, not {_shown(batch)}")
    return Row(
        settings=settings, card=card, batch=batch, empty_before=empty_before, peak_bytes=-1,
        peak_low=-1, peak_high=-1, fits=False, got_past=False, usable_bytes=-1, num_retries=0,
        failed_event=-1, basis="uncertified", sentence="", error="",
    )  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _what_if(record: MemoryRecord, rows: list[Row], chosen: int) -> dict[str, Any]:
    programs = _Programs(record)
    found = [programs.row(row) for row in rows]
    return {
        "rows": found,
        "recorded_settings": recorded_settings(record).words,
        "smallest": programs.smallest(rows[chosen]),
    }


_Key = tuple[str, str, str | int | None, int | None, str]
_known: WeakKeyDictionary[MemoryRecord, dict[_Key, Any]] = WeakKeyDictionary()
"""Answers already given: a user switches between a few."""


class _Programs:
    """The programs that rows are about, each prepared once per question."""

    def __init__(self, record: MemoryRecord) -> None:
        self.record = record
        self.known = _known.setdefault(record, {})
        self.reruns: dict[tuple[int | None, str], Rerun] = {}

    def row(self, row: Row) -> Row:
        """Return the row with its result, or with an error instead."""
        key = ("row", row["settings"], row["card"], row["batch"], row["empty_before"])
        if key not in self.known:
            self._keep(key, self._found(row))
        return cast("Row", dict(self.known[key]))

    def smallest(self, row: Row) -> dict[str, Any] | None:
        """Return the smallest GPU for a row, whatever GPU it names; None for none, or an error."""
        key = ("smallest", row["settings"], None, row["batch"], row["empty_before"])
        if key not in self.known:
            self._keep(key, self._smallest(row))
        return self.known[key]

    def _keep(self, key: _Key, found: Any) -> None:
        if len(self.known) >= _MOST_KEPT:
            self.known.clear()
        self.known[key] = found

    def _found(self, row: Row) -> Row:
        try:
            settings, gpu = parsed(row["settings"]), gpu_of(row["card"])
            rerun = self._rerun(row)
            found = what_becomes(rerun, settings, gpu)
            needed = found if found.outcome.fits else without_limit(rerun, settings)
        except ValueError as error:
            return cast("Row", {**row, "error": str(error)})
        return self._filled(row, rerun, found, needed)

    def _smallest(self, row: Row) -> dict[str, Any] | None:
        try:
            found = smallest(self._rerun(row), parsed(row["settings"]))
        except ValueError:
            return None
        if found is None or found.card is None:
            return None
        return {
            "card": found.card.name,
            "peak_bytes": found.peak_interval[1],
            "is_lower_bound": found.is_cut_off,
        }

    def _rerun(self, row: Row) -> Rerun:
        key = row["batch"], row["empty_before"]
        if key not in self.reruns:
            self.reruns[key] = Rerun(self.record, *key)
        return self.reruns[key]

    def _filled(self, row: Row, rerun: Rerun, found: WhatIf, needed: WhatIf) -> Row:
        (low, high), basis = needed.peak_interval, self._basis(rerun, found)
        if basis == "recorded":  # measured: a replay's result is not needed
            low = high = int(self.record.reserved().max())
        outcome = found.outcome
        return cast(
            "Row",
            {
                **row,
                "peak_bytes": high,
                "peak_low": low,
                "peak_high": high,
                "fits": found.fits,
                "got_past": outcome.fits and found.is_cut_off,
                "usable_bytes": -1 if found.card is None else found.card.usable_bytes,
                "num_retries": outcome.num_retries,
                "failed_event": outcome.failed_event,
                "basis": basis,
                "sentence": sentence(found, (low, high), basis),
            },
        )

    def _basis(self, rerun: Rerun, found: WhatIf) -> Basis:
        """Return the basis of the peak: ``recorded`` if the question changes nothing about it."""
        outcome = found.outcome
        same = rerun.is_recorded and found.settings == rerun.recorded
        measured = len(self.record.segment_bytes) > 0 and not self.record.is_predicted
        squeezed = outcome.fits and outcome.num_retries > 0
        if same and measured and not squeezed:
            return "recorded"
        return "certified" if found.is_certified else "uncertified"
