"""Deleting a run and putting it back, through a real server, also while TensorBoard shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import LOSSES, Server, start_server, stop_server, write_events
from tests.waiting import wait_until
from workbench.server.paths import DELETED_FOLDER

FINISHED = {"status": "finished", "step": 4, "updated_at": 5.0}
AUTHORIZER = """
from jupyter_server.auth.authorizer import Authorizer

class MayWrite(Authorizer):
    '''Everything is allowed, but for writing {resource}.'''
    def is_authorized(self, handler, user, action, resource):
        return (action, resource) != ("write", "{resource}")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def started(*flags: str) -> Server:
        servers.append(start_server(tmp_path, *flags))
        return servers[-1]

    yield started
    for one in servers:
        stop_server(one)


def make_run(server: Server, path: str, **said: Any) -> Path:
    run = server.root / path
    write_events(run)
    (run / "run.json").write_text(json.dumps({"name": run.name, **FINISHED, **said}))
    return run


def listed(server: Server, root: str) -> tuple[list[str], list[str]]:
    """Names of the runs, and of those that can be put back."""
    answer = server.ask("GET", "api/runs", params={"root": root}).json()
    return [one["name"] for one in answer["runs"]], [one["name"] for one in answer["deleted"]]


def delete(server: Server, path: str) -> tuple[int, str]:
    answer = server.ask("DELETE", "api/runs", params={"path": path})
    return answer.status_code, answer.json()["message"] if answer.content else ""


def restore(server: Server, root: str) -> tuple[int, str]:
    """Put back the run that was deleted last."""
    deleted = server.ask("GET", "api/runs", params={"root": root}).json()["deleted"]
    answer = server.ask("POST", "api/runs/restore", json={"path": deleted[0]["path"]})
    return answer.status_code, answer.json().get("path") or answer.json()["message"]


@pytest.mark.parametrize("name", ["digits", "with space", "#%&?=ü"])
def test_deleted_and_put_back_by_any_name(server: Server, name: str) -> None:
    runs = f"runs of {name}"
    run = make_run(server, f"{runs}/{name}")
    assert delete(server, f"{runs}/{name}") == (204, "")
    assert listed(server, runs) == ([], [name])
    assert not run.exists()
    assert restore(server, runs) == (200, f"{runs}/{name}")
    assert listed(server, runs) == ([name], [])


def test_two_windows_at_once(server: Server) -> None:
    """Each does what the other has done before; both are told, and nothing is done twice."""
    make_run(server, "windows/digits")
    assert delete(server, "windows/digits")[0] == 204
    status, why = delete(server, "windows/digits")
    assert (status, "not there" in why) == (404, True)
    at = server.ask("GET", "api/runs", params={"root": "windows"}).json()["deleted"][0]["path"]
    answers = [server.ask("POST", "api/runs/restore", json={"path": at}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert listed(server, "windows") == (["digits"], [])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"path": 3}', b'{"path": "runs/digits"}'])
def test_a_request_that_names_no_deleted_run(server: Server, body: bytes) -> None:
    answer = server.ask("POST", "api/runs/restore", data=body)
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_a_run_under_way_is_refused_with_the_reason(server: Server) -> None:
    process = {"host": "gpu1.invalid", "pid": 1}
    run = make_run(server, "busy/digits", status="training", process=process)
    assert delete(server, "busy/digits") == (
        409,
        "digits is training on gpu1.invalid: stop it first.",
    )
    assert run.is_dir()


def test_a_hidden_run_is_refused_as_the_file_browser_refuses_it(server: Server) -> None:
    run = make_run(server, ".cache/digits")
    assert delete(server, ".cache/digits")[0] == 404
    assert run.is_dir()


@pytest.mark.parametrize("resource", ["contents", "workbench"])
def test_who_may_not_write_deletes_nothing(
    start: Callable[..., Server], tmp_path: Path, resource: str
) -> None:
    (tmp_path / "rules.py").write_text(AUTHORIZER.format(resource=resource))
    server = start("--ServerApp.authorizer_class=rules.MayWrite")
    run = make_run(server, "runs/digits")
    other = make_run(server, f"runs/{DELETED_FOLDER}/4000000000000-0123abcd/other")
    assert listed(server, "runs") == (["digits"], ["other"])
    assert delete(server, "runs/digits")[0] == 403
    assert restore(server, "runs")[0] == 403
    assert run.is_dir()
    assert other.is_dir()


def test_after_its_time_a_run_is_removed_by_the_server(start: Callable[..., Server]) -> None:
    server = start("--WorkbenchServer.deleted_runs_keep_s=0")
    run = make_run(server, "runs/digits")
    assert delete(server, "runs/digits")[0] == 204
    wait_until(lambda: not list(run.parent.iterdir()))
    assert listed(server, "runs") == ([], [])


def test_tensorboard_loses_it_and_has_it_again(start: Callable[..., Server]) -> None:
    """TensorBoard has its files open, and looks into hidden folders by itself."""
    server = start("--WorkbenchServer.tensorboard_arguments=--reload_interval=1")
    for name in ("digits", "kept"):
        make_run(server, f"runs/{name}")
    all_of_them, alone = server.start("runs")["id"], server.start("runs/digits")["id"]

    def runs(key: str) -> set[str]:
        return set(server.ask("GET", f"tb/{key}/data/plugin/scalars/tags").json())

    def losses() -> list[float]:
        query = {"run": "digits", "tag": "train/loss"}
        answer = server.ask("GET", f"tb/{all_of_them}/data/plugin/scalars/scalars", params=query)
        return [value for _, _, value in answer.json()] if answer.status_code == 200 else []

    wait_until(lambda: runs(all_of_them) == {"digits", "kept"} and runs(alone) == {"."})
    assert delete(server, "runs/digits")[0] == 204
    wait_until(lambda: runs(all_of_them) == {"kept"})
    wait_until(lambda: not runs(alone))
    assert restore(server, "runs")[0] == 200
    wait_until(lambda: losses() == LOSSES)
    wait_until(lambda: runs(alone) == {"."})
