"""A Jupyter server in this process (pytest-jupyter's fixtures), and a shared real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403 - fixtures, only for this folder

from tests.server.support import Server, start_server, stop_server, write_events


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server under a base URL, with a person logged in; shared by tests that leave it running."""
    running = start_server(tmp_path_factory.mktemp("server"), base_url="/user/ada%40lab/")
    write_events(running.root / "runs" / "digits")
    (running.root / "runs" / "digits" / "run.json").write_text(
        json.dumps({"name": "digits", "status": "finished", "step": 4, "updated_at": 5.0})
    )
    yield running
    stop_server(running)


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    """The in-process server has the extension enabled."""
    return {"ServerApp": {"jpserver_extensions": {"workbench": True}}}
