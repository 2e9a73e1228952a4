"""State that hooks keep (a counter, a list, a moving average), restored after a trial step.

A hook that counts would count a step that is never taken: one that is computed only for inspection
(`workbench.experiment.loop.step_undo`), the forward that a switch of modes compares with, and the
first part of a batch on a rank. What a hook writes is found by what its code can reach
(`workbench.experiment.state.hook_reach`), and has its former contents again afterwards. Objects of
libraries are left alone: a writer, for example, has already written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from workbench.experiment.state.hook_reach import known_of, reached
from workbench.experiment.state.object_change import Change, fill
from workbench.experiment.state.object_contents import Contents
from workbench.torch_private.tensors import counted_version

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_MOST_BYTES = 2**30
"""Maximum bytes of tensors and arrays whose values are copied, to host memory; of the other
tensors, those that were written are named."""

log = logging.getLogger("workbench")


@contextmanager
def hooks_undone(training: Training) -> Generator[None]:
    """Undo on exit what hooks write into the user's objects and variables.

    Args:
        training: the training whose hooks run; it notes what could not be restored.
    """
    found = reached(training, training.caller_settings, known_of(training), here=True)
    room = _MOST_BYTES
    put_back: list[tuple[str, Callable[[], bool]]] = []
    for path, value in found:
        size = _bytes(value)
        if isinstance(value, torch.Tensor):
            how = _tensor_again if size <= room and value.layout is torch.strided else _unwritten
            before: Any = (
                counted_version(value) if how is _unwritten else value.detach().cpu().clone()
            )
        elif isinstance(value, np.ndarray):
            if size > room:
                continue
            how, before = _array_again, cast("Any", value).copy()
        else:
            how, before = _contents_again, Contents(value)
        room -= 0 if how is _unwritten else size
        put_back.append((path, partial(how, value, before)))
    try:
        yield
    finally:
        lost = [path for path, again in put_back if not _done(again)]
        if lost:
            training.note(
                f"a step that was computed and undone has changed {', '.join(lost)}, which "
                "could not be copied or restored"
            )


def _done(again: Callable[[], bool]) -> bool:
    """Return whether something was restored; the others are restored even if one of them raises."""
    try:
        return again()
    except Exception:
        log.exception("what a hook keeps could not be put back")
        return False


def _tensor_again(value: torch.Tensor, before: torch.Tensor) -> bool:
    now = value.detach().cpu()
    alike = (now.shape, now.dtype) == (before.shape, before.dtype)
    if not (alike and torch.equal(now, before)):
        fill(value, Change({}, [], None, before))
    return True


def _unwritten(value: torch.Tensor, before: int) -> bool:
    return counted_version(value) == before


def _array_again(value: Any, before: Any) -> bool:
    if value.shape == before.shape and value.dtype.hasobject:
        is_same = all(one is other for one, other in zip(value.flat, before.flat, strict=True))
    else:
        is_same = value.shape == before.shape and value.tobytes() == before.tobytes()
    if not is_same:
        fill(value, Change({}, [], None, before))
    return True


def _contents_again(value: Any, before: Contents) -> bool:
    change = before.since(Contents(value))
    if change is not None:
        fill(value, change)
    return True


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes if value.layout is torch.strided else 0
    return value.nbytes if isinstance(value, np.ndarray) else 0
