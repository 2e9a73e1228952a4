"""Ranks that are forked from one process, and one thread on either side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.equivalence.ranks.check import ranks
from tests.fork_server import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ranks() as found:
        yield found


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
