"""Start workers that outlive a kernel that is killed, and supervise them while it is there.

``torch.distributed.run`` starts one process per rank, and ends all when one dies. It is detached:
an interrupt of the kernel does not reach it, and it survives a kernel that crashes. A kernel that
ends in order recalls its workers first, as whatever else ends a run does. Nothing is ever forked
from a process that has computed with torch (its threads would be missing in the child).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from workbench.experiment.runtime import at_exit
from workbench.experiment.state.process_settings import threads_of_a_rank
from workbench.parallel.exchange.files import LAUNCHER, Folder
from workbench.parallel.exchange.stream import open_to_append
from workbench.processes import interrupts_deferred, python_path, start_group
from workbench.trust import own_folders, private_folder, read_regular, write_whole
from workbench.trust.seal import KEY

MEETING = "WORKBENCH_MEETING"
"""Environment variable for the folder through which launcher and ranks rendezvous."""
_MEETING = "workbench-ranks-"
_LAUNCHER_FILE = "launcher.json"
_PROGRAM = "workbench.parallel.launch.launcher_program"
_MOST_BYTES = 1 << 16
_GRACE_S = 10.0
_SAME_S = 1.0
"""Start times of processes that differ by less are those of one process."""


class Workers:
    """The processes of one session of parallel training.

    Args:
        folder: what they work on; payload, start and job exist already.
        world_size: number of ranks; 0: a process that is no rank.
        module: the program of a rank.
        variables: added to the environment.
    """

    def __init__(
        self,
        folder: Folder,
        world_size: int,
        module: str = "workbench.parallel.rank.program",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.world_size = world_size
        # outside of the run's folder, which the user may remove: ranks would wait for it
        self._meeting = str(private_folder(_MEETING)) if world_size else ""
        _sweep()
        program = ["-m", module, str(folder.shown)]
        launcher = [
            "-m", _PROGRAM,
            "--nnodes", "1", "--nproc-per-node", str(world_size),
            # launcher and ranks rendezvous through files that belong to the user alone: torch's
            # usual store listens on every interface, and what it holds is unpickled
            "--rdzv-backend", "c10d", "--rdzv-endpoint", str(Path(self._meeting, "rendezvous")),
            "--rdzv-conf", "store_type=file", "--rdzv-id", "session",
            "--log-dir", str(Path(self._meeting, "log")),
        ]  # fmt: skip
        command = [sys.executable, *(launcher if world_size else ()), *program]
        environment = {
            **_environment(max(world_size, 1)),
            MEETING: self._meeting,
            **folder.seal.to_hand_on(),
            **(variables or {}),
        }
        try:
            with open_to_append(folder.log) as log, interrupts_deferred():
                group = start_group(
                    command, environment=environment, stdout=log, stderr=subprocess.STDOUT
                )
                self._process = group.popen
                # an interrupt may come before the caller has them
                self._dropped = weakref.finalize(self, _kill, self._process, self._meeting)
                self._dropped.atexit = False  # a run that ends recalls them
                _owned.add(self)
            _record_launcher(self._process.pid, folder, world_size, self._meeting)
        except BaseException:
            if hasattr(self, "_process"):
                self.end()
            raise

    @property
    def pid(self) -> int:
        """Process id of the launcher, which leads a process group of its own."""
        return self._process.pid

    def status(self) -> int | None:
        """The launcher's exit status; None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all ranks have ended; returns the launcher's exit status.

        Raises:
            subprocess.TimeoutExpired: they still run.
        """
        return self._process.wait(timeout)

    def end(self) -> None:
        """End all of them, by force if a request is not enough."""
        if self._process.poll() is None:
            self._process.terminate()  # the launcher passes it on
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        _kill(self._process, self._meeting)

    def leave(self) -> None:
        """Let them continue, whatever becomes of this object."""
        self._dropped.detach()
        _owned.discard(self)

    def kill(self) -> None:
        """End all of them by force, at once."""
        _kill(self._process, self._meeting)


_owned: weakref.WeakSet[Workers] = weakref.WeakSet()
"""Workers that no process would supervise once this process is gone."""


def _leave_all() -> None:
    for workers in list(_owned):
        workers.leave()


def _kill_all() -> None:
    if not at_exit.in_a_kernel():  # those of a kernel are requested to save and end, and do so
        for workers in list(_owned):
            workers.kill()


at_exit.register_for_interrupts(_kill_all)
at_exit.register_for_forks(_leave_all)


class FoundWorkers:
    """The processes of a session that another kernel began.

    Raises:
        SealError: another user may have written which processes they are.
        ValueError: they are on another machine.
    """

    def __init__(self, folder: Folder) -> None:
        found: dict[str, Any] = folder.seal.read_json(folder.launcher, LAUNCHER)
        if found["host"] != platform.node():
            raise ValueError(
                f"the workers of {folder.shown} run on {found['host']}; attach to them there"
            )
        self.world_size: int = found["ranks"]
        self.pid: int = found["pid"]
        self._meeting: str = found["meeting"]
        self._process = _our_launcher(_same_process(self.pid, found["created"]))

    def status(self) -> int | None:
        """Return 0 once the launcher is gone, whatever it ended with; None while it runs."""
        return None if self._process is not None and _runs(self._process) else 0

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the launcher has ended; returns 0.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except psutil.TimeoutExpired as error:
                raise subprocess.TimeoutExpired("the launcher", timeout or 0.0) from error
        return 0

    def end(self) -> None:
        """End all of them, by force if a request is not enough."""
        if self._process is not None and _runs(self._process):
            self._process.terminate()
            try:
                self._process.wait(_GRACE_S)
            except psutil.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        _leave(self._meeting)


def _kill(launcher: subprocess.Popen[bytes], meeting: str) -> None:
    """End what is left of them by force; ranks end by themselves when their launcher is gone."""
    if launcher.poll() is None:
        launcher.kill()
        launcher.wait()
    _leave(meeting)


def _leave(meeting: str) -> None:
    """Remove the rendezvous folder of launcher and ranks."""
    if meeting and Path(meeting).name.startswith(_MEETING):
        shutil.rmtree(meeting, ignore_errors=True)


def _sweep() -> None:
    """Remove rendezvous folders of ranks whose kernel died before they ended: nothing else does."""
    for meeting, descriptor in own_folders(_MEETING):
        # it is being made right now, or holds what this version does not know
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            content = read_regular(_LAUNCHER_FILE, _MOST_BYTES, folder=descriptor)
            found: dict[str, Any] = json.loads(content)
            here = found["host"] == platform.node()
            if here and _same_process(found["pid"], found["created"]) is None:
                _leave(str(meeting))


def _record_launcher(pid: int, folder: Folder, world_size: int, meeting: str) -> None:
    """Record which process supervises the ranks, for a kernel that finds them later."""
    facts = {
        "pid": pid,
        "created": psutil.Process(pid).create_time(),
        "host": platform.node(),
        "ranks": world_size,
        "meeting": meeting,
    }
    folder.seal.write_json(folder.launcher, facts, LAUNCHER)
    if meeting:
        write_whole(Path(meeting, _LAUNCHER_FILE), json.dumps(facts).encode())


def _same_process(pid: int, created: float) -> psutil.Process | None:
    """Return the process, unless it is gone and its id is now another's."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - created) < _SAME_S else None
    except psutil.NoSuchProcess:
        return None


def key_of_launcher(pid: int) -> str:
    """Return the key given to a launcher of this user's ranks; ``""`` if it is not one."""
    try:
        process = _our_launcher(psutil.Process(pid))
        return "" if process is None else process.environ().get(KEY, "")
    except psutil.Error:
        return ""


def _our_launcher(process: psutil.Process | None) -> psutil.Process | None:
    """Return the process, if it is a launcher of this user's: no other one is ever ended."""
    try:
        if process is not None and _PROGRAM in process.cmdline() and _is_ours(process):
            return process
    except psutil.Error:
        pass  # it is another user's, or gone
    return None


def _is_ours(process: psutil.Process) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    uids = process.uids()
    return uids.real == uids.effective == os.geteuid()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _environment(world_size: int) -> dict[str, str]:
    """Return the kernel's environment; ranks share its threads, and communicate over loopback."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    share = threads_of_a_rank(torch.get_num_threads(), world_size)
    own = os.environ.get("OMP_NUM_THREADS", "")
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **os.environ,
        "OMP_NUM_THREADS": str(min(int(own), share) if own.isdigit() and int(own) else share),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # rendezvous uses a file, and no other store
        "PYTHONPATH": python_path(),
    }
