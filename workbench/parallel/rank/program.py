"""The program of a rank.

``python -m workbench.parallel.launch.launcher_program ...
-m workbench.parallel.rank.program FOLDER``

The error that ends a rank is written to a file of that rank, so that the process that started it
can report it to the user; the launcher then ends the other ranks. A rank whose launcher is gone
ends, too: no process would supervise it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from workbench.experiment.failure.failure import fault_of
from workbench.parallel.exchange.files import FAULT, Folder
from workbench.parallel.launch.worker_processes import MEETING
from workbench.parallel.rank.rank import Rank
from workbench.parallel.transfer.job_pickle import unpack
from workbench.processes import is_orphaned, parent

_TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for the others in a collective: compiling takes a minute or two."""
_LOOK_S = 1.0
_ORPHANED = 75


def main(arguments: list[str]) -> NoReturn:
    """Do the job in a folder, and end this process."""
    folder, rank = Folder(Path(arguments[0])), int(os.environ["RANK"])
    folder.record_pid(rank)
    threading.Thread(target=_end_with, args=(parent(),), daemon=True).start()
    try:
        join()
        train(folder)
        dist.destroy_process_group()
    except BaseException as error:  # noqa: BLE001 - a model may raise anything, which is reported
        write_fault(error, rank, folder)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a process group that lost a rank may never be torn down
    leave()


def leave() -> NoReturn:
    """End this process once its work is done, without finalizing Python and torch.

    A thread of a library that requests the interpreter during finalization, or still exists when
    C++ finalizes its own part, ends a process by SIGABRT: seen here once in hundreds of ranks, and
    the launcher treats that as a failure of the training. What was registered with `atexit` is
    called: it ends loader workers, and a user's module may keep something there.
    """
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - what ending Python would call
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def join(timeout: timedelta = _TIMEOUT) -> None:
    """Join the other ranks: gloo transfers what is on the CPU, NCCL what is on a GPU.

    They rendezvous through a file: no port is opened for it.

    Args:
        timeout: how long a rank waits for another one.
    """
    backend = "gloo"
    if torch.cuda.is_available() and torch.cuda.device_count() > _local_rank():
        torch.cuda.set_device(_local_rank())  # before anything is allocated on the first one
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ[MEETING]}/store",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timeout,
    )


def train(folder: Folder) -> None:
    """Do the job in a folder, as a rank of the process group."""
    job = folder.read_job()
    training = unpack(folder.payload, _local_rank(), as_there=True, seal=folder.seal)
    with ExitStack() as stack:
        stack.enter_context(training.caller_settings.entered())
        rank = Rank(training, job, folder)
        for name in job.companions:
            stack.enter_context(import_module(name).accompany(rank))
        rank.run()


def _local_rank() -> int:
    return int(os.environ["LOCAL_RANK"])


def write_fault(error: BaseException, rank: int, folder: Folder) -> None:
    """Write the error that ended a rank to a file of its own, for the process that started it."""
    fault = {
        "fault": fault_of(error, f"rank {rank}"),
        "lost": isinstance(error, dist.DistError) or "gloo" in str(error),
        "time": time.time(),
    }
    folder.seal.write_json(folder.fault(rank), fault, FAULT)


def _end_with(launcher: int) -> None:
    while not is_orphaned(launcher):
        time.sleep(_LOOK_S)
    os._exit(_ORPHANED)


if __name__ == "__main__":
    main(sys.argv[1:])
