"""Gradient flow of a live experiment, sent to a browser that requests it once a second.

A whole record of a long training is 400 kB; what was sampled within a second is 1 kB. So a browser
sends the number of steps that it already has, and is sent the columns after them as a separate
record, with the same rows. The newest columns are never thinned out
(`workbench.gradient_flow.history`), so they continue what the browser holds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from workbench.gradient_flow.history import NEWEST
from workbench.gradient_flow.log import gradient_flow
from workbench.panel.channel.commands import CommandError

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import GradientFlow


def flow_since(experiment: Experiment, args: Any) -> tuple[int, bytes] | None:
    """Return what was sampled since the browser's last request.

    Args:
        experiment: whose gradients were sampled.
        args: ``{"known": int}``, the ``total_sampled`` of what the browser holds; 0 if it holds
            nothing.

    Returns:
        (``known``, or 0 for a whole record; a `GradientFlow` as bytes), or None if there is nothing
        new.

    Raises:
        CommandError: ``known`` is not an integer from 0 on.
    """
    known = args.get("known", 0) if isinstance(args, dict) else 0
    if isinstance(known, bool) or not isinstance(known, int) or known < 0:
        raise CommandError(f"known must be a whole number from 0 on, got {known!r}")
    record = gradient_flow(experiment)
    fresh = record.total_sampled - known
    if known and fresh == 0:
        return None
    if known and 0 < fresh <= NEWEST:
        return known, _newest(record, fresh).to_bytes()
    return 0, record.to_bytes()


def _newest(record: GradientFlow, count: int) -> GradientFlow:
    norms = record.matrix()[:, -count:].reshape(-1)
    return dataclasses.replace(record, step=record.step[-count:], norm=norms)
