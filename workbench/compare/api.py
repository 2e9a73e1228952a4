"""``wb.compare``: measures which combination of modes to train with."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.compare.hparams import write_hparams
from workbench.compare.measurement import Plan, Session
from workbench.compare.pair_verdicts import pair_verdicts
from workbench.compare.progress import Progress, Silent, progress
from workbench.compare.record_builder import About, build_record
from workbench.compare.verdict import EQUAL_WITHIN
from workbench.compare.view import ComparisonView
from workbench.experiment import Experiment, RunError, experiments
from workbench.experiment.runtime.step_boundary import copied
from workbench.modes import ModeSet
from workbench.modes.mode_spec import check_modes
from workbench.parallel.exchange.files import Folder
from workbench.parallel.transfer.checkpoint import save
from workbench.parallel.transfer.job_pickle import Settings, pack
from workbench.trust import Seal, private_folder

if TYPE_CHECKING:
    from workbench.experiment.training import Training

MODES = ("fp32", "bf16", "compile", "compile+bf16")


def compare(
    target: Experiment | Sequence[Experiment] | Mapping[str, Experiment],
    modes: Sequence[str] = MODES,
    *,
    rounds: int = 15,
    parity_samples: int = 1024,
    fresh_cache: bool = True,
    equal_within: float = EQUAL_WITHIN,
    seed: int = 0,
    show_progress: bool = True,
) -> ComparisonView:
    """Measure combinations of modes against each other, without changing the experiment.

    Every combination runs in processes of its own, from exactly the same weights and batches. All
    of them are alive together and are measured in turns, in random order, so that anything that
    slows the machine for a while affects all of them. Where the rounds leave a combination
    undecided, it and the baseline do more rounds in fresh processes, for about three minutes at
    most. Other training in this kernel is paused meanwhile. If the comparison is interrupted,
    everything measured until then is kept.

    Args:
        target: an experiment; or several, as a mapping of names or a list. The models of several
            are each compared only with themselves: what compiling gains depends on the model.
        modes: mode strings; the first is the baseline. One that cannot run here, or that fails,
            becomes a row that says why.
        rounds: number of blocks of steps of each combination; with fewer than 5 there is no
            verdict.
        parity_samples: number of samples of the validation data (the training data if there is
            none) whose logits are compared with the baseline's.
        fresh_cache: whether everything is compiled anew, so that the first step costs what it costs
            on a machine that has never compiled the model. If False, this machine's cache is used.
        equal_within: relative difference of two speeds up to which they count as equal. *Tie*:
            known to differ by less than this. *Faster* and *slower*: known to differ, by at least
            this as far as was measured. *Unclear*: the measurements support neither.
        seed: seed of the order of turns.
        show_progress: whether to show progress: a bar in a notebook, a line in a terminal.

    Returns:
        A view with ``.record``, ``.save(path)``, ``.figure()`` and a table. In TensorBoard every
        combination is a run with its hyperparameters, under ``compare`` in the run directory. The
        panel's badges show the result until the model or the batch size changes.

    Raises:
        TypeError: the target is not an experiment.
        ValueError: a mode string is unknown, or a number is out of range.
        PackingError: an experiment cannot be sent to another process; the message names what
            cannot.
    """
    experiments = _named(target)
    texts = _checked(modes, rounds, parity_samples)
    plan = Plan(rounds, parity_samples, fresh_cache, seed, _share(equal_within))
    show: Progress = progress() if show_progress else Silent()
    sessions: list[Session] = []
    notes: list[str] = []
    cancelled = False
    try:
        with _training_paused(notes):
            for name, experiment in experiments.items():
                sets = [ModeSet.parse(text, experiment.device) for text in texts]
                variants = [(modeset, _refusal(modeset, experiment)) for modeset in sets]
                label = name if len(experiments) > 1 else ""
                session = Session(label, _shared_folder(experiment), variants, plan, show)
                sessions.append(session)
                for variant, modeset in zip(session.variants, sets, strict=True):
                    variant.notes += modeset.notes(experiment.model)
            for session in sessions:
                session.measure()
    except KeyboardInterrupt:
        cancelled = True
    finally:
        for session in sessions:
            session.discard()
        show.close()
    record = build_record(
        [session.variants for session in sessions],
        _about(experiments, plan, _completed(sessions), notes, cancelled=cancelled),
    )
    for session, experiment in zip(sessions, experiments.values(), strict=False):
        _show_in_badges(experiment, session, plan.equal_within)
    for name, experiment in experiments.items():
        write_hparams(record, name, experiment.path / "compare", experiment.learning_rate)
    return ComparisonView(record)


@contextmanager
def _training_paused(notes: list[str]) -> Generator[None]:
    """Pause all training in this kernel, which would use some of the cores, and resume it after."""
    paused = [one for one in experiments() if one.status == "training"]
    try:
        for one in paused:
            one.pause()
        for one in paused:
            with suppress(RunError):  # it failed in its last step, and reports that itself
                one.wait()
            notes.append(f"{one.name} was training and was paused meanwhile.")
        yield
    finally:
        for one in paused:
            if one.status == "paused":
                one.resume()


def _show_in_badges(experiment: Experiment, session: Session, equal_within: float) -> None:
    """Make the panel's badges show what was measured here."""
    found = pair_verdicts(session.variants, equal_within)
    if not found:
        return
    experiment.timings.take_over(found)
    with suppress(RuntimeError):  # it was closed meanwhile
        measured = dict.fromkeys(variant.modes for variant in session.variants if variant.blocks)
        experiment.say(f"{', '.join(measured)} compared")


