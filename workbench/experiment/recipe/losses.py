"""The loss: a callable, a name, or the one that fits the first batch.

Checks of shapes, types and ranges are made on the first batch and again only when the loss raises,
so that a later step pays for none of them and a bad batch still gets one clear sentence.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from workbench.experiment.data.data import DataError
from workbench.experiment.recipe.loss_kinds import counted, look_up, register
from workbench.experiment.recipe.loss_scope import LossScope
from workbench.experiment.recipe.loss_state import LossState
from workbench.experiment.recipe.targets import Agreement, AnswerReader
from workbench.torch_private.tensors import version_of

LossFunction = Callable[[torch.Tensor, Any], torch.Tensor]
OWN = frozenset(
    f"{of}/{name}"
    for of, names in (
        (
            "train",
            (
                "loss",
                "accuracy",
                "samples_per_s",
                "gradient_norm",
                "gradient_flow",
                "learning_rate",
            ),
        ),
        ("val", ("loss", "accuracy", "ema_loss", "ema_accuracy", "confusion_matrix")),
    )
    for name in names
)
"""Names under which a run logs by itself."""
OWN_OF_VALIDATION = frozenset(name for name in OWN if name.startswith("val/"))

_NAMES: dict[str, LossFunction] = {
    "cross_entropy": F.cross_entropy,
    "bce": F.binary_cross_entropy_with_logits,
}
_TITLES: dict[Any, str] = {
    F.cross_entropy: "cross entropy",
    F.binary_cross_entropy_with_logits: "binary cross entropy",
    nn.CrossEntropyLoss: "cross entropy",
    nn.BCEWithLogitsLoss: "binary cross entropy",
}


class Loss:
    """Computes the loss of one batch, and reports clearly what is wrong with an invalid batch."""

    def __init__(self, loss: Any = None) -> None:
        """Accept None (chosen on the first batch), a name, a module or a function.

        Raises:
            TypeError: something that cannot be called.
            ValueError: an unknown name; the valid ones are listed.
        """
        if isinstance(loss, str) and loss not in _NAMES:
            raise ValueError(f"unknown loss {loss!r}; valid: {', '.join(_NAMES)}, or a function")
        if loss is not None and not isinstance(loss, str) and not callable(loss):
            raise TypeError(f"loss is a {type(loss).__name__}; valid: a name or a function")
        self.agreed: Agreement | None = None
        """On a rank: returns what holds for the parts of all ranks."""
        self._is_chosen = loss is None
        """Whether the loss was chosen to fit the data and the model, and not given."""
        chosen: Any = _NAMES[loss] if isinstance(loss, str) else loss
        self._take(chosen)

    def _take(self, function: LossFunction | None) -> None:
        self.function = function
        self.known = look_up(function)
        """Known facts about it; none before a loss is chosen."""
        self.answers = AnswerReader(self.known)
        """Reads the model's answers, by what this loss compares."""
        self._writes = False
        """Whether it has written into outputs or labels."""
        self.scope = LossScope()
        """Findings of validations about it."""
        self.parts: dict[str, torch.Tensor] = {}
        """What the last call has returned beside the loss, by name, if it returned a dict."""

    @property
    def name(self) -> str:
        """Name such as ``cross entropy``; what will probably be chosen while nothing has run."""
        function: Any = self.function
        if function is None:
            return "cross entropy"
        while isinstance(function, functools.partial):
            function = cast("functools.partial[Any]", function).func
        given = getattr(function, "__name__", type(function).__name__)
        by_type = _TITLES.get(type(function))
        return (by_type or _TITLES.get(function) or str(given)) if callable(function) else given

    @property
    def ignore_index(self) -> int:
        """The label for which nothing is computed: the loss's own, else cross entropy's."""
        return self.known.ignore_index

    @property
    def sums(self) -> bool:
        """Whether it is the sum over a batch, as far as the loss says so; else a mean."""
        return self.known.reduction == "sum"

    @property
    def module(self) -> nn.Module | None:
        """The loss if it is a module: it may have parameters and buffers."""
        return self.function if isinstance(self.function, nn.Module) else None

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of a loss module, such as the class centres of ArcFace."""
        return [] if self.module is None else list(self.module.parameters())

    def buffers(self) -> list[torch.Tensor]:
        """Return the buffers of a loss module, such as the weights of classes."""
        return [] if self.module is None else list(self.module.buffers())

    def to(self, device: torch.device) -> None:
        """Move a loss module's weights to ``device``."""
        if self.module is not None:
            self.module.to(device)

    def check(self, logits: Any, targets: Any) -> tuple[str, ...]:
        """Check a first batch closely, and choose the loss if none was given.

        Returns:
            Sentences on what a user should know about it.

        Raises:
            DataError: the first thing found wrong, in one sentence.
        """
        check_logits(logits)
        said = self._rechosen(logits, targets)
        self.choose(logits, targets)
        problem = self._problem(logits, targets)
        if problem and self.known.per:  # a user-defined one may accept anything
            raise DataError(problem)
        self.answers.decide(logits, targets, self.agreed)
        notes = (
            said,
            self.answers.note,
            self._ignored_note(),
            self._softmax_note(logits),
            self._broadcast_note(logits, targets),
        )
        return tuple(filter(None, notes))

    def choose(self, logits: torch.Tensor, targets: Any) -> None:
        """Choose the loss if none was given, by shapes and types alone."""
        if self.function is None:
            self._take(_choose(logits, targets))

    def for_inspection(self, *, is_first: bool) -> Loss:
        """Return a loss with the same function, for inspection; its findings do not reach this one.

        Args:
            is_first: whether no batch has gone through the model: if no loss was given, one is
                chosen for it.
        """
        if is_first and self._is_chosen:
            return Loss()
        found = copy.copy(self)
        found.answers, found.scope = copy.copy(self.answers), copy.copy(self.scope)
        return found

    def state(self) -> LossState | None:
        """Return what it keeps now, to be restored; None for torch's own, which keep nothing."""
        return None if self.function is None or self.known.per else LossState(self.function)

    def __call__(self, logits: torch.Tensor, targets: Any) -> torch.Tensor:
        """Compute the loss, a scalar with a graph."""
        try:
            found: Any = self.function(logits, targets)  # type: ignore[misc]  # chosen by `check`
        except Exception as error:
            check_logits(logits)
            problem = self._problem(logits, targets)
            if problem:
                raise DataError(problem) from error
            raise
        if isinstance(found, Mapping):
            return self._of_parts(cast("Mapping[Any, Any]", found))
        if self.parts:
            self.parts = {}
        return found

    def _of_parts(self, found: Mapping[Any, Any]) -> torch.Tensor:
        """Return the loss of several parts, and keep the others for the log."""
        if "loss" not in found:
            raise DataError(
                f"the loss returned a dict of {', '.join(map(repr, found)) or 'nothing'}; one of "
                "its entries must be 'loss', which is trained on; the others are logged"
            )
        self.parts = {}
        for name, value in found.items():
            if name == "loss":
                continue
            if not isinstance(name, str) or f"train/{name}" in OWN or f"val/{name}" in OWN:
                raise DataError(
                    f"the loss returned a part with the name {name!r}, which is taken, or is no "
                    "string; give another name"
                )
            part = torch.as_tensor(value) if isinstance(value, (int, float)) else value
            if not isinstance(part, torch.Tensor) or part.numel() != 1 or part.is_complex():
                raise DataError(
                    f"the part {name!r} of the loss is {_named(part)}; it must be one number"
                )
            self.parts[name] = part.detach().reshape(()).clone()  # an update may write it
        return found["loss"]

    def computed(
        self, logits: torch.Tensor, targets: Any, *, is_first: bool
    ) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Compute the loss; return it with outputs and labels as they were before the call.

        A loss may write into them: it subtracts margins in place, or maps labels. Answers are those
        of the model.

        Args:
            logits: the model's outputs.
            targets: targets of the batch; None is returned if their former values are not
                available.
            is_first: nothing is known about the loss yet.
        """
        if self.known.per:
            return self(logits, targets), logits, targets
        before = _versions(logits, targets)
        kept = None
        if is_first or self._writes:
            kept = logits.detach().clone(), _copy(targets)
        loss = self(logits, targets)
        if _versions(logits, targets) == before:
            return loss, logits, targets
        self._writes = True
        return (loss, logits, None) if kept is None else (loss, *kept)

    def _rechosen(self, logits: torch.Tensor, targets: Any) -> str:
        """Choose again if the model was replaced, and report it."""
        fits = _choose(logits, targets)
        if not self._is_chosen or self.function is None or self.function is fits:
            return ""
        before = self.name
        self._take(fits)
        return (
            f"no loss was given: it is {self.name} from here on, and no longer {before}, since the "
            f"model returns {_shape(logits)} now"
        )

    def _ignored_note(self) -> str:
        if self.known.named_in_code.is_readable or not self.answers.reads:
            return ""
        return (
            f"{self.name} ignores a label, and its code does not say plainly which: accuracy "
            "counts every label that is one of the outputs' classes"
        )

    def _softmax_note(self, logits: torch.Tensor) -> str:
        if self.name != "cross entropy" or logits.ndim < 2 or logits.shape[1] < 2:
            return ""
        # without a cast, which would count among those of the step that is inspected
        values, off = logits.detach(), 8 * torch.finfo(logits.dtype).eps
        if not bool(values.isfinite().all()):
            return ""  # NaN would not be detected below
        if bool((values < 0).any()) or bool(((values.sum(1) - 1).abs() > max(off, 1e-3)).any()):
            return ""
        return (
            "the model's outputs are probabilities (they add up to 1), and cross entropy takes "
            "logits: leave out the softmax, or it is applied twice"
        )

    def _broadcast_note(self, logits: torch.Tensor, targets: Any) -> str:
        is_tensor = isinstance(targets, torch.Tensor)
        if not is_tensor or not self.known.broadcasts(logits, targets):
            return ""
        shape = list(torch.broadcast_shapes(logits.shape, targets.shape))
        return (
            f"the model returned {_shape(logits)} for labels {_shape(targets)}: {self.name} "
            f"compares each output with every label, {shape}. Give labels of the outputs' shape "
            "(labels[:, None]), or have the model return outputs of theirs (.squeeze(1))"
        )

    def _problem(self, logits: torch.Tensor, targets: Any) -> str:
        """Return why a built-in loss cannot take this batch, or ``""``."""
        if not isinstance(targets, torch.Tensor):
            is_torchs = bool(self.known.per)  # a user-defined one may accept anything
            said = f"the labels are a {type(targets).__name__}; they must be a tensor"
            return said if is_torchs else ""
        if self.name == "cross entropy":
            return _cross_entropy_problem(logits, targets, self.ignore_index)
        if self.name == "binary cross entropy":
            return _binary_problem(logits, targets)
        if targets.ndim and logits.shape[0] != targets.shape[0]:
            return _sizes(logits, targets)
        return ""


def _versions(*tensors: Any) -> list[int]:
    """Return how often each has been written in place."""
    return [
        version_of(one)
        for one in tensors
        if isinstance(one, torch.Tensor) and not one.is_inference()
    ]


def _copy(targets: Any) -> Any:
    return targets.clone() if isinstance(targets, torch.Tensor) else targets


def logits_of(output: Any) -> torch.Tensor:
    """Return the logits from a model's output: a tensor, or an object or mapping with ``logits``.

    Raises:
        DataError: there are none.
    """
    if isinstance(output, torch.Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, dict):
        found = cast("dict[str, Any]", output).get("logits")
    if isinstance(found, torch.Tensor):
        return found
    raise DataError(
        f"the model returned a {type(output).__name__}{_parts(output)}; it must return logits as a "
        "tensor [batch, classes], or an object or a dict with logits: have forward return them "
        "alone, or as {'logits': ...} with the rest"
    )


def _parts(output: Any) -> str:
    """Describe what a tuple or a list holds: `` of [8, 10] float32 and a dict``."""
    if not isinstance(output, (tuple, list)):
        return ""
    parts = cast("tuple[Any, ...]", output)
    named = [_named(part) for part in parts[:3]]
    if len(parts) > 3:
        named.append(f"{len(parts) - 3:,} more")
    return f" of {' and '.join(named)}" if named else ""


def _named(part: Any) -> str:
    return _shape(part) if isinstance(part, torch.Tensor) else f"a {type(part).__name__}"


def check_loss(loss: Any, *, trains: bool = True) -> None:
    """Refuse a loss that cannot be trained on: not one number, or without a graph.

    Args:
        loss: what a loss function returned.
        trains: whether it needs a graph; not if it is only read.

    Raises:
        DataError: the loss is refused; the message says why.
    """
    if not isinstance(loss, torch.Tensor):
        raise DataError(f"the loss is a {type(loss).__name__}; it must be a scalar tensor")
    if loss.ndim != 0 and loss.numel() != 1:
        raise DataError(
            f"the loss has shape {list(loss.shape)}; it must be one number: use reduction='mean'"
        )
    if trains and not loss.requires_grad:
        raise DataError(
            "the loss does not depend on any trainable parameter: look for detach(), no_grad or "
            "argmax between the model and the loss"
        )


def check_logits(logits: Any) -> None:
    """Refuse logits that are not a floating-point tensor with a batch dimension."""
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point() or logits.ndim == 0:
        found = _shape(logits) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise DataError(f"the model returned {found}; it must return float logits [batch, classes]")


def _choose(logits: torch.Tensor, targets: Any) -> LossFunction:
    one_column = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
    multi_label = isinstance(targets, torch.Tensor) and (
        targets.is_floating_point() and targets.shape == logits.shape
    )
    return _binary if one_column or multi_label else F.cross_entropy


def _binary(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets.reshape(logits.shape).to(logits))


_TITLES[_binary] = "binary cross entropy"
register(_binary, F.binary_cross_entropy_with_logits)


def _cross_entropy_problem(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int) -> str:
    if logits.ndim < 2:
        return f"the model returned {_shape(logits)}; cross entropy needs logits [batch, classes]"
    if targets.is_floating_point():
        if targets.shape == logits.shape:
            return ""
        return (
            f"the labels are {_shape(targets)}; cross entropy needs integer classes [batch]: "
            f"use labels.long()"
        )
    if targets.shape == logits.shape and targets.ndim > 1:
        return (
            f"the labels are {_shape(targets)}, one-hot integers: cross entropy takes classes "
            f"[batch] (labels.argmax(1)), or probabilities as floats (labels.float())"
        )
    expected = (logits.shape[0], *logits.shape[2:])
    if targets.shape[:1] != logits.shape[:1]:
        return _sizes(logits, targets)
    if tuple(targets.shape) != expected:
        return _labels_shape_problem(logits, targets, expected)
    if targets.dtype not in (torch.int64, torch.uint8):
        return f"the labels are {_shape(targets)}; cross entropy needs int64: use labels.long()"
    return _range_problem(targets[counted(targets, ignore_index)], logits.shape[1])


def _labels_shape_problem(
    logits: torch.Tensor, targets: torch.Tensor, expected: tuple[int, ...]
) -> str:
    said = f"the labels are {_shape(targets)}; they must be {list(expected)} for these logits"
    if logits.ndim > 2 and targets.shape == logits.shape[:-1]:
        return (
            f"{said}, {_shape(logits)}: cross entropy takes their second dimension for the "
            "classes. Where the last one has them, give loss=lambda logits, labels: "
            "F.cross_entropy(logits.movedim(-1, 1), labels)"
        )
    if targets.ndim == logits.ndim == 2 and targets.shape[1] == 1:
        return f"{said}: give labels.squeeze(1)"
    return said


def _range_problem(targets: torch.Tensor, num_classes: int) -> str:
    if targets.numel() == 0:
        return ""
    low, high = int(targets.min()), int(targets.max())
    if low >= 0 and high < num_classes:
        return ""
    if low == 1 and high == num_classes:
        remedy = "give labels - 1"
    elif low < 0:
        remedy = (
            "where a negative one means that there is none, give "
            f"loss=torch.nn.CrossEntropyLoss(ignore_index={low})"
        )
    else:
        remedy = f"give the last layer {high + 1} outputs, or look where {high} comes from"
    return (
        f"the labels run from {low} to {high}; the model has {num_classes} classes, "
        f"so they must be in 0..{num_classes - 1}: {remedy}"
    )


def _binary_problem(logits: torch.Tensor, targets: torch.Tensor) -> str:
    if logits.numel() != targets.numel():
        return _sizes(logits, targets)
    low, high = float(targets.min()), float(targets.max())
    if low < 0 or high > 1:
        return (
            f"the labels run from {low:g} to {high:g}; binary cross entropy, which one logit and "
            "float labels stand for, needs 0..1. For a regression give loss=torch.nn.MSELoss()"
        )
    return ""


def _sizes(logits: torch.Tensor, targets: torch.Tensor) -> str:
    return (
        f"the model returned {_shape(logits)} for labels {_shape(targets)}; "
        f"there must be one row of logits per label"
    )


def _shape(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
