"""Deleting runs and putting them back: to the byte, by whom, and what the disk refuses."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.server.deleted_runs import DeletedRuns
from workbench.server.errors import (
    BadRequestError,
    MissingFolderError,
    NotWritableError,
    RunInUseError,
)
from workbench.server.paths import DELETED_FOLDER, folder_itself
from workbench.server.run_listing import list_runs
from workbench.trust import Seal

FINISHED = {"name": "digits", "status": "finished", "updated_at": 5.0}
HOUR_S = 3600.0


@pytest.fixture
def runs() -> DeletedRuns:
    return DeletedRuns(HOUR_S)


def make_run(path: Path, **said: Any) -> Path:
    (path / "checkpoints").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({**FINISHED, "name": path.name, **said}))
    (path / "checkpoints" / "last.pt").write_bytes(bytes(range(256)) * 40)
    (path / "current").symlink_to("checkpoints/last.pt")
    for age, one in enumerate([*path.rglob("*"), path], start=1):
        os.utime(one, ns=(age, 1_600_000_000_123_456_789 + age), follow_symlinks=False)
    return path


def contents(path: Path) -> dict[str, tuple[Any, ...]]:
    """Every byte, time, permission and link target below a folder, and the folder's own."""
    found: dict[str, tuple[Any, ...]] = {}
    for one in [path, *path.rglob("*")]:
        stat = one.lstat()
        data = one.readlink() if one.is_symlink() else one.read_bytes() if one.is_file() else None
        name = str(one.relative_to(path))
        found[name] = (stat.st_mtime_ns, stat.st_mode, stat.st_ino, data)
    return found


def deleted(runs: DeletedRuns, root: Path) -> list[str]:
    """Names of what can be put back, as the side panel is told."""
    return [run.name for run in runs.below(list_runs(root, root).deleted, root)]


def where(runs: DeletedRuns, root: Path, name: str) -> Path:
    found = runs.below(list_runs(root, root).deleted, root)
    return folder_itself(root, next(run.path for run in found if run.name == name))


def test_a_run_comes_back_to_the_byte_with_its_times(runs: DeletedRuns, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "digits")
    before = contents(run)
    runs.delete(run, tmp_path)
    assert not run.exists()
    assert list_runs(tmp_path, tmp_path).runs == []
    assert deleted(runs, tmp_path) == ["digits"]
    assert runs.restore(where(runs, tmp_path, "digits")) == run
    assert contents(run) == before
    assert [one.name for one in (tmp_path / "runs").iterdir()] == ["digits"]
    assert deleted(runs, tmp_path) == []


