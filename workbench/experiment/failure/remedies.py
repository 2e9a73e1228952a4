"""What was tried on a step that ran out of memory, and which of it the user chooses."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsIndex

from workbench.records import Remedy

if TYPE_CHECKING:
    from workbench.experiment.failure.changes import Change


@dataclass(frozen=True)
class Tried:
    """Remedies for the current failure of an experiment."""

    remedies: tuple[Remedy, ...] = ()
    changes: tuple[Change, ...] = ()
    """What each of them changes."""
    gpu: str | None = None
    """The simulated GPU that they were tried on."""

    def chosen(self, wanted: SupportsIndex | str | Remedy, gpu: str | None) -> Change:
        """Return the change of one of them.

        Args:
            wanted: its index, its name, or the remedy itself.
            gpu: the simulated GPU that steps run on now.

        Raises:
            TypeError: ``wanted`` is none of these.
            ValueError: there is no such remedy, or there are several; it was tried on another GPU,
                or does not fit.
        """
        row = self._row(wanted)
        remedy = self.remedies[row]
        if gpu != self.gpu:
            raise ValueError(
                f"{remedy.name} was tried with exp.card = {self.gpu!r}, and it is {gpu!r} now: "
                "set it back, or see with exp.resume() whether the step fits as it is"
            )
        if not remedy.fits:
            fit = [str(row) for row, one in enumerate(self.remedies) if one.fits]
            raise ValueError(
                f"{remedy.name} was tried and does not fit; those that do: "
                f"{', '.join(fit) or 'none, so choose a larger GPU'}"
            )
        return self.changes[row]

    def _row(self, wanted: SupportsIndex | str | Remedy) -> int:
        if isinstance(wanted, (str, Remedy)):
            rows = [row for row, one in enumerate(self.remedies) if wanted in (one, one.name)]
        elif hasattr(wanted, "__index__") and not isinstance(wanted, bool):
            wanted = operator.index(wanted)
            rows = [wanted] if 0 <= wanted < len(self.remedies) else []
        else:
            raise TypeError(
                "a remedy is chosen by its number, by its name or as one of exp.failure.remedies, "
                f"got {type(wanted).__name__}"
            )
        if len(rows) == 1:
            return rows[0]
        name = repr(wanted.name if isinstance(wanted, Remedy) else wanted)
        if rows:
            raise ValueError(f"several remedies are called {name}; give one's number: {rows}")
        raise ValueError(f"there is no remedy {name}; valid are: {self._known()}")

    def _known(self) -> str:
        if not self.remedies:
            return "none, as nothing was tried; a step that runs out of memory on exp.card has some"
        names = ", ".join(repr(one.name) for one in self.remedies)
        return f"0 to {len(self.remedies) - 1}, or a name: {names}"
