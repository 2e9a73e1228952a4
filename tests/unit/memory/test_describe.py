"""The printed summary answers: how much, where, held by whom."""

from __future__ import annotations

import pytest

from workbench.memory.describe import describe, format_bytes, peak_sentence, shorten, top_holders


def test_the_peak_in_one_sentence(hand_record):
    record = hand_record(
        [(-1, -1, 2, "parameters", ""), (0, 2, 3, "", "body"), (1, -1, 5, "gradients", "head")],
        [("forward", 0, 1), ("backward", 1, 3)],
    )
    assert peak_sentence(record) == (
        "digits, step 3: peak 10.0 MiB on cpu in backward of head: "
        "gradients 50%, activations 30%, parameters 20%."
    )


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
