"""GPUs can be simulated for every experiment of these tests, as for those made with ``wb``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.experiment.services import Services, only
from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool


@pytest.fixture(autouse=True)
def _tool() -> Iterator[None]:
    with only(Services(memory_tool=OutOfMemoryTool)):
        yield
