"""The graph view in Chromium: time to the first pixels, frames while panning, and pictures.

A time in the page is judged beside the time in which the same page draws boxes with labels, and as
many lines, on a plain canvas and reads its pixels back, in the same round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from statistics import mean

import pytest
import torch

import workbench as wb
from tests.benchmarks.graph_browser import ROOT, GraphPage, Opened, graph_page
from tests.benchmarks.table import median, ratio_line, ratios
from tests.models.catalogue import SIX, Case, loss_of
from tests.models.recurrent import LSTMLoop
from workbench.records import GraphRecord

pytestmark = pytest.mark.benchmark
SOME, MANY = 1_000, 10_000
"""Boxes of a plain drawing."""
FIRST_DRAWING = 6.0
"""Times a plain drawing of `SOME` boxes: from bytes to pixels, whichever of six models it is."""
LARGE_OPENS = 1.0
"""Times a plain drawing of `MANY` boxes: from the bytes of 50,000 nodes to pixels."""
PAUSE = 4.0
"""Times a plain drawing of `MANY` boxes: longest time without an answer, with 200,000 nodes."""
PANNED = 2.0
"""Times the time from frame to frame where a plain canvas of `SOME` boxes moves."""
ROUNDS, LARGE_ROUNDS = 7, 3
PAN_ROUNDS, PAN_S = 3, 1.0
PICTURES = ROOT / "artifacts" / "graph"


@pytest.fixture(scope="module")
def page() -> Iterator[GraphPage]:
    with graph_page() as found:
        found.load()
        yield found


def record_of(case: Case) -> GraphRecord:
    model, x, y = case.make()
    with wb.graph(model) as view:
        loss = loss_of(model, x, y)
        loss.backward()
    return view.record


def recurrence(steps: int) -> GraphRecord:
    """A loop of LSTM cells: 15 nodes a step."""
    torch.manual_seed(0)
    model, x, y = LSTMLoop(), torch.randn(1, steps, 16), torch.zeros(1).long()
    with wb.graph(model):
        loss = loss_of(model, x, y)
    return wb.graph(loss).record


def line(name: str, record: GraphRecord, values: list[float], unit: str = "ms") -> str:
    spread = f"{min(values):.0f} .. {max(values):.0f}"
    size = f"{len(record.node_type):>8,} {len(record.edge_from):>8,}"
    return f"{name:16} {size} {median(values):8.0f} {spread:>14}  [{unit}]"


def opened_in_turn(
    page: GraphPage, record: GraphRecord, boxes: int, rounds: int
) -> tuple[list[Opened], list[float]]:
    """Openings of the record, and milliseconds of a plain drawing right before each."""
    data = record.to_bytes()
    plain, opened = [], []
    for _ in range(rounds):
        plain.append(page.draw_plainly(boxes))
        opened.append(page.open(data))
    assert {one.error for one in opened} == {None}
    return opened, plain


def over_plain(values: list[float], plain: list[float], limit: float) -> float:
    """The median ratio, printed."""
    found = ratios(values, plain)
    print(ratio_line(f"  over a plain drawing ({median(plain):.0f} ms)", found, limit))
    return median(found)


@pytest.fixture(scope="module")
def records() -> dict[str, GraphRecord]:
    return {case.name: record_of(case) for case in SIX}


def test_first_drawing_of_each_model(page: GraphPage, records: dict[str, GraphRecord]) -> None:
    """From the record's bytes in the page to pixels on its canvas; the page is warm but for it."""
    print(f"\nFirst drawing, median and range of {ROUNDS}")
    print(f"{'':16} {'nodes':>8} {'edges':>8} {'median':>8} {'range':>14}")
    slow = {}
    for name, record in records.items():
        opened, plain = opened_in_turn(page, record, SOME, ROUNDS)
        pixels = [one.pixels for one in opened]
        print(line(name, record, pixels), f"first of all {pixels[0]:.0f}")
        if (ratio := over_plain(pixels, plain, FIRST_DRAWING)) > FIRST_DRAWING:
            slow[name] = ratio
    assert page.errors == []
    assert slow == {}


def test_fifty_thousand_nodes_open_and_pan(page: GraphPage) -> None:
    record = recurrence(3_333)
    assert len(record.node_type) > 49_000
    opened, plain = opened_in_turn(page, record, MANY, LARGE_ROUNDS)
    pixels = [one.pixels for one in opened]
    print("\n" + line("LSTM x 3333", record, pixels))
    opens = over_plain(pixels, plain, LARGE_OPENS)
    panned = {"as opened": panned_in_turn(page, "as opened")}
    for _ in range(6):
        page.page.keyboard.press("+")
    panned["closer"] = panned_in_turn(page, "closer")
    assert page.errors == []
    assert opens <= LARGE_OPENS
    assert {where: found for where, found in panned.items() if found > PANNED} == {}


def panned_in_turn(page: GraphPage, where: str) -> float:
    """Time from frame to frame while panning, over that of a plain canvas."""
    plain, view = [], []
    for _ in range(PAN_ROUNDS):
        plain.append(page.pan_plainly(PAN_S, SOME))
        view.append(page.pan(PAN_S))
    for name, found in (("plain canvas", plain), (f"panning {where}", view)):
        frames = sorted(chain.from_iterable(found))
        late = frames[int(0.95 * len(frames))]
        print(
            f"{name}: {1000 / mean(frames):.0f} frames/s, "
            f"19 of 20 within {late:.0f} ms, longest {frames[-1]:.0f} ms"
        )
    slower = ratios([mean(one) for one in view], [mean(one) for one in plain])
    print(ratio_line(f"  from frame to frame, {where}, over a plain canvas", slower, PANNED))
    return median(slower)


def test_two_hundred_thousand_nodes_do_not_freeze_the_tab(page: GraphPage) -> None:
    record = recurrence(13_333)
    assert len(record.node_type) > 199_000
    opened, plain = opened_in_turn(page, record, MANY, LARGE_ROUNDS)
    print("\n" + line("LSTM x 13333", record, [one.pixels for one in opened]))
    pauses = [one.blocked for one in opened]
    print("longest pauses without an answer:", ", ".join(f"{pause:.0f} ms" for pause in pauses))
    assert over_plain(pauses, plain, PAUSE) <= PAUSE


def test_pictures_to_look_at(page: GraphPage, records: dict[str, GraphRecord]) -> None:
    """Written to artifacts/graph: every model as it opens, light and dark."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        page.load(theme)
        for name, record in records.items():
            page.open(record.to_bytes())
            page.page.wait_for_timeout(300)  # transitions end
            stem = "".join(letter if letter.isalnum() else "-" for letter in name).lower()
            (PICTURES / f"{stem}-{theme}.png").write_bytes(page.page.screenshot())
    page.load("light")


def test_size_of_what_is_loaded_and_of_what_a_notebook_keeps(
    records: dict[str, GraphRecord],
) -> None:
    bundle_bytes = (ROOT / "workbench" / "static" / "graph.js").stat().st_size
    print(f"\ngraph.js {bundle_bytes / 1000:.1f} kB")
    assert bundle_bytes < 100_000
    for name, record in records.items():
        bundle, _ = wb.graph(record)._repr_mimebundle_()
        kept = len(json.dumps(bundle).encode())
        sent = len(record.to_bytes())
        print(f"{name:16} in the notebook {kept / 1000:6.1f} kB, record {sent / 1000:.1f} kB")
        assert kept < 200_000
