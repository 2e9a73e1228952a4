"""What a kernel's path is to the page: asked of a real server, however its root is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.support import Server, start_server, stop_server


def named(server: Server, path: str) -> str | None:
    answer = server.ask("GET", "api/path", params={"of": path})
    assert answer.status_code == 200, answer.text
    found: str | None = answer.json()["path"]
    return found


def test_paths_of_a_kernel_are_those_of_the_contents_service(server: Server) -> None:
    root = server.root
    given = [str(root / "runs"), f"{root}/runs/../runs/digits", str(root.parent), "runs", str(root)]
    found = [named(server, path) for path in given]
    assert found == ["runs", "runs/digits", None, "runs", ""]


@pytest.mark.parametrize("path", ["with a space", "#%&?=ü", " ", "runs\n"])
def test_any_path_arrives_as_it_is(server: Server, path: str) -> None:
    assert named(server, path) == path


def test_a_request_without_a_path_is_refused(server: Server) -> None:
    assert server.ask("GET", "api/path").status_code == 400


def test_a_root_named_through_a_link_and_below_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is told ``~/...`` of such a root, which no kernel's path begins with."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "alias").symlink_to(tmp_path / "root")
    running = start_server(tmp_path, f"--ServerApp.root_dir={tmp_path / 'alias'}")
    try:
        (tmp_path / "root" / "net.py").touch()
        for name in ("root", "alias"):
            assert named(running, str(tmp_path / name / "net.py")) == "net.py"
    finally:
        stop_server(running)


def test_a_dashboard_may_be_framed_where_nothing_else_may(tmp_path: Path) -> None:
    """As on JupyterHub, whose servers say that nobody may frame their pages."""
    report = "report-uri /hub/security/csp-report"
    policy = {"Content-Security-Policy": f"frame-ancestors 'none'; {report}"}
    running = start_server(tmp_path, f"--ServerApp.tornado_settings={{'headers': {policy}}}")
    try:
        (running.root / "runs").mkdir()
        key = running.start("runs")["id"]
        page = running.ask("GET", f"tb/{key}/")
        own, *theirs = page.raw.headers.getlist("Content-Security-Policy")
        assert own == f"frame-ancestors 'self'; {report}"
        assert not any("frame-ancestors 'none'" in one for one in theirs)
        listed = running.ask("GET", "api/tensorboard")
        assert "frame-ancestors 'none'" in listed.headers["Content-Security-Policy"]
    finally:
        stop_server(running)
