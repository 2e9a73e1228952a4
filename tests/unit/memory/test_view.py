"""The view shows the same record as text, picture, widget and file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench import display
from workbench.memory import MemoryView, memory, view
from workbench.memory.files import selection
from workbench.records import MemoryRecord, RecordError, read_record

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_text_and_picture_are_always_there(step_record, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(display, "STATIC", tmp_path)
    data, _ = memory(step_record)._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html"}
    assert data["text/plain"].startswith("Recorded block: peak")
    assert "data:image/svg+xml;base64," in data["text/html"]
    assert "memory.js is not built" in data["text/html"]


def test_with_the_bundle_there_is_a_widget_that_carries_the_record_once(
    step_record, tmp_path: Path, monkeypatch
):
    (tmp_path / "memory.js").write_text("export default { render() {} }")
    monkeypatch.setattr(display, "STATIC", tmp_path)
    display._widget_class.cache_clear()
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    try:
        data, _ = memory(step_record)._repr_mimebundle_()
        assert WIDGET in data
        assert "data:image/svg+xml;base64," in data["text/html"]
        kinds = (("record", bytes), ("error", str))
        widget = display._widget_class("memory", kinds)(record=step_record.to_bytes())
        assert read_record(widget.get_state()["record"]).peak_bytes == step_record.peak_bytes
    finally:
        display._widget_class.cache_clear()


def test_of_a_long_recording_a_cell_is_sent_the_events_around_the_peak(step_record, monkeypatch):
    num_events = len(step_record.event_time_us)
    monkeypatch.setattr(selection, "MOST_EVENTS", num_events - 1)
    monkeypatch.setattr(selection, "FIRST_LOOK", 10)
    sent: list[MemoryRecord] = []

    def mime_bundle(_bundle, traits, *, text, html, **_rest):
        sent.append(read_record(traits["record"]))
        return {"text/plain": text, "text/html": html}, {}

    monkeypatch.setattr(view, "mime_bundle", mime_bundle)
    shown = memory(step_record)
    data, _ = shown._repr_mimebundle_()
    (part,) = sent
    assert len(part.event_time_us) == 10
    assert part.peak_bytes == step_record.peak_bytes
    start, end = selection.first_look(step_record)
    said = f"Events {start} to {end} of {num_events}, from "
    assert part.notes[0].startswith(said)
    assert "view.stretch(start, end) shows others, up to 2,000,000 at once." in part.notes[0]
    for form in data.values():
        assert said in form
    assert len(shown.record.event_time_us) == num_events


def test_another_stretch_is_a_recording_of_its_own(step_record):
    part = memory(step_record).stretch(3, 9)
    np.testing.assert_array_equal(part.record.series(), step_record.series()[:, 3:10])
    assert str(part).splitlines()[0].startswith("Recorded block: peak")
    assert "Events 3 to 9 of" in str(part)
    with pytest.raises(RecordError, match="a range ends after it begins"):
        memory(step_record).stretch(9, 3)


def test_save_and_open_again(step_record, tmp_path: Path):
    path = memory(step_record).save(tmp_path / "a.safetensors")
    again = memory(str(path)).record
    assert isinstance(again, MemoryRecord)
    assert (again.series() == step_record.series()).all()


def test_the_suffix_says_what_is_written(step_record, tmp_path: Path):
    shown = memory(step_record)
    for name, start in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")):
        assert shown.save(tmp_path / name).read_bytes().startswith(start)
    for name, got in (("a.txt", r"the suffix '\.txt'"), ("a", "no suffix")):
        valid = r"a memory recording is saved as \.safetensors, \.png, \.pdf, \.svg"
        with pytest.raises(ValueError, match=f"has {got}; {valid}"):
            shown.save(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_what_memory_takes_is_listed_when_it_gets_something_else():
    with pytest.raises(TypeError, match="got a int; it takes nothing"):
        memory(3)


def test_an_experiment_is_asked_for_its_next_step(step_record):
    class Handle:
        def wait(self):
            return step_record

    class Experiment:
        def capture(self, probe):
            self.kind = probe.kind
            return Handle()

    experiment = Experiment()
    shown = memory(experiment)
    assert isinstance(shown, MemoryView)
    assert experiment.kind == "memory"
    assert shown.record is step_record


def test_a_recording_that_has_not_ended_says_so():
    assert str(memory()) == "Memory recording, not ended yet."


def test_a_view_is_a_recording_too_and_its_settings_may_be_left_out(step_record):
    view = memory(step_record)
    assert memory(view).record is step_record
    assert memory(view, card="T4").record.is_predicted
    assert str(view.what_if(None)) == str(view.what_if(""))
    assert view.smallest_card(None) is not None
    with pytest.raises(ValueError, match="allocator separately: settings='a:1'"):
        view.what_if("", "8 GiB, a:1")
    with pytest.raises(TypeError, match=r"replays the trace of a snapshot file.* MemoryRecord"):
        memory(step_record, card="T4", certify=True)
