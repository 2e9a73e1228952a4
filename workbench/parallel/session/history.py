"""The history of a run so far, stored next to its workers for a kernel that does not have it.

Curves, markers and the length of the run are kept in the kernel that began it. A kernel that
attaches to the workers later (`workbench.parallel.attach`) shows them from here.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.records import Marker
from workbench.trust import Seal

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_POINTS, _REST = "curves.npz", "history.json"


@dataclass
class History:
    """Curves and markers up to the step at which workers begin."""

    points: dict[str, tuple[Any, Any]]
    """Name -> (steps int64[n], values float64[n])."""
    markers: tuple[Marker, ...]
    best_accuracy: float | None
    notes: list[str]

    @classmethod
    def of(cls, training: Training) -> History:
        """Return the history of ``training`` until now."""
        metrics = training.scalars.history()
        points = {name: (metrics[name]["step"], metrics[name]["value"]) for name in metrics}
        board = training.board
        return cls(points, tuple(board.markers), training.best_accuracy, list(board.notes))

    def save(self, folder: Path, seal: Seal) -> None:
        """Write it to ``folder``, which is created, with the seal of the session."""
        folder.mkdir(exist_ok=True)
        names = list(self.points)
        columns = {
            f"{kind}{at}": column
            for at, name in enumerate(names)
            for kind, column in zip("sv", self.points[name], strict=True)
        }
        points = io.BytesIO()
        np.savez(points, allow_pickle=False, **columns)
        seal.write(folder / _POINTS, points.getvalue(), _POINTS)
        rest = {
            "names": names,
            "markers": [asdict(marker) for marker in self.markers],
            "best_accuracy": self.best_accuracy,
            "notes": self.notes,
        }
        seal.write_json(folder / _REST, rest, _REST)

    @classmethod
    def load(cls, folder: Path, seal: Seal) -> History:
        """Read what `save` wrote; an empty history where there is none yet.

        Raises:
            SealError: another user may have written it.
        """
        try:
            rest = seal.read_json(folder / _REST, _REST)
            written = io.BytesIO(seal.read(folder / _POINTS, _POINTS))
            with np.load(written, allow_pickle=False) as columns:
                points = {
                    name: (columns[f"s{at}"], columns[f"v{at}"])
                    for at, name in enumerate(rest["names"])
                }
        except FileNotFoundError:
            return cls({}, (), None, [])
        markers = tuple(Marker(**marker) for marker in rest["markers"])
        return cls(points, markers, rest["best_accuracy"], rest["notes"])

    def give_to(self, training: Training) -> None:
        """Make it the history of ``training``, which has none."""
        for name, (steps, values) in self.points.items():
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                training.scalars.add(name, step, value)
        training.scalars.flush()
        training.board.markers = self.markers
        training.board.notes += [note for note in self.notes if note not in training.board.notes]
        training.best_accuracy = self.best_accuracy
