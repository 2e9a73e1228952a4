"""The metric that a training goes by: its best step, and an end where it no longer gets better.

It is looked at once an epoch, after validation and after what the user's own functions have logged.
By default it is ``val/accuracy``, or ``val/loss`` where there is no accuracy. Whether more is
better follows from the name of a metric; where it does not, the user says so.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from workbench.experiment.recipe.arguments import whole
from workbench.experiment.recipe.losses import OWN

if TYPE_CHECKING:
    from workbench.experiment.recipe.schedules import Schedule
    from workbench.experiment.training import Training

Mode = Literal["min", "max"]

BY_DEFAULT: tuple[tuple[str, Mode], ...] = (("val/accuracy", "max"), ("val/loss", "min"))
_LESS = (
    "loss", "error", "err", "nll", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer", "ece",
    "brier", "fpr", "fnr",
)  # fmt: skip
_MORE = (
    "accuracy", "acc", "f1", "auc", "auroc", "auprc", "ap", "map", "precision", "recall", "iou",
    "miou", "dice", "bleu", "rouge", "mcc", "kappa", "r2", "top1", "top5", "score", "tpr", "tnr",
)  # fmt: skip
_WORD = re.compile(r"[a-z]+\d*")


class Best(NamedTuple):
    """The best value of a metric so far."""

    name: str
    """Name of the metric."""
    value: float
    step: int
    """Number of steps done when it was measured."""
    epoch: int
    """Number of epochs completed then."""


def direction(monitor: Any) -> tuple[str, Mode] | None:
    """Return name and direction of a metric: a name, or a pair of a name and ``"min"``, ``"max"``.

    Raises:
        TypeError, ValueError: it is neither, or the name does not say whether more is better.
    """
    if monitor is None:
        return None
    if isinstance(monitor, (tuple, list)):
        pair = cast("tuple[Any, ...]", monitor)
        if len(pair) != 2 or not isinstance(pair[0], str) or pair[1] not in ("min", "max"):
            raise ValueError(
                f"monitor is {monitor!r}; valid: the name of a metric, such as 'val/loss', or a "
                "pair of a name and 'min' or 'max', such as ('val/f1', 'max')"
            )
        return pair[0], pair[1]
    if not isinstance(monitor, str):
        raise TypeError(
            f"monitor is a {type(monitor).__name__}; valid: the name of a metric, such as "
            "'val/loss', or a pair of a name and 'min' or 'max', such as ('val/f1', 'max')"
        )
    words = _WORD.findall(monitor.lower().rpartition("/")[2])
    kinds = {
        mode for mode, known in (("min", _LESS), ("max", _MORE)) if any(w in known for w in words)
    }
    if len(kinds) != 1:
        raise ValueError(
            f"monitor is {monitor!r}, whose name does not say whether more of it is better: give "
            f"({monitor!r}, 'max') or ({monitor!r}, 'min')"
        )
    return monitor, cast("Mode", kinds.pop())


def nothing_to_go_by(patience: Any) -> str:
    """Return why a run without validation cannot end by ``patience`` alone."""
    return (
        f"patience is {patience}, and there is nothing to go by: give val, or a monitor such as "
        "'train/loss'"
    )


class Monitor:
    """Follows a metric from epoch to epoch.

    Args:
        metric: what `direction` takes.
        patience: number of epochs without a better value after which a run ends; None: it goes on.

    Raises:
        TypeError, ValueError: as `direction`; or ``patience`` is no positive whole number.
    """

    def __init__(self, metric: Any = None, patience: Any = None) -> None:
        self.metric = direction(metric)
        self.patience = None if patience is None else whole(patience, "patience")
        self.best: Best | None = None
        """The best value so far."""
        self.num_worse = 0
        """Number of epochs since then, or since the run began if that was later."""
        self.why = ""
        """Why the run is to end; ``""`` if it is to go on."""
        self.improved = False
        """Whether the last epoch was the best so far."""
        self._looked_at: tuple[int, str, str, float] | None = None
        """Step, name, direction and value of the last epoch."""
        self.problem = ""
        """What is to be reported of a metric that cannot be followed."""

    def begin(self) -> None:
        """Begin a run: what came before it does not end it."""
        self.num_worse, self.why = 0, ""

    def update(self, training: Training) -> None:
        """Look at the epoch that has just ended; `why` is set where the run is to end."""
        self.improved = False
        found = self._now(training)
        if found is None:
            return
        name, mode, value = found
        self._looked_at = training.step_count, name, mode, value
        before = self.best
        if before is not None and before.name != name:
            before = None  # an accuracy, where there was none at first
        is_better = before is None or (
            value < before.value if mode == "min" else value > before.value
        )
        if is_better and not math.isnan(value):
            self.best = Best(name, value, training.step_count, training.cursor.epoch)
            self.num_worse, self.improved = 0, True
            return
        self.num_worse += 1
        if self.patience is not None and self.num_worse >= self.patience:
            self.why = self._sentence(name, value)

    def _sentence(self, name: str, value: float) -> str:
        epochs = "epoch" if self.num_worse == 1 else f"{self.num_worse:,} epochs"
        if self.best is None:
            return f"{name} was {value:g} for {epochs}"
        return (
            f"{name} has not been better than {self.best.value:.6g}, of epoch "
            f"{self.best.epoch:,}, for {epochs}"
        )

    def _now(self, training: Training) -> tuple[str, Mode, float] | None:
        """Name, direction and value of the metric, if it was logged at this step."""
        if self.metric is None:
            return _of_validation(training)
        name, mode = self.metric
        training.scalars.flush()
        value = training.scalars.at(name, training.step_count)
        if value is not None:
            return name, mode, value
        if name in OWN:
            self.problem = (
                f"{name} was not measured in epoch {training.cursor.epoch:,}: it takes val, and an "
                "accuracy labels that have classes"
            )
            return None
        self.problem = (
            f"{name} was not logged in epoch {training.cursor.epoch:,}, so nothing is known about "
            f"it there: exp.log({name!r}, value) in a function of exp.on('validated', ...) or "
            "exp.on('epoch', ...) logs it"
        )
        return None

    def looked_at(self, step: int) -> tuple[str, str, float] | None:
        """Name, direction and value of an epoch that has ended at ``step``, if one has."""
        found = self._looked_at
        if found is None or found[0] != step or math.isnan(found[3]):
            return None
        return found[1:]

    def steps(self, schedule: Schedule) -> bool:
        """Whether a schedule goes by this metric: it is not fed what goes the other way."""
        wanted = "max" if schedule.wants_accuracy else "min"
        return schedule.is_plateau and self.metric is not None and self.metric[1] == wanted

    def value_for_schedule(self, training: Training) -> float | None:
        """The value of the metric at this step; None, and a note, if it was not logged."""
        if self.metric is None:
            return None
        training.scalars.flush()
        name = self.metric[0]
        value = training.scalars.at(name, training.step_count)
        if value is None:
            training.note(
                f"{training.schedule.name} goes by {name}, which was not logged before it steps: "
                "log it in a function of exp.on('validated', ...), or of exp.on('epoch', ...) "
                "where there is no val"
            )
        return value

    def state(self) -> dict[str, Any]:
        """Return what it has found, in plain values."""
        return {
            "metric": None if self.metric is None else list(self.metric),
            "patience": self.patience,
            "best": None if self.best is None else list(self.best),
            "num_worse": self.num_worse,
            "why": self.why,
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Monitor:
        """Return one that continues from a `state`."""
        metric = state["metric"]
        found = cls(None if metric is None else tuple(metric), state["patience"])
        found.load_state(state)
        return found

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what another one has found, if it was about the same metric."""
        metric = None if self.metric is None else list(self.metric)
        if metric == state["metric"]:
            best = state["best"]
            self.best = None if best is None else Best(*best)
            self.num_worse, self.why = state["num_worse"], state["why"]
            if self.patience is None or self.num_worse < self.patience:
                self.why = ""


def _of_validation(training: Training) -> tuple[str, Mode, float] | None:
    """The default: accuracy, or else loss, of the validation that has just been; None without."""
    found = training.last_validation
    if training.val is None or found is None:
        return None
    measured = {"val/accuracy": found.accuracy, "val/loss": found.loss}
    for name, mode in BY_DEFAULT:
        value = measured[name]
        if value is not None:
            return name, mode, value
    return None
