"""The recorded program under other settings and on other cards."""

from __future__ import annotations

import pytest
import torch

from tests.unit.allocator.traces import path_of
from workbench.allocator.cards import CARDS, card_named
from workbench.allocator.settings import MIB, SettingsError
from workbench.memory import memory
from workbench.memory.what_if import smallest_card, variants, what_if


@pytest.fixture(scope="module")
def training_step():
    return memory(path_of("transformer_training_step")).record


def test_as_recorded_the_peak_is_the_recorded_one(training_step):
    """Blocks that were there before are placed anew, so not to the byte."""
    found = what_if(training_step)
    recorded = int(training_step.reserved().max())
    assert found.outcome.fits
    assert found.outcome.peak_reserved == pytest.approx(recorded, rel=0.01)
    assert found.outcome.peak_allocated == pytest.approx(training_step.peak_bytes, rel=0.005)
    assert found.is_certified
    assert "certified rules" in str(found)


def test_expandable_segments_waste_less_and_no_trace_has_confirmed_them(training_step):
    plain, expandable, *_ = variants(training_step)
    assert expandable.outcome.peak_reserved < plain.outcome.peak_reserved
    assert expandable.outcome.peak_reserved >= expandable.outcome.peak_allocated
    assert not expandable.is_certified
    assert "no trace has confirmed" in str(expandable)


def test_a_smaller_card_gives_back_what_is_unused_and_then_runs_out(training_step):
    peak = what_if(training_step).outcome.peak_reserved
    tight = what_if(training_step, card=peak)  # of which a context takes its part
    assert tight.outcome.num_retries > 0
    small = what_if(training_step, card="RTX 4090")
    assert not small.outcome.fits
    assert small.outcome.peak_reserved <= card_named("RTX 4090").usable_bytes
    assert 0 <= small.outcome.failed_event < len(training_step.event_kind)
    assert "out of memory at event" in str(small)
    assert small.outcome.failure is not None
    missing = small.outcome.shortage
    assert missing is not None
    assert missing.largest_free < missing.size
    held = training_step.block_bytes[small.outcome.in_the_way]
    assert held.sum() == pytest.approx(
        missing.obstacles[0].in_use, rel=0.1
    )  # a block may keep slack
    assert "it fits once" in str(small)
    assert "out of memory: " in str(small.outcome.failure)


def test_the_smallest_card_is_the_smallest_that_fits(training_step):
    found = smallest_card(training_step)
    assert found is not None
    assert found.card is not None
    assert found.outcome.fits
    for card in CARDS[: CARDS.index(found.card)]:
        assert not what_if(training_step, card=card).outcome.fits


def test_a_program_that_fits_on_no_card():
    with memory() as found:
        torch.ones(8, device="cpu")
    record = found.record
    huge = record.block_requested * 0 + (200 << 30)
    object.__setattr__(record, "block_requested", huge)
    assert smallest_card(record) is None


def test_a_recording_on_the_cpu_is_a_program_too():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 10))
    with memory() as found:
        model(torch.randn(64, 256)).sum().backward()
    answer = what_if(found.record)
    assert answer.outcome.fits
    assert answer.outcome.peak_allocated >= found.record.peak_bytes
    assert answer.outcome.peak_reserved % (2 * MIB) == 0
    assert not answer.is_certified


@pytest.mark.parametrize(
    ("settings", "card", "error", "part"),
    [
        ("max_split_size_mb:1", None, SettingsError, "at least 20 MiB"),
        ("", "RTX 9999", ValueError, "known are T4"),
    ],
)
def test_what_does_not_exist_is_said(training_step, settings, card, error, part):
    with pytest.raises(error, match=part):
        what_if(training_step, settings, card)


def test_cards_are_in_order_and_leave_room_for_a_context():
    totals = [card.total_bytes for card in CARDS]
    assert totals == sorted(totals)
    assert all(0 < card.usable_bytes < card.total_bytes for card in CARDS)
    assert card_named("h100 80gb") is card_named("H100 80 GB")


def test_a_view_answers_too():
    view = memory(path_of("transformer_forward_mixed"))
    assert view.certificate is not None
    assert view.certificate.exact
    parts = view.fragmentation()
    assert sum(parts.values()).tolist() == view.record.reserved().tolist()
    assert view.what_if("expandable_segments:True").outcome.fits
    found = view.smallest_card()
    assert found is not None
    assert str(found).startswith("default on ")
