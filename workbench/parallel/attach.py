"""``wb.attach(run)``: continue in this kernel a run whose own kernel is gone.

Workers do not end with the kernel that started them. Their folder has everything that another
kernel needs to take over their run: the training as it was sent (`payload`, `state`), the history
of the run before that (`history`), and what the workers have reported since. The result is an
experiment like any other.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import psutil

from workbench.experiment import Experiment
from workbench.experiment.experiment import experiments
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.report.run_directory import RunFolder
from workbench.parallel.exchange.files import FOLLOWED, LAUNCHER, Folder
from workbench.parallel.exchange.stream import Follower, Message
from workbench.parallel.launch.worker_processes import FoundWorkers, key_of_launcher
from workbench.parallel.session.history import History
from workbench.parallel.session.mirror import Mirror
from workbench.parallel.session.session import Session
from workbench.parallel.transfer.checkpoint import load
from workbench.parallel.transfer.job_pickle import unpack
from workbench.trust import Seal, SealError, stranger_in
from workbench.trust.folders import user
from workbench.trust.seal import is_kept, key_file


def attach(run: str | os.PathLike[str], *, trust: bool = False) -> Experiment:
    """Attach to a run under ``ddp`` or ``fsdp`` whose kernel died: follow, control, bring it back.

    Where its workers still train, the experiment is ``training`` and has every control; where they
    have finished, or died, the training is back in the kernel with the state that they left. The
    model's classes are those of the dead kernel's cells. For a run that lives in this kernel, the
    existing experiment is returned, whatever its modes: its name may have been lost.

    The run directory holds a pickled program that this function runs, so it must be yours: sealed
    with the key in ``~/.local/state/workbench``, or with the key of ranks of yours that still
    train. Any other run is refused, and nothing of it is run, unless you say that you trust it.
    Where no key can be stored, a folder that is yours and that no other user can write to is
    treated as your own.

    Args:
        run: the run directory, such as ``"runs/EarlyExit"``.
        trust: run what is in it, no matter who wrote it; for a run that was copied from a
            colleague.

    Raises:
        FileNotFoundError: there is no such directory, or no worker ever took part in the run.
        PermissionError: another user could have written what would be run; the message says who,
            where that is known.
        RuntimeError: another kernel that has the run is alive.
        ValueError: its workers are on another machine.
    """
    path = Path(run).expanduser().resolve()
    for experiment in experiments():
        if experiment.path.resolve() == path:
            return experiment
    folder = _newest_session(path)
    _refuse_if_taken(path)
    _take_seal(folder, trust=trust)
    session = Session.found(folder)
    training = unpack(folder.payload, seal=folder.seal)
    load(training, folder.start, folder.seal)
    training.random.save()
    training.seeded = True
    History.load(folder.history, folder.seal).give_to(training)
    commands = list(Follower(folder.control, folder.seal).new())
    if any(command["do"] == "constant" for command in commands):
        training.schedule.end()
    plan = _plan(folder, commands)
    mirror = Mirror(training, session, (plan.until_step, plan.until_epoch))
    mirror.catch_up(_followed(folder))
    training.scalars.flush()  # a writer that follows from now on must not write them again
    experiment = Experiment.around(training, path)
    experiment.follow_workers(mirror, plan, and_pause=session.is_over)
    return experiment


def is_on_ranks(run: Path) -> bool:
    """Whether the training of a run is on ranks, which train or have ended without their kernel."""
    try:
        _newest_session(run)
    except OSError:
        return False
    return True


def _newest_session(path: Path) -> Folder:
    if not path.is_dir():
        raise FileNotFoundError(f"there is no run directory {path}")
    numbers = [int(one.name) for one in (path / "parallel").glob("[0-9]*") if one.name.isdecimal()]
    for number in sorted(numbers, reverse=True):
        folder = Folder(path / "parallel" / str(number))
        if not folder.launcher.is_file():
            continue  # its ranks were never started
        if folder.payload.is_file():
            return folder
        raise FileNotFoundError(
            f"the training of {path.name} is no longer on ranks: it went on in its kernel, and "
            "what a kernel trains by itself ends with it"
        )
    raise FileNotFoundError(
        f"no worker has a part in {path.name}: what a kernel trains by itself ends with it. Runs "
        "under ddp:N or fsdp:N outlive their kernel"
    )


def _refuse_if_taken(path: Path) -> None:
    facts = RunFolder.existing(path).read()
    process = facts["process"]
    if process["host"] != platform.node() or process["pid"] == os.getpid():
        return
    try:
        began = psutil.Process(process["pid"]).create_time()
    except psutil.NoSuchProcess:
        return
    if began <= facts["created_at"]:  # else the process id is another process's by now
        raise RuntimeError(
            f"{path.name} belongs to process {process['pid']}, which is alive; a run has one "
            "kernel at a time: pause it there, or shut that kernel down first"
        )


def _take_seal(folder: Folder, *, trust: bool) -> None:
    """Accept the folder by its seal; where no key can be stored, by who can write to it.

    That a folder belongs to the user does not show who wrote what is in it: whoever unpacks an
    archive owns the unpacked files. So a run without the user's seal is attached to only once the
    user says so. Only a key that could not be stored (because the home directory cannot be written
    to) ended with its kernel, and every way to check a seal ended with it: then what no other user
    can write is treated as the user's own.

    Raises:
        PermissionError: another user could have written what would be run.
    """
    try:
        folder.take_session()
    except SealError:
        if _take_key_of_ranks(folder):
            return
        if not trust and (reason := _stranger(folder) or _unknown_origin()):
            raise PermissionError(
                f"{folder.shown} does not have your seal, and {reason}: what is in it would be "
                "run, so it is not attached to. Where you know who wrote it: "
                "wb.attach(run, trust=True)"
            ) from None
        folder.seal = Seal.unchecked()
        folder.take_session()
        if FoundWorkers(folder).status() is None:
            raise RuntimeError(
                f"the ranks of {folder.shown} still train, and accept only commands with their "
                "seal, whose key ended with their kernel; end them (kill "
                f"{FoundWorkers(folder).pid}), and attach again"
            ) from None


def _unknown_origin() -> str:
    """Return why a folder of the user's own is not trusted for that; ``""`` if it is."""
    if not is_kept():
        return ""
    return (
        "it may be of another user, unpacked or copied, or your key was made anew since, as in a "
        f"new container (runs of yours are sealed with {key_file()})"
    )


