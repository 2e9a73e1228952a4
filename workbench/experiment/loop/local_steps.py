"""Steps that are computed in this process although a layout has ranks compute them.

Ranks abandon a step in which parameters were created, frozen or unfrozen, or which takes a new path
through the model. It is computed here, and the ranks start again after it. If parameters change
again and again (two halves of a model that take turns), ranks would do nothing but start: so after
`MOST` such steps all are computed here, until other modes are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment.training import Training

MOST = 5


class LocalSteps:
    """Determines which of the next steps are computed in this process."""

    def __init__(self) -> None:
        self.is_next = False
        """Whether the next step is."""
        self._look: Callable[[Training], None] | None = None
        self._num_abandoned = 0

    @property
    def are_all(self) -> bool:
        """Whether ranks have abandoned too many steps."""
        return self._num_abandoned >= MOST

    def take_next(self, look: Callable[[Training], None] | None = None) -> None:
        """Have the next step computed in this process.

        Args:
            look: called before the step; None: parameters have changed, which is counted.
        """
        self.is_next, self._look = True, look
        self._num_abandoned += look is None

    def before(self, training: Training) -> None:
        """Called before a step is computed in this process."""
        if self._look is not None:
            self._look(training)

    def after(self) -> None:
        """Called after such a step has been computed, or has raised."""
        self.is_next, self._look = self.are_all, None
