"""A `ModeSet`: one value for every mode, bound to one device, used as one.

The grammar of a mode string is in `docs/architecture.md`, "Mode strings". A set calls only the
hooks of modes that are not at their default, and finds them once, when it is created: a set at its
defaults adds one shared null context and plain function calls to a step, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from workbench.modes.activation_checkpointing import Checkpoint
from workbench.modes.compile.mode import Compile
from workbench.modes.core.base import Mode
from workbench.modes.core.model_lock import attaching, detached
from workbench.modes.layout.mode import Parallel
from workbench.modes.registry import displayed_modes, mode_class, mode_classes
from workbench.torch_private import backward_engine as backward

_NO_CONTEXT = nullcontext()


class ModeSet:
    """Every mode at one value; immutable except for the state of its modes (a scaler's scale)."""

    backward: Callable[[torch.Tensor], None]
    """Run backward from a loss."""
    before_clip: Callable[..., None]
    """Called with the optimizers before their gradients are read, clipped or measured."""
    optimizer_step: Callable[..., bool]
    """Apply the update of the optimizers that it is given; returns False if it was skipped."""
    forward_context: Callable[[], AbstractContextManager[Any]]
    """Returns one context manager, to be entered around forward and loss and nothing else."""

    def __init__(self, values: Mapping[str, str], device: torch.device) -> None:
        self.device = device
        self._modes = {
            cls.name: cls(values.get(cls.name, cls.default), device) for cls in mode_classes()
        }
        acting = [mode for mode in self if mode.value != mode.default]
        self._text = self.text_with("", "")
        self._set_up_compile(acting)
        self._set_up_checkpoint(acting)
        self.compiled = self._modes[Compile.name].value != Compile.default
        self.is_remote = self._modes[Parallel.name].value != Parallel.default
        """Whether steps are computed outside of this process."""
        self.changes = bool(acting)
        """Whether any mode is not at its default."""
        self.forward_context = _forward_context(acting)
        self.backward = _last(acting, "backward") or backward.run
        self.before_clip = _last(acting, "before_clip") or _nothing
        self.optimizer_step = _last(acting, "optimizer_step") or _plain_step
        self.scales = self.before_clip is not _nothing
        """Whether a mode acts on gradients between backward and the update."""

    @classmethod
    def parse(cls, text: str, device: torch.device | str) -> ModeSet:
        """Parse a mode string (``"compile+bf16"``); ``""`` is every mode at its default.

        Raises:
            ValueError: a token is unknown, or two name the same mode. The message says which and
                lists what is valid.
        """
        values: dict[str, str] = {}
        tokens = [token.strip() for token in text.split("+")] if text.strip() else []
        for token in tokens:
            name, value = _read(token)
            if name in values:
                raise ValueError(f"modes {text!r} give {name} twice; name every mode once")
            values[name] = value
        return cls(values, torch.device(device))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ModeSet({self._text!r}, device={str(self.device)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModeSet):
            return NotImplemented
        return self._text == other._text and self.device == other.device

    def __hash__(self) -> int:
        return hash((self._text, self.device))

    def __iter__(self) -> Iterator[Mode]:
        """The modes in order of application."""
        return iter(self._modes.values())

    def __getitem__(self, name: str) -> Mode:
        """Return the mode called ``name``; ValueError lists the valid names."""
        return self._modes[mode_class(name).name]

    def with_value(self, name: str, value: str) -> ModeSet:
        """Return a set that differs in one mode; its modes start without state.

        Raises:
            ValueError: unknown mode or value; the message lists the valid ones.
        """
        mode_class(name).check(value)
        values = {mode.name: mode.value for mode in self}
        return ModeSet({**values, name: value}, self.device)

    def text_with(self, name: str, value: str) -> str:
        """``str`` of the set with mode ``name`` at ``value``, without creating that set."""
        tokens = (_token(mode, value if mode.name == name else mode.value) for mode in self)
        return "+".join(token for token in tokens if token) or "fp32"

    def attach(self, model: nn.Module) -> None:
        """Change ``model`` in place, mode by mode in order of application.

        Raises:
            RuntimeError: a `workbench.Modes` has prepared the model with modes of its own.
        """
        attaching(model, self)
        for mode in self:
            mode.attach(model)

    def detach(self, model: nn.Module) -> None:
        """Undo `attach` exactly, in reverse order."""
        for mode in reversed(self._modes.values()):
            mode.detach(model)
        detached(model, self)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """State that the modes must not lose, by mode; reads the device if a scaler is in use."""
        states = {mode.name: mode.state_dict() for mode in self}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, dict[str, Any]]) -> None:
        """Take over the `state_dict` of another set."""
        for mode in self:
            if mode.name in state:
                mode.load_state_dict(state[mode.name])

    def unavailable(self) -> str | None:
        """Why this machine cannot run the set, and what to do, in one sentence; None if it can."""
        for mode in self:
            if mode.value != mode.default and (reason := _refusal(mode)):
                return reason
        return None

    def refusal(self, model: nn.Module) -> str:
        """Why ``model`` cannot run under the set, in one sentence, or ``""``."""
        return next(filter(None, (mode.refusal(model) for mode in self)), "")

    def without_effect(self, model: nn.Module) -> dict[str, str]:
        """Chosen modes that cannot matter for ``model`` -> why: ``model has no blocks``."""
        acting = (mode for mode in self if mode.value != mode.default)
        reasons = {_token(mode, mode.value): mode.no_effect_reason(model) for mode in acting}
        return {token: reason for token, reason in reasons.items() if reason}

    def notes(self, model: nn.Module) -> list[str]:
        """What the user should know about the set on ``model``, one sentence each."""
        return [
            f"mode {token} has no effect on {type(model).__name__}: {reason}"
            for token, reason in self.without_effect(model).items()
        ]

    def explain(self, error: BaseException) -> str:
        """Which mode made a forward raise ``error``, and what to do, or ``""``."""
        acting = (mode for mode in self if mode.value != mode.default)
        return next(filter(None, (mode.explain(error) for mode in acting)), "")

    def _set_up_checkpoint(self, acting: list[Mode]) -> None:
        """Give the second forward of a block the choices of the first; torch replays autocast."""
        mode = self._modes[Checkpoint.name]
        if isinstance(mode, Checkpoint):
            mode.again = tuple(other.forward_context for other in acting if other.unguarded)

    def _set_up_compile(self, acting: list[Mode]) -> None:
        compile_mode = self._modes[Compile.name]
        if isinstance(compile_mode, Compile):
            compile_mode.baked_in = "+".join(
                _token(mode, mode.value) for mode in acting if mode.unguarded
            )