def test_the_one_deleted_last_is_offered_first(runs: DeletedRuns, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        runs.delete(make_run(tmp_path / name), tmp_path)
        (entry,) = (tmp_path / DELETED_FOLDER).glob(f"*/{name}")
        shift = {"a": 0, "b": 2, "c": 1}[name]  # three of one millisecond have no order
        when, random = entry.parent.name.split("-")
        entry.parent.rename(entry.parent.with_name(f"{int(when) + 100 * shift}-{random}"))
    assert deleted(runs, tmp_path) == ["b", "c", "a"]


def test_a_name_that_was_taken_meanwhile_is_not_written_over(
    runs: DeletedRuns, tmp_path: Path
) -> None:
    before = contents(make_run(tmp_path / "digits"))
    runs.delete(tmp_path / "digits", tmp_path)
    other = contents(make_run(tmp_path / "digits", best_accuracy=0.5))
    (tmp_path / "digits-2").mkdir()  # empty folders are not written over either
    back = runs.restore(where(runs, tmp_path, "digits"))
    assert back == tmp_path / "digits-3"
    assert contents(back) == before
    assert contents(tmp_path / "digits") == other


def test_two_runs_of_one_name_both_come_back(runs: DeletedRuns, tmp_path: Path) -> None:
    for accuracy in (0.25, 0.75):
        runs.delete(make_run(tmp_path / "digits", best_accuracy=accuracy), tmp_path)
    assert deleted(runs, tmp_path) == ["digits", "digits"]
    for _ in range(2):
        runs.restore(where(runs, tmp_path, "digits"))
    found = {run.best_accuracy for run in list_runs(tmp_path, tmp_path).runs}
    assert found == {0.25, 0.75}


def test_what_another_window_did_is_said(runs: DeletedRuns, tmp_path: Path) -> None:
    run = make_run(tmp_path / "digits")
    runs.delete(run, tmp_path)
    at = where(runs, tmp_path, "digits")
    runs.restore(at)
    with pytest.raises(MissingFolderError, match="digits was put back or removed meanwhile"):
        runs.restore(at)
    assert [one.name for one in tmp_path.iterdir()] == ["digits"]


class TestWhatIsNotDeleted:
    @pytest.mark.parametrize(
        ("status", "does"), [("training", "is training"), ("paused", "is paused")]
    )
    def test_a_run_under_way(
        self, runs: DeletedRuns, tmp_path: Path, status: str, does: str
    ) -> None:
        here = {"host": platform.node(), "pid": os.getpid()}
        run = make_run(tmp_path / "digits", status=status, process=here, updated_at=4e9)
        with pytest.raises(RunInUseError, match=f"^digits {does}: stop it first"):
            runs.delete(run, tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["digits"]

    def test_a_run_on_another_machine_says_where(self, runs: DeletedRuns, tmp_path: Path) -> None:
        there = {"host": "gpu1.invalid", "pid": 1}
        run = make_run(tmp_path / "digits", status="training", process=there)
        with pytest.raises(RunInUseError, match=r"digits is training on gpu1\.invalid: stop it"):
            runs.delete(run, tmp_path)

    def test_a_run_whose_ranks_outlived_their_kernel(
        self, runs: DeletedRuns, tmp_path: Path
    ) -> None:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        kernel = {"host": platform.node(), "pid": gone.pid}
        run = make_run(tmp_path / "digits", status="training", process=kernel)
        (run / "parallel" / "0").mkdir(parents=True)
        launcher = {
            "pid": os.getpid(),
            "created": psutil.Process().create_time(),
            "host": platform.node(),
        }
        Seal.new().write_json(run / "parallel" / "0" / "launcher.json", launcher, "launcher")
        with pytest.raises(RunInUseError, match=r"ranks of digits still train .* wb\.attach"):
            runs.delete(run, tmp_path)
        said = {**launcher, "pid": gone.pid}
        Seal.new().write_json(run / "parallel" / "0" / "launcher.json", said, "launcher")
        runs.delete(run, tmp_path)

    def test_a_folder_that_is_no_run(self, runs: DeletedRuns, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        with pytest.raises(BadRequestError, match=r"photos is no run: it holds no run\.json"):
            runs.delete(tmp_path / "photos", tmp_path)
        make_run(tmp_path / "root")
        with pytest.raises(BadRequestError, match="no run"):
            runs.delete(tmp_path / "root", tmp_path / "root")

    def test_what_a_symbolic_link_names(self, runs: DeletedRuns, tmp_path: Path) -> None:
        run = make_run(tmp_path / "real" / "digits")
        (tmp_path / "link").symlink_to(run)
        (tmp_path / "way").symlink_to(run.parent)
        for given in ("link", "way/digits"):
            with pytest.raises(BadRequestError, match="symbolic link"):
                folder_itself(tmp_path, given)
        (tmp_path / "made-up").mkdir()
        (tmp_path / "made-up" / "run.json").symlink_to(run / "run.json")
        with pytest.raises(BadRequestError, match="no run"):
            runs.delete(tmp_path / "made-up", tmp_path)

    def test_nothing_is_moved_through_a_link_in_the_place_of_our_folder(
        self, runs: DeletedRuns, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        run = make_run(tmp_path / "root" / "digits")
        (tmp_path / "root" / DELETED_FOLDER).symlink_to(elsewhere)
        with pytest.raises(NotWritableError, match="digits was not deleted"):
            runs.delete(run, tmp_path / "root")
        assert run.is_dir()
        make_run(elsewhere / "1600000000000-0123abcd" / "old")
        runs.below([tmp_path / "root" / DELETED_FOLDER], tmp_path / "root")
        runs.remove_old()
        assert (elsewhere / "1600000000000-0123abcd" / "old" / "run.json").exists()

    @pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EXDEV])
    def test_a_disk_that_refuses_says_why_and_nothing_is_left(
        self, runs: DeletedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        run = make_run(tmp_path / "digits")

        def refuse(_path: Path, _target: Path) -> Path:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refuse)
            with pytest.raises(NotWritableError, match=os.strerror(number)):
                runs.delete(run, tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["digits"]
        runs.delete(run, tmp_path)
        at = where(runs, tmp_path, "digits")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refuse)
            with pytest.raises(NotWritableError, match="digits was not put back"):
                runs.restore(at)
        assert not run.exists()
        assert at.is_dir()

    def test_a_folder_that_may_not_be_written_to(self, runs: DeletedRuns, tmp_path: Path) -> None:
        if os.geteuid() == 0:
            pytest.skip("root writes everywhere")
        run = make_run(tmp_path / "runs" / "digits")
        run.parent.chmod(0o555)
        try:
            with pytest.raises(NotWritableError, match=r"cannot be changed \(Permission denied\)"):
                runs.delete(run, tmp_path)
        finally:
            run.parent.chmod(0o755)

    @pytest.mark.parametrize(
        "place", ["digits", f"{DELETED_FOLDER}/digits", f"{DELETED_FOLDER}/removing-1/digits"]
    )
    def test_only_what_was_deleted_is_put_back(
        self, runs: DeletedRuns, tmp_path: Path, place: str
    ) -> None:
        run = make_run(tmp_path / "root" / place)
        with pytest.raises(BadRequestError, match="not among the deleted runs"):
            runs.restore(run)
        assert run.is_dir()


class TestForGood:
    def test_after_its_time_a_run_is_removed_and_no_longer_offered(self, tmp_path: Path) -> None:
        runs = DeletedRuns(0.0)
        outside = make_run(tmp_path / "outside")
        run = make_run(tmp_path / "root" / "digits")
        (run / "link").symlink_to(outside)
        runs.delete(run, tmp_path / "root")
        assert deleted(runs, tmp_path / "root") == []
        runs.remove_old()
        assert list((tmp_path / "root").iterdir()) == []
        assert (outside / "checkpoints" / "last.pt").exists()

    def test_before_its_time_nothing_is_removed(self, runs: DeletedRuns, tmp_path: Path) -> None:
        runs.delete(make_run(tmp_path / "digits"), tmp_path)
        runs.remove_old()
        assert deleted(runs, tmp_path) == ["digits"]

    def test_what_an_earlier_server_deleted_is_found_by_listing(self, tmp_path: Path) -> None:
        DeletedRuns(HOUR_S).delete(make_run(tmp_path / "digits"), tmp_path)
        later = DeletedRuns(HOUR_S)
        assert deleted(later, tmp_path) == ["digits"]
        much_later = DeletedRuns(0.0)
        assert deleted(much_later, tmp_path) == []
        much_later.remove_old()
        assert list(tmp_path.iterdir()) == []

    def test_a_removal_that_was_cut_short_is_ended_by_the_next(
        self, runs: DeletedRuns, tmp_path: Path
    ) -> None:
        half = tmp_path / DELETED_FOLDER / "removing-1600000000000-0123abcd" / "digits"
        make_run(half)
        assert deleted(runs, tmp_path) == []
        runs.remove_old()
        assert list(tmp_path.iterdir()) == []
