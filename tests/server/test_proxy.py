"""What crosses the proxy: a backend on a unix socket reports every byte it was sent."""

from __future__ import annotations

import asyncio
import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from workbench.processes import start_group
from workbench.server.process_log import ProcessLog
from workbench.server.spawn import TensorBoardProcess

BIG = bytes(range(256)) * 40_000  # 10 MB


class Echo(BaseHTTPRequestHandler):
    """Answers with the request it got; some paths misbehave on purpose."""

    protocol_version = "HTTP/1.1"
    seen_big = 0

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        if "/big" in self.path:
            self._send(BIG, {"Content-Type": "application/octet-stream"})
        elif "/short" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
        elif "/silent" in self.path:
            self.close_connection = True
        elif "/chunked" in self.path:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        elif "/fresh" in self.path:
            self.send_response(304)
            self.send_header("ETag", '"1"')
            self.end_headers()
        else:
            length = int(self.headers.get("Content-Length", 0))
            received = {
                "method": self.command,
                "target": self.path,
                "headers": [[name.lower(), value] for name, value in self.headers.items()],
                "body": self.rfile.read(length).decode(),
            }
            self._send(
                json.dumps(received).encode(),
                {"Content-Type": "application/json", "Set-Cookie": "stolen=1", "X-Mine": "yes"},
            )

    do_POST = do_GET  # noqa: N815 - http.server looks for this name

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[TensorBoardProcess]:
    """The echo server in place of TensorBoard (a sleeping child stands for its process)."""
    path = tmp_path / "socket"
    server = Server(str(path), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    child = start_group(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    output = ProcessLog(child.popen, tmp_path / "log")
    yield TensorBoardProcess(group=child, socket=path, output=output)
    server.shutdown()
    server.server_close()
    child.kill()
    child.popen.wait()


@pytest.fixture
def url(
    jp_serverapp: Any, jp_asyncio_loop: Any, jp_root_dir: Path, backend: TensorBoardProcess
) -> str:
    """Where the proxy shows the backend."""
    (app,) = jp_serverapp.extension_manager.extension_apps["workbench"]

    async def start_echo(**_options: Any) -> TensorBoardProcess:
        return backend

    app.dashboards._start_process = start_echo
    board = jp_asyncio_loop.run_until_complete(app.dashboards.start(jp_root_dir))
    return board.url.removeprefix(jp_serverapp.base_url)


SAME = {"Sec-Fetch-Site": "same-origin"}


async def test_login_stays_here(url: str, jp_fetch: Any, jp_serverapp: Any) -> None:
    """Neither the cookie, nor the token in any form, nor a hub's headers reach TensorBoard."""
    token = jp_serverapp.identity_provider.token
    answer = await jp_fetch(
        url,
        "data",
        params={"token": token, "tag": "a b&c"},
        headers={
            **SAME,
            "Cookie": "username-localhost-8888=secret; _xsrf=2|abc",
            "X-XSRFToken": "2|abc",
            "X-Forwarded-User": "ada",
            "Range": "bytes=0-9",
            "Accept-Encoding": "gzip",
            "X-TensorBoard-Feature-Flags": "{}",
        },
    )
    received = json.loads(answer.body)
    names = {name for name, _value in received["headers"]}
    assert names == {
        "host",
        "connection",
        "range",
        "accept-encoding",
        "x-tensorboard-feature-flags",
    }
    assert "secret" not in answer.body.decode()
    assert token not in answer.body.decode()
    assert received["target"].endswith("data?tag=a+b%26c")
    assert answer.headers["X-Mine"] == "yes"
    assert "stolen" not in str(answer.headers)


async def test_a_body_is_forwarded(url: str, jp_fetch: Any) -> None:
    headers = {**SAME, "Content-Type": "application/x-www-form-urlencoded"}
    answer = await jp_fetch(url, "form", method="POST", body="runs=a&runs=b", headers=headers)
    received = json.loads(answer.body)
    assert (received["method"], received["body"]) == ("POST", "runs=a&runs=b")
    assert ["content-type", headers["Content-Type"]] in received["headers"]


async def test_ten_megabytes_arrive_whole(url: str, jp_fetch: Any) -> None:
    answer = await jp_fetch(url, "big", headers={**SAME})
    assert answer.body == BIG


async def test_chunked_and_not_modified(url: str, jp_fetch: Any) -> None:
    assert (await jp_fetch(url, "chunked", headers={**SAME})).body == b"abcdef"
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(url, "fresh", headers={**SAME, "If-None-Match": '"1"'})
    assert caught.value.code == 304
    assert caught.value.response.headers["ETag"] == '"1"'


async def test_no_answer_is_reported(url: str, jp_fetch: Any) -> None:
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(url, "silent", headers={**SAME})
    assert caught.value.code == 502
    assert "did not answer" in json.loads(caught.value.response.body)["message"]


async def test_a_short_answer_is_not_passed_off_as_whole(url: str, jp_fetch: Any) -> None:
    with pytest.raises(HTTPClientError) as caught:
        await asyncio.wait_for(jp_fetch(url, "short", headers={**SAME}), 120)
    assert caught.value.code == 599  # tornado's own: the connection was closed


async def test_a_browser_that_leaves_ends_the_request(
    url: str, jp_serverapp: Any, jp_http_port: int, http_server: Any, caplog: Any
) -> None:
    """Closing a tab half-way frees the backend's connection, and nothing is logged as an error."""
    (app,) = jp_serverapp.extension_manager.extension_apps["workbench"]
    (board,) = app.dashboards.running()
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    token = jp_serverapp.identity_provider.token
    head = [f"GET {board.url}big HTTP/1.1", "Host: 127.0.0.1", f"Authorization: token {token}"]
    writer.write("\r\n".join([*head, "", ""]).encode())
    assert (await asyncio.wait_for(reader.readline(), 120)).startswith(b"HTTP/1.1 200")
    assert board.open_requests == 1
    writer.close()
    async with asyncio.timeout(120):
        while board.open_requests:
            await asyncio.sleep(0.02)
    assert not [r for r in caplog.records if r.levelname in {"ERROR", "CRITICAL"} and r.exc_info]
