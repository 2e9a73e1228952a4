"""Steps that are computed in this process though a layout has ranks compute them.

Ranks give a step up where parameters were made, frozen or thawed in it, or where it goes through
the model as none before did. It is computed here, and ranks start anew after it. Where parameters
change again and again (two halves of a model that take turns) ranks would do nothing but start: so
after `MOST` such steps all are computed here, until other modes are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment.training import Training

MOST = 5


class HomeSteps:
    """Which of the next steps are computed here."""

    def __init__(self) -> None:
        self.is_next = False
        """Whether the next one is."""
        self._look: Callable[[Training], None] | None = None
        self._given_up = 0

    @property
    def are_all(self) -> bool:
        """Whether ranks have given up too many."""
        return self._given_up >= MOST

    def take_next(self, look: Callable[[Training], None] | None = None) -> None:
        """Have the next step computed here.

        Args:
            look: called before it; None: parameters have changed, which is counted.
        """
        self.is_next, self._look = True, look
        self._given_up += look is None

    def before(self, training: Training) -> None:
        """A step is about to be computed here."""
        if self._look is not None:
            self._look(training)

    def after(self) -> None:
        """One has been computed, or has raised."""
        self.is_next, self._look = self.are_all, None
