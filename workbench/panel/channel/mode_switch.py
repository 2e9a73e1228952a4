"""Switching one mode of an experiment from the panel: ``compile`` without stopping a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.dynamo.explain.background_compile import (
    CompileAhead,
    ahead_of,
    cancel_ahead,
    compile_ahead,
)
from workbench.dynamo.listen.experiment_compilations import limits_of
from workbench.modes import ModeSet, mode_states
from workbench.modes.compile.mode import Compile
from workbench.modes.mode_spec import check_modes
from workbench.records import Badge, ModeState

if TYPE_CHECKING:
    from workbench.dynamo.listen.recompile_limits import Limit
    from workbench.experiment import Experiment


def switch(experiment: Experiment, mode: str, value: str) -> None:
    """Choose ``value`` for one mode, without blocking.

    During training, ``compile`` is compiled ahead and switched to when that is done; choosing the
    current value cancels it. Any other mode is switched immediately, and a compilation under way is
    restarted under it.

    Raises:
        ValueError: the mode or the value is unknown, or cannot run here.
    """
    # the choice is based on `modes`: a step of a run under ddp may be computed without it
    changed = ModeSet.parse(experiment.modes, experiment.device).with_value(mode, value)
    under_way = ahead_of(experiment)
    wanted = changed[Compile.name].value
    if mode != Compile.name and under_way is not None and under_way.status == "compiling":
        wanted = under_way.value
    target = changed.with_value(Compile.name, wanted)
    check_modes(target, experiment.model)
    is_ahead = (
        experiment.status == "training"
        and wanted not in (Compile.default, experiment.modeset[Compile.name].value)
        and not (target.is_remote or experiment.modeset.is_remote)
    )
    if not is_ahead:
        cancel_ahead(experiment)
        experiment.modes = str(target)
        return
    if mode != Compile.name:
        experiment.modes = str(changed)
    compile_ahead(experiment, str(target))


def states_of(experiment: Experiment) -> tuple[ModeState, ...]:
    """Return the modes of an experiment as panel and text show them.

    The badge of ``compile`` shows what is being compiled ahead, or how that failed, and which code
    is no longer compiled because it reached Dynamo's limit of recompiles.
    """
    states = mode_states(experiment.modeset, experiment.model, experiment.timings)
    ahead, limits = ahead_of(experiment), limits_of(experiment)
    if ahead is None and not limits:
        return states
    return tuple(
        _with_ahead(_with_limits(one, limits), ahead) if one.name == Compile.name else one
        for one in states
    )


def _with_limits(state: ModeState, limits: list[Limit]) -> ModeState:
    """Move the measurement to the tooltip: it was taken before the limit was reached."""
    if not limits:
        return state
    measured = ", ".join(filter(None, [state.badge.text, state.badge.detail]))
    more = f", and {len(limits) - 1} more" if len(limits) > 1 else ""
    badge = Badge(
        kind="warn",
        text="recompile limit reached",
        detail=limits[0].summary + more,
        tooltip="; ".join(filter(None, [*(one.sentence for one in limits), measured])),
    )
    return replace(state, badge=badge)


def _with_ahead(state: ModeState, ahead: CompileAhead | None) -> ModeState:
    if ahead is None:
        return state
    if ahead.status == "failed":
        return replace(state, badge=Badge(kind="warn", text="not switched", detail=ahead.problem))
    begun = f"{ahead.compilations} begun; " if ahead.compilations else ""
    badge = Badge(
        kind="todo",
        text=f"compiling, {ahead.seconds:.0f} s",
        detail=f"{begun}training continues",
        tooltip=f"in a process of its own; press {state.value} to cancel",
    )
    return replace(state, badge=badge, pending=ahead.value)
