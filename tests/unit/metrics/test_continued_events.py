"""Judged by TensorBoard's own reader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from workbench.metrics import continued_events
from workbench.metrics.continued_events import cut_events
from workbench.metrics.event_file import EventFile
from workbench.metrics.tensorboard_messages import record, scalar_event


def curve(folder: Path, tag: str = "loss") -> dict[int, float]:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    events = found.Scalars(tag) if tag in found.Tags()["scalars"] else []
    assert len(events) == len({event.step for event in events})
    return {event.step: event.value for event in events}


def logged(folder: Path, steps: range, tag: str = "loss", value: float = 1.0) -> None:
    file = EventFile(folder)
    for step in steps:
        file.append(record(scalar_event(tag, step, value, 1e9 + step)))
    file.close()


def test_what_was_logged_later_is_gone_and_the_curve_goes_on(tmp_path: Path) -> None:
    logged(tmp_path, range(1, 20))
    logged(tmp_path, range(1, 20), tag="never again")
    assert cut_events(tmp_path, 12) == 14
    logged(tmp_path, range(13, 25), value=2.0)
    assert curve(tmp_path) == {step: 1.0 if step < 13 else 2.0 for step in range(1, 25)}
    assert list(curve(tmp_path, "never again")) == list(range(1, 13))


def test_a_second_and_a_third_resume(tmp_path: Path) -> None:
    expected: dict[int, float] = {}
    begin = 1
    for number, step in enumerate([12, 9, 15, 15], 1):
        logged(tmp_path, range(begin, 20), value=number)
        expected |= dict.fromkeys(range(begin, 20), float(number))
        cut_events(tmp_path, step)
        expected = {at: value for at, value in expected.items() if at <= step}
        assert curve(tmp_path) == expected
        begin = step + 1
    assert len(list(tmp_path.iterdir())) == 1


def test_where_nothing_is_late_the_files_stay(tmp_path: Path) -> None:
    logged(tmp_path, range(1, 5))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert cut_events(tmp_path, 4) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "empty").mkdir()
    assert cut_events(tmp_path / "empty", 4) == 0


def test_a_file_that_is_cut_short_anywhere_loses_its_last_event_alone(tmp_path: Path) -> None:
    logged(tmp_path, range(1, 8))
    (path,) = tmp_path.iterdir()
    whole, draws = path.read_bytes(), random.Random(0)
    for size in sorted(draws.sample(range(len(whole)), 40)):
        for other in tmp_path.iterdir():
            other.unlink()
        path.write_bytes(whole[:size])
        left = len(curve(tmp_path))
        cut_events(tmp_path, 5)
        logged(tmp_path, range(6, 9))
        steps = [*range(1, min(left, 5) + 1), 6, 7, 8]
        assert list(curve(tmp_path)) == steps, size


def test_killed_in_the_middle_it_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(tmp_path, range(1, 10))
    logged(tmp_path, range(1, 10), tag="other")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cut_events(tmp_path, 5)
    cut_events(tmp_path, 5)
    assert list(curve(tmp_path)) == list(range(1, 6))
    assert list(curve(tmp_path, "other")) == list(range(1, 6))


def test_on_a_full_disk_the_files_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(tmp_path, range(1, 10))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(continued_events.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        cut_events(tmp_path, 5)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
