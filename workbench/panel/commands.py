"""What a browser may ask of an experiment, by name.

Every command is checked here before it reaches the experiment: a browser's message is outside
input. A command returns nothing or raises with one clear sentence, which becomes its reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.records import GraphRecord

MAX_EPOCHS = 1_000_000
MAX_STEPS = 1_000_000_000


class CommandError(ValueError):
    """A command that cannot be carried out; the message says what is valid."""


def execute(experiment: Experiment, name: str, args: dict[str, Any]) -> None:
    """Carry out one command; nothing is waited for.

    One that begins steps is queued where something is computed beside a run.

    Raises:
        CommandError: unknown name (the valid ones are listed) or a bad argument.
        Exception: whatever the experiment itself refuses with.
    """
    command = _COMMANDS.get(name)
    if command is None:
        raise CommandError(f"unknown command {name[:64]!r}; valid: {', '.join(sorted(_COMMANDS))}")
    if name in _BEGINNING:  # all experiments are served by the thread that asks: it may not wait
        experiment.when_free(lambda: command(experiment, args))
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
    experiment.modes = _text(args, "modes")


def _set_mode(experiment: Experiment, args: dict[str, Any]) -> None:
    from workbench.panel.switching import switch

    switch(experiment, _text(args, "mode"), _text(args, "value"))


def _set_learning_rate(experiment: Experiment, args: dict[str, Any]) -> None:
    experiment.learning_rate = _positive(args, "value")


def _capture(experiment: Experiment, args: dict[str, Any]) -> None:
    what = _text(args, "what")
    kinds = ("graph", "memory") if what == "both" else (what,)
    probes = [_probe(kind) for kind in kinds]
    for probe in probes:
        experiment.capture(probe)
    if experiment.status != "training":
        experiment.compute_captures()


def _compare(experiment: Experiment, args: dict[str, Any]) -> None:
    """Keep the diff of two graphs that the experiment holds as one more capture."""
    from workbench.graph.diff import diff_records

    captures = experiment.captures
    graphs = {info.id: info for info in captures.infos() if info.kind == "graph"}
    a, b = (_text(args, key) for key in ("a", "b"))
    for wanted in (a, b):
        if wanted not in graphs:
            held = ", ".join(graphs) or "none"
            raise CommandError(f"no graph {wanted[:64]!r} is held any more; held are: {held}")
    if a == b:
        raise CommandError(f"graph {a!r} was to be compared with itself; a and b must differ")
    diff = diff_records(cast("GraphRecord", captures.get(a)), cast("GraphRecord", captures.get(b)))
    steps = graphs[a].step, graphs[b].step
    captures.add("diff", steps[1], diff, diff.sentence, against_step=steps[0])


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
    modes = _text(args, "modes") if args.get("modes") is not None else None
    experiment.resume_from_failure(modes=modes, learning_rate=rate)


def _apply_remedy(experiment: Experiment, args: dict[str, Any]) -> None:
    """Make the change that was tried, and go on."""
    index = args.get("index", 0)
    if isinstance(index, bool) or not isinstance(index, int):
        raise CommandError(f"index must be the number of a remedy, from 0, got {index!r:.64}")
    experiment.apply_remedy(index)
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
    "capture": _capture,
    "compare": _compare,
    "resume_from_failure": _resume_from_failure,
    "apply_remedy": _apply_remedy,
    "probe_modes": _probe_modes,
}
_BEGINNING = frozenset(("run", "resume", "step", "resume_from_failure", "apply_remedy"))


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


def _text(args: dict[str, Any], key: str) -> str:
    value = args.get(key)
    if not isinstance(value, str):
        raise CommandError(f"{key} must be text, got {value!r}")
    return value
