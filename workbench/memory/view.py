"""A memory record on screen: interactive if widgets can run, a picture and text everywhere."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.display import mime_bundle
from workbench.memory.files.selection import MOST_EVENTS, event_range, first_look, is_long
from workbench.memory.reading.fragmentation import PARTS, fragmentation
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.memory.reading.text import describe
from workbench.memory.render.diff import MemoryDiff
from workbench.memory.render.figure import PICTURES, picture, to_figure
from workbench.memory.render.svg import static_html
from workbench.memory.simulation.what_if import WhatIf, smallest_gpu, what_if
from workbench.memory.widget_questions import question_handler
from workbench.records import Certificate, MemoryRecord
from workbench.records.file import RECORD, suffix_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_OTHERS = f" view.stretch(start, end) shows others, up to {MOST_EVENTS:,} at once."


class MemoryView:
    """The result of `workbench.memory`: ``.record``, ``.save(path)``, ``.figure()``, a display."""

    def __init__(
        self,
        record: MemoryRecord | None,
        determine_growth: Callable[[], MemoryRecord] | None = None,
    ) -> None:
        """Make a view of ``record``; ``determine_growth`` adds the growth of its blocks."""
        self._record, self._determine_growth = record, determine_growth

    @property
    def has_record(self) -> bool:
        """Whether there is something to show yet."""
        return self._record is not None

    @property
    def record(self) -> MemoryRecord:
        """The record.

        Raises:
            RuntimeError: the recording has not ended.
        """
        if self._record is None:
            raise RuntimeError(
                "nothing is recorded yet: read it after the `with wb.memory()` block"
            )
        return self._record

    @property
    def certificate(self) -> Certificate | None:
        """How far a replay reproduced the allocator's trace; None if none was made (CPU)."""
        return self.record.certificate

    def fragmentation(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return where reserved memory went: part -> bytes, ``[num_events + 1]``, adding up to it.

        The parts are explained in `workbench.memory.reading.fragmentation`; index 0 is before the
        first event.
        """
        parts = fragmentation(self.record, recorded_settings(self.record))
        return dict(zip(PARTS, parts, strict=True))

    def what_if(
        self,
        settings: str | None = None,
        card: str | int | None = None,
        *,
        batch: int | None = None,
    ) -> WhatIf:
        """Run the same program under other settings, on another GPU, or with another batch.

        Args:
            settings: as in ``PYTORCH_CUDA_ALLOC_CONF``: ``"expandable_segments:True"``; None: the
                defaults.
            card: the GPU: a name (``"RTX 4090"``), an amount (``"8 GiB"``) or the bytes that a GPU
                reports; None: no limit.
            batch: samples in the batch; None: as recorded. If it is not known yet how a step of an
                experiment grows, that is determined first, between two steps of a run.

        Raises:
            SettingsError: the allocator does not accept the settings, or they have no effect here.
            ValueError: no GPU has that name, or so little memory; the recording does not know its
                batch.
        """
        if self._determine_growth is not None and batch not in (None, self.record.batch_size):
            self._record = self._determine_growth()
        return what_if(self.record, settings or "", card, batch=batch)

    def smallest_card(self, settings: str | None = None) -> WhatIf | None:
        """Return the result on the smallest known GPU that the program fits on, or None.

        For a recording that ends with a refused request (``is_cut_off``) that GPU is a lower bound.

        Raises:
            SettingsError: the allocator does not accept the settings.
        """
        return smallest_gpu(self.record, settings or "")

    def diff(self, other: MemoryView | MemoryRecord) -> MemoryDiff:
        """Compare this recording as A with ``other`` as B: ``wb.memory("a.pickle").diff(mem)``.

        Returns:
            What changed at the peaks, by category, module, line and stack: ``.by("module")`` for
            all rows, ``.sentence``, ``.figure()``, ``.save("diff.csv")`` and a rich display.

        Raises:
            TypeError: ``other`` is not a recording.
        """
        record = other.record if isinstance(other, MemoryView) else other
        if not isinstance(record, MemoryRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"diff() got a {type(other).__name__}; it takes a memory view or a MemoryRecord: "
                "open a file with wb.memory(path) first"
            )
        return MemoryDiff(self.record, record)

    def stretch(self, start: int, end: int) -> MemoryView:
        """Return only the events ``[start, end)``, as a recording of their own.

        A cell shows at most `workbench.memory.files.selection.MOST_EVENTS` events; of a longer
        recording it shows those around the peak, and this shows others.

        Raises:
            RecordError: there is no such range, or it is longer than that.
        """
        return MemoryView(event_range(self.record, operator.index(start), operator.index(end)))

    def save(self, path: str | Path) -> Path:
        """Write the recording in the format that the suffix names, and return the path.

        ``.safetensors`` is the record, to be opened again with ``wb.memory(path)``; ``.svg``,
        ``.png`` and ``.pdf`` are pictures.

        Raises:
            ValueError: another suffix; the message lists the known ones.
        """
        target = Path(path).expanduser()
        suffix = suffix_of(target.name, (RECORD, *PICTURES), "a memory recording")
        data = self.record.to_bytes() if suffix == RECORD else picture(self.record, suffix[1:])
        target.write_bytes(data)
        return target

    def figure(self) -> Figure:
        """The chart as a matplotlib figure."""
        return to_figure(self.record)

    def show(self, record: MemoryRecord) -> None:
        """Show ``record`` from now on."""
        self._record, self._determine_growth = record, None

    def __str__(self) -> str:
        if self._record is None:
            return "Memory recording, not ended yet."
        return describe(self._record)

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; only text while there is no record."""
        if self._record is None:
            return {"text/plain": str(self)}, {}
        shown, text, determine_growth = self._record, str(self), self._determine_growth
        if is_long(shown):
            determine_growth = None
            shown = event_range(shown, *first_look(shown), hint=_OTHERS)
            text = f"{text}\nShown in a notebook: {shown.notes[0]}"
        return mime_bundle(
            "memory",
            {"record": shown.to_bytes(), "error": ""},
            text=text,
            html=static_html(shown),
            options=options,
            on_message=question_handler(shown, determine_growth),
        )
