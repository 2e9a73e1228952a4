"""The same program under other settings of the allocator, or on another card.

A recording says what was asked for, also where that was refused, and when it was given back. The
simulator does the rest, in well under a second for a training step. Under the recorded settings it
starts from the segments that were there before; under others, blocks that were there are asked for
first.

An answer stands on *certified rules* where the settings are the recorded ones, the recording's
replay came out to the last address, this method reproduces the recorded peak to the byte, and the
answer runs into no case that the recording did not. Anything else follows the allocator's source,
and no trace has confirmed it; so much is said with every answer.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import SupportsIndex

import numpy as np

from workbench.allocator.cards import CARDS, CONTEXT_BYTES, Card, card_named
from workbench.allocator.device import Device
from workbench.allocator.program import Lives, Outcome, program_of, run
from workbench.allocator.restore import restore
from workbench.allocator.settings import GIB, AllocatorSettings, SettingsError
from workbench.allocator.simulator import CachingAllocator
from workbench.memory.describe import format_bytes
from workbench.memory.recorded import lives_of_record, recorded_settings, start_of_record
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

    num_refused: int
    """Requests that were refused when it was recorded, and are among those made here."""

    def __str__(self) -> str:
        where = ""
        if self.card is not None:
            where = f" on {self.card.name} ({format_bytes(self.card.usable_bytes)} usable)"
        basis = "certified rules" if self.is_certified else "rules no trace has confirmed"
        peak = format_bytes(self.outcome.peak_reserved)
        text = f"{self.settings}{where}: {peak} reserved at the peak"
        if self.outcome.failure is not None:
            text = f"{self.settings}{where}: out of memory at event {self.outcome.failed_event:,}"
            text += self._missing()
        elif self.num_refused:
            text += f", {self.num_refused:,} refused requests included"
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
    card: Card | str | SupportsIndex | None = None,
) -> WhatIf:
    """Run the program of ``record`` under ``settings`` on ``card``.

    Args:
        record: a recording or a snapshot.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``; the defaults where empty.
        card: the name of one of `CARDS`, or the bytes that a card reports; None: no limit.

    Raises:
        SettingsError: the allocator would not take the settings, or they have no effect here.
        ValueError: no card has that name, or so little memory.
    """
    return _Question(record).answer(_parsed(settings), _card(card))


def variants(
    record: MemoryRecord,
    card: Card | str | SupportsIndex | None = None,
    settings: Sequence[str] = VARIANTS,
) -> list[WhatIf]:
    """The answer for each of ``settings``."""
    question, chosen = _Question(record), _card(card)
    return [question.answer(_parsed(words), chosen) for words in settings]


def smallest_card(record: MemoryRecord, settings: AllocatorSettings | str = "") -> WhatIf | None:
    """The answer for the smallest of `CARDS` that the program fits on; None where it fits on none.

    Raises:
        SettingsError: the allocator would not take the settings.
    """
    question, found = _Question(record), _parsed(settings)
    for card in CARDS:
        if card.usable_bytes >= question.at_least:
            answer = question.answer(found, card)
            if answer.outcome.fits:
                return answer
    return None


class _Question:
    """A recording that questions are asked of."""

    def __init__(self, record: MemoryRecord) -> None:
        self.record = record
        self.recorded = recorded_settings(record)
        self.lives = lives_of_record(record, with_refused=True)
        before = (self.lives.start < 0) & (self.lives.requested > 0)
        self.at_least = int(self.lives.requested[before].sum())
        """Bytes without which it cannot begin."""

    def answer(self, settings: AllocatorSettings, card: Card | None) -> WhatIf:
        """Run it."""
        if settings.garbage_collection_threshold and card is None:
            raise SettingsError("garbage_collection_threshold acts on a card only: name one")
        outcome, is_restored = self._run(self.lives, settings, card)
        return WhatIf(
            settings=settings,
            card=card,
            outcome=outcome,
            is_certified=is_restored and self._covers(outcome),
            num_refused=len(self.record.oom_event),
        )

    def _run(
        self, lives: Lives, settings: AllocatorSettings, card: Card | None
    ) -> tuple[Outcome, bool]:
        """The outcome, and whether it began with what was there before."""
        state, there = start_of_record(self.record)
        held = sum(segment.size for segment in state.segments)
        fits = card is None or held <= card.usable_bytes
        num_before = int(((lives.start < 0) & (lives.requested > 0)).sum())
        is_known = num_before == len(there)  # on the CPU nobody knows where blocks lay
        is_restored = settings == self.recorded and fits and is_known
        above = max((segment.address + segment.size for segment in state.segments), default=0)
        usable, total = (None, None) if card is None else (card.usable_bytes, card.total_bytes)
        device = Device(usable, total, above=above if is_restored else 0)
        allowed = usable if settings.garbage_collection_threshold else None
        allocator = CachingAllocator(settings, device, allowed=allowed)
        if is_restored:
            restore(allocator, state)
        program = program_of(lives, from_start=not is_restored)
        return run(program, allocator, there if is_restored else None), is_restored

    def _covers(self, outcome: Outcome) -> bool:
        """Whether the certificate covers what the answer ran into."""
        certificate = self.record.certificate
        if certificate is None or not certificate.exact:
            return False
        cases = certificate.covers.partition("; ")[2].split(", ")
        if (outcome.num_retries or not outcome.fits) and "out of memory" not in cases:
            return False
        refused = np.zeros(len(self.lives.start), dtype=np.bool_)
        refused[len(self.record.block_start) :] = True
        as_it_was = replace(self.lives, requested=np.where(refused, 0, self.lives.requested))
        baseline, _ = self._run(as_it_was, self.recorded, None)
        return baseline.peak_reserved == int(self.record.reserved().max())


def _parsed(settings: AllocatorSettings | str) -> AllocatorSettings:
    return AllocatorSettings.parse(settings) if isinstance(settings, str) else settings


def _card(card: Card | str | SupportsIndex | None) -> Card | None:
    if card is None or isinstance(card, Card):
        return card
    if isinstance(card, str):
        return card_named(card)
    num_bytes = operator.index(card)
    if num_bytes <= CONTEXT_BYTES:
        raise ValueError(
            f"a card of {num_bytes:,} B has nothing left: CUDA itself takes about "
            f"{CONTEXT_BYTES >> 20} MiB; give what the card reports, in bytes"
        )
    return Card(f"{num_bytes / GIB:.1f} GiB", num_bytes, "given")
