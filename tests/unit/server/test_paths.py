"""A path a browser sends leads into the root or is refused. Hypothesis tries the hostile ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workbench.server.errors import (
    BadRequestError,
    MissingFolderError,
    OutsideRootError,
    ServerError,
)
from workbench.server.paths import contents_path, folder_inside, relative_to_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with folders, links that stay in and links that lead out, beside a secret."""
    home = tmp_path / "root"
    (home / "runs" / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "root-but-not").mkdir()
    (home / "out").symlink_to(tmp_path / "secret")
    (home / "in").symlink_to("runs")
    (home / "loop").symlink_to("loop")
    (home / "file").touch()
    return home


@pytest.mark.parametrize("given_path", ["", ".", "runs", "runs/", "./runs/../runs/a", "in/a"])
def test_inside(root: Path, given_path: str) -> None:
    folder = folder_inside(root, given_path)
    assert folder == (root / given_path).resolve()
    assert not relative_to_root(root, folder).startswith("/")


def test_absolute_inside(root: Path) -> None:
    assert folder_inside(root, str(root / "runs")) == root / "runs"


def test_a_root_that_is_itself_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert folder_inside(tmp_path / "alias", "runs") == root / "runs"
    assert relative_to_root(tmp_path / "alias", root / "runs") == "runs"


@pytest.mark.parametrize("given_path", ["..", "../secret", "out", "out/..", "/", "../root-but-not"])
def test_outside(root: Path, given_path: str) -> None:
    with pytest.raises(OutsideRootError, match="leads outside the folder Jupyter serves"):
        folder_inside(root, given_path)


@pytest.mark.parametrize(
    ("given_path", "error"),
    [
        ("nowhere", MissingFolderError),
        ("file", MissingFolderError),
        ("a\0b", BadRequestError),
        ("loop", BadRequestError),
        ("x" * 5000, BadRequestError),
        (None, BadRequestError),
        (3, BadRequestError),
        (["runs"], BadRequestError),
    ],
)
def test_no_folder(root: Path, given_path: object, error: type[ServerError]) -> None:
    with pytest.raises(error) as caught:
        folder_inside(root, given_path)
    assert "\0" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(root: Path) -> None:
    (root / "locked").mkdir(mode=0)
    with pytest.raises(MissingFolderError, match="permissions"):
        folder_inside(root, "locked")


PARTS = st.sampled_from(["..", ".", "", "runs", "a", "in", "out", "loop", "file", "/", "~", "\0"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(PARTS | st.text(max_size=3), max_size=8).map("/".join))
@example("runs/\ud800")
def test_whatever_is_sent_what_comes_back_is_inside(root: Path, given_path: str) -> None:
    try:
        folder = folder_inside(root, given_path)
    except ServerError:
        return
    assert folder.is_dir()
    assert folder.resolve() == folder
    assert folder.is_relative_to(root)


def test_the_contents_service_knows_a_file_by_one_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    names = ["runs/a", "runs/../runs/./a", "in/a", "out/../root/runs/a"]
    for served in (root, tmp_path / "alias", root / "runs" / ".."):
        assert {contents_path(served, str(served / name)) for name in names} == {"runs/a"}
        assert contents_path(served, str(root / "runs" / "a")) == "runs/a"
        assert contents_path(served, str(tmp_path / "alias" / "runs" / "a")) == "runs/a"
        assert contents_path(served, "runs/a") == "runs/a"
        assert contents_path(served, str(served)) == ""


def test_what_lies_outside_has_no_name_unless_a_link_inside_leads_there(
    root: Path, tmp_path: Path
) -> None:
    assert contents_path(root, str(tmp_path / "secret")) is None
    assert contents_path(root, str(tmp_path / "root-but-not")) is None
    assert contents_path(root, "/") is None
    assert contents_path(root, str(root / "out" / "net.py")) == "out/net.py"
    assert contents_path(root, "../secret") is None


def test_what_is_not_there_yet_has_a_name_and_what_is_no_path_has_none(root: Path) -> None:
    assert contents_path(root, str(root / "runs" / "later" / "x")) == "runs/later/x"
    assert contents_path(root, str(root / "loop" / "x")) in (None, "loop/x")
    assert contents_path(root, "a\0b") is None
    assert contents_path(root, "a" * 5000) is None


@given(text=st.text(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_raises_or_is_named_from_outside(root: Path, text: str) -> None:
    found = contents_path(root, text)
    assert found is None or not found.startswith(("/", "../"))
