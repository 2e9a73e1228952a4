"""Parameters that a forward writes, as when it averages one encoder into another (MoCo, BYOL).

The update writes parameters, and it is the last operation of a step; a parameter that was written
before it was written by the forward. Torch counts the writes of a tensor, and a forward that gives
a parameter other memory (``p.data = ...``) is detected by that. A write in place through ``.data``
leaves neither trace: in the first steps the values of frozen parameters are compared, since those
are the ones written in this way.

A parameter that was found to be written is copied before each step, up to the limit of
`held_bytes`. The others that a step wrote are named where it is undone. Whether each is trained is
restored too: a forward may unfreeze a frozen parameter.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from workbench.experiment.state.module_state import held_bytes

_FIRST_BYTES = 256 * 2**20
"""Maximum size of frozen parameters whose values are compared in the first steps."""
_FIRST_STEPS = 2
_CHECK_EVERY = 64

_VERSION = operator.attrgetter("_version")
_PLACE = torch.Tensor.data_ptr
_IS_TRAINED = operator.attrgetter("requires_grad")


class ParameterWrites:
    """Writes of a forward to the parameters of a training.

    Args:
        parameters: the training's own list, which may change.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._given = parameters
        self._listed: list[nn.Parameter] = []
        self._frozen: list[nn.Parameter] = []
        self._known: list[nn.Parameter] = []
        """Parameters that a forward has written."""
        self._silent: set[int] = set()
        """Those in `_known` whose writes left no trace but their values."""
        self._versions: list[int] = []
        self._trained: list[bool] = []
        self._places: list[int] = []
        self._at_update: list[int] | None = None
        """The versions at `before_update`; None: those of `remember`, as far as is known."""
        self.copies: list[tuple[nn.Parameter, torch.Tensor]] = []
        """Parameters with their values before the step."""
        self._num_checks = 0
        self._is_stale = True
        self._is_plain = False
        """Whether nothing is frozen, and no forward is known to write anything."""

    def refresh(self) -> None:
        """Update the list before the next step: parameters may be others, or frozen or unfrozen."""
        self._is_stale, self._is_plain = True, False

    def remember(self, *, exactly: bool) -> None:
        """Save the state before a step.

        With ``exactly``, whatever is known to be written is copied, however large.
        """
        if self._is_plain:
            self._versions = versions(self._listed)
            self._trained = [*map(_IS_TRAINED, self._listed)]
            return
        if self._is_stale:
            self._list()
        self._trained = [*map(_IS_TRAINED, self._listed)]
        self._versions, self._places = versions(self._listed), _places(self._frozen)
        self.copies = []
        self._copy(self._known, is_bounded=not exactly)
        if self._num_checks < _FIRST_STEPS:
            known = set(map(id, self._known))
            others = [p for p in self._frozen if id(p) not in known]
            if sum(p.nbytes for p in others) <= _FIRST_BYTES:
                self._copy(others, is_bounded=False)

    @contextmanager
    def written_by_others(self) -> Generator[None]:
        """Exclude what is written inside, in a step, from the writes of a forward."""
        before = versions(self._listed)
        yield
        now = versions(self._listed)
        self._versions = [
            remembered + new - old
            for remembered, old, new in zip(self._versions, before, now, strict=True)
        ]

    def before_update(self) -> None:
        """Check what was written, after the backward of a step that is about to be applied.

        Parameters that are trained are checked only now and then, which costs half a microsecond.
        """
        self._num_checks += 1
        if self._is_plain and self._num_checks % _CHECK_EVERY:
            self._at_update = None
            return
        self._at_update = versions(self._listed)
        if (
            self._at_update != self._versions
            or self._num_checks <= _FIRST_STEPS
            or self._places != _places(self._frozen)
        ):
            self._know(self._written())
        self._is_plain = not (
            self._known or self._frozen or self._is_stale or self._num_checks < _FIRST_STEPS
        )

    def updated(self) -> tuple[int, int]:
        """Count the parameters written since `before_update`, and those with a gradient."""
        before = self._versions if self._at_update is None else self._at_update
        moved = sum(a != b for a, b in zip(versions(self._listed), before, strict=True))
        return moved, sum(p.grad is not None for p in self._listed)

    @torch.no_grad()
    def restore(self) -> list[nn.Parameter]:
        """Restore what was written since `remember`; return the parameters that have no copy."""
        if not self._versions:
            return []
        for parameter, is_trained in zip(self._listed, self._trained, strict=True):
            if parameter.requires_grad is not is_trained:
                parameter.requires_grad_(is_trained)
        written = self._written()
        self._know(written)
        copied = {id(p): value for p, value in self.copies}
        silent = (p for p in self._known if id(p) in self._silent)
        lost = [p for p in dict.fromkeys((*written, *silent)) if id(p) not in copied]
        for parameter in written:
            if id(parameter) in copied:
                parameter.copy_(copied[id(parameter)])
        # a further inspection of the step leaves them as they are now
        self._copy(lost, is_bounded=False)
        self._versions, self._places = versions(self._listed), _places(self._frozen)
        return lost

    # -- inside -----------------------------------------------------------------------------

    def _list(self) -> None:
        self._listed = list(self._given)
        # for other kinds (sharded, quantized) only the count of writes is used
        plain = (p for p in self._listed if type(p) is nn.Parameter)
        self._frozen = [p for p in plain if not p.requires_grad and not is_lazy(p)]
        held = set(map(id, self._listed))
        self._known = [p for p in self._known if id(p) in held]
        self._is_stale = False

    def _written(self) -> list[nn.Parameter]:
        """Parameters that are not what they were at `remember`."""
        found: dict[int, nn.Parameter] = {}
        for p, now, before in zip(
            self._listed, versions(self._listed), self._versions, strict=True
        ):
            if now != before:
                found[id(p)] = p
        for p, now, before in zip(self._frozen, _places(self._frozen), self._places, strict=True):
            if now != before:
                found[id(p)] = p
        for p, value in self.copies:
            if id(p) not in found and not _equal(p, value):
                found[id(p)] = p
                self._silent.add(id(p))
        return list(found.values())

    def _know(self, written: list[nn.Parameter]) -> None:
        known = set(map(id, self._known))
        self._known += [p for p in written if id(p) not in known]
        self._is_plain = self._is_plain and not self._known

    @torch.no_grad()
    def _copy(self, parameters: list[nn.Parameter], *, is_bounded: bool) -> None:
        """Copy them, within the limits of time and memory for a copy."""
        sums: dict[torch.device, int] = {}
        for p in parameters:
            sums[p.device] = sums.get(p.device, 0) + p.nbytes
            if not is_bounded or sums[p.device] <= held_bytes(p.device):
                self.copies.append((p, p.detach().clone()))


def versions(parameters: Sequence[nn.Parameter]) -> list[int]:
    """Return how often each was written; -1 if torch does not count it (of inference mode)."""
    try:
        return [*map(_VERSION, parameters)]
    except RuntimeError:
        return [-1 if p.is_inference() else _VERSION(p) for p in parameters]


def _places(parameters: Sequence[nn.Parameter]) -> list[int]:
    try:
        return [*map(_PLACE, parameters)]
    except RuntimeError:  # a kind that has no memory of its own
        return [0] * len(parameters)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return torch.equal(one, other)
    except (RuntimeError, NotImplementedError):  # of a kind that torch cannot compare
        return True
