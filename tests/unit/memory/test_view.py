"""The view shows the same record as text, picture, widget and file."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import display
from workbench.memory import MemoryView, memory
from workbench.records import MemoryRecord, read_record

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


def test_save_and_open_again(step_record, tmp_path: Path):
    path = memory(step_record).save(tmp_path / "a.safetensors")
    again = memory(str(path)).record
    assert isinstance(again, MemoryRecord)
    assert (again.series() == step_record.series()).all()


def test_the_suffix_says_what_is_written(step_record, tmp_path: Path):
    view = memory(step_record)
    for name, start in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")):
        assert view.save(tmp_path / name).read_bytes().startswith(start)
    for name, got in (("a.txt", r"the suffix '\.txt'"), ("a", "no suffix")):
        valid = r"a memory recording is saved as \.safetensors, \.png, \.pdf, \.svg"
        with pytest.raises(ValueError, match=f"has {got}; {valid}"):
            view.save(tmp_path / name)
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
