"""What ranks draw identically, and what each draws for itself.

Samples, the loss, and what a forward decides for a whole batch (to skip a block, a coefficient to
mix by) draw what one process draws: all ranks go through the same numbers of the process's
generators. Dropout, and everything else that draws more numbers for more rows, draws from a
separate stream on each rank; otherwise two ranks would drop the same. Which of the two a forward
does is shown by the first part of a batch, of which fewer rows are computed too
(`workbench.parallel.checks.initial_logits`). Torch's generator of a GPU does not show it, and is a
rank's own.

Ranks compare their generators in every step. Where they have diverged, as through a forward whose
draws depend on its data, all ranks continue from the state of rank 0.
"""

from __future__ import annotations

import copy
import random
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.experiment.data.sampler import mix
from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.rng import RandomState, TorchState

if TYPE_CHECKING:
    from workbench.experiment.data.dataset_generators import Generators
    from workbench.experiment.training import Training

_STREAM = 1000
"""Stream of `mix` for numbers of a rank's own."""
_DIGEST = 0xFFFF
"""Mask of a digest: with so few bits a sum of squares over many ranks is exact."""


class Draws:
    """The random numbers of this rank.

    Args:
        training: the training whose run draws them; its generators have the state of all ranks.
        generators: what samples may draw from.
        own_torch: whether a forward draws torch's numbers from a stream of this rank's own.
        own_host: the same for Python's and NumPy's generators.
    """

    def __init__(
        self, training: Training, generators: Generators, *, own_torch: bool, own_host: bool
    ) -> None:
        self._generators = generators
        several = dist.get_world_size() > 1
        all_of = RandomState(training.device)
        all_of.save()
        seed = mix(training.seed, training.step_count, stream=_STREAM + dist.get_rank())
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        self._torch = _Pair(TorchState(training.device)) if several and own_torch else None
        self._host = _Pair(HostRandom()) if several and own_host else None
        all_of.restore()

    def in_forward(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``model``, which draws from this rank's own streams where it should."""
        if self._torch is None and self._host is None:
            return model

        def called(*inputs: Any, **named: Any) -> Any:
            with self._own():
                return model(*inputs, **named)

        return called

    @contextmanager
    def _own(self) -> Generator[None]:
        pairs = [pair for pair in (self._torch, self._host) if pair is not None]
        for pair in pairs:
            pair.enter()
        try:
            yield
        finally:
            for pair in pairs:
                pair.leave()

    def digest(self) -> tuple[float, float]:
        """Return a number for what ranks should share, and its square, to be summed over ranks."""
        number = zlib.crc32(self._generators.mark()) & _DIGEST
        return float(number), float(number**2)

    def go_on_from_first(self) -> None:
        """Continue on all ranks from the state of rank 0; every rank must call it."""
        sent = [self._generators.state() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(sent, 0)
        self._generators.go_to(sent[0])


def are_apart(number: float, square: float) -> bool:
    """Return whether the `Draws.digest` of some rank differs from another's, by their sums."""
    return number * number != square * dist.get_world_size()


class _Pair:
    """A stream of this rank's own, which begins with the current state."""

    def __init__(self, kind: Any) -> None:
        self._shared, self._own = copy.copy(kind), kind
        self._own.save()

    def enter(self) -> None:
        self._shared.save()
        self._own.restore()

    def leave(self) -> None:
        self._own.save()
        self._shared.restore()
