"""TensorBoard through the proxy, and its life: one process, no orphans, no port, no torch."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest

from tests.processes import children_of, command_of, is_alive
from tests.server.support import (
    LOSSES,
    Server,
    start_server,
    stop_server,
    wait_until,
    write_events,
)
from workbench.server.dashboards import Dashboards, DashboardSettings, dashboard_id
from workbench.server.errors import (
    DashboardFailedError,
    TooManyDashboardsError,
    UnknownDashboardError,
)
from workbench.server.spawn import launch

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def own_server(tmp_path: Path):
    """A server this test may kill or reconfigure."""
    servers: list[Server] = []

    def start(*flags: str) -> Server:
        server = start_server(tmp_path, *flags)
        servers.append(server)
        write_events(server.root / "runs" / "digits")
        return server

    yield start
    for server in servers:
        stop_server(server)


class TestThroughTheProxy:
    """What the browser gets, under a base URL."""

    def test_scalars_of_a_real_event_file(self, server: Server) -> None:
        key = server.start("runs")["id"]
        tags = f"tb/{key}/data/plugin/scalars/tags"
        wait_until(lambda: server.ask("GET", tags).json().get("digits"))
        query = {"run": "digits", "tag": "train/loss"}
        answer = server.ask("GET", f"tb/{key}/data/plugin/scalars/scalars", params=query)
        assert [point[2] for point in answer.json()] == LOSSES

    def test_a_form_posted_without_xsrf_token(self, server: Server) -> None:
        """TensorBoard's own way to ask for many runs at once."""
        key = server.start("runs")["id"]
        tags = f"tb/{key}/data/plugin/scalars/tags"
        wait_until(lambda: server.ask("GET", tags).json().get("digits"))
        answer = server.ask(
            "POST",
            f"tb/{key}/data/plugin/scalars/scalars_multirun",
            data={"tag": "train/loss", "runs": "digits"},
            headers={"X-XSRFToken": None},
        )
        assert [point[2] for point in answer.json()["digits"]] == LOSSES

    def test_page_compressed_and_only_framed_by_jupyter(self, server: Server) -> None:
        board = server.start("runs")
        assert board["url"] == f"/user/ada%40lab/workbench/tb/{board['id']}/"
        assert board["logdir"] == "runs"
        path = f"tb/{board['id']}/"
        page = server.ask("GET", path)
        assert page.status_code == 200
        assert "<title>TensorBoard</title>" in page.text
        policies = page.raw.headers.getlist("Content-Security-Policy")
        assert any("frame-ancestors 'self'" in policy for policy in policies)
        assert any("script-src" in policy for policy in policies)
        script = server.ask("GET", path + "index.js", headers={"Accept-Encoding": "gzip"})
        assert script.headers["Content-Encoding"] == "gzip"
        assert len(script.content) > 1_000_000
        head = server.ask("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")

    def test_what_the_page_requests_is_below_its_address(self, server: Server) -> None:
        """A hub forwards what is below a person's address alone: the rest is not found there."""
        path = f"tb/{server.start('runs')['id']}/"
        page = server.base + path
        html = server.ask("GET", path).text
        script = server.ask("GET", path + "index.js").text
        fonts = re.findall(r"url\(([^)]+\.woff2)\)", html)
        assert len(fonts) > 50
        for address in [urljoin(page, font) for font in fonts]:
            assert address.startswith(page), address
        answer = server.ask("GET", urljoin(page, fonts[0]).removeprefix(server.base))
        assert (answer.status_code, answer.content[:4]) == (200, b"wOF2")
        assert re.findall(r'(?:src|href)=["\']?/[^>]*', html) == []
        assert re.findall(r'"/tf-imports[^"]*"', script) == []

    def test_without_the_last_slash(self, server: Server) -> None:
        key = server.start("runs")["id"]
        answer = server.ask("GET", f"tb/{key}?darkMode=true")
        assert answer.status_code == 302
        assert answer.headers["Location"].endswith(f"workbench/tb/{key}/?darkMode=true")

    def test_listed_while_it_runs(self, server: Server) -> None:
        board = server.start("runs")
        assert board in server.ask("GET", "api/tensorboard").json()["dashboards"]

    def test_unknown_dashboard(self, server: Server) -> None:
        answer = server.ask("GET", "tb/00ff00ff00ff00ff/data/environment")
        assert (answer.status_code, "not running" in answer.json()["message"]) == (404, True)
        page = server.ask("GET", "tb/00ff00ff00ff00ff/", headers={"Accept": "text/html"})
        assert page.headers["Content-Type"].startswith("text/html")
        assert "not running" in page.text


