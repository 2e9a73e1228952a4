"""Which headers cross the proxy, name by name."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders

from workbench.server.proxy import request_headers, response_headers, without_token


@pytest.mark.parametrize(
    "name",
    [
        "Cookie",
        "cookie",
        "Authorization",
        "X-XSRFToken",
        "X-Auth-Token",
        "X-Forwarded-For",
        "Proxy-Authorization",
        "Referer",
        "Origin",
    ],
)
def test_not_for_the_backend(name: str) -> None:
    assert "secret" not in str(dict(request_headers(HTTPHeaders({name: "secret"}), b"").get_all()))


@pytest.mark.parametrize("name", ["Range", "accept-encoding", "If-None-Match", "Content-Type"])
def test_for_the_backend(name: str) -> None:
    assert request_headers(HTTPHeaders({name: "value"}), b"")[name] == "value"


def test_length_is_that_of_the_body() -> None:
    headers = request_headers(HTTPHeaders({"Content-Length": "999"}), b"four")
    assert headers["Content-Length"] == "4"


def test_two_policies_stay_two() -> None:
    answered = HTTPHeaders({"Set-Cookie": "a=1", "Transfer-Encoding": "chunked"})
    answered.add("Content-Security-Policy", "default-src 'self'")
    answered.add("Content-Security-Policy", "img-src data:")
    assert response_headers(answered) == [
        ("Content-Security-Policy", "default-src 'self'"),
        ("Content-Security-Policy", "img-src data:"),
    ]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/tb/1/", "/tb/1/"),
        ("/tb/1/?darkMode=true", "/tb/1/?darkMode=true"),
        ("/tb/1/?token=s3cret", "/tb/1/"),
        ("/tb/1/x?a=1&token=s3cret&b=%2F", "/tb/1/x?a=1&b=%2F"),
        ("/tb/1/x?%74oken=s3cret&a=", "/tb/1/x?a="),
        ("/tb/1/x?my_token=keep", "/tb/1/x?my_token=keep"),
    ],
)
def test_the_login_token_is_cut_out(uri: str, expected: str) -> None:
    assert without_token(uri) == expected