def _read(token: str) -> tuple[str, str]:
    """Parse a token into (mode name, value)."""
    name, colon, value = (part.strip() for part in token.partition(":"))
    name = name.lower()
    bare = token.strip().lower()
    for cls in mode_classes():
        if cls.bare and cls.reads(bare) and bare != cls.name:
            cls.check(bare)
            return cls.name, bare
    if not any(cls.name == name for cls in mode_classes()):
        raise ValueError(f"unknown mode {token!r}; valid modes are: {_valid()}")
    cls = mode_class(name)
    value = value if cls.more_values else value.lower()  # a path has upper and lower case
    if not colon:
        return name, next(value for value in cls.values if value != cls.default)
    cls.check(value)
    return name, value


def _valid() -> str:
    """Every valid token, in its shortest form."""
    tokens: list[str] = []
    for cls in displayed_modes():
        if cls.bare:
            tokens += [value for value in cls.values if value != "off"]
        else:
            tokens += [cls.name, *(f"{cls.name}:{value}" for value in cls.values)]
    return ", ".join(tokens)


def _token(mode: Mode, value: str) -> str:
    """The shortest token for ``mode`` at ``value``; empty at its default."""
    if value == mode.default:
        return ""
    if mode.bare:
        return value
    first = next(v for v in mode.values if v != mode.default)
    return mode.name if value == first else f"{mode.name}:{value}"


def _refusal(mode: Mode) -> str:
    choices = type(mode).choices(mode.device)
    choice = next((c for c in choices if c.value == mode.offered_as), None)
    if choice is None and mode.more_values:
        return ""  # that depends on the model (`Mode.refusal`)
    if choice is None:
        return f"{mode.name} {mode.value} does not exist on {mode.device.type}"
    if choice.available:
        return ""
    remedy = choice.remedy[:1].lower() + choice.remedy[1:]
    parts = [part.rstrip(".") for part in (choice.why, remedy) if part]
    text = f"{mode.name} {mode.value} is not available here: {'; '.join(parts)}"
    return f"{text} ({' or '.join(choice.commands)})" if choice.commands else text


def _last(acting: list[Mode], hook: str) -> Any:
    """The bound hook of the last mode that overrides it, None if none does."""
    for mode in reversed(acting):
        if getattr(type(mode), hook) is not getattr(Mode, hook):
            return getattr(mode, hook)
    return None


def _forward_context(acting: list[Mode]) -> Callable[[], AbstractContextManager[Any]]:
    entered = [
        mode.forward_context
        for mode in acting
        if type(mode).forward_context is not Mode.forward_context
    ]
    if not entered:
        return _no_context
    if len(entered) == 1:
        return entered[0]

    @contextmanager
    def all_of_them() -> Generator[None]:
        with ExitStack() as stack:
            for context in entered:
                stack.enter_context(context())
            yield

    return all_of_them


def _no_context() -> AbstractContextManager[Any]:
    return _NO_CONTEXT


def _nothing(*optimizers: torch.optim.Optimizer) -> None:
    """No mode acts here."""


def _plain_step(*optimizers: torch.optim.Optimizer) -> bool:
    for optimizer in optimizers:
        optimizer.step()
    return True
