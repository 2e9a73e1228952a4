"""Values that a user logs beside the run's own: curves, images and texts (`Experiment.log`).

A curve goes where the run's own go, so it is in ``run.metrics``, in checkpoints and in TensorBoard.
Images and texts are events, for TensorBoard alone. Nothing is read from a device here.

A value that is logged while a step is computed, from a forward, a loss or a hook, belongs to that
step: it is kept until the step has succeeded. A step that fails and is repeated logs it once, and a
step that is computed for inspection not at all.
"""

from __future__ import annotations

import io
import math
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch

from workbench.experiment.recipe.losses import OWN
from workbench.experiment.report.events import Event, PictureLogged, TextLogged

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_OWN_TEXTS = ("run", "changes")
_OWN_FOLDERS = ("memory/", "precision/")
_VALID = (
    "valid: a number or a tensor with one element (a curve), a dict of these, a str (a text), a "
    "matplotlib figure, a PIL image, or an array or tensor [height, width], [height, width, 3 or "
    "4] or [1, 3 or 4, height, width] of uint8, or of floats in 0..1 (an image)"
)
_COLOURS = (1, 3, 4)
_MOST_DEPTH = 8
_FOREIGN = "Dummy-"
"""How Python names threads that it has not started, such as autograd's."""


class LoggedValues:
    """What a user logs of one training."""

    def __init__(self, training: Training) -> None:
        self._weak = weakref.ref(training)
        self._in_step: list[tuple[str, Any]] = []
        """Name and value of what the step in progress has logged."""
        self.thread: int | None = None
        """Identifier of the thread that computes steps; None if none are computed."""
        self._inspecting: set[int] = set()
        """Threads that compute forwards which are no part of the run."""

    @property
    def _training(self) -> Training:
        found = self._weak()
        if found is None:
            raise RuntimeError("the experiment no longer exists")
        return found

    @contextmanager
    def ignored(self) -> Generator[None]:
        """Context in which what this thread logs is dropped: it inspects."""
        here = threading.get_ident()
        self._inspecting.add(here)
        try:
            yield
        finally:
            self._inspecting.discard(here)

    def _is_of_step(self) -> bool:
        """Whether this thread computes steps: the runner's, or one of autograd's for it."""
        if threading.get_ident() == self.thread:
            return True
        return threading.current_thread().name.startswith(_FOREIGN)

    def add(self, name: str, value: Any) -> None:
        """Log a value at the current step.

        Raises:
            TypeError: the name is no string, or the value is of a type that cannot be logged.
            ValueError: the name is one of the run's own, or an image has values out of range.
        """
        found = list(_read(name, value, _MOST_DEPTH))
        training = self._training
        of_step = self._is_of_step()
        if (training.rehearsing and of_step) or threading.get_ident() in self._inspecting:
            return
        if training.cursor.is_taken and of_step:
            self._in_step += found
        else:
            self._pass_on(found)

    def step_done(self) -> None:
        """Log what the step has logged that was just counted."""
        if self._in_step:
            found, self._in_step = self._in_step, []
            self._pass_on(found)

    def drop(self) -> None:
        """Forget what the step in progress has logged: it is repeated, or was for inspection."""
        self._in_step.clear()

    def _pass_on(self, found: list[tuple[str, Any]]) -> None:
        training, step = self._training, self._training.step_count
        for name, value in found:
            if isinstance(value, (float, torch.Tensor)):
                training.scalars.add(name, step, value)
            else:
                training.board.emit(value(step))


