"""The same program under other settings of the allocator, or on another card.

A recording says what was asked for and when it was given back. The simulator does the rest, in well
under a second for a training step. What it says of the settings and the cases that the recording's
certificate covers is *certified*: the replay of the recording itself came out to the last address.
What it says of other rules follows the allocator's source, and no trace has confirmed it; so much
is said with every answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.allocator.cards import CARDS, Card, card_named
from workbench.allocator.device import Device
from workbench.allocator.program import Outcome, Program, program_of, run
from workbench.allocator.settings import GIB, AllocatorSettings
from workbench.allocator.simulator import CachingAllocator
from workbench.memory.describe import format_bytes
from workbench.records import MemoryRecord

VARIANTS = ("", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8")
"""Settings that are worth a look, as in ``PYTORCH_CUDA_ALLOC_CONF``; the defaults first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WhatIf:
    """What became of a recorded program under other conditions: simulated, not measured."""

    settings: AllocatorSettings
    card: Card | None
    """None: a card without a limit."""
    outcome: Outcome
    is_certified: bool
    """Whether the rules it stands on reproduced the recording itself."""

    def __str__(self) -> str:
        where = "" if self.card is None else f" on {self.card.name}"
        basis = "certified rules" if self.is_certified else "rules no trace has confirmed"
        peak = format_bytes(self.outcome.peak_reserved)
        text = f"{self.settings}{where}: {peak} reserved at the peak"
        if self.outcome.failure is not None:
            text = f"{self.settings}{where}: out of memory at event {self.outcome.failed_event:,}"
            text += self._missing()
        retries = self.outcome.num_retries
        if retries:
            times = "once" if retries == 1 else f"{retries:,} times"
            text += f", everything unused given back {times}"
        return f"{text} (predicted, {basis})"

    def _missing(self) -> str:
        """What was asked for, and what stood in the way."""
        found = self.outcome.shortage
        if found is None:
            return ""
        asked, largest = format_bytes(found.requested), format_bytes(found.largest_free)
        text = f" ({asked} asked for, the largest free block has {largest}"
        if found.obstacles:
            count = len(self.outcome.in_the_way)
            held = format_bytes(found.obstacles[0].in_use)
            goes = "1 block goes" if count == 1 else f"{count:,} blocks go"
            text += f"; it fits once {goes}, {held}"
        return f"{text})"


def what_if(
    record: MemoryRecord,
    settings: AllocatorSettings | str = "",
    card: Card | str | int | None = None,
) -> WhatIf:
    """Run the program of ``record`` under ``settings`` on ``card``.

    Args:
        record: a recording or a snapshot.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``; the defaults where empty.
        card: the name of one of `CARDS`, or the bytes that a card reports; None: no limit.

    Raises:
        SettingsError: the allocator would not take the settings.
        ValueError: no card has that name.
    """
    found = AllocatorSettings.parse(settings) if isinstance(settings, str) else settings
    return _answer(record, _program(record), found, _card(card))


def variants(
    record: MemoryRecord, card: Card | str | int | None = None, settings: Sequence[str] = VARIANTS
) -> list[WhatIf]:
    """The answer for each of ``settings``."""
    program, chosen = _program(record), _card(card)
    parsed = [AllocatorSettings.parse(words) for words in settings]
    return [_answer(record, program, one, chosen) for one in parsed]


def smallest_card(record: MemoryRecord, settings: AllocatorSettings | str = "") -> WhatIf | None:
    """The answer for the smallest of `CARDS` that the program fits on; None where it fits on none.

    Raises:
        SettingsError: the allocator would not take the settings.
    """
    found = AllocatorSettings.parse(settings) if isinstance(settings, str) else settings
    program = _program(record)
    at_least = int(program.requested[program.block[program.event < 0]].sum())
    for card in CARDS:
        if card.usable_bytes < at_least:
            continue
        answer = _answer(record, program, found, card)
        if answer.outcome.fits:
            return answer
    return None


def _answer(
    record: MemoryRecord, program: Program, settings: AllocatorSettings, card: Card | None
) -> WhatIf:
    device = Device() if card is None else Device(card.usable_bytes, card.total_bytes)
    outcome = run(program, CachingAllocator(settings, device))
    return WhatIf(
        settings=settings,
        card=card,
        outcome=outcome,
        is_certified=_is_certified(record, settings, outcome),
    )


def _is_certified(record: MemoryRecord, settings: AllocatorSettings, outcome: Outcome) -> bool:
    """Whether the certificate covers the settings, and the cases that the answer ran into."""
    certificate = record.certificate
    if certificate is None or not certificate.exact:
        return False
    if not certificate.covers.startswith(f"{settings} settings;"):
        return False
    return outcome.num_retries == 0 or "given back" in certificate.covers


def _program(record: MemoryRecord) -> Program:
    private = np.zeros(len(record.block_start), dtype=np.int32)
    known = record.block_segment >= 0
    private[known] = record.segment_private[record.block_segment[known]]
    return program_of(
        record.block_start,
        record.block_end,
        record.block_requested,
        record.block_stream,
        private,
    )


def _card(card: Card | str | int | None) -> Card | None:
    if isinstance(card, str):
        return card_named(card)
    if isinstance(card, int):
        return Card(f"{card / GIB:.1f} GiB", card, "given")
    return card