def _completed(sessions: Sequence[Session]) -> int:
    """Return the number of rounds that were completed for every model that was begun."""
    return min((session.rounds for session in sessions if session.rounds), default=0)


def _shared_folder(experiment: Experiment) -> Folder:
    """Return a folder with everything that an experiment's variants begin with."""
    shared = Folder(private_folder("workbench-compare-"), Seal.new())

    caller_settings = Settings.current(experiment.device)

    def copy(training: Training) -> None:
        pack(training, shared.payload, caller_settings, seal=shared.seal)
        save(training, shared.start, shared.seal)

    try:
        copied(experiment, copy)
    except BaseException:
        shared.remove()
        raise
    return shared


def _refusal(modes: ModeSet, experiment: Experiment) -> str:
    try:
        check_modes(modes, experiment.model)
    except ValueError as error:
        return str(error)
    return ""


def _named(target: Any) -> dict[str, Experiment]:
    if isinstance(target, Experiment):
        return {target.name: target}
    if isinstance(target, Mapping):
        items = cast("Mapping[Any, Any]", target).items()
        found: dict[str, Any] = {str(name): one for name, one in items}
    elif isinstance(target, (list, tuple)):
        several = cast("Sequence[Any]", target)
        found = {getattr(one, "name", str(at)): one for at, one in enumerate(several)}
        if len(found) < len(several):
            raise ValueError("two experiments have the same name; give them as {name: experiment}")
    else:
        found = {"": target}
    for one in found.values():
        if not isinstance(one, Experiment):
            raise TypeError(
                f"compare() got {type(one).__name__}; it takes an Experiment, or several in a list "
                "or a dict. A model alone becomes one with its data: wb.Experiment(model, data)"
            )
    if not found:
        raise ValueError("compare() got no experiment; give at least one")
    return found


def _checked(modes: Any, rounds: Any, parity_samples: Any) -> list[str]:
    if isinstance(modes, str):
        raise TypeError(f"modes is the text {modes!r}; give a list of mode strings: [{modes!r}]")
    texts = [str(text) for text in cast("Sequence[Any]", modes)]
    if not texts:
        raise ValueError("modes is empty; the first mode string is the baseline, as in ['fp32']")
    for what, value in (("rounds", rounds), ("parity_samples", parity_samples)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{what} is {value!r}; it must be a whole number from 1")
    return texts


def _share(equal_within: Any) -> float:
    is_number = isinstance(equal_within, (int, float)) and not isinstance(equal_within, bool)
    if not is_number or not 0 < equal_within < 1:
        raise ValueError(
            f"equal_within is {equal_within!r}; it must be a share above 0 and below 1, as 0.03"
        )
    return float(equal_within)


def _about(
    experiments: Mapping[str, Experiment],
    plan: Plan,
    rounds: int,
    notes: Sequence[str],
    *,
    cancelled: bool,
) -> About:
    first = next(iter(experiments.values()))
    device = first.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    threads = torch.get_num_threads()
    return About(
        title=", ".join(experiments),
        device=name,
        threads=threads,
        rounds=rounds,
        cancelled=cancelled,
        equal_within=plan.equal_within,
        notes=tuple(notes),
    )
