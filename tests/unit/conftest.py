"""Scripts in processes of their own, which start at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.fork_server import ForkServer
from tests.integration.scripts import environment
from tests.waiting import DEADLINE_S

_LEAVES = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer({**environment(), "OMP_NUM_THREADS": "1"})
    yield server
    server.close()


@pytest.fixture(scope="session")
def ran(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script to its end, with arguments, in a process that has imported torch already.

    It imports Workbench anew. Once ``text`` has run, it is gone: taking torch down takes longer
    than most scripts. With ``to_the_end`` it ends as an interpreter does.
    """

    def run(
        text: str, *arguments: str, to_the_end: bool = False
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path_factory.mktemp("script")
        path, out, err = folder / "script.py", folder / "stdout", folder / "stderr"
        path.write_text(text if to_the_end else text + _LEAVES)
        process = fork_server.script(path, *arguments, env=environment(), stdout=out, stderr=err)
        try:
            status = process.wait(DEADLINE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, status, out.read_text(), err.read_text())

    return run
