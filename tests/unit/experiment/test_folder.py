"""Run directories, captures and checkpoints: bounded, unique, never half written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.integration.support import chart as empty_chart
from workbench.experiment import Experiment
from workbench.experiment.report.captures import MAX_CAPTURES, CaptureStore
from workbench.experiment.report.run_directory import RunFolder, slug
from workbench.records import MemoryChart


def chart(points: int = 0) -> MemoryChart:
    return replace(empty_chart(1), num_points=points, bytes=np.zeros(points, dtype=np.float32))


def test_names_are_unique_and_safe(tmp_path: Path) -> None:
    folders = [RunFolder(tmp_path, "a/../b <c>") for _ in range(3)]
    names = [folder.path.name for folder in folders]
    assert names == ["a-..-b-c", "a-..-b-c-2", "a-..-b-c-3"]
    assert all(folder.path.parent == tmp_path for folder in folders)
    assert slug("..") == slug("") == "run"
    assert len(slug("x" * 10_000)) == 80


def test_run_json_is_replaced_in_one_piece(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "r")
    assert folder.write({"step": 1})
    assert folder.write({"step": 2})
    assert json.loads((folder.path / "run.json").read_text())["step"] == 2
    left = {path.name for path in folder.path.iterdir()}
    assert left == {"run.json", "run.lock"}, "a draft was left"


def test_a_folder_that_became_unwritable_says_so_and_recovers(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs", "r")
    folder.path.rmdir()
    folder.path.write_text("in the way")
    assert not folder.write({})
    assert "training goes on without it" in folder.problem
    folder.path.unlink()
    assert folder.write({})
    assert folder.problem == ""


def test_a_script_is_warned_at_once_that_nothing_will_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = torch.randn(8, 2), torch.zeros(8, dtype=torch.long)
    with pytest.warns(RuntimeWarning, match="nothing is written to disk: .*file") as caught:
        Experiment(nn.Linear(2, 2), data, runs=tmp_path / "file")
    assert caught[0].filename == __file__


def test_an_experiment_that_never_ran_leaves_no_folder(tmp_path: Path) -> None:
    data = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    exp = Experiment(nn.Linear(2, 2), data, runs=tmp_path, device="cpu")
    assert exp.path.is_dir()
    del exp
    assert list(tmp_path.iterdir()) == []


def test_a_failure_without_a_record_says_so() -> None:
    with pytest.raises(KeyError, match="this failure has no record: the step was not recorded"):
        CaptureStore().get("")


def test_captures_are_bounded_and_newest_first() -> None:
    store = CaptureStore()
    ids = [store.add("memory", step, chart()) for step in range(MAX_CAPTURES + 5)]
    assert [info.step for info in store.infos()] == list(range(MAX_CAPTURES + 4, 4, -1))
    assert store.get(ids[-1]) is not None
    with pytest.raises(KeyError, match="is held; held are"):
        store.get(ids[0])


def test_a_huge_capture_pushes_out_the_others_but_not_itself() -> None:
    store = CaptureStore()
    store.add("graph", 1, chart())
    big = store.add("graph", 2, chart(20 * 2**20))
    assert [info.id for info in store.infos()] == [big]


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    data = torch.randn(8, 2), torch.zeros(8, dtype=torch.long)
    exp = Experiment(nn.Linear(2, 2), data, runs=tmp_path, device="cpu")
    (exp.path / "checkpoints").write_text("in the way")
    exp.run(epochs=2, wait=True)
    assert exp.status == "finished"
    exp.close()


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"", b"[]", b"7", b"{}", b"[" * 200_000, b'{"process": 3}',
     b'{"process": {"host": "h", "pid": "1"}, "created_at": 0}',
     b'{"process": {"host": "h", "pid": -1}, "created_at": 0}',
     b'{"process": {"host": null, "pid": 1}, "created_at": 0}',
     b'{"process": {"host": "h", "pid": 1}, "created_at": "now"}',
     b'{"process": {"host": "h", "pid": 1e999}, "created_at": 0}'],
)  # fmt: skip
def test_a_file_that_describes_no_run_is_refused_in_a_sentence(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"run\.json describes no run"):
        RunFolder.existing(tmp_path).read()
