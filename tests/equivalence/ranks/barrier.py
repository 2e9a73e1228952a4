"""Ranks that wait for a command before certain steps, so that it comes at a step that is known.

A person who switches modes while ranks train does so at whatever step they have got to. A plain
loop has to do the same at the same step; so rank 0 says where it is and waits until there is a
command, and then goes on as ever: all ranks obey it once that step is done.
`workbench.parallel.exchange.files.Job.companions` has this module ride along.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import wait_until
from workbench.parallel.rank.rank import Rank

WAITS = "WORKBENCH_TEST_WAITS"
"""The environment's name for those steps: ``3,7``."""


@contextmanager
def accompany(rank: Rank) -> Iterator[None]:
    """Have ``rank`` wait, if it is the first."""
    steps = {int(one) for one in os.environ.get(WAITS, "").split(",") if one}
    advance = rank.advance

    def wait_and_advance() -> None:
        if rank.leads and rank.training.step_count + 1 in steps:
            carried_out = rank._commands.count
            rank._reporter.position(carried_out)
            wait_until(lambda: rank._count_commands() > carried_out, "a command")
        advance()

    rank.advance = wait_and_advance
    yield
