"""Kernels that have torch imported when they start: forked from a process that did nothing else.

A new kernel spends three seconds of a core on imports before it runs a test's first line.
``use_warm_kernels()``, in a Jupyter server, starts one process that imports what takes long,
none of it Workbench's own, and has it fork for every kernel that is asked for. The fork becomes a
child of the server like any kernel: with its own process group, folder, environment and
connection file, at its first execution. Whatever stands in the way (no Linux, a GPU, threads that
imports started), kernels start as usual.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

_IMPORTS = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
    "torch",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.utils.tensorboard",
    "torch.export",
    "torch.distributed.fsdp",
    "anywidget",
    "matplotlib",
    "safetensors.torch",
)
"""Nothing that looks for the kernel it runs in, as ``matplotlib.pyplot`` does when imported."""
_GPUS = ("/dev/nvidiactl", "/dev/kfd")
"""An import may ask the driver for its GPUs, after which a fork cannot use them."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>


def use_warm_kernels() -> None:
    """Make this Jupyter server start its kernels by forking, where that can be done."""
    if sys.platform != "linux" or any(Path(gpu).exists() for gpu in _GPUS):
        return
    from jupyter_client.provisioning import local_provisioner

    as_usual = local_provisioner.launch_kernel
    source = _Source()

    def launch_kernel(cmd: list[str], **options: Any) -> Any:
        if cmd[1:3] == ["-m", "ipykernel_launcher"]:
            pid = source.fork(cmd[3:], options.get("env") or dict(os.environ), options.get("cwd"))
            if pid is not None:
                return _Forked(pid)
        return as_usual(cmd, **options)

    local_provisioner.launch_kernel = launch_kernel


_LONGEST_S = 60.0
"""For a fork."""


class _Source:
    """The process that imports and forks, as the server holds it."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        # Both are read when ipykernel and matplotlib are imported.
        backend = "module://matplotlib_inline.backend_inline"
        env = {**os.environ, "MPLBACKEND": backend, "JPY_PARENT_PID": str(os.getpid())}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._lines = self._ours.makefile("r")
        self._ready = False

    def fork(self, arguments: list[str], env: dict[str, str], cwd: str | None) -> int | None:
        """The process id of a new kernel, a child of this process; ``None`` when there is none."""
        if not self._is_ready():
            return None
        env["JPY_PARENT_PID"] = str(os.getpid())
        wanted = {"arguments": arguments, "env": env, "cwd": cwd}
        try:
            # An orphan becomes a child of its nearest ancestor that asks for orphans.
            _ask_for_orphans(True)
            self._ours.sendall(json.dumps(wanted).encode() + b"\n")
            if not select.select([self._ours], [], [], _LONGEST_S)[0]:
                return None  # it hangs: the kernel starts as usual
            said = self._lines.readline()
        except OSError:
            return None
        finally:
            _ask_for_orphans(False)
        return json.loads(said) if said else None

    def _is_ready(self) -> bool:
        """Whether everything is imported; until it is, kernels start as usual."""
        if not self._ready and select.select([self._ours], [], [], 0)[0]:
            self._ready = self._lines.readline() != ""
        return self._ready


class _Forked:
    """What jupyter_client uses of ``subprocess.Popen``, for a child that was not started by it."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                self.returncode = 0
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _ask_for_orphans(wanted: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, int(wanted), 0, 0, 0)


def _serve(connection: socket.socket) -> None:
    """Fork a kernel for every line that comes in, until the server is gone."""
    for name in _IMPORTS:
        importlib.import_module(name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return  # a fork would hold locks of threads that it does not have
    gc.collect()
    gc.freeze()
    connection.sendall(b"ready\n")
    for line in connection.makefile("r"):
        wanted = json.loads(line)
        reading, writing = os.pipe()
        # The one in between ends at once, which makes the kernel an orphan.
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            os.close(reading)
            connection.close()
            _become_kernel(writing, **wanted)
        os.close(writing)
        os.waitpid(between, 0)
        with os.fdopen(reading, "rb") as said:
            connection.sendall((said.read() or b"null") + b"\n")


def _become_kernel(
    writing: int, arguments: list[str], env: dict[str, str], cwd: str | None
) -> NoReturn:
    """Be what ``python -m ipykernel_launcher`` is, once the server is the parent."""
    waited = 0
    while os.getppid() != int(env["JPY_PARENT_PID"]):
        time.sleep(0.001)
        waited += 1
        if waited > 10_000:
            os._exit(1)  # there is no server any more
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    with os.fdopen(writing, "wb") as said:
        said.write(str(os.getpid()).encode())
    from ipykernel import kernelapp
    from numpy import random

    random.seed()  # not the same numbers in every fork
    sys.argv = ["ipykernel_launcher", *arguments]
    kernelapp.launch_new_instance()
    # What an interpreter does at its end, but for taking apart a thousand modules.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).resolve().parent))
    _serve(socket.socket(fileno=int(sys.argv[1])))
