"""Listing runs: what is shown of good, damaged and hostile folders, and the bounds."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.strangers import begin_as_stranger, needs_a_stranger, shared_folder
from workbench.server import run_listing
from workbench.server.run_listing import Lister, list_runs, read_run

GOOD = {
    "schema": "workbench.run/1",
    "name": "digits",
    "status": "finished",
    "model": "EarlyExitCNN",
    "modes": "compile+bf16",
    "best_accuracy": 0.987,
    "step": 1230,
    "updated_at": 1_700_000_000.5,
    "cells": ["import torch"],
}


def make_run(path: Path, content: str | bytes | dict[str, Any]) -> Path:
    path.mkdir(parents=True)
    if isinstance(content, dict):
        content = json.dumps(content)
    data = content.encode() if isinstance(content, str) else content
    (path / "run.json").write_bytes(data)
    return path


def test_a_run_as_the_side_panel_shows_it(tmp_path: Path) -> None:
    make_run(tmp_path / "project" / "runs" / "digits", GOOD)
    (run,), truncated, _ = list_runs(tmp_path / "project", tmp_path)
    assert not truncated
    assert (run.name, run.path, run.status) == ("digits", "project/runs/digits", "finished")
    assert (run.model, run.modes, run.step) == ("EarlyExitCNN", "compile+bf16", 1230)
    assert (run.best_accuracy, run.updated_at) == (0.987, 1_700_000_000.5)


def test_newest_first(tmp_path: Path) -> None:
    for name, when in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        make_run(tmp_path / name, {**GOOD, "name": name, "updated_at": when})
    assert [run.name for run in list_runs(tmp_path, tmp_path)[0]] == ["b", "c", "a"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        b"\xff\xfe\x00",
        json.dumps(GOOD)[:-20],
        "[" * 100_000,
    ],
    ids=["empty", "cut", "list", "null", "text", "binary", "half-written", "deep"],
)
def test_damaged_is_listed_and_hides_nothing(tmp_path: Path, content: str | bytes) -> None:
    make_run(tmp_path / "good", GOOD)
    make_run(tmp_path / "bad", content)
    found = {run.path: run.status for run in list_runs(tmp_path, tmp_path)[0]}
    assert found == {"good": "finished", "bad": "damaged"}


def test_fields_of_the_wrong_type_are_left_out(tmp_path: Path) -> None:
    path = make_run(
        tmp_path / "odd",
        '{"name": 3, "status": null, "model": ["x"], "step": "many", "best_accuracy": NaN,'
        ' "modes": {}, "updated_at": "yesterday"}',
    )
    run = read_run(path, tmp_path)
    assert (run.name, run.status, run.model, run.modes) == ("odd", "unknown", "", "")
    assert (run.step, run.best_accuracy) == (0, None)
    assert run.updated_at == (path / "run.json").stat().st_mtime


def test_huge_values_stay_small(tmp_path: Path) -> None:
    path = make_run(tmp_path / "huge", {"name": "<script>" * 9000, "step": 10**400})
    run = read_run(path, tmp_path)
    assert len(run.name) == 200
    assert run.step == 0


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_run(tmp_path / "outside", GOOD)
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "circle").symlink_to(root)
    inside = root / "inside"
    inside.mkdir()
    (inside / "run.json").symlink_to(tmp_path / "outside" / "run.json")
    assert list_runs(root, root) == ([], False, [])


def test_hidden_and_installed_folders_are_skipped(tmp_path: Path) -> None:
    for name in (".venv/x", "node_modules/x", "a/__pycache__/x"):
        make_run(tmp_path / name, GOOD)
    assert list_runs(tmp_path, tmp_path) == ([], False, [])


def test_a_run_inside_a_run_is_its_own_affair(tmp_path: Path) -> None:
    make_run(tmp_path / "outer", GOOD)
    make_run(tmp_path / "outer" / "checkpoints" / "inner", GOOD)
    assert [run.path for run in list_runs(tmp_path, tmp_path)[0]] == ["outer"]


def test_the_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(6):
        make_run(tmp_path / f"run{index}", GOOD)
    monkeypatch.setattr(run_listing, "_MAX_RUNS", 4)
    found, truncated, _ = list_runs(tmp_path, tmp_path)
    assert (len(found), truncated) == (4, True)
    monkeypatch.setattr(run_listing, "_MAX_FOLDERS", 3)  # the root itself is one
    found, truncated, _ = list_runs(tmp_path, tmp_path)
    assert (len(found), truncated) == (2, True)


def test_where_there_are_too_many_the_newest_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_listing, "_MAX_RUNS", 3)
    for index in range(40):
        run = make_run(tmp_path / f"run{index:02}", {**GOOD, "updated_at": 1e9 + 7 * index % 40})
        os.utime(run / "run.json", (1e9, 1e9 + 7 * index % 40))
    found, truncated, _ = list_runs(tmp_path, tmp_path)
    assert truncated
    assert [run.updated_at for run in found] == [1e9 + 39, 1e9 + 38, 1e9 + 37]


def test_files_made_to_keep_their_reader_busy_are_not_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_listing, "_MAX_FILE_BYTES", 10_000)
    monkeypatch.setattr(run_listing, "_MAX_BYTES", 25_000)
    for index in range(6):
        run = make_run(tmp_path / f"run{index}", json.dumps(GOOD) + " " * 9_000)
        os.utime(run / "run.json", (1e9, 1e9 + index))
    lister = run_listing.Lister()
    found, truncated, _ = lister.list(tmp_path, tmp_path)
    assert ([run.path for run in found], truncated) == (["run4", "run5"], True)
    found, truncated, _ = lister.list(tmp_path, tmp_path)  # what was read is known
    assert (sorted(run.path for run in found), truncated) == (
        ["run2", "run3", "run4", "run5"],
        True,
    )
    found, truncated, _ = lister.list(tmp_path, tmp_path)
    assert (len(found), truncated) == (6, False)
    make_run(tmp_path / "large", json.dumps(GOOD) + " " * 20_000)
    assert {run.path: run.status for run in lister.list(tmp_path, tmp_path)[0]}[
        "large"
    ] == "damaged"


def test_a_run_that_went_on_is_read_again(tmp_path: Path) -> None:
    run, lister = make_run(tmp_path / "run", GOOD), run_listing.Lister()
    assert lister.list(tmp_path, tmp_path)[0][0].step == 1230
    (run / "new.json").write_text(json.dumps({**GOOD, "step": 1231}))
    (run / "new.json").replace(run / "run.json")
    assert lister.list(tmp_path, tmp_path)[0][0].step == 1231


@pytest.mark.parametrize("kind", ["pipe", "link", "endless"])
def test_what_took_the_place_of_a_file_between_two_looks_is_not_waited_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held the server's threads for good, and its end with them."""
    make_run(tmp_path / "run", GOOD)
    read = run_listing.read_regular

    def swapped(path: Path, most: int) -> bytes:
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero" if kind == "endless" else tmp_path / "elsewhere")
        return read(path, most)

    monkeypatch.setattr(run_listing, "read_regular", swapped)
    (found,), _, _ = list_runs(tmp_path, tmp_path)
    assert found.status == "damaged"


