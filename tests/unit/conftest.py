"""Scripts in processes of their own, which start at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.fork_server import ForkServer
from tests.integration.scripts import ended


@pytest.fixture(scope="session")
def ran(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the text of a script to its end, with arguments, where torch is imported already."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path_factory.mktemp("script") / "script.py"
        path.write_text(text)
        return ended(fork_server, path, *arguments)

    return run
