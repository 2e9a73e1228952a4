"""What a mode is: a reversible change to how a training step is computed.

A `Mode` is an object with no-op hooks; a subclass overrides only what it changes. The step calls
the hooks in one fixed order (`docs/architecture.md`, "A step"). A mode never holds training state
that would be lost when it is switched off: whatever has to survive (for example, a gradient
scaler's scale) goes through `state_dict`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.torch_private import backward_engine as backward

if TYPE_CHECKING:
    import torch
    from torch import nn

    from workbench.records import ModeChoice

_NO_CONTEXT = nullcontext()


class Mode:
    """One mode at one of its values, bound to one device."""

    name: ClassVar[str] = ""
    """The key in a mode string and in `ModeState` (``precision``)."""
    label: ClassVar[str] = ""
    default: ClassVar[str] = ""
    values: ClassVar[tuple[str, ...]] = ()
    more_values: ClassVar[str] = ""
    """Description of further values, if these depend on the model."""
    bare: ClassVar[bool] = False
    """Whether its values are tokens of a mode string: ``bf16``, not ``precision:bf16``."""
    order: ClassVar[int] = 0
    """Order of application to the model, ascending."""
    unguarded: ClassVar[bool] = False
    """Whether it changes what a compiled region computes without Dynamo's guards noticing, so
    that a region has to be compiled again when it changes."""
    note: str = ""
    """What has to be known about a value wherever its effect is shown: that it is emulated here."""

    def __init__(self, value: str, device: torch.device) -> None:
        self.value = value
        self.device = device

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """Return every value, each with whether this machine can run it, why not and what to do.

        Probed once per process and device; ``refresh()`` of the registry discards the answers.
        """
        raise NotImplementedError(f"{cls.__name__} must list its choices")

    @classmethod
    def reads(cls, token: str) -> bool:
        """Whether a token of a mode string is a value of this mode; called for `bare` ones."""
        return token in cls.values

    @classmethod
    def check(cls, value: str) -> None:
        """Refuse what is not a value of this mode, on any machine and for any model.

        Raises:
            ValueError: the value is not valid; the message lists the valid ones.
        """
        if value not in cls.values and not (value and cls.more_values):
            valid = ", ".join(filter(None, [*cls.values, cls.more_values]))
            raise ValueError(f"unknown value {value!r} for {cls.name}; valid values are: {valid}")

    @property
    def offered_as(self) -> str:
        """The value in `choices` that says whether this machine can run it."""
        return self.value

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:  # noqa: ARG002 - as below
        """`choices`, and those that only ``model`` has."""
        return self.choices(self.device)

    def refusal(self, model: nn.Module) -> str:  # noqa: ARG002 - for those that depend on it
        """Why ``model`` cannot run under this value, what is valid and what to do, or ``""``."""
        return ""

    @classmethod
    def needs(cls, device: torch.device) -> str:  # noqa: ARG003 - for those that override it
        """What this machine lacks for every value but the default, for a badge, or ``""``."""
        return ""

    def so_far(self) -> str:
        """What it has done while steps ran, for the numbers behind a badge, or ``""``."""
        return ""

    def attach(self, model: nn.Module) -> None:
        """Change ``model`` in place so that its next forward runs under this mode."""

    def detach(self, model: nn.Module) -> None:
        """Undo `attach` exactly."""

    def no_effect_reason(self, model: nn.Module) -> str:  # noqa: ARG002 - for subclasses
        """Why this mode cannot matter for ``model`` (``model has no attention``), or ``""``."""
        return ""

    def forward_context(self) -> AbstractContextManager[Any]:
        """Context to be entered around forward and loss, and nothing else."""
        return _NO_CONTEXT

    def explain(self, error: BaseException) -> str:  # noqa: ARG002 - for subclasses
        """How ``error``, raised by a forward under this mode, is related to the mode, or ``""``."""
        return ""

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward from ``loss`` (a scaler scales it first)."""
        backward.run(loss)

    def before_clip(self, *optimizers: torch.optim.Optimizer) -> None:
        """Called before gradients are read, clipped or measured (a scaler unscales here)."""

    def optimizer_step(self, *optimizers: torch.optim.Optimizer) -> bool:
        """Apply the update; return False if it was skipped (non-finite scaled gradients)."""
        for optimizer in optimizers:
            optimizer.step()
        return True

    def state_dict(self) -> dict[str, Any]:
        """State that must survive switching away and back."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
