"""An experiment of a moment, and processes that start at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.fork_server import ForkServer
from tests.integration.support import batchless, net
from workbench.experiment import (
    Experiment,
)
from workbench.parallel.launch import worker_processes


@pytest.fixture
def exp(tmp_path: Path) -> Iterator[Experiment]:
    experiment = Experiment(net(), batchless(), batch_size=16, runs=tmp_path, device="cpu")
    yield experiment
    experiment.close()


@pytest.fixture
def forked_ranks(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Real processes that have imported torch already; a start takes a tenth of what it takes.

    For tests of what ranks, or variants of a comparison, compute, and not of how they start.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(worker_processes, "start_group", fork_server.start_group)
    yield
    torch.set_num_threads(before)
