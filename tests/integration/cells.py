"""Cells in a real kernel: what `Cell [1], line 12` is tested with."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel


@contextmanager
def new_kernel() -> Generator[BlockingKernelClient]:
    """A kernel of this environment, ended afterwards."""
    manager, client = start_new_kernel()
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: BlockingKernelClient, code: str) -> str:
    """Run a cell and give what it printed."""
    printed: list[str] = []

    def listen(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=listen, timeout=300)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)
