"""Commands that a browser may send to an experiment, by name.

Every command is validated here before it reaches the experiment: a browser's message is untrusted
input. A command returns nothing or raises an error of one clear sentence, which becomes its reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.experiment import Experiment

MAX_EPOCHS = 1_000_000
MAX_STEPS = 1_000_000_000


class CommandError(ValueError):
    """A command that cannot be carried out; the message says what is valid."""


def execute(experiment: Experiment, name: str, args: dict[str, Any]) -> None:
    """Execute one command without blocking.

    A command that begins steps is queued if something is being computed alongside a run.

    Raises:
        CommandError: the name is unknown (the valid ones are listed) or an argument is invalid.
        Exception: any error that the experiment itself raises.
    """
    command = _COMMANDS.get(name)
    if command is None:
        raise CommandError(f"unknown command {name[:64]!r}; valid: {', '.join(sorted(_COMMANDS))}")
    if name in _BEGINNING:  # the calling thread serves all experiments: it must not block
        experiment.when_free(lambda: command(experiment, args), ended=name == "run")
    else:
        command(experiment, args)


def _run(experiment: Experiment, args: dict[str, Any]) -> None:
    if "epochs" in args:
        experiment.epochs = _integer(args, "epochs", MAX_EPOCHS)
    if experiment.status == "paused":
        experiment.resume()
    else:
        experiment.run()


def _set_epochs(experiment: Experiment, args: dict[str, Any]) -> None:
    experiment.epochs = _integer(args, "epochs", MAX_EPOCHS)


def _step(experiment: Experiment, args: dict[str, Any]) -> None:
    experiment.step(_integer(args, "count", MAX_STEPS, default=1))


def _set_modes(experiment: Experiment, args: dict[str, Any]) -> None:
    experiment.modes = text_of(args, "modes")


def _set_mode(experiment: Experiment, args: dict[str, Any]) -> None:
    from workbench.panel.channel.mode_switch import switch

    switch(experiment, text_of(args, "mode"), text_of(args, "value"))


def _set_learning_rate(experiment: Experiment, args: dict[str, Any]) -> None:
    experiment.learning_rate = _positive(args, "value")


def _remove_scheduler(experiment: Experiment, _args: dict[str, Any]) -> None:
    experiment.scheduler = None


def _capture(experiment: Experiment, args: dict[str, Any]) -> None:
    what = text_of(args, "what")
    kinds = ("graph", "memory") if what == "both" else (what,)
    probes = [_probe(kind) for kind in kinds]
    for probe in probes:
        experiment.capture(probe)
    if experiment.status != "training":
        experiment.compute_captures()


def _probe(kind: str) -> Any:
    if kind == "graph":
        from workbench.graph import GraphProbe

        return GraphProbe()
    if kind == "memory":
        from workbench.memory import MemoryProbe

        return MemoryProbe()
    raise CommandError(f"unknown capture {kind[:64]!r}; valid: graph, memory, both")


def _resume_from_failure(experiment: Experiment, args: dict[str, Any]) -> None:
    rate = _positive(args, "learning_rate") if args.get("learning_rate") is not None else None
    modes = text_of(args, "modes") if args.get("modes") is not None else None
    experiment.resume_from_failure(modes=modes, learning_rate=rate)


def _apply_remedy(experiment: Experiment, args: dict[str, Any]) -> None:
    """Apply the change that was tried, and continue the run."""
    index = args.get("index", 0)
    if isinstance(index, bool) or not isinstance(index, int):
        raise CommandError(f"index must be the number of a remedy, from 0, got {index!r:.64}")
    experiment.apply_remedy(index)
    experiment.resume_from_failure()


def _swap_in(experiment: Experiment, _args: dict[str, Any]) -> None:
    experiment.swap_in_newer_model()
    experiment.resume_from_failure()


def _probe_modes(_experiment: Experiment, _args: dict[str, Any]) -> None:
    from workbench.modes import refresh

    refresh()


_COMMANDS: dict[str, Callable[[Experiment, dict[str, Any]], object]] = {
    "run": _run,
    "pause": lambda experiment, _args: experiment.pause(),
    "resume": lambda experiment, _args: experiment.resume(),
    "step": _step,
    "stop": lambda experiment, _args: experiment.stop(),
    "set_epochs": _set_epochs,
    "set_modes": _set_modes,
    "set_mode": _set_mode,
    "set_learning_rate": _set_learning_rate,
    "remove_scheduler": _remove_scheduler,
    "capture": _capture,
    "resume_from_failure": _resume_from_failure,
    "apply_remedy": _apply_remedy,
    "swap_in": _swap_in,
    "probe_modes": _probe_modes,
}
OF_THE_MACHINE = frozenset(("probe_modes",))
"""Commands that change what is known about every experiment, not only about the one named."""
_BEGINNING = frozenset(("run", "resume", "step", "resume_from_failure", "apply_remedy", "swap_in"))


def _integer(args: dict[str, Any], key: str, most: int, default: int | None = None) -> int:
    value = args.get(key, default)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not 1 <= int(value or 0) <= most:
        raise CommandError(f"{key} must be a whole number from 1 to {most:,}, got {value!r}")
    return int(value or 0)


def _positive(args: dict[str, Any], key: str) -> float:
    value = args.get(key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(float(value or 0)) or float(value or 0) <= 0:
        raise CommandError(f"{key} must be a positive finite number, got {value!r}")
    return float(value or 0)


def text_of(args: Mapping[str, Any], key: str) -> str:
    """Return the text that a browser sent as ``key``.

    Raises:
        CommandError: the value is not a text.
    """
    value = args.get(key)
    if not isinstance(value, str):
        raise CommandError(f"{key} must be text, got {value!r}")
    return value
