"""Cards are played for every experiment of these tests, as for those made with ``wb``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.experiment.failure import out_of_memory
from workbench.memory.cards.out_of_memory import OutOfMemoryTool


@pytest.fixture(autouse=True)
def _tool() -> Iterator[None]:
    before = list(out_of_memory._tools)
    out_of_memory.register(OutOfMemoryTool)
    yield
    out_of_memory._tools[:] = before
