"""``wb.attach(run)``: a run whose kernel is gone goes on in this one.

Workers do not end with the kernel that started them. Their folder has all that another kernel needs
to take their run up: the training as it left (`payload`, `state`), what the run was before
(`history`), and what they have told since. The result is an experiment like any other.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from workbench.experiment import Experiment
from workbench.experiment.experiment import experiments
from workbench.experiment.plan import Plan
from workbench.experiment.rundir import RunFolder
from workbench.parallel.away import Away
from workbench.parallel.folder import Folder
from workbench.parallel.history import History
from workbench.parallel.payload import unpack
from workbench.parallel.state import load
from workbench.parallel.stream import Follower
from workbench.parallel.stretch import WorkersStretch


def attach(run: str | os.PathLike[str]) -> Experiment:
    """Take up a run under ``ddp`` or ``fsdp`` whose kernel died: follow, steer, bring it home.

    Where its workers still train, the experiment is ``training`` and has every control; where they
    are done, or died, it has come home with what they left. Its model's classes are those of the
    dead kernel's cells. A run that lives in this kernel is given as it is, whatever its modes: its
    name may have got lost.

    The run directory holds a pickled program that is run by this: attach to your own runs only.
    One that others could have written to is refused.

    Args:
        run: its directory, such as ``"runs/EarlyExit"``.

    Raises:
        FileNotFoundError: there is no such directory, or no worker ever had a part in the run.
        PermissionError: somebody else could have written what would be run.
        RuntimeError: another kernel that has the run is alive.
        ValueError: its workers are on another machine.
    """
    path = Path(run).expanduser().resolve()
    for experiment in experiments():
        if experiment.path.resolve() == path:
            return experiment
    folder = _newest_stretch(path)
    _refuse_if_taken(path)
    _refuse_strangers(folder)
    away = Away.found(folder)
    training = unpack(folder.payload)
    load(training, folder.start)
    training.random.save()
    training.seeded = True
    History.load(folder.history).give_to(training)
    if any(command["do"] == "constant" for command in Follower(folder.control).new()):
        training.schedule.end()
    plan = _plan(folder)
    stretch = WorkersStretch(training, away, (plan.until_step, plan.until_epoch))
    stretch.catch_up(_followed(folder))
    training.scalars.flush()  # a writer that follows from now on must not write them again
    experiment = Experiment.around(training, path)
    experiment.follow_workers(stretch, plan, and_pause=away.is_over)
    return experiment


def _newest_stretch(path: Path) -> Folder:
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
            f"the ranks of {path.name} had come home: it trained in its kernel after that, and "
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
    if began <= facts["created_at"]:  # else the number is another process's by now
        raise RuntimeError(
            f"{path.name} belongs to process {process['pid']}, which is alive; a run has one "
            "kernel at a time: pause it there, or shut that kernel down first"
        )


def _refuse_strangers(folder: Folder) -> None:
    """What a payload holds is run, so nobody else may have written it."""
    if not hasattr(os, "getuid"):
        return
    unpickled = [folder.path, folder.payload]
    for checkpoint in (folder.start, folder.last):
        unpickled += [checkpoint, *checkpoint.glob("*")]
    for path in unpickled:
        if not path.exists():
            continue
        found = path.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(
                f"{path} belongs to another user, or others may write to it; what is in it would "
                "be run, so only a run of your own can be attached"
            )


def _plan(folder: Folder) -> Plan:
    """Where the run ends: as it was begun, or as its workers were told last."""
    job = folder.read_job()
    plan = Plan(job.until_step, job.until_epoch)
    for command in Follower(folder.control).new():
        if command["do"] == "plan":
            plan = Plan(command["until_step"], command["until_epoch"])
    return plan


def _followed(folder: Folder) -> int:
    try:
        return int(folder.followed.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0
