"""An experiment of a moment, for the runner's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support import batchless, net
from workbench.experiment import (
    Experiment,
)


@pytest.fixture
def exp(tmp_path: Path) -> Iterator[Experiment]:
    experiment = Experiment(net(), batchless(), batch_size=16, runs=tmp_path, device="cpu")
    yield experiment
    experiment.close()
