"""A comparison on screen: interactive where widgets run, HTML and text everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.compare.figure import comparison_figure
from workbench.compare.html import comparison_html
from workbench.compare.text import describe, models, verdict
from workbench.display import mime_bundle
from workbench.records.file import RECORD, suffix_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records.compare import CompareRecord

_PICTURES = (".png", ".pdf", ".svg")
MOST_ROWS = 50_000
"""Maximum number of blocks, and of losses, that a widget carries; if there are more, rounds and
steps are subsampled at a regular interval."""


class ComparisonView:
    """What `workbench.compare` returns: ``.record``, ``.save(path)``, ``.figure()``."""

    def __init__(self, record: CompareRecord) -> None:
        self.record = record
        """Plain data: every variant, every timed block, every loss."""

    def save(self, path: str | Path) -> Path:
        """Write the comparison in the format that the suffix names; returns the path.

        ``.safetensors`` is the record, which ``wb.open(path)`` opens again; ``.txt`` and ``.html``
        are the table to read; ``.svg``, ``.png`` and ``.pdf`` are the figure.

        Raises:
            ValueError: the suffix is not supported; the message lists those that are.
        """
        target = Path(path).expanduser()
        suffix = suffix_of(target.name, (RECORD, ".txt", ".html", *_PICTURES), "a comparison")
        if suffix == RECORD:
            return self.record.save(target)
        if suffix in _PICTURES:
            self.figure().savefig(target)
        else:
            text = (
                describe(self.record) + "\n" if suffix == ".txt" else comparison_html(self.record)
            )
            target.write_text(text, encoding="utf-8")
        return target

    def figure(self) -> Figure:
        """Return step times with their spread and loss curves, as a matplotlib figure."""
        return comparison_figure(self.record)

    def __str__(self) -> str:
        return describe(self.record)

    def __repr__(self) -> str:
        return "; ".join(verdict(self.record, model) for model in models(self.record))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return widget, static HTML and text; only the last two where no widget can run."""
        return mime_bundle(
            "compare",
            {"record": carried(self.record).to_bytes(), "error": ""},
            text=describe(self.record),
            html=comparison_html(self.record),
            options=options,
        )


def carried(record: CompareRecord) -> CompareRecord:
    """Return ``record`` for a widget, its blocks and losses subsampled if there are many."""
    blocks, losses = len(record.block_arm), len(record.loss_arm)
    kept = record.block_round % max(1, -(-blocks // MOST_ROWS)) == 0
    seen = (record.loss_step - 1) % max(1, -(-losses // MOST_ROWS)) == 0
    return replace(
        record,
        block_arm=record.block_arm[kept],
        block_round=record.block_round[kept],
        block_steps=record.block_steps[kept],
        block_seconds=record.block_seconds[kept],
        loss_arm=record.loss_arm[seen],
        loss_step=record.loss_step[seen],
        loss_value=record.loss_value[seen],
    )
