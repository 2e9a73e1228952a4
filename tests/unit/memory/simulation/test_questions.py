"""Questions that a view asks of a record."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.allocator.traces import path_of
from workbench.allocator.simulator.gpus import GPUS
from workbench.memory import open_file
from workbench.memory.recording.record_builder import record_of
from workbench.memory.recording.storage_lifetimes import Block
from workbench.memory.simulation.questions import MOST_ROWS, answer
from workbench.memory.simulation.simulated_record import simulated
from workbench.memory.simulation.what_if import smallest_gpu, what_if
from workbench.records import CATEGORIES, GROWTHS, Phase

STEP = "Optimizer.step#AdamW.step"
MIB = 1 << 20


@pytest.fixture(scope="module")
def training_step():
    return open_file(path_of("transformer_training_step"))


def asked(record, *rows):
    """The answer, having gone through JSON both ways."""
    question = json.loads(json.dumps({"kind": "what_if", "rows": rows}))
    return json.loads(json.dumps(answer(record, question)))


def test_as_recorded_is_what_was_measured(training_step):
    found = asked(training_step, {"settings": "", "card": "A100 80 GB", "batch": None})
    (row,) = found["rows"]
    assert row["peak_bytes"] == row["peak_low"] == row["peak_high"]
    assert row["peak_bytes"] == int(training_step.reserved().max())
    assert row["basis"] == "recorded"
    assert row["fits"]
    assert row["sentence"].startswith("Recorded peak 56.9 GiB, fits on A100 80 GB, ")
    assert found["recorded_settings"] == ""
    smallest = smallest_gpu(training_step)
    assert found["smallest"]["card"] == smallest.card.name
    assert found["smallest"]["peak_bytes"] == smallest.outcome.peak_reserved


def test_a_gpu_that_is_too_small_comes_with_what_it_would_take(training_step):
    row = asked(training_step, {"settings": "expandable_segments:True", "card": "L40"})["rows"][0]
    assert not row["fits"]
    free = what_if(training_step, "expandable_segments:True").outcome.peak_reserved
    assert row["peak_bytes"] == free
    assert (
        row["failed_event"]
        == what_if(training_step, "expandable_segments:True", "L40").outcome.failed_event
    )
    assert "out of memory on L40 at event" in row["sentence"]
    assert row["basis"] == "uncertified"


def test_a_recording_that_was_cut_off_is_not_said_to_fit(training_step):
    short = simulated(training_step, gpu="L40")
    assert len(short.oom_event) == 1
    found = asked(short, {"card": "A100 80 GB"}, {"card": "L40"})
    past, refused = found["rows"]
    assert [past["fits"], past["got_past"]] == [False, True]
    assert "at least on A100 80 GB, got past the refused request" in past["sentence"]
    assert "fits" not in past["sentence"]
    assert [refused["fits"], refused["got_past"]] == [False, False]
    assert "out of memory on L40" in refused["sentence"]
    assert found["smallest"]["is_lower_bound"]


def test_emptying_the_cache_before_the_step_is_by_certified_rules(training_step):
    plain, emptied = asked(training_step, {"settings": ""}, {"settings": "", "empty_before": STEP})[
        "rows"
    ]
    assert emptied["basis"] == "certified"  # the trace gives segments back, too
    assert plain["peak_bytes"] > emptied["peak_bytes"] > training_step.peak_bytes


def test_what_is_wrong_with_a_row_is_said_in_that_row(training_step):
    rows = asked(
        training_step,
        {"settings": "max_split_size_mb:1"},
        {"settings": "", "card": "RTX 9999"},
        {"settings": "", "batch": 8},
        {"settings": "", "empty_before": "lunch"},
        {"settings": "garbage_collection_threshold:0.8"},
        {"settings": "expandable_segments:True"},
    )["rows"]
    said = [row["error"] for row in rows]
    assert "at least 20 MiB" in said[0]
    assert "known are T4" in said[1]
    assert "does not say how many samples" in said[2]
    assert f"known are: {STEP}" in said[3]
    assert "acts only on a GPU with a limit" in said[4]
    assert said[5] == ""
    assert [row["peak_bytes"] for row in rows[:5]] == [-1] * 5
    assert rows[5]["peak_bytes"] > 0


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ({}, "known are 'what_if' and 'cards'"),
        ({"kind": "weather"}, "'weather' is not known"),
        ({"kind": "what_if"}, "rows is a list of 1 to 16"),
        ({"kind": "what_if", "rows": []}, "rows is a list of 1 to 16"),
        ({"kind": "what_if", "rows": [{}] * (MOST_ROWS + 1)}, "rows is a list of 1 to 16"),
        ({"kind": "what_if", "rows": [{}], "chosen": 1}, "chosen is the number of a row"),
        ({"kind": "what_if", "rows": ["fast"]}, "a row is an object"),
        ({"kind": "what_if", "rows": [{"settings": 3}]}, "are text"),
        ({"kind": "what_if", "rows": [{"card": True}]}, "card of a row is a name"),
        ({"kind": "what_if", "rows": [{"batch": 1.5}]}, "batch of a row is a whole number"),
    ],
)
def test_a_bad_question_is_one_sentence(hand_record, question, part):
    record = hand_record([(0, -1, 4, "activations", "")])
    with pytest.raises(ValueError, match=part):
        answer(record, question)


def test_gpus_come_with_their_sources(hand_record):
    found = answer(hand_record([(0, -1, 4, "activations", "")]), {"kind": "cards"})
    assert [card["name"] for card in found["cards"]] == [card.name for card in GPUS]
    assert all("#" in card["source"] for card in found["cards"])
    assert all(
        card["total_bytes"] - card["usable_bytes"] == found["context_bytes"]
        for card in found["cards"]
    )


def of_batch(record, batch, growth):
    return replace(
        record,
        batch_size=batch,
        block_growth=np.array([GROWTHS.index(one) for one in growth], dtype=np.uint8),
    )


def test_a_batch_scales_what_grows_and_says_what_is_not_known(hand_record):
    rows = [(-1, -1, 40, "parameters", ""), (0, 3, 100, "activations", ""),
            (1, 3, 30, "temporaries", ""), (2, 4, 20, "gradients", "")]  # fmt: skip
    record = of_batch(hand_record(rows), 4, ["fixed", "batch", "unknown", "unknown"])
    recorded, doubled = asked(record, {"batch": 4}, {"batch": 8})["rows"]
    assert recorded["peak_low"] == recorded["peak_high"] == 190 * MIB
    assert doubled["peak_low"] == (40 + 200 + 30 + 20) * MIB
    assert doubled["peak_high"] == doubled["peak_bytes"] == (40 + 200 + 60 + 40) * MIB
    assert "290 MiB to 340 MiB" in doubled["sentence"]
    assert doubled["basis"] == "uncertified"
    halved = asked(record, {"batch": 2})["rows"][0]
    assert (halved["peak_low"], halved["peak_high"]) == (
        (40 + 50 + 16 + 10) * MIB,  # segments are of whole 2 MiB
        (40 + 50 + 30 + 20) * MIB,
    )


def test_a_batch_that_is_none_is_said(hand_record):
    record = of_batch(hand_record([(0, -1, 4, "activations", "")]), 4, ["batch"])
    rows = asked(record, {"batch": 0}, {"batch": 10**12})["rows"]
    assert "at least 1" in rows[0]["error"]
    assert "recorded with 4" in rows[1]["error"]


def test_a_phase_is_named_on_a_recording_of_the_cpu_too(hand_record):
    record = hand_record(
        [(0, 1, 30, "activations", ""), (2, -1, 50, "optimizer", "")],
        [("forward", 0, 2), ("optimizer", 2, 3)],
    )
    assert record.phases[-1] == Phase(name="optimizer", start=2, end=3)
    plain, emptied = asked(record, {}, {"empty_before": "optimizer"})["rows"]
    assert plain["peak_bytes"] == 80 * MIB
    assert emptied["peak_bytes"] == 50 * MIB


programs = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 30), st.integers(1, 64),
        st.sampled_from(CATEGORIES), st.sampled_from(GROWTHS),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(1, 64), st.integers(1, 64))
@example([(0, 1, 7, "parameters", "batch")], 7, 58)
def test_the_recorded_batch_changes_nothing_and_intervals_hold_each_other(rows, batch, other):
    record = _record_of(rows, batch)
    plain, same, asked_for = asked(record, {}, {"batch": batch}, {"batch": other})["rows"]
    assert same["peak_low"] == same["peak_high"] == plain["peak_bytes"]
    assert asked_for["peak_low"] <= asked_for["peak_high"] == asked_for["peak_bytes"]
    assert asked_for["error"] == ""
    # What is reserved holds at least what is asked for at once, in every reading.
    live = [_most_live(record, factors) for factors in _readings(rows, Fraction(other, batch))]
    assert asked_for["peak_low"] >= min(live)
    assert asked_for["peak_high"] >= max(live)
    if all(growth == "fixed" for *_, growth in rows):
        assert asked_for["peak_bytes"] == plain["peak_bytes"]


def _readings(rows, factor):
    """Factors of all blocks in every reading of those that are unknown or steep."""
    for temporaries, others, power in product((1, factor), (1, factor), (1, 2, 3)):
        unknown = [temporaries if row[3] == "temporaries" else others for row in rows]
        known = {"fixed": 1, "batch": factor, "square": factor**2, "steep": factor**power}
        yield [known.get(row[4], one) for row, one in zip(rows, unknown, strict=True)]


def _most_live(record, factors):
    sizes = record.block_bytes.astype(object) * np.array(factors, dtype=object)  # exactly
    each = [
        sizes[(record.block_start <= event) & (record.block_end > event)].sum()
        for event in range(len(record.event_kind))
    ]
    return max(each)


def _record_of(rows, batch):
    """A recording of blocks (start, events lived, MiB, category, growth); sorts ``rows``."""
    times = sorted(
        [(start, 0, at) for at, (start, *_) in enumerate(rows)]
        + [(start + lived, 1, at) for at, (start, lived, *_) in enumerate(rows)]
    )
    events = {(kind, at): event for event, (_, kind, at) in enumerate(times)}
    blocks = []
    for at, (_, _, mib, category, _) in enumerate(rows):
        block = Block(mib * MIB, "cpu", 0)
        block.start, block.end, block.category = events[0, at], events[1, at], category
        blocks.append(block)
    blocks.sort(key=lambda block: block.start)
    by_start = sorted(range(len(rows)), key=lambda at: events[0, at])
    record = record_of(
        blocks, [], title="made", experiment=None, step=None, device="cpu", basis="Made up.",
        notes=(), started_ns=0,
    )  # fmt: skip
    rows[:] = [rows[at] for at in by_start]
    return of_batch(record, batch, [rows[at][4] for at in range(len(rows))])


def test_answers_need_no_torch():
    code = "import sys, workbench.memory.simulation.questions; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_block_that_waits_for_a_stream_after_its_end_spoils_no_answer(training_step):
    """A file may say so of a block; an allocator never does."""
    pending = training_step.block_pending.copy()
    ended = np.flatnonzero((training_step.block_end >= 0) & (training_step.block_start >= 0))[0]
    pending[ended] = training_step.block_end[ended] + 1
    row = {"settings": "expandable_segments:True", "card": "A100 80 GB"}
    (found,) = asked(replace(training_step, block_pending=pending), row)["rows"]
    assert found["fits"]
    assert not found["error"]
