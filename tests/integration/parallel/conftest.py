"""Ranks that start at once, for tests that are about what ranks compute and not how they start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.fork_server import ForkServer
from workbench.parallel import launch


@pytest.fixture
def forked_ranks(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Real processes that have imported torch already; a start takes a tenth of what it takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(launch, "subprocess", fork_server)
    yield
    torch.set_num_threads(before)