def socket_of(process: psutil.Process) -> Path:
    command = command_of(process)
    return Path(command[command.index("--socket") + 1])


@linux
class TestProcesses:
    """What is left on the machine, and what is loaded."""

    def test_private_socket_no_port_no_torch(self, server: Server) -> None:
        server.start("runs")
        boards = server.tensorboards()
        assert boards
        for process in [psutil.Process(server.process.pid), *boards]:
            assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
        for process in boards:
            listening = [c for c in process.net_connections("inet") if c.status == "LISTEN"]
            assert listening == []
        path = socket_of(boards[0])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_many_requests_at_once_start_one_process(self, own_server) -> None:
        server = own_server()
        with ThreadPoolExecutor(8) as pool:
            boards = list(pool.map(server.start, ["runs", "runs/", "./runs", "runs/."] * 2))
        assert len({board["id"] for board in boards}) == 1
        assert len(server.tensorboards()) == 1

    def test_stop_ends_the_process_and_start_begins_anew(self, own_server) -> None:
        server = own_server()
        key = server.start("runs")["id"]
        (process,) = server.tensorboards()
        folder = socket_of(process).parent
        assert server.ask("DELETE", f"api/tensorboard/{key}").status_code == 204
        assert not is_alive(process)
        assert not folder.exists()
        assert server.ask("GET", f"tb/{key}/").status_code == 404
        assert server.ask("DELETE", f"api/tensorboard/{key}").status_code == 404
        assert server.start("runs")["id"] == key

    @pytest.mark.parametrize("data_server", [False, True])
    def test_nothing_is_left_after_kill_9(self, own_server, data_server: bool) -> None:
        server = own_server(f"--WorkbenchServer.tensorboard_data_server={data_server}")
        server.start("runs")
        orphans = server.tensorboards()
        assert len(orphans) == (2 if data_server else 1)
        folder = socket_of(orphans[0]).parent
        server.process.kill()
        server.process.wait(120)
        wait_until(lambda: not any(map(is_alive, orphans)))
        wait_until(lambda: not folder.exists())

    def test_nothing_is_left_after_a_normal_end(self, own_server) -> None:
        server = own_server("--WorkbenchServer.tensorboard_data_server=True")
        server.start("runs")
        children = server.tensorboards()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(120)
        wait_until(lambda: not any(map(is_alive, children)))

    def test_idle_it_sleeps_and_the_next_request_wakes_it(self, own_server) -> None:
        server = own_server("--WorkbenchServer.tensorboard_idle_stop_s=1")
        key = server.start("runs")["id"]
        wait_until(lambda: not server.tensorboards())
        assert server.ask("GET", "api/tensorboard").json() == {"dashboards": []}
        assert server.ask("GET", f"tb/{key}/data/environment").status_code == 200
        assert len(server.tensorboards()) <= 1, "it may sleep again already"

    def test_a_crash_is_reported_and_start_recovers(self, own_server) -> None:
        server = own_server()
        key = server.start("runs")["id"]
        (process,) = server.tensorboards()
        process.kill()
        wait_until(lambda: not server.ask("GET", "api/tensorboard").json()["dashboards"])
        answer = server.ask("GET", f"tb/{key}/data/environment")
        assert answer.status_code == 502
        assert "ended by itself" in answer.json()["message"]
        server.start("runs")
        assert server.ask("GET", f"tb/{key}/data/environment").status_code == 200

    def test_a_start_that_fails_says_why(self, own_server) -> None:
        server = own_server("--WorkbenchServer.tensorboard_arguments=--no_such_flag")
        answer = server.ask("POST", "api/tensorboard", json={"logdir": "runs"})
        assert answer.status_code == 502
        message = answer.json()["message"]
        assert "did not start" in message
        assert "unrecognized arguments: --no_such_flag" in message
        log = Path(message.rsplit("(more of them: ", 1)[1].rstrip(")"))
        assert "unrecognized arguments" in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


