"""How benchmarks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import absent
from workbench.experiment.services import only

_FOLDER = Path(__file__).parent
_PATIENCE_S = 4 * 3600
"""For a benchmark that hangs: many rounds take long on a machine that is slow."""


@pytest.fixture(autouse=True)
def complete_experiments() -> Iterator[None]:
    """Experiments are a user's: with TensorBoard, the hub and all that Workbench attaches."""
    with only(None):
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for one another on a busy machine burn processor time of their own.

    On one thread a ratio of Python's work to a kernel's does not depend on how many cores there
    are, either.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.timeout(_PATIENCE_S))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Every peer, tool or file that was not there, and what that left out."""
    left_out = [f"{what}: {without}" for what, without in absent.NOTES.items()]
    left_out += _skipped(terminalreporter.stats.get("skipped", ()))
    if left_out:
        terminalreporter.section("not measured, for want of what was not there")
        for line in left_out:
            terminalreporter.write_line(line)


def _skipped(reports: Any) -> list[str]:
    """A line for each benchmark that was skipped, with its reason."""
    name = _FOLDER.name + "/"
    return [
        f"{report.nodeid.rpartition(name)[2]}: {report.longrepr[2].removeprefix('Skipped: ')}"
        for report in reports
        if name in report.nodeid
    ]
