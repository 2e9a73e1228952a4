"""Forwarding of one HTTP request to a unix socket; the answer is streamed back.

What a browser sends to Jupyter is not meant for TensorBoard: the request carries only the headers
named in `_FORWARDED`, so the login cookie, the token and anything a hub adds stay here, and a token
in the query is removed. TensorBoard's answer must not affect Jupyter's session: its cookies are
dropped. Bodies are passed through unchanged, compressed or in ranges, one chunk at a time; the next
chunk is read once the browser has taken the last one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError

_FORWARDED = frozenset(
    {
        "Accept",
        "Accept-Encoding",
        "Accept-Language",
        "Cache-Control",
        "Content-Type",
        "If-Match",
        "If-Modified-Since",
        "If-None-Match",
        "If-Range",
        "If-Unmodified-Since",
        "Range",
    }
)
_FORWARDED_PREFIX = "X-Tensorboard-"
_KEPT_BACK = frozenset(
    {
        # hop by hop: RFC 9110, section 7.6.1
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Connection",
        "Te",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        # the session belongs to Jupyter
        "Set-Cookie",
        "Server",
        "Date",
    }
)
_MAX_BODY_BYTES = 1 << 40  # streamed, never held: only set because tornado needs a limit

OnHeaders = Callable[[ResponseStartLine, HTTPHeaders], None]
OnChunk = Callable[[bytes], Awaitable[None]]


class BackendClosedError(Exception):
    """The backend closed the connection before its answer was complete."""


def request_headers(incoming: HTTPHeaders, body: bytes) -> HTTPHeaders:
    """Return those of the browser's headers that the backend may see."""
    headers = HTTPHeaders({"Host": "tensorboard", "Connection": "close"})
    for name, value in incoming.get_all():
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIX):
            headers.add(name, value)
    if body:
        headers["Content-Length"] = str(len(body))
    return headers


def response_headers(answered: HTTPHeaders) -> list[tuple[str, str]]:
    """Return those of the backend's headers that the browser may see."""
    return [(name, value) for name, value in answered.get_all() if name not in _KEPT_BACK]


def without_token(uri: str) -> str:
    """Return a request target without its ``token`` parameter (Jupyter's login by URL)."""
    parts = urlsplit(uri)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if not any(name == "token" for name, _value in pairs):
        return uri
    query = urlencode([pair for pair in pairs if pair[0] != "token"])
    return parts._replace(query=query).geturl()


class Exchange:
    """One request to the backend and its answer.

    Args:
        path: The backend's socket.
        on_headers: Called once with the status line and the headers.
        on_chunk: Called with each piece of the body; awaited before the next one is read.
    """

    def __init__(self, path: Path, on_headers: OnHeaders, on_chunk: OnChunk) -> None:
        self._path = path
        self._relay = _Relay(on_headers, on_chunk)
        self._stream: IOStream | None = None

    async def run(self, method: str, uri: str, headers: HTTPHeaders, body: bytes) -> None:
        """Send the request and relay the answer to its end.

        Raises:
            BackendClosedError: no process listens on the socket, or the answer was cut short.
        """
        self._stream = IOStream(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            await self._stream.connect(str(self._path))  # type: ignore[arg-type] # a unix address is a string
            connection = HTTP1Connection(
                self._stream,
                is_client=True,
                params=HTTP1ConnectionParameters(
                    no_keep_alive=True, max_body_size=_MAX_BODY_BYTES, decompress=False
                ),
            )
            start_line = RequestStartLine(method, uri, "HTTP/1.1")
            await asyncio.wrap_future(connection.write_headers(start_line, headers, body or None))
            connection.finish()
            await connection.read_response(self._relay)
        except (OSError, StreamClosedError) as error:
            raise BackendClosedError(str(error)) from error
        finally:
            self.close()
        if not self._relay.complete:
            raise BackendClosedError("the answer broke off")

    def close(self) -> None:
        """Abort the request, because the browser is gone."""
        if self._stream is not None:
            self._stream.close()


class _Relay(HTTPMessageDelegate):
    def __init__(self, on_headers: OnHeaders, on_chunk: OnChunk) -> None:
        self._on_headers = on_headers
        self._on_chunk = on_chunk
        self.complete = False

    def headers_received(self, start_line: object, headers: HTTPHeaders) -> None:
        if isinstance(start_line, ResponseStartLine) and start_line.code >= 200:
            self._on_headers(start_line, headers)

    async def data_received(self, chunk: bytes) -> None:
        await self._on_chunk(chunk)

    def finish(self) -> None:
        self.complete = True