def _read(name: Any, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield names and numbers, scalar tensors, or functions that make an event of a step."""
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"a value is logged under {name!r}; give a name such as 'val/f1'")
    if name in OWN or name in _OWN_TEXTS or name.startswith(_OWN_FOLDERS):
        raise ValueError(f"{name!r} is logged by the run itself; give another name")
    if isinstance(value, Mapping):
        if not depth:
            raise ValueError(f"{name!r} is a dict of dicts more than {_MOST_DEPTH} deep")
        for key, one in cast("Mapping[Any, Any]", value).items():
            yield from _read(f"{name}/{key}", one, depth - 1)
    elif isinstance(value, str):
        yield name, partial(TextLogged, name=name, text=value)
    elif isinstance(value, torch.Tensor) and value.numel() == 1:
        yield name, _scalar(name, value)
    elif isinstance(value, (Real, np.bool_)):
        yield name, float(value)
    elif _has_one(value):
        yield name, float(value.item())
    else:
        yield name, partial(PictureLogged, name=name, draw=_picture(name, value))


def _has_one(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf"


def _scalar(name: str, value: torch.Tensor) -> float | torch.Tensor:
    """The number, or a copy on the device: whoever logs it may write to it before it is read."""
    if value.is_complex():
        raise TypeError(f"{name!r} is a complex number; log its parts, or its absolute value")
    if value.device.type == "cpu":
        return float(value.detach())
    return value.detach().clone()


Png = tuple[bytes, tuple[int, int]]
"""The bytes of a PNG file, and (width, height) in pixels."""


def _picture(name: str, value: Any) -> Callable[[], Png]:
    """Return a function that makes a PNG of a copy; a figure is drawn here, as it may change."""
    if hasattr(value, "savefig"):
        return _drawn(value)
    if hasattr(value, "convert") and hasattr(value, "save"):  # of PIL
        value = np.asarray(value.convert("RGBA"))
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.float()
        value = value.numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        what = type(value).__name__
        kind = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
        raise TypeError(f"{name!r} is a {what}{kind}; {_VALID}")
    pixels = _pixels(name, cast("npt.NDArray[Any]", value))
    return lambda: _encoded(pixels)


def _pixels(name: str, value: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return a copy ``[height, width, 1, 3 or 4]``."""
    shape = list(value.shape)
    if value.ndim == 2:
        value = value[:, :, None]
    elif value.ndim == 3 and shape[-1] not in _COLOURS and shape[0] in _COLOURS:
        value = np.moveaxis(value, 0, -1)
    if value.ndim != 3 or value.shape[-1] not in _COLOURS or not value.size:
        raise ValueError(f"{name!r} has the shape {shape}, which is no image; {_VALID}")
    if value.dtype.kind == "b":
        return value.astype(np.uint8) * np.uint8(255)
    low, high = float(value.min()), float(value.max())
    if value.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # NaN neither
            span = "NaN" if math.isnan(low) or math.isnan(high) else f"{low:.3g} to {high:.3g}"
            raise ValueError(
                f"the image {name!r} has values of {span}; floats must be in 0..1 (bytes in "
                "0..255): give (x - x.min()) / (x.max() - x.min()), or undo the normalisation"
            )
        return np.round(value * 255).astype(np.uint8)
    if low < 0 or high > 255:
        raise ValueError(
            f"the image {name!r} has values of {low:.0f} to {high:.0f}; integers must be in 0..255"
        )
    return value.astype(np.uint8)


def _drawn(figure: Any) -> Callable[[], Png]:
    stored = io.BytesIO()
    figure.savefig(stored, format="png")
    png = stored.getvalue()
    # the header of a PNG has width and height at a fixed place
    size = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    return lambda: (png, size)


def _encoded(pixels: npt.NDArray[np.uint8]) -> Png:
    from matplotlib.image import imsave

    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    stored = io.BytesIO()
    imsave(stored, pixels, format="png")
    return stored.getvalue(), (pixels.shape[1], pixels.shape[0])


Handler = Callable[[Any], object]


def handler(
    training: Training, kind: type[Event], name: str, function: Handler
) -> Callable[[Event], None]:
    """Return an observer that calls a user's function with events of a kind; faults are noted.

    Args:
        training: where it is noted, once, that the function has raised.
        kind: the events that it is called with.
        name: what the user has asked for, such as ``"epoch"``.
        function: the user's function.
    """
    called = getattr(function, "__name__", type(function).__name__)
    weak = weakref.ref(training)

    def observer(event: Event) -> None:
        training = weak()
        if training is None or not isinstance(event, kind):
            return
        training.in_callback += 1
        try:
            function(event)
        except Exception as error:
            first = (str(error).splitlines() or [""])[0][:200]
            text = f"{called}, which exp.on({name!r}, ...) calls, raised {type(error).__name__}"
            told = f"{text} after step {event.step:,}: {first}"
            if not any(note.startswith(text) for note in training.board.notes):
                training.note(told)
                raise  # the log has the traceback
        finally:
            training.in_callback -= 1

    return observer
