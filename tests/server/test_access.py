"""Who may ask: every URL refuses those without a login, and other sites."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.server.support import TOKEN, Server
from workbench.server.handlers import routes

ENDPOINTS = [
    ("GET", "api/path?of=runs"),
    ("GET", "api/runs"),
    ("DELETE", "api/runs?path=runs/digits"),
    ("POST", "api/runs/restore"),
    ("GET", "api/tensorboard"),
    ("POST", "api/tensorboard"),
    ("DELETE", "api/tensorboard/0123456789abcdef"),
    ("POST", "api/memory/record"),
    ("POST", "api/memory/ask"),
    ("GET", "tb/0123456789abcdef/"),
    ("HEAD", "tb/0123456789abcdef/"),
    ("POST", "tb/0123456789abcdef/data/plugin/scalars/scalars_multirun"),
]


def test_every_handler_is_listed_here() -> None:
    """A new endpoint must be added to the checks below."""
    offered = set()
    unused: Any = None
    for _pattern, handler, _shared in routes(unused, unused, unused, unused, unused):
        methods = ["get", "head", "post", "put", "patch", "delete"]
        offered |= {(handler.__name__, m.upper()) for m in methods if m in vars(handler)}
    assert offered == {
        ("PathHandler", "GET"),
        ("RunsHandler", "GET"),
        ("RunsHandler", "DELETE"),
        ("RestoreRunHandler", "POST"),
        ("DashboardsHandler", "GET"),
        ("DashboardsHandler", "POST"),
        ("DashboardHandler", "DELETE"),
        ("MemoryRecordHandler", "POST"),
        ("MemoryAskHandler", "POST"),
        ("ProxyHandler", "GET"),
        ("ProxyHandler", "HEAD"),
        ("ProxyHandler", "POST"),
    }


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_refused_without_a_login(server: Server, method: str, path: str) -> None:
    answer = requests.request(
        method,
        server.base + path,
        json={"logdir": "runs"},
        headers={"Sec-Fetch-Site": "same-origin"},
        allow_redirects=False,
        timeout=120,
    )
    if answer.status_code == 302:
        assert "/login" in answer.headers["Location"]
    else:
        assert answer.status_code == 403
    assert b"dashboards" not in answer.content


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_refused_with_a_wrong_token(server: Server, method: str, path: str) -> None:
    answer = requests.request(
        method,
        server.base + path,
        json={"logdir": "runs"},
        headers={"Authorization": "token wrong", "Sec-Fetch-Site": "same-origin"},
        allow_redirects=False,
        timeout=120,
    )
    assert answer.status_code in {302, 403}


@pytest.mark.parametrize(("method", "path"), [e for e in ENDPOINTS if e[1].startswith("api")])
def test_api_refuses_another_origin(server: Server, method: str, path: str) -> None:
    answer = server.ask(
        method,
        path,
        json={"logdir": "runs"},
        headers={"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    )
    assert answer.status_code in {403, 404}
    assert "message" in answer.json()


@pytest.mark.parametrize(
    ("method", "path"), [one for one in ENDPOINTS if one[0] != "GET" and one[1].startswith("api")]
)
def test_writes_need_the_xsrf_token(server: Server, method: str, path: str) -> None:
    answer = server.ask(method, path, json={"logdir": "runs"}, headers={"X-XSRFToken": "guess"})
    assert answer.status_code == 403


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    return f"tb/{server.start('runs')['id']}/data/environment"


class TestProxyOrigin:
    """TensorBoard sends no XSRF token, so the proxy looks at where a request comes from."""

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
    def test_another_site_is_refused(
        self, server: Server, path: str, method: str, site: str
    ) -> None:
        assert server.ask(method, path, headers={"Sec-Fetch-Site": site}).status_code == 403

    def test_typed_into_the_address_bar_reads_only(self, server: Server, path: str) -> None:
        headers = {"Sec-Fetch-Site": "none"}
        assert server.ask("GET", path, headers=headers).status_code == 200
        assert server.ask("POST", path, headers=headers).status_code == 403

    def test_referer_decides_where_the_browser_sends_no_fetch_metadata(
        self, server: Server, path: str
    ) -> None:
        def status(referer: str | None) -> int:
            headers = {"Sec-Fetch-Site": None, "Referer": referer}
            return server.ask("GET", path, headers=headers).status_code

        assert status(server.base) == 200
        assert status("https://evil.example/") == 403
        assert status(None) == 403

    def test_a_script_with_the_token_needs_no_referer(self, server: Server, path: str) -> None:
        headers = {"Authorization": f"token {TOKEN}"}
        assert requests.get(server.base + path, headers=headers, timeout=120).status_code == 200

    def test_another_host_name_is_refused(self, server: Server, path: str) -> None:
        """A page that rebinds its own name to 127.0.0.1 is not this server."""
        answer = server.ask("GET", path, headers={"Host": "evil.example"})
        assert answer.status_code == 403


HOSTILE = [
    "..",
    "../..",
    "runs/../../..",
    "/",
    "/etc",
    "/root/../etc",
    "link-out",
    "link-out/deeper",
]


@pytest.fixture(scope="module")
def links(server: Server) -> None:
    outside = server.root.parent / "outside" / "deeper"
    outside.mkdir(parents=True, exist_ok=True)
    for name, target in (("link-out", outside.parent), ("link-in", server.root / "runs")):
        if not (server.root / name).is_symlink():
            (server.root / name).symlink_to(target)
    if not (server.root / "loop").is_symlink():
        (server.root / "loop").symlink_to("loop")


@pytest.mark.usefixtures("links")
class TestPaths:
    """A path leads into the server's root, or is refused with one sentence."""

    @pytest.mark.parametrize("path", HOSTILE)
    def test_outside_is_refused(self, server: Server, path: str) -> None:
        for answer in (
            server.ask("POST", "api/tensorboard", json={"logdir": path}),
            server.ask("GET", "api/runs", params={"root": path}),
            server.ask("DELETE", "api/runs", params={"path": path}),
            server.ask("POST", "api/runs/restore", json={"path": path}),
        ):
            assert answer.status_code == 403
            assert "outside the folder Jupyter serves" in answer.json()["message"]

    def test_percent_encoded_dots_are_dots(self, server: Server) -> None:
        assert server.ask("GET", "api/runs?root=%2e%2e%2f%2e%2e").status_code == 403
        # decoded once only: what is left is the name of a folder that does not exist
        answer = server.ask("GET", "api/runs?root=%252e%252e%252f")
        assert (answer.status_code, answer.json()) == (
            200,
            {"runs": [], "truncated": False, "deleted": []},
        )

    @pytest.mark.parametrize("path", ["runs\0", "x" * 5000, "loop"])
    def test_no_path_at_all(self, server: Server, path: str) -> None:
        answer = server.ask("POST", "api/tensorboard", json={"logdir": path})
        assert answer.status_code in {400, 404}
        assert len(answer.json()["message"]) < 700

    @pytest.mark.parametrize("path", ["tensorboard", "memory/record", "memory/ask", "runs/restore"])
    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"[]", b'{"logdir": 3}', b'{"logdir": null}', b"[" * 100_000, b'{"a":' * 9_999],
        ids=["nothing", "cut", "list", "number", "null", "deep", "deep objects"],
    )
    def test_a_malformed_body(self, server: Server, path: str, body: bytes) -> None:
        answer = server.ask("POST", f"api/{path}", data=body)
        assert answer.status_code == 400
        assert answer.json()["message"]

    def test_missing_and_file(self, server: Server) -> None:
        missing = server.ask("POST", "api/tensorboard", json={"logdir": "nowhere"})
        assert (missing.status_code, "not there" in missing.json()["message"]) == (404, True)
        file = server.ask("POST", "api/tensorboard", json={"logdir": "runs/digits/run.json"})
        assert (file.status_code, "a file" in file.json()["message"]) == (404, True)

    def test_a_link_within_the_root_is_the_folder_it_names(self, server: Server) -> None:
        assert server.start("link-in") == server.start("runs")
        assert server.start(str(server.root / "runs")) == server.start("runs")

    def test_dots_in_a_proxied_address_stay_with_tensorboard(self, server: Server) -> None:
        """Raw dots, as no browser sends them, never reach another handler or a file."""
        address = urlsplit(server.base)
        key = server.start("runs")["id"]
        for tail in ("../../../api/status", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/"):
            connection = HTTPConnection(address.netloc, timeout=120)
            connection.putrequest("GET", f"{address.path}tb/{key}/{tail}", skip_host=False)
            connection.putheader("Authorization", f"token {TOKEN}")
            connection.endheaders()
            assert connection.getresponse().status == 404
            connection.close()