class TestCap:
    """At the limit an idle dashboard makes room; a busy one does not."""

    @pytest.fixture
    def boards(self, tmp_path: Path) -> Dashboards:
        settings = DashboardSettings(base_url="/", log_folder=tmp_path / "logs", limit=2)
        for name in "abc":
            (tmp_path / name).mkdir()
        return Dashboards(settings, launch)

    def test_refused_while_all_are_in_use(self, boards: Dashboards, tmp_path: Path) -> None:
        async def story() -> None:
            await asyncio.gather(boards.start(tmp_path / "a"), boards.start(tmp_path / "b"))
            with pytest.raises(TooManyDashboardsError, match=r"2 TensorBoards run.*stop one"):
                await boards.start(tmp_path / "c")
            await boards.stop_all()
            assert boards.running() == []

        asyncio.run(story())

    def test_the_longest_idle_sleeps_for_another(self, boards: Dashboards, tmp_path: Path) -> None:
        async def story() -> None:
            a = await boards.start(tmp_path / "a")
            b = await boards.start(tmp_path / "b")
            a.last_request -= 1000
            b.last_request -= 500
            c = await boards.start(tmp_path / "c")
            assert not a.process.alive
            assert boards.running() == [b, c]
            b.last_request -= 1000
            woken = await boards.reach(a.id)
            assert (woken.logdir, boards.running()) == (a.logdir, [c, woken])
            await boards.stop_all()

        asyncio.run(story())

    def test_one_with_an_open_request_does_not_sleep(
        self, boards: Dashboards, tmp_path: Path
    ) -> None:
        async def story() -> None:
            a = await boards.start(tmp_path / "a")
            a.last_request -= 10_000
            with a.in_use():
                await boards.sleep_idle()
                assert boards.running() == [a]
            await boards.stop_all()
            with pytest.raises(UnknownDashboardError):
                await boards.reach(a.id)

        asyncio.run(story())

    def test_a_start_that_takes_too_long_leaves_no_process(self, tmp_path: Path) -> None:
        before = set(children_of(psutil.Process(), recursive=False))

        async def story() -> None:
            await launch(logdir=tmp_path, path_prefix="/x", log=tmp_path / "log", timeout_s=0.05)

        with pytest.raises(DashboardFailedError, match=r"did not listen within 0.05 s"):
            asyncio.run(story())
        assert set(children_of(psutil.Process(), recursive=False)) <= before


def test_an_id_is_stable(tmp_path: Path) -> None:
    """A restored tab finds its dashboard after the server was restarted."""
    assert dashboard_id(Path("/a/runs")) == dashboard_id(Path("/a") / "runs")
    assert dashboard_id(Path("/a/runs")) != dashboard_id(Path("/a/run"))
    assert len(dashboard_id(tmp_path)) == 16


def test_runs_are_listed(server: Server) -> None:
    answer = server.ask("GET", "api/runs", params={"root": "runs"}).json()
    assert answer["truncated"] is False
    (run,) = answer["runs"]
    assert (run["name"], run["path"], run["status"]) == ("digits", "runs/digits", "finished")
    assert json.dumps(run, allow_nan=False)


def test_before_the_first_run_there_is_no_folder(server: Server) -> None:
    answer = server.ask("GET", "api/runs", params={"root": "later/runs"})
    nothing = {"runs": [], "truncated": False, "deleted": []}
    assert (answer.status_code, answer.json()) == (200, nothing)
    file = server.ask("GET", "api/runs", params={"root": "runs/digits/run.json"})
    assert (file.status_code, "a file" in file.json()["message"]) == (404, True)