SWAP = """
run, good, elsewhere = sys.argv[1:4]
path = os.path.join(run, "run.json")
def good_file(name):
    with open(name, "w") as file:
        file.write(good)
kinds = [good_file, os.mkfifo, os.mkdir,
         lambda name: os.symlink(elsewhere, name), lambda name: os.symlink("/dev/zero", name)]
print("begun", flush=True)
while True:
    for number, make in enumerate(kinds):
        draft = os.path.join(run, "draft%d" % number)
        try:
            make(draft)
        except FileExistsError:
            pass
        try:
            os.rename(draft, path)
        except OSError:  # a folder, whose place only a folder takes
            os.rename(path, os.path.join(run, "old%d" % random.getrandbits(60)))
"""


@needs_a_stranger
@pytest.mark.parametrize("times", [1_000, pytest.param(100_000, marks=pytest.mark.fuzz)])
def test_what_a_second_user_swaps_is_listed_or_damaged_and_never_waited_for(times: int) -> None:
    """It held a thread of the server for good in 8 of 23 tries."""
    with shared_folder() as shared:
        secret = shared / "secret"
        secret.write_text(json.dumps({**GOOD, "name": "secret"}))
        run = shared / "runs" / "run"
        run.mkdir(parents=True)
        run.chmod(0o777)
        with begin_as_stranger(SWAP, run, json.dumps(GOOD), secret) as swaps:
            try:
                assert swaps.stdout is not None
                assert swaps.stdout.readline() == "begun\n"
                lister, met, all_kinds = Lister(), set[str](), {"damaged", str(GOOD["status"])}
                count = 0
                while count < times or not all_kinds <= met:
                    count += 1
                    for one in lister.list(shared / "runs", shared).runs:
                        assert one.name != "secret"
                        met.add(one.status)
                    assert swaps.poll() is None, "he goes on"
            finally:
                swaps.kill()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_is_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "good", GOOD)
    (tmp_path / "locked").mkdir(mode=0)
    assert len(list_runs(tmp_path, tmp_path)[0]) == 1


@pytest.mark.parametrize("status", ["training", "paused"])
def test_a_run_whose_process_is_gone_was_interrupted(tmp_path: Path, status: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(120)
    me = psutil.Process()
    started = me.create_time()

    def shown(name: str, **process: object) -> str:
        facts = {**GOOD, "status": status, "updated_at": started + 1, "process": process}
        return read_run(make_run(tmp_path / name, facts), tmp_path).status

    here = platform.node()
    assert shown("gone", host=here, pid=ended.pid) == "interrupted"
    assert shown("alive", host=here, pid=me.pid) == status
    assert shown("elsewhere", host=f"not-{here}", pid=ended.pid) == status
    assert shown("damaged", host=here, pid="1") == status
    assert shown("negative", host=here, pid=-5) == "interrupted"
    facts = {**GOOD, "status": status, "updated_at": started - 60}
    facts["process"] = {"host": here, "pid": me.pid}
    run = make_run(tmp_path / "reused", facts)
    assert read_run(run, tmp_path).status == "interrupted", "its number has a new owner"


def test_a_run_that_is_over_stays_as_it_ended(tmp_path: Path) -> None:
    facts = {**GOOD, "process": {"host": platform.node(), "pid": 2**22 + 1}}
    assert read_run(make_run(tmp_path / "run", facts), tmp_path).status == "finished"


@pytest.mark.parametrize("number", ["Infinity", "1e999", "NaN", "10" * 200, '"x"', "null", "-1"])
@pytest.mark.parametrize("name", ["pid", "created"])
def test_a_launcher_that_is_no_process_hides_nothing(
    name: str, number: str, tmp_path: Path
) -> None:
    kernel = {"host": platform.node(), "pid": 1 << 22}
    run = make_run(tmp_path / "run", {**GOOD, "status": "training", "process": kernel})
    (run / "parallel" / "1").mkdir(parents=True)
    said = {"pid": "1", "created": "0.0", "host": json.dumps(platform.node()), name: number}
    text = ", ".join(f'"{key}": {value}' for key, value in said.items())
    (run / "parallel" / "1" / "launcher.json").write_text(f"{{{text}}}")
    (found,), _, _ = list_runs(tmp_path, tmp_path)
    assert found.status in ("interrupted", "detached")