def _take_key_of_ranks(folder: Folder) -> bool:
    """Whether the folder is sealed with the key of running ranks of this user."""
    with contextlib.suppress(OSError, ValueError, ArithmeticError, LookupError, TypeError):
        launcher = Seal.unchecked().read_json(folder.launcher, LAUNCHER)
        if key := key_of_launcher(int(launcher["pid"])):
            folder.seal = Seal(bytes.fromhex(key), "")
            folder.take_session()
            return True
    return False


def _stranger(folder: Folder) -> str:
    """Return which other user could have written to the folder or its contents; ``""``: none."""
    with contextlib.suppress(OSError):
        return _named_stranger(folder)
    return "what is in it is not all files that you can read"


def _named_stranger(folder: Folder) -> str:
    if hasattr(os, "getuid") and (owner := folder.path.stat().st_uid) != os.getuid():
        return f"it belongs to {user(owner)}"
    names = [one.name for one in folder.path.iterdir() if not one.is_dir()]
    below = [one for one in folder.path.iterdir() if one.is_dir()]
    found = stranger_in(folder.shown, *names, same_as=folder.path.stat())
    for inside in below if found is None else ():
        names = [one.name for one in inside.iterdir()]
        at = folder.shown / inside.name
        found = found or stranger_in(at, *names, same_as=inside.stat())
    return "" if found is None else str(found)


def _plan(folder: Folder, commands: list[Message]) -> Plan:
    """Return where the run ends: as planned at its start, or as last sent to its workers."""
    job = folder.read_job()
    plan = Plan(job.until_step, job.until_epoch)
    for command in commands:
        if command["do"] == "plan":
            plan = Plan(command["until_step"], command["until_epoch"])
    return plan


def _followed(folder: Folder) -> int:
    try:
        return int(folder.seal.read_json(folder.followed, FOLLOWED))
    except FileNotFoundError:
        return 0
