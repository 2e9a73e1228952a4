"""GPUs can be simulated for every experiment of these tests, and every remedy is tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.experiment.services import Services, only
from workbench.memory.simulated_gpu import remedies
from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool


@pytest.fixture(scope="module", autouse=True)
def _tool() -> Iterator[None]:
    """On a busy machine everything is tried all the same."""
    with pytest.MonkeyPatch.context() as patch, only(Services(memory_tool=OutOfMemoryTool)):
        patch.setattr(remedies, "BUDGET_S", 120.0)
        yield
