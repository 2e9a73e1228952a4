"""The printed summary answers: how much, where, held by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.memory.reading.text import (
    describe,
    format_bytes,
    gpu_in_words,
    peak_sentence,
    shorten,
    top_holders,
)
from workbench.records import Remedy


def test_the_peak_in_one_sentence(hand_record):
    record = hand_record(
        [(-1, -1, 2, "parameters", ""), (0, 2, 3, "", "body"), (1, -1, 5, "gradients", "head")],
        [("forward", 0, 1), ("backward", 1, 3)],
    )
    assert peak_sentence(record) == (
        "digits, step 3: peak 10.0 MiB on cpu in backward of head: "
        "gradients 50%, activations 30%, parameters 20%."
    )


def test_a_peak_of_blocks_that_nobody_names_is_placed_by_its_event(hand_record):
    record = hand_record([(-1, -1, 2, "unknown", ""), (0, -1, 3, "unknown", "")])
    record = replace(record, device="cuda:0", card="T4")
    assert peak_sentence(record) == "digits, step 3: peak 5.0 MiB on cuda:0, T4, after event 1."


def test_a_peak_before_all_events_says_so_and_names_no_shares_of_nothing(hand_record):
    freed = hand_record([(-1, 0, 2, "parameters", "")])
    assert " on cpu before the first allocation: parameters 100%." in peak_sentence(freed)
    nothing = replace(hand_record([(0, 1, 0, "", "")]), card="T4", peak_event=-1)
    assert peak_sentence(nothing).endswith(" on cpu, T4, before the first allocation.")


def test_a_real_step_names_its_holders_and_lines(step_record):
    text = describe(step_record)
    assert text.startswith("Recorded block: peak ")
    assert "parameters" in text
    assert "conftest.py:" in text
    assert "scratch memory inside a kernel is not seen" in text
    shares = [line for line in text.splitlines() if line.endswith("%")]
    assert len(shares) >= 3


def test_holders_add_up_to_the_peak(step_record):
    holders = top_holders(step_record, 10_000)
    assert sum(holder.num_bytes for holder in holders) == step_record.peak_bytes
    sizes = [holder.num_bytes for holder in holders]
    assert sizes == sorted(sizes, reverse=True)


def test_parameters_of_one_module_are_one_holder(step_record):
    rows = [h for h in top_holders(step_record, 100) if h.what == "parameters of 0"]
    assert [(row.num_blocks, row.num_bytes) for row in rows] == [(2, 4 * (64 * 256 + 256))]


def test_nothing_is_said_in_one_line(hand_record):
    assert describe(hand_record([])) == "digits, step 3: Nothing was allocated or freed on cpu."
    held = hand_record([(-1, -1, 2, "parameters", "")])
    assert "2.0 MiB were there before and stayed" in describe(held)


def test_what_is_known_of_an_empty_record_is_said(hand_record):
    note = "Experiment 'digits' trained meanwhile, on a thread of its own."
    assert describe(hand_record([], notes=(note,))).splitlines()[-1] == note


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (120 * 1024, "120 KiB"),
     (3.4 * 2**20, "3.4 MiB"), (2**50, "1,024 TiB")],
)  # fmt: skip
def test_bytes_read_well(value: float, text: str):
    assert format_bytes(value) == text


def test_hostile_text_becomes_one_short_line():
    assert shorten("a\nb\x1b[31m" + "x" * 10_000, 12) == "a b?[31mxxx…"
    assert shorten("ok", 12) == "ok"
    assert shorten("abc\u202edef", 20) == "abc?def"


def test_a_refused_request_says_what_was_in_its_way_and_what_helps(refused_record):
    remedies = (
        Remedy(name="batch of 8", code="exp.batch_size = 8", peak_bytes=64 << 20, fits=True,
               cost="Smaller steps.", basis="this step run again with it"),
        Remedy(name="bf16", code="exp.modes = 'bf16'", peak_bytes=-1, fits=False,
               cost="Rounding.", basis="replay"),
    )  # fmt: skip
    text = describe(replace(refused_record, remedies=remedies))
    assert "\nout of memory in forward on a 552 MiB GPU: " in text
    assert " requested; " in text
    assert "  batch of 8: fits, 64.0 MiB reserved\n    Smaller steps. (this step run again" in text
    assert "    exp.batch_size = 8\n  bf16: does not fit\n    Rounding. (replay)\n" in text
    assert "exp.modes" not in text, "what does not help is not to be copied"
    without = text[text.index("it would have been served without") : text.index("what helps")]
    sizes = refused_record.block_bytes[refused_record.obstacle_block]
    assert f"{len(sizes)} block" in without
    assert f" of {format_bytes(int(sizes.sum()))}:" in without
    assert len(without.strip().splitlines()) == 1 + min(len(sizes), 5)


def test_a_prediction_is_said_to_be_one(refused_record):
    facts = {"card": "RTX 4090", "reasons": ("Not calibrated.",), "settings": ""}
    record = replace(refused_record, peak_interval=(100 << 20, 120 << 20), **facts)
    text = describe(record)
    headline = text.splitlines()[0]
    assert ": predicted peak " in headline
    assert f" ({format_bytes(record.reserved_bytes)} reserved then) on cuda" in headline
    assert (
        "predicted, not measured: on RTX 4090 (40.0 MiB usable), settings default, "
        "100 MiB to 120 MiB reserved at most\nit may be off:\n  - Not calibrated.\n"
    ) in text


def test_a_recording_is_not_said_to_be_a_prediction(step_record):
    assert "predicted" not in describe(step_record)


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ("RTX 4090", "RTX 4090"),
        ("700 MiB", "a 700 MiB GPU"),
        ("8 GiB", "an 8 GiB GPU"),
        ("11.5 GiB", "an 11.5 GiB GPU"),
        ("110 GiB", "a 110 GiB GPU"),
        ("", "a GPU without a limit"),
    ],
)
def test_a_gpu_is_called_by_its_name_or_its_size(card, words):
    assert gpu_in_words(card) == words
